//! Rings of descriptors, and other memory, that a socket shares with the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Mapped memory.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread. Access is unsafe or atomic.
unsafe impl Send for Mapping {}
// SAFETY: shared references give no access to the memory but by unsafe or atomic operations.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps new memory.
    pub fn new(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an unused address.
        let start = unsafe { libc::mmap(null_mut(), len, access, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Pointer to `bytes` bytes from `at`.
    ///
    /// # Panics
    /// If the memory does not contain them.
    pub fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.checked_add(bytes).is_some_and(|end| end <= self.len), "outside the mapping");
        // SAFETY: `at` is inside the mapping.
        unsafe { self.start.as_ptr().add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and nothing points to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A ring with a power of two of entries `T`, which are plain integers. The process is the only one at its end, the
/// kernel at the other.
pub struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `socket` at `page`.
    pub fn map(
        socket: &OwnedFd,
        page: libc::off_t,
        offsets: libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let len = offsets.desc as usize + entries as usize * size_of::<T>();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        let mapping = Mapping::map(len, flags, socket.as_raw_fd(), page)?;
        Ok(Self { mapping, offsets, entries, of: std::marker::PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        let word = self.mapping.at(offset as usize, 4).cast();
        // SAFETY: the kernel has a word of 32 bits there, and both sides access it atomically.
        unsafe { AtomicU32::from_ptr(word) }
    }

    fn produced(&self) -> u32 {
        self.word(self.offsets.producer).load(Ordering::Acquire)
    }

    fn consumed(&self) -> u32 {
        self.word(self.offsets.consumer).load(Ordering::Acquire)
    }

    fn entry(&self, position: u32) -> *mut T {
        let index = (position & (self.entries - 1)) as usize;
        self.mapping.at(self.offsets.desc as usize + index * size_of::<T>(), size_of::<T>()).cast()
    }

    /// Number of entries that the consumer has not taken.
    pub fn used(&self) -> u32 {
        self.produced().wrapping_sub(self.consumed())
    }

    /// Returns the used fraction of the entries.
    pub fn fill(&self) -> f32 {
        self.used() as f32 / self.entries as f32
    }

    /// Whether the kernel must be called after new entries.
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Entry number `index` of the used ones. Only for the consumer.
    pub fn get(&mut self, index: u32) -> T {
        let entry = self.entry(self.consumed().wrapping_add(index));
        // SAFETY: the kernel wrote the entry before it moved `producer`, and does not write it until `consumer` moves.
        unsafe { entry.read() }
    }

    /// Takes `count` used entries. Only for the consumer.
    pub fn take(&mut self, count: u32) {
        let consumed = self.consumed().wrapping_add(count);
        self.word(self.offsets.consumer).store(consumed, Ordering::Release);
    }

    /// Adds entries. Only for the producer, which keeps the number of used entries within the ring.
    pub fn put(&mut self, values: impl Iterator<Item = T>) {
        let mut position = self.produced();
        for value in values {
            // SAFETY: the kernel does not read the entry until `producer` moves.
            unsafe { self.entry(position).write(value) };
            position = position.wrapping_add(1);
        }
        self.word(self.offsets.producer).store(position, Ordering::Release);
    }
}
