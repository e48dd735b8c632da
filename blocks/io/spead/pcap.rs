//! UDP datagrams out of a capture file: pcap (any byte order, µs or ns), or pcapng.

use super::endpoint::Endpoint;
use super::pcapng::{SECTION, Sections};
use fxgraph::access::ReadPath;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest valid record; longer ones are damaged.
pub(super) const MAX_RECORD: usize = 1 << 18;

/// Link types this reader understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Null,
    Ethernet,
    Ip,
    LinuxCooked,
    LinuxCooked2,
    /// Not supported: an interface of a pcapng file, whose packets are skipped.
    Other,
}

impl Link {
    /// Returns the link type with this number, if it is supported.
    pub(super) fn new(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::Ip,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            _ => return None,
        })
    }
}

/// Format of a capture file.
enum Format {
    Pcap { swapped: bool, link: Link },
    Pcapng(Sections),
}

/// A capture file, open for reading.
pub struct Capture<R> {
    input: R,
    format: Format,
    record: Vec<u8>,
    skipped: Skipped,
}

/// Numbers of records that were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Fragments of IPv4, damaged headers, and packets of other protocols than UDP.
    pub other: u64,
    /// Packets of IPv6 with extension headers, also fragments.
    pub extended: u64,
}

/// Reason why a record is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Other,
    Extended,
}

/// One datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub from: Endpoint,
    /// Address of the destination.
    pub to: Endpoint,
    /// Payload, possibly truncated by the capture.
    pub payload: &'a [u8],
}

/// Opens the capture file at `path`, and checks its header. A pipe has its header once there is a writer.
pub fn open(path: &ReadPath) -> io::Result<File> {
    let mut file = path.open_once()?;
    if file.metadata()?.is_file() {
        Capture::new(&file)?;
        file.rewind()?;
    }
    Ok(file)
}

impl<R: Read> Capture<R> {
    /// Reads a capture from `input`.
    pub fn new(mut input: R) -> io::Result<Self> {
        let short = |_| invalid("shorter than a pcap header");
        let mut magic = [0; 4];
        input.read_exact(&mut magic).map_err(short)?;
        let swapped = match u32::from_le_bytes(magic) {
            SECTION => {
                let format = Format::Pcapng(Sections::begin(&mut input)?);
                return Ok(Self { input, format, record: Vec::new(), skipped: Skipped::default() });
            }
            0xa1b2_c3d4 | 0xa1b2_3c4d => false,
            0xd4c3_b2a1 | 0x4d3c_b2a1 => true,
            _ => return Err(invalid("not a pcap or pcapng file")),
        };
        let mut header = [0; 20];
        input.read_exact(&mut header).map_err(short)?;
        let link = word(&header[16..20], swapped) & 0xffff;
        let unsupported = || invalid(&format!("of link type {link}, which is not supported"));
        let link = Link::new(link).ok_or_else(unsupported)?;
        let format = Format::Pcap { swapped, link };
        Ok(Self { input, format, record: Vec::new(), skipped: Skipped::default() })
    }

    /// Returns the numbers of records skipped so far.
    #[must_use]
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Reads the next UDP datagram; `None` at the end of the file.
    pub fn next_datagram(&mut self) -> io::Result<Option<Datagram<'_>>> {
        loop {
            let Some(link) = self.next_record()? else { return Ok(None) };
            // A second call, because a returned borrow would last until the end of the loop.
            match udp(link, &self.record) {
                Ok(_) => return Ok(udp(link, &self.record).ok()),
                Err(Skip::Other) => self.skipped.other += 1,
                Err(Skip::Extended) => self.skipped.extended += 1,
            }
        }
    }

    /// Reads the next record and returns its link type; `None` at the end of the file.
    fn next_record(&mut self) -> io::Result<Option<Link>> {
        let (swapped, link) = match &mut self.format {
            Format::Pcapng(sections) => return sections.next(&mut self.input, &mut self.record),
            Format::Pcap { swapped, link } => (*swapped, *link),
        };
        let mut header = [0; 16];
        match self.input.read_exact(&mut header) {
            // A capture truncated within a record ends there.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            result => result?,
        }
        let len = word(&header[8..12], swapped) as usize;
        if len > MAX_RECORD {
            return Err(invalid("damaged: a record is longer than any packet"));
        }
        self.record.resize(len, 0);
        match self.input.read_exact(&mut self.record) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            result => result.map(|()| Some(link)),
        }
    }
}

pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file is {what}"))
}

pub(super) fn word(bytes: &[u8], swapped: bool) -> u32 {
    let little = bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    if swapped { little.swap_bytes() } else { little }
}

/// Number of the protocol.
const UDP: u8 = 17;

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Returns the packet of IPv4 or IPv6 in a link-layer record.
fn packet(link: Link, record: &[u8]) -> Option<&[u8]> {
    let is_ip = |kind: u16| matches!(kind, 0x0800 | 0x86dd);
    match link {
        Link::Null => record.get(4..),
        Link::Ip => Some(record),
        Link::Other => None,
        Link::LinuxCooked => is_ip(short(record, 14)?).then(|| record.get(16..))?,
        Link::LinuxCooked2 => is_ip(short(record, 0)?).then(|| record.get(20..))?,
        Link::Ethernet => {
            let mut at = 12;
            // 802.1Q and 802.1ad tags precede the type.
            while matches!(short(record, at)?, 0x8100 | 0x88a8) {
                at += 4;
            }
            is_ip(short(record, at)?).then(|| record.get(at + 2..))?
        }
    }
}

/// Returns the addresses of the sender and the destination, and the datagram, of a packet of IPv4; `None` for a
/// fragment, and for other protocols than UDP.
fn of_v4(ip: &[u8]) -> Option<([IpAddr; 2], &[u8])> {
    let header = usize::from(*ip.first()? & 15) * 4;
    let fragment = short(ip, 6)? & 0x3fff;
    if header < 20 || fragment != 0 || *ip.get(9)? != UDP {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(octets)))
    };
    Some(([address(12)?, address(16)?], ip.get(header..)?))
}

/// Like [`of_v4`], for a packet of IPv6.
fn of_v6(ip: &[u8]) -> Result<([IpAddr; 2], &[u8]), Skip> {
    /// Hop-by-hop and destination options, routing, fragments, authentication, encryption, mobility, identities.
    const EXTENSIONS: [u8; 8] = [0, 43, 44, 50, 51, 60, 135, 139];
    match ip.get(6) {
        Some(&UDP) => {}
        Some(next) if EXTENSIONS.contains(next) => return Err(Skip::Extended),
        _ => return Err(Skip::Other),
    }
    let address = |at: usize| {
        let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
        // An IPv4 address in IPv6 notation belongs to no packet of a network, and is no sender of IPv4.
        let ip = Ipv6Addr::from(octets);
        ip.to_ipv4_mapped().is_none().then_some(IpAddr::from(ip))
    };
    let found = || Some(([address(8)?, address(24)?], ip.get(40..)?));
    found().ok_or(Skip::Other)
}

/// Returns the UDP datagram in a link-layer record, if the record is an unfragmented UDP datagram.
fn udp(link: Link, record: &[u8]) -> Result<Datagram<'_>, Skip> {
    let ip = packet(link, record).ok_or(Skip::Other)?;
    let ([from, to], datagram) = match ip.first().ok_or(Skip::Other)? >> 4 {
        4 => of_v4(ip).ok_or(Skip::Other)?,
        6 => of_v6(ip)?,
        _ => return Err(Skip::Other),
    };
    let found = || {
        let (from_port, to_port) = (short(datagram, 0)?, short(datagram, 2)?);
        let len = usize::from(short(datagram, 4)?);
        let payload = datagram.get(8..)?;
        // Removes the padding of short Ethernet frames; a truncated payload stays truncated.
        let payload = &payload[..len.saturating_sub(8).min(payload.len())];
        let (from, to) = (Endpoint::new(from, from_port), Endpoint::new(to, to_port));
        Some(Datagram { from, to, payload })
    };
    found().ok_or(Skip::Other)
}

/// A capture of UDP datagrams: raw records of IPv4 and IPv6, little-endian.
#[cfg(test)]
pub(crate) fn write<'a>(
    output: &mut impl io::Write,
    datagrams: impl Iterator<Item = Datagram<'a>>,
) -> io::Result<()> {
    output.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0])?;
    for datagram in datagrams {
        let udp_len = datagram.payload.len() + 8;
        let too_long = |_| invalid("given too long a datagram");
        let udp_bytes = u16::try_from(udp_len).map_err(too_long)?.to_be_bytes();
        let header = match (datagram.from.ip(), datagram.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [high, low] = u16::try_from(udp_len + 20).map_err(too_long)?.to_be_bytes();
                let fixed = [0x45, 0, high, low, 0, 0, 0, 0, 64, UDP, 0, 0];
                [&fixed[..], &from.octets(), &to.octets()].concat()
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let fixed = [0x60, 0, 0, 0, udp_bytes[0], udp_bytes[1], UDP, 64];
                [&fixed[..], &from.octets(), &to.octets()].concat()
            }
            _ => return Err(invalid("given addresses of both families")),
        };
        let len = ((header.len() + udp_len) as u32).to_le_bytes();
        output.write_all(&[0; 8])?;
        output.write_all(&[len, len].concat())?;
        output.write_all(&header)?;
        output.write_all(&datagram.from.port().to_be_bytes())?;
        output.write_all(&datagram.to.port().to_be_bytes())?;
        output.write_all(&udp_bytes)?;
        output.write_all(&[0, 0])?;
        output.write_all(datagram.payload)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn example(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            from: "10.0.0.1:1234".parse().unwrap(),
            to: "239.1.1.1:7148".parse().unwrap(),
            payload,
        }
    }

    fn example_v6(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            from: "[fe80::1]:1234".parse().unwrap(),
            to: "[ff05::7:1]:7148".parse().unwrap(),
            payload,
        }
    }

    #[test]
    fn written_datagrams_are_read_back() {
        let payloads: Vec<Vec<u8>> = (0..5).map(|i| vec![i; usize::from(i) * 700]).collect();
        let mut file = Vec::new();
        let both = |payload| [example(payload), example_v6(payload)];
        write(&mut file, payloads.iter().flat_map(|p| both(p))).unwrap();
        let mut capture = Capture::new(&file[..]).unwrap();
        for datagram in payloads.iter().flat_map(|p| both(p)) {
            assert_eq!(capture.next_datagram().unwrap(), Some(datagram));
        }
        assert_eq!(capture.next_datagram().unwrap(), None);
    }

    #[test]
    fn tagged_ethernet_frame_with_padding_returns_its_datagram() {
        let mut raw = Vec::new();
        write(&mut raw, std::iter::once(example(b"abc"))).unwrap();
        let ip = &raw[40..];
        let tagged = [&[0_u8; 12], &[0x81, 0, 0, 5, 8, 0][..], ip, &[0; 20]].concat();
        assert_eq!(udp(Link::Ethernet, &tagged), Ok(example(b"abc")));
    }

    #[test]
    fn ipv6_packet_with_extension_headers_is_counted_as_such() {
        let mut raw = Vec::new();
        write(&mut raw, std::iter::once(example_v6(b"abc"))).unwrap();
        let ip = &raw[40..];
        let in_link = |kind: &[u8], ip: &[u8]| [kind, ip, &[0; 9]].concat();
        let ethernet = |ip: &[u8]| in_link(&[&[0; 12], &[0x86, 0xdd][..]].concat(), ip);
        assert_eq!(udp(Link::Ethernet, &ethernet(ip)), Ok(example_v6(b"abc")));
        let cooked = in_link(&[&[0x86, 0xdd][..], &[0; 18]].concat(), ip);
        assert_eq!(udp(Link::LinuxCooked2, &cooked), Ok(example_v6(b"abc")));
        assert_eq!(udp(Link::Null, &in_link(&[30, 0, 0, 0], ip)), Ok(example_v6(b"abc")));
        // Options, a fragment, and ICMP.
        for (next, why) in [(0, Skip::Extended), (44, Skip::Extended), (58, Skip::Other)] {
            let mut other = ip.to_vec();
            other[6] = next;
            assert_eq!(udp(Link::Ethernet, &ethernet(&other)), Err(why), "{next}");
        }
        // Any part of the packet.
        (0..ip.len() - 3).for_each(|len| assert_eq!(udp(Link::Ip, &ip[..len]), Err(Skip::Other)));
    }

    #[test]
    fn other_files_are_rejected_with_a_reason() {
        let error = |bytes: &[u8]| Capture::new(bytes).err().unwrap().to_string();
        assert!(error(b"").contains("shorter"));
        assert!(error(&[7; 24]).contains("not a pcap"));
    }

    #[test]
    fn loopback_record_truncated_in_its_ip_header_is_skipped() {
        assert_eq!(udp(Link::Null, &[0; 16]), Err(Skip::Other));
    }

    proptest! {
        #[test]
        fn damaged_records_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            link in 0_usize..5,
        ) {
            let links = [Link::Null, Link::Ethernet, Link::Ip, Link::LinuxCooked, Link::LinuxCooked2];
            let mut ip = bytes.clone();
            if ip.len() > 10 {
                ip[0] = 0x45;
                ip[6] = 0;
                ip[7] = 0;
                ip[9] = 17;
            }
            let _ = (udp(links[link], &bytes), udp(Link::Ip, &ip));
            if ip.len() > 10 {
                (ip[0], ip[6]) = (0x60, UDP);
            }
            let _ = udp(Link::Ip, &ip);
        }
    }
}
