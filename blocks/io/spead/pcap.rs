//! UDP datagrams out of a capture file: pcap (any byte order, µs or ns), or pcapng.

use super::pcapng::{SECTION, Sections};
use fxgraph::access::ReadPath;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, SocketAddrV4};

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
            101 | 228 => Self::Ip,
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
    skipped: u64,
}

/// One datagram of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Address of the sender.
    pub from: SocketAddrV4,
    /// Address of the destination.
    pub to: SocketAddrV4,
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
                return Ok(Self { input, format, record: Vec::new(), skipped: 0 });
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
        Ok(Self { input, format, record: Vec::new(), skipped: 0 })
    }

    /// Returns the number of records skipped so far: fragments, and packets other than UDP over IPv4.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Reads the next UDP datagram; `None` at the end of the file.
    pub fn next_datagram(&mut self) -> io::Result<Option<Datagram<'_>>> {
        loop {
            let Some(link) = self.next_record()? else { return Ok(None) };
            // A second call, because a returned borrow would last until the end of the loop.
            if udp(link, &self.record).is_some() {
                return Ok(udp(link, &self.record));
            }
            self.skipped += 1;
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

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Returns the UDP datagram in a link-layer record, if the record is an unfragmented UDP datagram.
fn udp(link: Link, record: &[u8]) -> Option<Datagram<'_>> {
    const IPV4: u16 = 0x0800;
    let ip = match link {
        Link::Null => record.get(4..)?,
        Link::Ip => record,
        Link::Other => return None,
        Link::LinuxCooked => (short(record, 14)? == IPV4).then(|| record.get(16..))??,
        Link::LinuxCooked2 => (short(record, 0)? == IPV4).then(|| record.get(20..))??,
        Link::Ethernet => {
            let mut at = 12;
            // 802.1Q and 802.1ad tags precede the type.
            while matches!(short(record, at)?, 0x8100 | 0x88a8) {
                at += 4;
            }
            (short(record, at)? == IPV4).then(|| record.get(at + 2..))??
        }
    };
    let first = *ip.first()?;
    let header = usize::from(first & 15) * 4;
    let fragment = short(ip, 6)? & 0x3fff;
    if first >> 4 != 4 || header < 20 || fragment != 0 || *ip.get(9)? != 17 {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    };
    let (from, to) = (address(12)?, address(16)?);
    let datagram = ip.get(header..)?;
    let (from_port, to_port) = (short(datagram, 0)?, short(datagram, 2)?);
    let len = usize::from(short(datagram, 4)?);
    let payload = datagram.get(8..)?;
    // Removes the padding of short Ethernet frames; a truncated payload stays truncated.
    let payload = &payload[..len.saturating_sub(8).min(payload.len())];
    Some(Datagram {
        from: SocketAddrV4::new(from, from_port),
        to: SocketAddrV4::new(to, to_port),
        payload,
    })
}

/// A capture of UDP datagrams: raw IPv4 records, little-endian.
#[cfg(test)]
pub(crate) fn write<'a>(
    output: &mut impl io::Write,
    datagrams: impl Iterator<Item = Datagram<'a>>,
) -> io::Result<()> {
    output.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
    output.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0])?;
    for datagram in datagrams {
        let udp_len = datagram.payload.len() + 8;
        let len = u16::try_from(udp_len + 20).map_err(|_| invalid("given too long a datagram"))?;
        output.write_all(&[0; 8])?;
        output.write_all(&u32::from(len).to_le_bytes())?;
        output.write_all(&u32::from(len).to_le_bytes())?;
        let [high, low] = len.to_be_bytes();
        output.write_all(&[0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0])?;
        output.write_all(&datagram.from.ip().octets())?;
        output.write_all(&datagram.to.ip().octets())?;
        output.write_all(&datagram.from.port().to_be_bytes())?;
        output.write_all(&datagram.to.port().to_be_bytes())?;
        output.write_all(&(udp_len as u16).to_be_bytes())?;
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

    #[test]
    fn written_datagrams_are_read_back() {
        let payloads: Vec<Vec<u8>> = (0..5).map(|i| vec![i; usize::from(i) * 700]).collect();
        let mut file = Vec::new();
        write(&mut file, payloads.iter().map(|p| example(p))).unwrap();
        let mut capture = Capture::new(&file[..]).unwrap();
        for payload in &payloads {
            assert_eq!(capture.next_datagram().unwrap(), Some(example(payload)));
        }
        assert_eq!(capture.next_datagram().unwrap(), None);
    }

    #[test]
    fn tagged_ethernet_frame_with_padding_returns_its_datagram() {
        let mut raw = Vec::new();
        write(&mut raw, std::iter::once(example(b"abc"))).unwrap();
        let ip = &raw[40..];
        let tagged = [&[0_u8; 12], &[0x81, 0, 0, 5, 8, 0][..], ip, &[0; 20]].concat();
        assert_eq!(udp(Link::Ethernet, &tagged), Some(example(b"abc")));
    }

    #[test]
    fn other_files_are_rejected_with_a_reason() {
        let error = |bytes: &[u8]| Capture::new(bytes).err().unwrap().to_string();
        assert!(error(b"").contains("shorter"));
        assert!(error(&[7; 24]).contains("not a pcap"));
    }

    #[test]
    fn loopback_record_truncated_in_its_ip_header_is_skipped() {
        assert_eq!(udp(Link::Null, &[0; 16]), None);
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
        }
    }
}
