//! Storage of payloads, and its allocators.

use super::SharedMemory;
use bytemuck::{Pod, Zeroable};

/// Host memory; words of type `u128` keep every element type aligned.
pub trait HostBuffer: Send + Sync {
    /// The memory.
    fn words(&self) -> &[u128];
    /// The memory, for writing.
    fn words_mut(&mut self) -> &mut [u128];
    /// The memory as a file that other processes can map, if it is shared memory.
    fn shared(&self) -> Option<&SharedMemory> {
        None
    }
}

/// A cache line. A load of that size from a payload aligned to it touches one line instead of two.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u128; 4]);

impl HostBuffer for Vec<Line> {
    fn words(&self) -> &[u128] {
        bytemuck::cast_slice(self)
    }
    fn words_mut(&mut self) -> &mut [u128] {
        bytemuck::cast_slice_mut(self)
    }
}

/// Memory of a device other than the host.
pub trait DeviceBuffer: Send + Sync {
    /// Size in bytes.
    fn len_bytes(&self) -> usize;
    /// The buffer as `Any`, so that blocks of the device can downcast it to its own type.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Storage of a payload.
pub enum Storage {
    /// Host memory, ordinary or pinned.
    Host(Box<dyn HostBuffer>),
    /// Memory of a device.
    Device(Box<dyn DeviceBuffer>),
}

/// Allocates the storage of a pool: host memory, pinned or shared host memory, or device memory.
pub trait Allocator: Send + Sync {
    /// Allocates storage of at least `bytes` bytes.
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory>;

    /// Allocates the storage of a new pool: `count` buffers of at least `bytes` bytes each, in one allocation where
    /// allocations are rounded up to large pages. Such memory is freed with the last of the buffers.
    fn allocate_pool(&self, count: usize, bytes: usize) -> Result<Vec<Storage>, OutOfMemory> {
        (0..count).map(|_| self.allocate(bytes)).collect()
    }
}

/// Error: an allocation of storage failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot allocate {bytes} bytes of {memory} memory")]
pub struct OutOfMemory {
    /// Size of the allocation in bytes.
    pub bytes: usize,
    /// Type of memory: `host`, `pinned`, `shared`, `cuda:0`, ...
    pub memory: String,
}

/// Allocator of pageable host memory.
pub struct HostAllocator;

impl Allocator for HostAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let lines = bytes.div_ceil(size_of::<Line>());
        let mut memory: Vec<Line> = Vec::new();
        memory
            .try_reserve_exact(lines)
            .map_err(|_| OutOfMemory { bytes, memory: "host".to_owned() })?;
        memory.resize(lines, Line::zeroed());
        Ok(Storage::Host(Box::new(memory)))
    }
}
