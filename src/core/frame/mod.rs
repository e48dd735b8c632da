//! Frames and the pools of their storage.
//!
//! A block takes a [`FrameMut`] from the pool of its output, fills it and pushes it. The pushed
//! frame is an `Arc<Frame>` that any number of readers share. When the last reader drops
//! the frame, its storage returns to the pool, and the pool wakes the block that owns it.

mod header;
mod shared;
mod storage;

pub use header::{Annotations, Header};
pub use shared::{SharedAllocator, SharedMemory};
pub use storage::{Allocator, DeviceBuffer, HostAllocator, HostBuffer, OutOfMemory, Storage};

use crate::lock::lock;
use crate::time_base::TimeBase;
use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Storage and header, which move between pool and frames.
struct Slot {
    storage: Storage,
    header: Header,
    /// Whether it was added after the pool was made, with an allocation of its own.
    is_added: bool,
}

/// Buffers that move to frames and back.
#[allow(clippy::vec_box, reason = "a box is one word to move")]
type Slots = Vec<Box<Slot>>;

/// A fixed set of equal buffers.
pub struct Pool {
    stock: Mutex<Stock>,
    frame_bytes: usize,
    validity_units: usize,
    owner: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Free buffers of a pool, and its size.
#[derive(Default)]
struct Stock {
    /// Free buffers; the last one is taken next.
    free: Slots,
    /// Number of buffers, free and in flight.
    size: usize,
    /// Number of buffers that are freed when they return.
    surplus: usize,
    /// Number of buffers in flight that were added.
    added_in_flight: usize,
}

impl Stock {
    /// Takes the buffer that returned last.
    fn take(&mut self) -> Option<Box<Slot>> {
        let slot = self.free.pop()?;
        self.added_in_flight += usize::from(slot.is_added);
        Some(slot)
    }

    /// Takes back a buffer, unless it must be freed. Added buffers are freed first: the others may share an allocation,
    /// which only the last of them frees.
    fn put(&mut self, slot: Box<Slot>) -> Option<Box<Slot>> {
        self.added_in_flight -= usize::from(slot.is_added);
        if self.surplus > 0 && (slot.is_added || self.surplus > self.added_in_flight) {
            self.surplus -= 1;
            self.size -= 1;
            return Some(slot);
        }
        self.free.push(slot);
        None
    }

    /// Removes up to `count` free buffers: added ones first, and then, if there are fewer than `count` added ones with those
    /// in flight, those that would be taken last.
    fn remove(&mut self, count: usize) -> Slots {
        // Added buffers in flight that are not freed already when they return.
        let returning = self.added_in_flight.saturating_sub(self.surplus);
        let mut removed = Slots::with_capacity(count.min(self.free.len()));
        for (only_added, most) in [(true, count), (false, count.saturating_sub(returning))] {
            let mut at = 0;
            while at < self.free.len() && removed.len() < most {
                if self.free[at].is_added || !only_added {
                    removed.push(self.free.remove(at));
                } else {
                    at += 1;
                }
            }
        }
        self.size -= removed.len();
        removed
    }
}

impl Pool {
    /// A pool of `count` buffers of `frame_bytes` bytes from `allocator`, with `validity_units` validity counts each.
    pub fn new(
        allocator: &dyn Allocator,
        count: usize,
        frame_bytes: usize,
        validity_units: usize,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let pool = Arc::new(Self {
            stock: Mutex::default(),
            frame_bytes,
            validity_units,
            owner: OnceLock::new(),
        });
        pool.add(allocator.allocate_pool(count, frame_bytes)?, false);
        Ok(pool)
    }

    /// A pool of `count` buffers and `added` ones, whose memory [`shrink`](Self::shrink) by `added` frees.
    pub fn new_with_added(
        allocator: &dyn Allocator,
        (count, added): (usize, usize),
        frame_bytes: usize,
        validity_units: usize,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let pool = Self::new(allocator, count, frame_bytes, validity_units)?;
        pool.grow(allocator, added)?;
        Ok(pool)
    }

    /// Adds `count` buffers from `allocator`; none on an error.
    pub fn grow(&self, allocator: &dyn Allocator, count: usize) -> Result<(), OutOfMemory> {
        // Outside the lock, because allocation is slow.
        let each = (0..count).map(|_| allocator.allocate(self.frame_bytes));
        self.add(each.collect::<Result<Vec<_>, _>>()?, true);
        self.wake_owner();
        Ok(())
    }

    fn add(&self, buffers: Vec<Storage>, is_added: bool) {
        let mut stock = self.stock();
        stock.size += buffers.len();
        // Reserve for all buffers, so that the return of a buffer never allocates.
        let more = stock.size - stock.free.len();
        stock.free.reserve(more);
        let slot = |storage| Box::new(Slot { storage, header: Header::default(), is_added });
        stock.free.extend(buffers.into_iter().map(slot));
    }

    /// Frees `count` buffers: free ones now, the others when they return.
    pub fn shrink(&self, count: usize) {
        let mut stock = self.stock();
        let freed = stock.remove(count);
        stock.surplus += (count - freed.len()).min(stock.size - stock.surplus);
        drop(stock);
        drop(freed);
    }

    /// Sets a function that is called whenever a buffer returns; only the first call has an effect.
    pub fn on_return(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.owner.set(Box::new(wake));
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        lock(&self.stock)
    }

    fn wake_owner(&self) {
        if let Some(wake) = self.owner.get() {
            wake();
        }
    }

    fn take_home(&self, slot: Box<Slot>) {
        let mut stock = self.stock();
        let freed = stock.put(slot);
        drop(stock);
        drop(freed);
        self.wake_owner();
    }

    /// Takes a free buffer, or returns `None` if all are in flight. Validity is 0, the payload is not cleared.
    ///
    /// The buffer that returned last is taken first, because it is most likely still in the CPU's caches.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<FrameMut> {
        let mut slot = self.stock().take()?;
        slot.header.sequence = 0;
        slot.header.timestamp = 0;
        slot.header.base = TimeBase::default();
        slot.header.validity.clear();
        slot.header.validity.resize(self.validity_units, 0);
        slot.header.annotations.clear();
        Some(FrameMut(Frame { slot: Some(slot), home: Arc::clone(self) }))
    }

    /// Number of buffers of the pool, free and in flight.
    #[must_use]
    pub fn size(&self) -> usize {
        self.stock().size
    }

    /// Number of free buffers.
    #[must_use]
    pub fn available(&self) -> usize {
        self.stock().free.len()
    }

    /// Payload of each frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }
}

/// Error: the payload of a frame is in device memory, which the host cannot read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload of the frame is in device memory, and the block runs on the CPU")]
pub struct NotOnHost;

/// Message of `expect` for blocks on the CPU, whose frames are always in host memory.
pub const ON_HOST: &str = "the plan gives blocks on the CPU frames in host memory";

/// A frame that readers share. Read-only.
pub struct Frame {
    /// `None` only while dropping.
    slot: Option<Box<Slot>>,
    home: Arc<Pool>,
}

/// A frame that one block is filling.
pub struct FrameMut(Frame);

impl Frame {
    fn slot(&self) -> &Slot {
        self.slot.as_ref().expect("a frame has its slot until it is dropped")
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.slot().header
    }

    /// The pool of the frame.
    #[must_use]
    pub fn home(&self) -> &Arc<Pool> {
        &self.home
    }

    /// Storage of the payload.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.slot().storage
    }

    /// The payload as shared memory, if other processes can map it.
    #[must_use]
    pub fn shared(&self) -> Option<&SharedMemory> {
        match &self.slot().storage {
            Storage::Host(words) => words.shared(),
            Storage::Device(_) => None,
        }
    }

    /// The payload as `T`s, if it is in host memory.
    pub fn as_slice<T: AnyBitPattern>(&self) -> Result<&[T], NotOnHost> {
        match &self.slot().storage {
            Storage::Host(words) => {
                let bytes: &[u8] = bytemuck::cast_slice(words.words());
                Ok(whole_elements(&bytes[..self.home.frame_bytes]))
            }
            Storage::Device(_) => Err(NotOnHost),
        }
    }
}

/// `bytes` as `T`s; an incomplete `T` at the end is left out.
fn whole_elements<T: AnyBitPattern>(bytes: &[u8]) -> &[T] {
    let whole = bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice(&bytes[..whole])
}

impl FrameMut {
    /// The header, for writing.
    pub fn header_mut(&mut self) -> &mut Header {
        &mut self.slot_mut().header
    }

    fn slot_mut(&mut self) -> &mut Slot {
        self.0.slot.as_mut().expect("a frame has its slot until it is dropped")
    }

    /// The payload as `T`s, for writing, if it is in host memory.
    pub fn as_mut_slice<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T], NotOnHost> {
        Ok(self.parts_mut()?.1)
    }

    /// Header and payload, for writing, if the payload is in host memory.
    pub fn parts_mut<T: AnyBitPattern + NoUninit>(
        &mut self,
    ) -> Result<(&mut Header, &mut [T]), NotOnHost> {
        let frame_bytes = self.0.home.frame_bytes;
        let slot = self.slot_mut();
        let payload = match &mut slot.storage {
            Storage::Host(words) => {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(words.words_mut());
                let whole = frame_bytes / size_of::<T>() * size_of::<T>();
                bytemuck::cast_slice_mut(&mut bytes[..whole])
            }
            Storage::Device(_) => return Err(NotOnHost),
        };
        Ok((&mut slot.header, payload))
    }

    /// Sets all validity counts to `count`.
    pub fn fill_validity(&mut self, count: u32) {
        self.header_mut().validity.fill(count);
    }

    /// Makes the frame read-only and shared.
    ///
    /// The `Arc` is the only allocation per frame; it counts the readers without unsafe code.
    #[must_use]
    pub fn freeze(self) -> Arc<Frame> {
        Arc::new(self.0)
    }
}

impl TryFrom<Arc<Frame>> for FrameMut {
    /// The frame, still shared.
    type Error = Arc<Frame>;

    /// Makes the frame writable again, if it has no other reader.
    fn try_from(frame: Arc<Frame>) -> Result<Self, Arc<Frame>> {
        Arc::try_unwrap(frame).map(Self)
    }
}

impl Deref for FrameMut {
    type Target = Frame;
    fn deref(&self) -> &Frame {
        &self.0
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.home.take_home(slot);
        }
    }
}

#[cfg(test)]
mod memory_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_in_host_memory_is_aligned_to_a_cache_line() {
        let pool = Pool::new(&HostAllocator, 3, 100, 1).unwrap();
        for _ in 0..3 {
            let mut frame = pool.take().unwrap();
            let payload = frame.as_mut_slice::<u8>().unwrap();
            assert_eq!((payload.len(), payload.as_ptr().align_offset(64)), (100, 0));
        }
    }

    #[test]
    fn storage_returns_when_last_reader_drops() {
        let pool = Pool::new(&HostAllocator, 1, 64, 1).unwrap();
        let frame = pool.take().unwrap().freeze();
        let reader = Arc::clone(&frame);
        assert!(pool.take().is_none());
        drop(frame);
        assert!(pool.take().is_none());
        drop(reader);
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn recycled_frame_has_no_validity_and_annotations() {
        let pool = Pool::new(&HostAllocator, 1, 64, 2).unwrap();
        let mut frame = pool.take().unwrap();
        frame.fill_validity(1);
        frame.header_mut().annotations.reset("power", 2)[1] = 3.0;
        drop(frame);
        let frame = pool.take().unwrap();
        assert_eq!(frame.header().validity, [0, 0]);
        assert!(frame.header().annotations.get("power").is_empty());
    }

    #[test]
    fn pool_takes_last_returned_buffer_first() {
        let pool = Pool::new(&HostAllocator, 3, 64, 0).unwrap();
        let address = |frame: &FrameMut| frame.as_slice::<u8>().unwrap().as_ptr();
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let last_home = address(&first);
        drop(second);
        drop(first);
        assert_eq!(address(&pool.take().unwrap()), last_home);
    }

    #[test]
    fn pool_grows_immediately_and_shrinks_as_buffers_return() {
        let pool = Pool::new(&HostAllocator, 2, 64, 0).unwrap();
        let frames = [pool.take().unwrap(), pool.take().unwrap()];
        pool.grow(&HostAllocator, 3).unwrap();
        assert_eq!((pool.size(), pool.available()), (5, 3));
        pool.shrink(4);
        assert_eq!((pool.size(), pool.available()), (2, 0));
        drop(frames);
        assert_eq!((pool.size(), pool.available()), (1, 1));
        pool.shrink(5);
        assert_eq!((pool.size(), pool.available()), (0, 0));
    }

    #[test]
    fn pool_frees_added_buffers_before_those_of_its_first_allocation() {
        let pool = Pool::new(&HostAllocator, 2, 64, 0).unwrap();
        let own = [pool.take().unwrap(), pool.take().unwrap()];
        let address = |frame: &FrameMut| frame.as_slice::<u8>().unwrap().as_ptr();
        let mut first: Vec<_> = own.iter().map(address).collect();
        for _ in 0..3 {
            pool.grow(&HostAllocator, 2).unwrap();
            let added = pool.take().unwrap();
            // One added buffer is free, one is in flight.
            pool.shrink(2);
            assert_eq!((pool.size(), pool.available()), (3, 0));
            drop(added);
            assert_eq!((pool.size(), pool.available()), (2, 0));
        }
        pool.grow(&HostAllocator, 1).unwrap();
        let added = pool.take().unwrap();
        pool.shrink(1);
        drop(own);
        assert_eq!((pool.size(), pool.available()), (3, 2));
        drop(added);
        assert_eq!((pool.size(), pool.available()), (2, 2));
        let own = [pool.take().unwrap(), pool.take().unwrap()];
        let mut last: Vec<_> = own.iter().map(address).collect();
        first.sort_unstable();
        last.sort_unstable();
        assert_eq!(last, first);
    }

    #[test]
    fn frame_without_other_readers_becomes_writable() {
        let pool = Pool::new(&HostAllocator, 1, 64, 0).unwrap();
        let frame = pool.take().unwrap().freeze();
        let reader = Arc::clone(&frame);
        let frame = FrameMut::try_from(frame).err().unwrap();
        drop(reader);
        let mut frame = FrameMut::try_from(frame).ok().unwrap();
        frame.as_mut_slice::<u8>().unwrap()[0] = 1;
    }

    /// Storage that the host cannot access.
    struct Elsewhere;

    impl DeviceBuffer for Elsewhere {
        fn len_bytes(&self) -> usize {
            64
        }
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    impl Allocator for Elsewhere {
        fn allocate(&self, _: usize) -> Result<Storage, OutOfMemory> {
            Ok(Storage::Device(Box::new(Self)))
        }
    }

    #[test]
    fn slice_of_device_memory_is_an_error() {
        let pool = Pool::new(&Elsewhere, 1, 64, 1).unwrap();
        let mut frame = pool.take().unwrap();
        assert_eq!(frame.as_slice::<u8>(), Err(NotOnHost));
        assert_eq!(frame.as_mut_slice::<u8>(), Err(NotOnHost));
        assert!(frame.parts_mut::<u8>().is_err());
    }

    #[test]
    fn payload_is_read_as_any_element_type() {
        let pool = Pool::new(&HostAllocator, 1, 10, 0).unwrap();
        let mut frame = pool.take().unwrap();
        assert_eq!(frame.as_mut_slice::<u8>().unwrap().len(), 10);
        assert_eq!(frame.as_slice::<f32>().unwrap().len(), 2);
    }
}
