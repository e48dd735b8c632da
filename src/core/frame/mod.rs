//! Frames and the pools their storage comes from.
//!
//! A block takes a [`FrameMut`] from its output's pool, fills it and pushes it; from then
//! on it is an `Arc<Frame>` that any number of readers share. When the last reader drops
//! it, on whatever path, the storage goes home to the pool and the pool's owner is woken.

mod header;
mod storage;

pub use header::{Annotations, Header};
pub use storage::{Allocator, DeviceBuffer, HostAllocator, HostBuffer, OutOfMemory, Storage};

use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What goes round between pool and frames.
struct Slot {
    storage: Storage,
    header: Header,
}

/// A fixed set of equal buffers.
pub struct Pool {
    stock: Mutex<Stock>,
    frame_bytes: usize,
    validity_units: usize,
    owner: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What a pool has at home, and what it is to have.
struct Stock {
    /// The next one to go out last.
    #[allow(clippy::vec_box, reason = "slots move to frames and back; a box is one word")]
    free: Vec<Box<Slot>>,
    /// Buffers at home and in flight.
    size: usize,
    /// Buffers to be freed as they come home.
    surplus: usize,
}

impl Pool {
    /// `count` buffers of `frame_bytes` from `allocator`, with `validity_units` counts each.
    pub fn new(
        allocator: &dyn Allocator,
        count: usize,
        frame_bytes: usize,
        validity_units: usize,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let pool = Arc::new(Self {
            stock: Mutex::new(Stock { free: Vec::new(), size: 0, surplus: 0 }),
            frame_bytes,
            validity_units,
            owner: OnceLock::new(),
        });
        pool.grow(allocator, count)?;
        Ok(pool)
    }

    /// `count` buffers more, from `allocator`; none if there is no memory for all of them.
    pub fn grow(&self, allocator: &dyn Allocator, count: usize) -> Result<(), OutOfMemory> {
        let slot = |_| {
            let storage = allocator.allocate(self.frame_bytes)?;
            Ok(Box::new(Slot { storage, header: Header::default() }))
        };
        // Outside the lock: allocating takes its time.
        let slots = (0..count).map(slot).collect::<Result<Vec<_>, _>>()?;
        let mut stock = self.stock();
        stock.size += count;
        // Room for all of them: coming home never allocates.
        let more = stock.size - stock.free.len();
        stock.free.reserve(more);
        stock.free.extend(slots);
        drop(stock);
        self.wake_owner();
        Ok(())
    }

    /// Frees `count` buffers: those at home now, the others as they come home.
    pub fn shrink(&self, count: usize) {
        let mut stock = self.stock();
        let left = stock.free.len().saturating_sub(count);
        let freed = stock.free.split_off(left);
        stock.size -= freed.len();
        stock.surplus += (count - freed.len()).min(stock.size - stock.surplus);
        drop(stock);
        drop(freed);
    }

    /// Calls `wake` whenever a buffer comes home; the first call wins.
    pub fn on_return(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.owner.set(Box::new(wake));
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_owner(&self) {
        if let Some(wake) = self.owner.get() {
            wake();
        }
    }

    fn take_home(&self, slot: Box<Slot>) {
        let mut stock = self.stock();
        let freed = if stock.surplus > 0 {
            stock.surplus -= 1;
            stock.size -= 1;
            Some(slot)
        } else {
            stock.free.push(slot);
            None
        };
        drop(stock);
        drop(freed);
        self.wake_owner();
    }

    /// An unused buffer, its validity all 0 and its payload whatever it was, or `None` if all are in flight.
    ///
    /// It is the one that came home last, which is still in the processor's caches.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<FrameMut> {
        let mut slot = self.stock().free.pop()?;
        slot.header.sequence = 0;
        slot.header.timestamp = 0;
        slot.header.validity.clear();
        slot.header.validity.resize(self.validity_units, 0);
        slot.header.annotations.clear();
        Some(FrameMut(Frame { slot: Some(slot), home: Arc::clone(self) }))
    }

    /// Buffers in the pool, in flight or not.
    #[must_use]
    pub fn size(&self) -> usize {
        self.stock().size
    }

    /// Buffers not in flight.
    #[must_use]
    pub fn available(&self) -> usize {
        self.stock().free.len()
    }

    /// Payload bytes of each frame.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }
}

/// The payload of a frame lies in the memory of a device, where the host cannot read or write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload of the frame is in device memory, and the block runs on the CPU")]
pub struct NotOnHost;

/// Why a block on the CPU may `expect` its frames in host memory.
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

    /// The pool that it comes from.
    #[must_use]
    pub fn home(&self) -> &Arc<Pool> {
        &self.home
    }

    /// Where the payload lives.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.slot().storage
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

/// `bytes` as `T`s; a tail that fills no `T` is left out.
fn whole_elements<T: AnyBitPattern>(bytes: &[u8]) -> &[T] {
    let whole = bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice(&bytes[..whole])
}

impl FrameMut {
    /// The header, to fill in.
    pub fn header_mut(&mut self) -> &mut Header {
        &mut self.slot_mut().header
    }

    fn slot_mut(&mut self) -> &mut Slot {
        self.0.slot.as_mut().expect("a frame has its slot until it is dropped")
    }

    /// The payload as `T`s, to fill in, if it is in host memory.
    pub fn as_mut_slice<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T], NotOnHost> {
        Ok(self.parts_mut()?.1)
    }

    /// Header and payload at once, if the payload is in host memory.
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

    /// Marks every validity unit with `count`.
    pub fn fill_validity(&mut self, count: u32) {
        self.header_mut().validity.fill(count);
    }

    /// No more writing: a frame that can be shared.
    ///
    /// The `Arc` is the one small allocation a frame makes; a safe count of its readers is worth it.
    #[must_use]
    pub fn freeze(self) -> Arc<Frame> {
        Arc::new(self.0)
    }
}

impl TryFrom<Arc<Frame>> for FrameMut {
    /// The frame, still shared.
    type Error = Arc<Frame>;

    /// Back from sharing, if nobody else has the frame.
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
mod tests {
    use super::*;

    #[test]
    fn storage_goes_home_when_the_last_reader_drops() {
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
    fn a_recycled_frame_starts_without_validity_and_annotations() {
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
    fn the_buffer_that_came_home_last_goes_out_first() {
        let pool = Pool::new(&HostAllocator, 3, 64, 0).unwrap();
        let address = |frame: &FrameMut| frame.as_slice::<u8>().unwrap().as_ptr();
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        let last_home = address(&first);
        drop(second);
        drop(first);
        assert_eq!(address(&pool.take().unwrap()), last_home);
    }

    #[test]
    fn a_pool_grows_at_once_and_shrinks_as_buffers_come_home() {
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
    fn a_frame_can_be_written_again_once_nobody_else_reads_it() {
        let pool = Pool::new(&HostAllocator, 1, 64, 0).unwrap();
        let frame = pool.take().unwrap().freeze();
        let reader = Arc::clone(&frame);
        let frame = FrameMut::try_from(frame).err().unwrap();
        drop(reader);
        let mut frame = FrameMut::try_from(frame).ok().unwrap();
        frame.as_mut_slice::<u8>().unwrap()[0] = 1;
    }

    /// Storage that only a device reaches.
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
    fn payload_in_device_memory_is_an_error_not_an_empty_slice() {
        let pool = Pool::new(&Elsewhere, 1, 64, 1).unwrap();
        let mut frame = pool.take().unwrap();
        assert_eq!(frame.as_slice::<u8>(), Err(NotOnHost));
        assert_eq!(frame.as_mut_slice::<u8>(), Err(NotOnHost));
        assert!(frame.parts_mut::<u8>().is_err());
    }

    #[test]
    fn payloads_are_seen_as_any_element_type() {
        let pool = Pool::new(&HostAllocator, 1, 10, 0).unwrap();
        let mut frame = pool.take().unwrap();
        assert_eq!(frame.as_mut_slice::<u8>().unwrap().len(), 10);
        assert_eq!(frame.as_slice::<f32>().unwrap().len(), 2);
    }
}
