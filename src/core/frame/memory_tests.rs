//! Memory of pools whose first buffers share an allocation.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// An allocation that its last buffer frees; `live` counts the bytes of all.
struct Whole {
    bytes: usize,
    live: Arc<AtomicUsize>,
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes, Relaxed);
    }
}

impl DeviceBuffer for Arc<Whole> {
    fn len_bytes(&self) -> usize {
        self.bytes
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// An allocator like that of a GPU, with one allocation for a new pool.
struct Wholes(Arc<AtomicUsize>);

impl Allocator for Wholes {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        Ok(self.allocate_pool(1, bytes)?.remove(0))
    }
    fn allocate_pool(&self, count: usize, bytes: usize) -> Result<Vec<Storage>, OutOfMemory> {
        let (bytes, live) = (count * bytes, Arc::clone(&self.0));
        live.fetch_add(bytes, Relaxed);
        let whole = Arc::new(Whole { bytes, live });
        Ok((0..count).map(|_| Storage::Device(Box::new(Arc::clone(&whole)))).collect())
    }
}

#[test]
fn buffers_that_a_pool_needs_for_a_while_give_their_memory_back() {
    let live = Arc::new(AtomicUsize::new(0));
    let bytes = || live.load(Relaxed);
    let allocator = Wholes(Arc::clone(&live));
    let pool = Pool::new_with_added(&allocator, (3, 2), 64, 0).unwrap();
    assert_eq!((pool.size(), bytes()), (5, 5 * 64));
    let in_flight: Vec<FrameMut> = (0..4).map(|_| pool.take().unwrap()).collect();
    pool.shrink(2);
    drop(in_flight);
    assert_eq!((pool.size(), bytes()), (3, 3 * 64));
    drop(pool);
    assert_eq!(bytes(), 0);
}
