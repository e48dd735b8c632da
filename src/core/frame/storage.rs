//! Where payloads lie, and who makes the memory.

/// Memory of the host; `u128` words keep every element type aligned.
pub trait HostBuffer: Send + Sync {
    /// All of it.
    fn words(&self) -> &[u128];
    /// All of it, to write.
    fn words_mut(&mut self) -> &mut [u128];
}

impl HostBuffer for Vec<u128> {
    fn words(&self) -> &[u128] {
        self
    }
    fn words_mut(&mut self) -> &mut [u128] {
        self
    }
}

/// Memory of a device that is not the host.
pub trait DeviceBuffer: Send + Sync {
    /// Size in bytes.
    fn len_bytes(&self) -> usize;
    /// The device's own type, for its blocks to get at.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Where a payload lives.
pub enum Storage {
    /// Host memory, ordinary or pinned.
    Host(Box<dyn HostBuffer>),
    /// Memory of a device.
    Device(Box<dyn DeviceBuffer>),
}

/// Makes the storage of a pool: host memory, pinned memory, a device's memory.
pub trait Allocator: Send + Sync {
    /// Storage of at least `bytes` bytes.
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory>;
}

/// Storage could not be had.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot allocate {bytes} bytes of {memory} memory")]
pub struct OutOfMemory {
    /// What was asked for.
    pub bytes: usize,
    /// `host`, `pinned`, `cuda:0`, ...
    pub memory: String,
}

/// Ordinary host memory.
pub struct HostAllocator;

impl Allocator for HostAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let words = bytes.div_ceil(size_of::<u128>());
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(words)
            .map_err(|_| OutOfMemory { bytes, memory: "host".to_owned() })?;
        memory.resize(words, 0);
        Ok(Storage::Host(Box::new(memory)))
    }
}
