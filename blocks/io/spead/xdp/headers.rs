//! Ethernet, IPv4 and UDP headers of a packet that the kernel has not checked.

use std::net::{Ipv4Addr, SocketAddrV4};

const ETHERNET: usize = 14;
const TAG: usize = 4;
const UDP: usize = 8;
const TYPE_IPV4: u16 = 0x0800;
const TYPES_OF_TAGS: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
/// More fragments follow, or the position of the fragment.
const FRAGMENT: u16 = 0x3fff;

/// Reason for which a packet is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The headers are not those of UDP in IPv4 on Ethernet, or lengths contradict each other.
    Header,
    /// The packet is a fragment.
    Fragment,
    /// A checksum is wrong.
    Checksum,
}

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Sender.
    pub from: SocketAddrV4,
    /// Destination.
    pub to: SocketAddrV4,
    /// Position of the payload in the packet.
    pub payload: std::ops::Range<usize>,
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Reads the headers of `packet`, with at most one VLAN tag, and checks lengths and checksums.
///
/// # Errors
/// The reason for which the packet is rejected.
pub fn read(packet: &[u8]) -> Result<Datagram, Rejected> {
    let start = match short(packet, ETHERNET - 2) {
        Some(TYPE_IPV4) => ETHERNET,
        Some(tag) if TYPES_OF_TAGS.contains(&tag) => {
            if short(packet, ETHERNET + TAG - 2) != Some(TYPE_IPV4) {
                return Err(Rejected::Header);
            }
            ETHERNET + TAG
        }
        _ => return Err(Rejected::Header),
    };
    let ip = packet.get(start..).unwrap_or_default();
    let first = *ip.first().ok_or(Rejected::Header)?;
    let header = usize::from(first & 15) * 4;
    let total = usize::from(short(ip, 2).ok_or(Rejected::Header)?);
    // Short frames are padded.
    if first >> 4 != 4 || header < 20 || total < header || total > ip.len() {
        return Err(Rejected::Header);
    }
    if fold(sum(&ip[..header])) != u16::MAX {
        return Err(Rejected::Checksum);
    }
    if ip[9] != PROTOCOL_UDP {
        return Err(Rejected::Header);
    }
    if short(ip, 6).is_none_or(|bits| bits & FRAGMENT != 0) {
        return Err(Rejected::Fragment);
    }
    let udp = &ip[header..total];
    let ports = short(udp, 0).zip(short(udp, 2));
    let len = short(udp, 4).map(usize::from).filter(|len| (UDP..=udp.len()).contains(len));
    let ((from_port, to_port), len) = ports.zip(len).ok_or(Rejected::Header)?;
    let addresses = &ip[12..20];
    check_sum(addresses, &udp[..len])?;
    let [a, b, c, d, e, f, g, h] = addresses.try_into().map_err(|_| Rejected::Header)?;
    let payload = start + header + UDP;
    Ok(Datagram {
        from: SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), from_port),
        to: SocketAddrV4::new(Ipv4Addr::new(e, f, g, h), to_port),
        payload: payload..payload + len - UDP,
    })
}

/// Checks the checksum of `udp`, a header and its payload, if the sender set one.
fn check_sum(addresses: &[u8], udp: &[u8]) -> Result<(), Rejected> {
    let checksum = short(udp, 6).unwrap_or(0);
    if checksum == 0 {
        return Ok(());
    }
    let pseudo = sum(addresses) + sum(&[0, PROTOCOL_UDP]) + sum(&(udp.len() as u16).to_be_bytes());
    // A sender on the same machine leaves the checksum to the hardware, which a virtual interface does not have: the
    // packet then has the sum of the pseudo-header only.
    if checksum == fold(pseudo) || fold(pseudo + sum(udp)) == u16::MAX {
        return Ok(());
    }
    Err(Rejected::Checksum)
}

/// Sum of words of 16 bits in network byte order, up to a multiple of 65535; an odd last byte is the high one.
fn sum(bytes: &[u8]) -> u64 {
    // Sums of longer words in any byte order have the same remainder, with its bytes swapped (RFC 1071).
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    u64::from(u16::from_be(fold(words + u64::from(u32::from_ne_bytes(last)))))
}

fn fold(mut sum: u64) -> u16 {
    while let Some(high) = Some(sum >> 16).filter(|high| *high > 0) {
        sum = (sum & 0xffff) + high;
    }
    sum as u16
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    const IP: usize = ETHERNET;
    const HEADER: usize = 20;

    /// Words added one by one, as RFC 768 and RFC 791 say.
    fn plain_checksum(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// Writes the checksum of the IP header, which begins at `ip`.
    pub(crate) fn seal(packet: &mut [u8], ip: usize) {
        packet[ip + 10..ip + 12].fill(0);
        let header = usize::from(packet[ip] & 15).max(5) * 4;
        let checksum = plain_checksum(&packet[ip..ip + header]);
        packet[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Returns a packet on Ethernet with all checksums, for a multicast group or the Ethernet address `to_host`.
    pub(crate) fn packet(
        from: SocketAddrV4,
        to: SocketAddrV4,
        to_host: [u8; 6],
        payload: &[u8],
    ) -> Vec<u8> {
        let [_, b, c, d] = to.ip().octets();
        let to_host = if to.ip().is_multicast() { [1, 0, 0x5e, b & 127, c, d] } else { to_host };
        let len = (UDP + payload.len()) as u16;
        let udp = [
            &from.port().to_be_bytes()[..],
            &to.port().to_be_bytes(),
            &len.to_be_bytes(),
            &[0, 0],
            payload,
        ]
        .concat();
        let addresses = [from.ip().octets(), to.ip().octets()].concat();
        let pseudo = [&addresses[..], &[0, PROTOCOL_UDP], &len.to_be_bytes(), &udp].concat();
        let mut packet = [&to_host[..], &[2, 0, 0, 0, 0, 9, 8, 0], &[0x45, 0]].concat();
        packet.extend((len + HEADER as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, PROTOCOL_UDP, 0, 0]);
        packet.extend(addresses);
        packet.extend(udp);
        let at = IP + HEADER + 6;
        packet[at..at + 2].copy_from_slice(&plain_checksum(&pseudo).to_be_bytes());
        seal(&mut packet, IP);
        packet
    }

    fn example(payload: &[u8]) -> Vec<u8> {
        packet(sender(), group(), [0; 6], payload)
    }

    fn sender() -> SocketAddrV4 {
        "10.0.0.1:1234".parse().unwrap()
    }

    fn group() -> SocketAddrV4 {
        "239.1.1.1:7148".parse().unwrap()
    }

    #[track_caller]
    fn is_read(packet: &[u8], payload: &[u8]) {
        let datagram = read(packet).unwrap();
        assert_eq!((datagram.from, datagram.to), (sender(), group()));
        assert_eq!(&packet[datagram.payload], payload);
    }

    #[test]
    fn datagrams_of_any_length_are_read() {
        for len in [0, 1, 2, 3, 4, 5, 1000, 1471, 8264] {
            let payload: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            is_read(&example(&payload), &payload);
        }
    }

    #[test]
    fn tag_padding_and_options_are_read() {
        let plain = example(b"abc");
        for kind in [[0x81, 0], [0x88, 0xa8]] {
            let tagged = [&plain[..12], &kind, &[0, 5], &plain[12..], &[0; 20]].concat();
            is_read(&tagged, b"abc");
        }
        let mut options = [&plain[..IP + HEADER], &[1; 4], &plain[IP + HEADER..]].concat();
        options[IP] = 0x46;
        options[IP + 3] += 4;
        seal(&mut options, IP);
        is_read(&options, b"abc");
    }

    #[test]
    fn datagram_without_checksum_or_with_that_of_a_virtual_interface_is_read() {
        let mut packet = example(b"abcd");
        let at = IP + HEADER + 6;
        packet[at..at + 2].fill(0);
        is_read(&packet, b"abcd");
        let addresses = &packet[IP + 12..IP + 20];
        let partial = !plain_checksum(&[addresses, &[0, PROTOCOL_UDP, 0, 12]].concat());
        packet[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        is_read(&packet, b"abcd");
    }

    #[test]
    fn truncated_packet_is_rejected_at_every_length() {
        let packet = example(b"abcd");
        for len in 0..packet.len() {
            assert_eq!(read(&packet[..len]), Err(Rejected::Header), "{len}");
        }
    }

    #[test]
    fn wrong_headers_are_rejected() {
        let rejected = |at: usize, value: u8| {
            let mut packet = example(b"abcd");
            packet[at] = value;
            seal(&mut packet, IP);
            read(&packet).unwrap_err()
        };
        let udp = IP + HEADER;
        assert_eq!(rejected(13, 0xdd), Rejected::Header, "another protocol than IPv4");
        assert_eq!(rejected(IP, 0x65), Rejected::Header, "version 6");
        assert_eq!(rejected(IP, 0x44), Rejected::Header, "a header of 16 bytes");
        assert_eq!(rejected(IP + 3, 19), Rejected::Header, "shorter than the header");
        assert_eq!(rejected(IP + 3, 27), Rejected::Header, "no room for UDP");
        assert_eq!(rejected(IP + 3, 33), Rejected::Header, "longer than the packet");
        assert_eq!(rejected(IP + 9, 6), Rejected::Header, "TCP");
        assert_eq!(rejected(udp + 5, 7), Rejected::Header, "shorter than a UDP header");
        assert_eq!(rejected(udp + 5, 13), Rejected::Header, "longer than the IP packet");
        assert_eq!(rejected(IP + 6, 0x20), Rejected::Fragment, "the first fragment");
        assert_eq!(rejected(IP + 7, 3), Rejected::Fragment, "a later fragment");
    }

    #[test]
    fn every_wrong_bit_of_ip_header_and_datagram_is_noticed() {
        let packet = example(b"any payload");
        for bit in IP * 8..packet.len() * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_rejected(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            is_sealed: bool,
        ) {
            if is_sealed && bytes.len() > IP + HEADER {
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[IP + 2] = 0;
                bytes[IP + 6..IP + 8].fill(0);
                bytes[IP + 9] = PROTOCOL_UDP;
                seal(&mut bytes, IP);
            }
            if let Ok(datagram) = read(&bytes) {
                prop_assert!(datagram.payload.end <= bytes.len());
            }
        }

        #[test]
        fn sum_is_that_of_words_added_one_by_one(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            // 0 and 65535 are the same number in one's complement.
            prop_assert_eq!(u32::from(fold(sum(&bytes))) % 65535, u32::from(!plain_checksum(&bytes)) % 65535);
        }
    }
}
