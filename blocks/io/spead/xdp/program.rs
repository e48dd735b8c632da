//! XDP program that redirects the datagrams of a source to its AF_XDP sockets, and passes all other packets on to the
//! kernel.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Numbers of the kernel's interface (`linux/bpf.h`, `linux/if_link.h`).
const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROGRAM_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const MAP_HASH: u32 = 1;
const MAP_XSK: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// The program works for packets in several buffers, which jumbo frames need.
const HAS_FRAGMENTS: u32 = 1 << 5;
const SKB_MODE: u32 = 1 << 1;
const DRIVER_MODE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
const LOOKUP: i32 = 1;
const REDIRECT_MAP: i32 = 51;

/// Room for the verifier's reason, in bytes.
const LOG_BYTES: usize = 1 << 16;

/// Calls `bpf(2)`; returns a descriptor for commands that make one.
fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: `attributes` has the layout of the command, and pointers in it are valid for the call.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc as i32) }
}

fn descriptor<T>(command: i64, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A map of the kernel.
struct Map(OwnedFd);

impl Map {
    fn new(kind: u32, key_bytes: u32, entries: usize) -> io::Result<Self> {
        #[repr(C)]
        struct Create {
            kind: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
            flags: u32,
        }
        let entries = u32::try_from(entries.max(1)).map_err(io::Error::other)?;
        let mut create = Create { kind, key_bytes, value_bytes: 4, entries, flags: 0 };
        descriptor(MAP_CREATE, &mut create).map(Self)
    }

    fn insert<K>(&self, key: &K, value: u32) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            _padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let map = self.0.as_raw_fd() as u32;
        let (key, value) = (&raw const *key as u64, &raw const value as u64);
        bpf(MAP_UPDATE, &mut Update { map, _padding: 0, key, value, flags: 0 }).map(drop)
    }
}

/// Key of the map of addresses, in network byte order.
fn key(address: SocketAddrV4) -> [u8; 8] {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    [a, b, c, d, high, low, 0, 0]
}

/// An instruction of eBPF.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// Destination in the low, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Targets of jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Tagged,
    Ip,
    Udp,
    Pass,
}

/// Size of a value in memory, as in the code of an instruction.
#[derive(Clone, Copy)]
enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
}

/// Writer of a program. Registers are numbers; r10 is the end of the stack.
#[derive(Default)]
struct Writer {
    code: Vec<Instruction>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Writer {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i16, immediate: i32) {
        self.code.push(Instruction { code, registers: from << 4 | to, offset, immediate });
    }

    fn load(&mut self, size: Size, to: u8, from: u8, offset: i16) {
        self.add(0x61 | size as u8, to, from, offset, 0);
    }

    fn store(&mut self, size: Size, offset: i16, from: u8) {
        self.add(0x63 | size as u8, 10, from, offset, 0);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.add(0xbf, to, from, 0, 0);
    }

    fn set(&mut self, to: u8, value: i32) {
        self.add(0xb7, to, 0, 0, value);
    }

    fn plus(&mut self, to: u8, value: i32) {
        self.add(0x07, to, 0, 0, value);
    }

    fn and(&mut self, to: u8, value: i32) {
        self.add(0x57, to, 0, 0, value);
    }

    fn call(&mut self, function: i32) {
        self.add(0x85, 0, 0, 0, function);
    }

    fn map(&mut self, to: u8, map: i32) {
        // Two instructions; source 1 says that the constant is the descriptor of a map.
        self.add(0x18, to, 1, 0, map);
        self.add(0, 0, 0, 0, 0);
    }

    fn exit(&mut self) {
        self.add(0x95, 0, 0, 0, 0);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn if_equal(&mut self, register: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.add(0x15, register, 0, 0, value);
    }

    fn unless_equal(&mut self, register: u8, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.add(0x55, register, 0, 0, value);
    }

    /// Passes the packet on if it ends within `bytes` after r2. r3 is its end, r4 is overwritten.
    fn need(&mut self, bytes: i32) {
        self.copy(4, 2);
        self.plus(4, bytes);
        self.jumps.push((self.code.len(), Label::Pass));
        self.add(0x2d, 4, 3, 0, 0);
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            if let Some((_, to)) = self.labels.iter().find(|(known, _)| *known == label) {
                self.code[at].offset = (*to as isize - at as isize - 1) as i16;
            }
        }
        self.code
    }
}

/// Value of two bytes of a packet as the CPU loads it.
fn on_wire(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Returns the program. Headers that it cannot read are for the kernel, which discards them; fragments without a UDP
/// header, too.
fn write(addresses: i32, sockets: i32) -> Vec<Instruction> {
    let mut w = Writer::default();
    w.copy(6, 1);
    w.load(Size::Word, 2, 1, 0);
    w.load(Size::Word, 3, 1, 4);
    w.need(14 + 20 + 8);
    w.load(Size::Half, 5, 2, 12);
    w.if_equal(5, on_wire(0x0800), Label::Ip);
    w.if_equal(5, on_wire(0x8100), Label::Tagged);
    w.unless_equal(5, on_wire(0x88a8), Label::Pass);
    w.label(Label::Tagged);
    w.load(Size::Half, 5, 2, 16);
    w.unless_equal(5, on_wire(0x0800), Label::Pass);
    w.plus(2, 4);
    w.label(Label::Ip);
    w.plus(2, 14);
    w.need(20 + 8);
    // Version 4, protocol UDP, no later fragment.
    w.load(Size::Byte, 5, 2, 0);
    w.copy(0, 5);
    w.and(0, 0xf0);
    w.unless_equal(0, 0x40, Label::Pass);
    w.load(Size::Byte, 0, 2, 9);
    w.unless_equal(0, 17, Label::Pass);
    w.load(Size::Half, 0, 2, 6);
    w.and(0, on_wire(0x1fff));
    w.unless_equal(0, 0, Label::Pass);
    // The key: destination address and port.
    w.load(Size::Word, 0, 2, 16);
    w.store(Size::Word, -8, 0);
    // Over the options of the header, in steps: sums of addresses and variables need one more capability.
    w.and(5, 0x0f);
    w.plus(2, 20);
    for words in 5..15 {
        w.if_equal(5, words, Label::Udp);
        w.plus(2, 4);
    }
    w.label(Label::Udp);
    w.need(8);
    w.load(Size::Half, 0, 2, 2);
    w.store(Size::Half, -4, 0);
    w.set(0, 0);
    w.store(Size::Half, -2, 0);
    w.map(1, addresses);
    w.copy(2, 10);
    w.plus(2, -8);
    w.call(LOOKUP);
    w.if_equal(0, 0, Label::Pass);
    // To the socket of the queue of this packet; to the kernel if the queue has none.
    w.map(1, sockets);
    w.load(Size::Word, 2, 6, 16);
    w.set(3, XDP_PASS);
    w.call(REDIRECT_MAP);
    w.exit();
    w.label(Label::Pass);
    w.set(0, XDP_PASS);
    w.exit();
    w.finish()
}

/// Loads a program.
fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach: u32,
    }
    let license: &CStr = c"BSD";
    let mut load = Load {
        kind: PROGRAM_XDP,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        version: 0,
        flags: HAS_FRAGMENTS,
        name: *b"fxgraph\0\0\0\0\0\0\0\0\0",
        interface: 0,
        attach: ATTACH_XDP,
    };
    let error = match descriptor(PROGRAM_LOAD, &mut load) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if error.raw_os_error() != Some(libc::EINVAL) && error.raw_os_error() != Some(libc::EACCES) {
        return Err(error);
    }
    // Once more, for the verifier's reason.
    let mut log = vec![0_u8; LOG_BYTES];
    (load.log_level, load.log_bytes, load.log) = (1, LOG_BYTES as u32, log.as_mut_ptr() as u64);
    let Err(error) = descriptor(PROGRAM_LOAD, &mut load) else { return Err(error) };
    let log = String::from_utf8_lossy(&log);
    let reason = log.trim_end_matches('\0').trim_end().lines().rev().take(3).collect::<Vec<_>>();
    let reason = reason.into_iter().rev().collect::<Vec<_>>().join("; ");
    Err(io::Error::new(error.kind(), format!("{error}; {reason}")))
}

/// The program on an interface. The kernel detaches it when this is dropped, and when the process ends.
pub struct Program {
    _link: OwnedFd,
    sockets: Map,
    /// Whether the driver runs the program; otherwise the kernel does, later and on a copy.
    pub is_in_driver: bool,
}

impl Program {
    /// Attaches the program for datagrams to `addresses` to interface number `interface` with `queues` receive queues.
    pub fn attach(addresses: &[SocketAddrV4], interface: u32, queues: usize) -> io::Result<Self> {
        let sockets = Map::new(MAP_XSK, 4, queues)?;
        let of_addresses = Map::new(MAP_HASH, 8, addresses.len())?;
        for address in addresses {
            of_addresses.insert(&key(*address), 1)?;
        }
        let program = load(&write(of_addresses.0.as_raw_fd(), sockets.0.as_raw_fd()))?;
        let link = |mode| link(&program, interface, mode);
        let (link, is_in_driver) = match link(DRIVER_MODE) {
            Ok(link) => (link, true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            // The driver has no XDP, or none for the present MTU or features.
            Err(_) => (link(SKB_MODE)?, false),
        };
        Ok(Self { _link: link, sockets, is_in_driver })
    }

    /// Redirects datagrams of `queue` to `socket`.
    pub fn redirect(&self, queue: u32, socket: &impl AsRawFd) -> io::Result<()> {
        self.sockets.insert(&queue, socket.as_raw_fd() as u32)
    }
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Link {
        program: u32,
        interface: u32,
        attach: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    descriptor(LINK_CREATE, &mut Link { program, interface, attach: ATTACH_XDP, flags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_program_stay_inside_and_go_forward() {
        let code = write(3, 4);
        let is_jump = |i: &Instruction| i.code & 7 == 5 && ![0x85, 0x95].contains(&i.code);
        let jumps: Vec<usize> = (0..code.len()).filter(|at| is_jump(&code[*at])).collect();
        assert_eq!(jumps.len(), 21);
        for at in jumps {
            let to = at as isize + 1 + isize::from(code[at].offset);
            assert!((to as usize) < code.len() && to > at as isize, "{at} to {to}");
        }
        assert_eq!(size_of::<Instruction>(), 8);
    }

    #[test]
    fn key_is_in_network_byte_order() {
        let address = "239.1.2.3:7148".parse().unwrap();
        assert_eq!(key(address), [239, 1, 2, 3, 0x1b, 0xec, 0, 0]);
    }
}
