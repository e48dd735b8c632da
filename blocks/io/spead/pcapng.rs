//! Records of a pcapng file: sections of any byte order, each with its interfaces. Blocks other than packets are
//! skipped, and times are not read.

use super::pcap::{Link, MAX_RECORD, invalid, word};
use std::io::{self, ErrorKind, Read};

/// First word of a section header, in both byte orders.
pub const SECTION: u32 = 0x0a0d_0d0a;
/// Word of a section header that tells the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Largest number of interfaces of a section.
const MAX_INTERFACES: usize = 1 << 16;

/// Types of blocks.
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

/// Interface of a section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Link,
    /// Longest packet; 0 has no limit.
    longest: u32,
}

/// State of a reader.
#[derive(Debug, Default)]
pub struct Sections {
    swapped: bool,
    interfaces: Vec<Interface>,
}

/// Reads exactly `into`; `false` if the file ends before.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(into) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

/// Skips `bytes` bytes; `false` if the file ends before.
fn skip(input: &mut impl Read, bytes: u64) -> io::Result<bool> {
    Ok(io::copy(&mut input.take(bytes), &mut io::sink())? == bytes)
}

impl Sections {
    /// Reads the header of the first section, whose first word was read.
    pub fn begin(input: &mut impl Read) -> io::Result<Self> {
        let mut sections = Self::default();
        let is_whole = sections.section(input)?;
        if is_whole { Ok(sections) } else { Err(invalid("shorter than a pcapng header")) }
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        word(bytes, self.swapped)
    }

    fn short(&self, bytes: [u8; 2]) -> u16 {
        if self.swapped { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    /// Reads a section header after its first word; `false` if the file ends within it.
    fn section(&mut self, input: &mut impl Read) -> io::Result<bool> {
        let mut header = [0; 20];
        if !fill(input, &mut header)? {
            return Ok(false);
        }
        self.swapped = match word(&header[4..8], false) {
            BYTE_ORDER => false,
            other if other.swap_bytes() == BYTE_ORDER => true,
            _ => return Err(invalid("damaged: a section has no byte order")),
        };
        let version = self.short([header[8], header[9]]);
        if version != 1 {
            return Err(invalid(&format!("of pcapng version {version}, which is not supported")));
        }
        self.interfaces.clear();
        let total = self.word(&header[..4]);
        let rest = self.rest(total, 24)?;
        self.end(input, rest, total)
    }

    /// Number of bytes of a block of `total` bytes between the first `read` and the last 4.
    fn rest(&self, total: u32, read: u32) -> io::Result<u64> {
        let rest = total.checked_sub(read + 4).filter(|_| total.is_multiple_of(4));
        rest.map(u64::from).ok_or_else(|| invalid("damaged: a block has an impossible length"))
    }

    /// Skips the `rest` of a block and checks its end; `false` if the file ends before.
    fn end(&self, input: &mut impl Read, rest: u64, total: u32) -> io::Result<bool> {
        let mut trailer = [0; 4];
        if !(skip(input, rest)? && fill(input, &mut trailer)?) {
            return Ok(false);
        }
        if self.word(&trailer) == total {
            Ok(true)
        } else {
            Err(invalid("damaged: a block has two different lengths"))
        }
    }

    /// Reads the next packet into `record` and returns its link type; `None` at the end of the file, also within a
    /// block.
    pub fn next(
        &mut self,
        input: &mut impl Read,
        record: &mut Vec<u8>,
    ) -> io::Result<Option<Link>> {
        loop {
            let mut kind = [0; 4];
            if !fill(input, &mut kind)? {
                return Ok(None);
            }
            if word(&kind, false) == SECTION {
                if !self.section(input)? {
                    return Ok(None);
                }
                continue;
            }
            let mut total = [0; 4];
            if !fill(input, &mut total)? {
                return Ok(None);
            }
            let (kind, total) = (self.word(&kind), self.word(&total));
            let mut head = [0; 20];
            let head = match kind {
                INTERFACE => &mut head[..8],
                PACKET | OLD_PACKET => &mut head[..20],
                SIMPLE_PACKET => &mut head[..4],
                _ => &mut head[..0],
            };
            let rest = self.rest(total, 8 + head.len() as u32)?;
            if !fill(input, head)? {
                return Ok(None);
            }
            let (interface, captured) = match kind {
                INTERFACE => {
                    self.add_interface(head)?;
                    if !self.end(input, rest, total)? {
                        return Ok(None);
                    }
                    continue;
                }
                PACKET => (self.word(&head[..4]), u64::from(self.word(&head[12..16]))),
                OLD_PACKET => {
                    let interface = u32::from(self.short([head[0], head[1]]));
                    (interface, u64::from(self.word(&head[12..16])))
                }
                SIMPLE_PACKET => (0, u64::from(self.word(&head[..4])).min(rest)),
                _ => {
                    if !self.end(input, rest, total)? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let Some(interface) = self.interfaces.get(interface as usize).copied() else {
                let all = self.interfaces.len();
                return Err(invalid(&format!(
                    "damaged: a packet names interface {interface}, the section has {all}"
                )));
            };
            let captured = match interface.longest {
                longest @ 1.. if kind == SIMPLE_PACKET => captured.min(u64::from(longest)),
                _ => captured,
            };
            if captured > rest || captured > MAX_RECORD as u64 {
                return Err(invalid("damaged: a record is longer than its block or any packet"));
            }
            record.resize(captured as usize, 0);
            let is_whole = fill(input, record)? && self.end(input, rest - captured, total)?;
            return Ok(is_whole.then_some(interface.link));
        }
    }

    fn add_interface(&mut self, head: &[u8]) -> io::Result<()> {
        if self.interfaces.len() == MAX_INTERFACES {
            return Err(invalid("damaged: a section has too many interfaces"));
        }
        let link = u32::from(self.short([head[0], head[1]]));
        let longest = self.word(&head[4..8]);
        self.interfaces.push(Interface { link: Link::new(link).unwrap_or(Link::Other), longest });
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::io::spead::pcap::{Capture, Datagram, write};
    use proptest::prelude::*;

    /// Writes blocks in one byte order.
    #[derive(Clone, Copy)]
    struct Writer {
        is_big_endian: bool,
    }

    impl Writer {
        fn word(self, number: u32) -> [u8; 4] {
            if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
        }

        fn short(self, number: u16) -> [u8; 2] {
            if self.is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
        }

        fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
            let padded = [body, &[0; 3][..(4 - body.len() % 4) % 4]].concat();
            let total = self.word(padded.len() as u32 + 12);
            [&self.word(kind), &total, &padded[..], &total].concat()
        }

        fn section(self) -> Vec<u8> {
            let versions = [self.short(1), self.short(0)].concat();
            self.block(0x0a0d_0d0a, &[&self.word(0x1a2b_3c4d), &versions[..], &[255; 8]].concat())
        }

        /// An interface with an option: the resolution of its times (nanoseconds).
        fn interface(self, link: u16, longest: u32) -> Vec<u8> {
            let head = [self.short(link), [0; 2]].concat();
            let option = [self.short(9), self.short(1)].concat();
            let end = [self.short(0), self.short(0)].concat();
            let body = [&head[..], &self.word(longest), &option, &[9, 0, 0, 0], &end].concat();
            self.block(1, &body)
        }

        fn packet(self, interface: u32, record: &[u8]) -> Vec<u8> {
            let len = self.word(record.len() as u32);
            let head = [self.word(interface), [7; 4], [7; 4], len, len].concat();
            let padding = &[0; 3][..(4 - record.len() % 4) % 4];
            // A comment of 3 bytes as an option.
            let option = [self.short(1), self.short(3)].concat();
            self.block(6, &[&head[..], record, padding, &option, b"abc\0", &[0; 4]].concat())
        }

        fn old_packet(self, interface: u16, record: &[u8]) -> Vec<u8> {
            let len = self.word(record.len() as u32);
            let head = [self.short(interface), [0; 2]].concat();
            self.block(2, &[&head[..], &[7; 8], &len, &len, record].concat())
        }

        fn simple_packet(self, len: u32, record: &[u8]) -> Vec<u8> {
            self.block(3, &[&self.word(len)[..], record].concat())
        }
    }

    const LITTLE: Writer = Writer { is_big_endian: false };
    const BIG: Writer = Writer { is_big_endian: true };

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            from: "10.0.0.1:1234".parse().unwrap(),
            to: "239.1.1.1:7148".parse().unwrap(),
            payload,
        }
    }

    /// Returns a raw IPv4 packet.
    fn record(payload: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        write(&mut file, std::iter::once(datagram(payload))).unwrap();
        file.split_off(40)
    }

    /// Returns the payloads in a file and the number of skipped records, or the error.
    fn read(file: &[u8]) -> Result<(Vec<Vec<u8>>, u64), String> {
        let mut capture = Capture::new(file).map_err(|error| error.to_string())?;
        let mut payloads = Vec::new();
        while let Some(next) = capture.next_datagram().map_err(|error| error.to_string())? {
            assert_eq!(next, datagram(next.payload));
            payloads.push(next.payload.to_vec());
        }
        Ok((payloads, capture.skipped().other))
    }

    #[test]
    fn packets_of_all_kinds_interfaces_and_sections_are_read() {
        let ethernet = [&[0; 12], &[8, 0][..], &record(b"two")].concat();
        let simple = record(b"a simple packet");
        let mut file = Vec::new();
        for order in [LITTLE, BIG] {
            file.extend(order.section());
            file.extend(order.interface(101, 0));
            // A block that nobody knows, and statistics.
            file.extend(order.block(0xbad, &[1; 100]));
            file.extend(order.packet(0, &record(b"one")));
            file.extend(order.interface(1, 65535));
            // USB, which has no datagrams.
            file.extend(order.interface(189, 0));
            file.extend(order.packet(1, &ethernet));
            file.extend(order.packet(2, &record(b"usb")));
            file.extend(order.block(5, &[0; 12]));
            file.extend(order.old_packet(1, &ethernet));
            file.extend(order.simple_packet(simple.len() as u32, &simple));
        }
        let payloads: [&[u8]; 4] = [b"one", b"two", b"two", b"a simple packet"];
        let (found, skipped) = read(&file).unwrap();
        assert_eq!(
            (found, skipped),
            ([payloads, payloads].concat().iter().map(|p| p.to_vec()).collect(), 2)
        );
        // A file may end anywhere.
        for len in 28..file.len() {
            let (found, _) = read(&file[..len]).unwrap();
            assert!(found.iter().zip([payloads, payloads].concat()).all(|(a, b)| a == b));
        }
    }

    #[test]
    fn simple_packet_is_cut_at_the_limit_of_its_interface() {
        let whole = record(b"0123456789");
        let limit = whole.len() as u32 - 4;
        let mut file = [LITTLE.section(), LITTLE.interface(101, limit)].concat();
        file.extend(LITTLE.simple_packet(whole.len() as u32, &whole[..limit as usize]));
        assert_eq!(read(&file).unwrap().0, [b"012345"]);
    }

    #[test]
    fn damaged_files_are_rejected_with_a_reason() {
        let begin = [LITTLE.section(), LITTLE.interface(101, 0)].concat();
        let error = |block: &[u8]| read(&[&begin, block].concat()).unwrap_err();
        let packet = LITTLE.packet(0, &record(b"abc"));
        let unknown = error(&LITTLE.packet(1, &record(b"abc")));
        assert!(unknown.contains("a packet names interface 1, the section has 1"), "{unknown}");
        let mut long = packet.clone();
        long[20..24].copy_from_slice(&1000_u32.to_le_bytes());
        assert!(error(&long).contains("longer than its block"));
        let huge = vec![0; 1 << 19];
        assert!(error(&LITTLE.packet(0, &huge)).contains("or any packet"));
        for len in [0, 8, 13, 28] {
            let mut short = packet.clone();
            short[4..8].copy_from_slice(&u32::to_le_bytes(len));
            assert!(error(&short).contains("impossible length"), "{len}");
        }
        let mut ends = packet.clone();
        *ends.last_mut().unwrap() = 1;
        assert!(error(&ends).contains("two different lengths"));
        let mut unordered = LITTLE.section();
        unordered[8] = 0;
        assert!(read(&unordered).unwrap_err().contains("no byte order"));
        let mut version = LITTLE.section();
        version[12] = 2;
        assert!(read(&version).unwrap_err().contains("pcapng version 2"));
        assert!(
            read(&LITTLE.section()[..20]).unwrap_err().contains("shorter than a pcapng header")
        );
        let many = LITTLE.interface(101, 0).repeat(1 << 16);
        assert!(error(&many).contains("too many interfaces"));
    }

    proptest! {
        #[test]
        fn damaged_files_never_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            order in any::<bool>(), rest in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let order = Writer { is_big_endian: order };
            let blocks = [order.packet(0, &record(b"abc")), order.simple_packet(9, &[1; 9]), order.old_packet(0, &rest)];
            let mut file = [order.section(), order.interface(101, 40), blocks.concat(), rest].concat();
            for (at, byte) in changes {
                let at = at.index(file.len());
                file[at] = byte;
            }
            let Ok(mut capture) = Capture::new(&file[..]) else { return Ok(()) };
            while let Ok(Some(_)) = capture.next_datagram() {}
        }
    }
}
