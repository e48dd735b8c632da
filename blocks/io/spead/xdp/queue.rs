//! AF_XDP socket of one receive queue of an interface, with the memory that the kernel fills.

use super::headers::{self, Rejected};
use super::ring::{Mapping, Ring};
use crate::common::net::sockets::once_released;
use crate::io::spead::datagrams::{Datagrams, Place, Rejections};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

/// Bytes of a chunk, the unit of memory that the kernel fills: a page, the most that it accepts. A packet with more
/// bytes than a chunk has room for uses several.
const CHUNK: usize = 4096;
const LEAST_CHUNKS: usize = 64;

/// Number of chunks for a buffer of `bytes`.
fn chunks(bytes: usize) -> usize {
    let chunks = (bytes / CHUNK).max(LEAST_CHUNKS);
    1 << chunks.ilog2()
}

/// Bytes that the socket of a queue allocates for a buffer of `bytes`.
#[must_use]
pub fn allocated_bytes(bytes: usize) -> usize {
    chunks(bytes) * CHUNK
}

/// Descriptor of a packet, or of a part of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    options: u32,
}

/// Step at which a socket could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creating the socket.
    Socket,
    /// Registering its memory.
    Memory,
    /// Creating its rings.
    Rings,
    /// Binding it to the queue.
    Bind,
}

/// Ring of received packets, which other threads may look at.
pub struct Watched(RwLock<Ring<Descriptor>>);

impl Watched {
    fn look<T>(&self, look: impl FnOnce(&Ring<Descriptor>) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether packets wait.
    #[must_use]
    pub fn has_data(&self) -> bool {
        self.look(Ring::used) > 0
    }

    /// Returns the used fraction of the ring.
    #[must_use]
    pub fn fill(&self) -> f32 {
        self.look(Ring::fill)
    }
}

/// Counts of the kernel since the socket was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets dropped.
    pub packets: u64,
    /// Times that no free chunk was left.
    pub no_chunk: u64,
}

impl Rejections {
    fn add(&mut self, why: Rejected) {
        match why {
            Rejected::Header => self.headers += 1,
            Rejected::Fragment => self.fragments += 1,
            Rejected::Checksum => self.checksums += 1,
        }
    }
}

/// An AF_XDP socket.
pub struct Queue {
    socket: OwnedFd,
    received: Arc<Watched>,
    free: Ring<u64>,
    memory: Mapping,
}

impl Queue {
    /// Opens the socket of receive queue `queue` of interface number `interface`. `may_skip_copies`: the driver may write
    /// packets into the memory itself, if it can.
    ///
    /// # Errors
    /// The step that failed, and the error of the kernel.
    pub fn open(
        interface: u32,
        queue: u32,
        buffer_bytes: usize,
        may_skip_copies: bool,
    ) -> Result<Self, (Step, io::Error)> {
        let of = |step| move |error| (step, error);
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
        if fd < 0 {
            return Err((Step::Socket, io::Error::last_os_error()));
        }
        // SAFETY: the kernel has just opened this descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let chunks = chunks(buffer_bytes);
        let memory = Mapping::new(chunks * CHUNK).map_err(of(Step::Memory))?;
        let region = libc::xdp_umem_reg {
            addr: memory.address(),
            len: memory.len() as u64,
            chunk_size: CHUNK as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &region).map_err(of(Step::Memory))?;
        let entries = chunks as u32;
        // The kernel insists on a completion ring, which only senders use.
        for (ring, entries) in [
            (libc::XDP_UMEM_FILL_RING, entries),
            (libc::XDP_UMEM_COMPLETION_RING, 2),
            (libc::XDP_RX_RING, entries),
        ] {
            set(&socket, ring, &entries).map_err(of(Step::Rings))?;
        }
        let offsets: libc::xdp_mmap_offsets =
            get(&socket, libc::XDP_MMAP_OFFSETS).map_err(of(Step::Rings))?;
        let received = Ring::map(&socket, libc::XDP_PGOFF_RX_RING, offsets.rx, entries)
            .map_err(of(Step::Rings))?;
        let page = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let mut free = Ring::map(&socket, page, offsets.fr, entries).map_err(of(Step::Rings))?;
        free.put((0..chunks).map(|chunk| (chunk * CHUNK) as u64));
        let copies = if may_skip_copies { 0 } else { libc::XDP_COPY };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_SG | libc::XDP_USE_NEED_WAKEUP | copies,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        once_released(libc::EBUSY, || bind(&socket, &address)).map_err(of(Step::Bind))?;
        let received = Arc::new(Watched(RwLock::new(received)));
        Ok(Self { socket, received, free, memory })
    }

    /// Ring of received packets.
    #[must_use]
    pub fn watch(&self) -> Arc<Watched> {
        Arc::clone(&self.received)
    }

    /// Size of the memory for packets, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.memory.len()
    }

    /// Whether the driver writes packets into the memory itself.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn skips_copies(&self) -> io::Result<bool> {
        let options: libc::xdp_options = get(&self.socket, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Counts of the kernel.
    ///
    /// # Errors
    /// If the interface was removed.
    pub fn dropped(&self) -> io::Result<Dropped> {
        let mut error = 0_i32;
        get_into(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let counts: libc::xdp_statistics = get(&self.socket, libc::XDP_STATISTICS)?;
        let packets = counts.rx_dropped + counts.rx_ring_full;
        Ok(Dropped { packets, no_chunk: counts.rx_fill_ring_empty_descs })
    }
}

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> i32 {
        self.socket.as_raw_fd()
    }
}

/// Memory of one call of [`Queue::take`], which the next one uses again.
#[derive(Default)]
pub struct Taken {
    /// Chunks that go back to the kernel.
    chunks: Vec<u64>,
    /// Packets of more than one chunk.
    joined: Vec<u8>,
    places: Vec<Place>,
}

/// Result of [`Queue::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Datagrams taken.
    pub datagrams: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Packets rejected.
    pub rejected: Rejections,
    /// Whether no packet waits.
    pub emptied: bool,
}

impl Queue {
    /// Gives up to `most` packets that wait to `reader`, without those to other destinations than `addresses`, which are
    /// sorted.
    pub fn take(
        &mut self,
        most: usize,
        addresses: &[SocketAddrV4],
        taken: &mut Taken,
        reader: impl FnOnce(Datagrams<'_>),
    ) -> Count {
        let Taken { chunks, joined, places } = taken;
        chunks.clear();
        joined.clear();
        places.clear();
        let mut count = Count::default();
        let mut ring = self.received.0.write().unwrap_or_else(PoisonError::into_inner);
        let used = ring.used();
        let (mut complete, mut packets) = (0, 0);
        while packets < most {
            // The descriptors of an incomplete packet stay in the ring.
            let is_last = |at: &u32| ring.get(*at).options & libc::XDP_PKT_CONTD == 0;
            let Some(end) = (complete..used).find(is_last) else { break };
            let is_joined = end > complete;
            let mut start = joined.len();
            let mut packet: &[u8] = &[];
            for at in complete..=end {
                let Descriptor { address, len, .. } = ring.get(at);
                let address = address as usize;
                chunks.push((address & !(CHUNK - 1)) as u64);
                packet = bytes(&self.memory, address, len as usize);
                if is_joined {
                    joined.extend_from_slice(packet);
                } else {
                    start = address;
                }
            }
            let read = headers::read(if is_joined { &joined[start..] } else { packet });
            match read {
                Ok(datagram) if addresses.binary_search(&datagram.to).is_ok() => {
                    let len = datagram.payload.len();
                    let start = start + datagram.payload.start;
                    count.bytes += len as u64;
                    places.push(Place { is_joined, start, len, sender: datagram.from.into() });
                }
                // The program of the interface does not redirect these.
                Ok(_) => count.rejected.headers += 1,
                Err(why) => count.rejected.add(why),
            }
            complete = end + 1;
            packets += 1;
        }
        ring.take(complete);
        count.emptied = ring.used() == 0;
        drop(ring);
        count.datagrams = places.len() as u64;
        // Also without datagrams: the reader then knows that the queue has no data of its stream.
        if packets > 0 {
            let memory = &self.memory;
            reader(Datagrams::of_places(places, &|&Place { is_joined, start, len, .. }| {
                if is_joined { &joined[start..start + len] } else { bytes(memory, start, len) }
            }));
        }
        self.free.put(chunks.drain(..));
        if self.free.needs_wakeup() {
            self.wake_driver();
        }
        count
    }

    /// Tells the driver that chunks are free. It notices them with the next packet, too.
    fn wake_driver(&self) {
        let (none, no_name) = (std::ptr::null_mut(), std::ptr::null_mut());
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: a call without memory.
        unsafe {
            libc::recvfrom(self.socket.as_raw_fd(), none, 0, flags, no_name, std::ptr::null_mut())
        };
    }
}

/// Bytes of a packet that the kernel has handed over.
fn bytes(memory: &Mapping, address: usize, len: usize) -> &[u8] {
    let start = memory.at(address, len);
    // SAFETY: `at` has checked the bounds, and the kernel does not write the chunk until `Queue::take` returns it.
    unsafe { std::slice::from_raw_parts(start, len) }
}

fn bind(socket: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let len = size_of_val(address) as libc::socklen_t;
    // SAFETY: `address` has `len` bytes.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), (&raw const *address).cast(), len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set<T>(socket: &OwnedFd, name: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = (&raw const *value).cast();
    // SAFETY: `value` has `len` bytes.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, value, len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option whose value is plain integers.
fn get<T>(socket: &OwnedFd, name: i32) -> io::Result<T> {
    // SAFETY: all options that are read have structures of integers, for which all zeros is a value.
    let mut value = unsafe { std::mem::zeroed() };
    get_into(socket, libc::SOL_XDP, name, &mut value)?;
    Ok(value)
}

fn get_into<T>(socket: &OwnedFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = (&raw mut *value).cast();
    // SAFETY: `value` has `len` bytes.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value, &raw mut len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_a_power_of_two_of_chunks_within_the_bytes_given() {
        assert_eq!(allocated_bytes(32 << 20), 32 << 20);
        assert_eq!(allocated_bytes((64 << 20) - 1), 32 << 20);
        assert_eq!(allocated_bytes(4096), LEAST_CHUNKS * CHUNK);
    }
}
