//! Memory of a device, and memory of the host that devices copy from and to.
//!
//! What is done here to device memory goes by the driver's own stream, for which lanes do not wait:
//! so each of these calls ends when the device has done it. They belong to the start of a run.
#![allow(unsafe_code)] // allocations of the driver, which these types own

use super::lane::Progress;
use super::{CudaError, Device, calls};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Allocator, DeviceBuffer, Frame, HostBuffer, OutOfMemory, Storage};
use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes behind every buffer that kernels may read, so that they need not cut their last vector.
pub const SLACK_BYTES: usize = 256;
/// What device memory holds before anything is written: no number, and no plausible sample.
const POISON: u8 = 0xff;

/// Memory that a lane keeps beyond its owner.
pub(super) struct Shared<M> {
    pub memory: Arc<M>,
    /// Number of the lane that keeps it; 0 without one.
    pub kept_by: AtomicU64,
}

impl<M> Shared<M> {
    fn new(memory: M) -> Self {
        Self { memory: Arc::new(memory), kept_by: AtomicU64::new(0) }
    }
}

/// Who allocated memory, and frees it.
enum Owner {
    Device(Arc<Device>),
    /// The host's heap, in tests without a GPU.
    #[cfg(test)]
    Heap(std::alloc::Layout),
}

impl Owner {
    #[cfg(test)]
    fn heap(bytes: usize) -> (Self, *mut c_void) {
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), 64).unwrap();
        // SAFETY: of more than no bytes.
        (Self::Heap(layout), unsafe { std::alloc::alloc_zeroed(layout) }.cast())
    }

    fn device(&self) -> &Arc<Device> {
        match self {
            Self::Device(device) => device,
            #[cfg(test)]
            Self::Heap(_) => unreachable!("this test has no GPU"),
        }
    }
}

/// Device memory, freed when it is dropped.
pub(super) struct Allocation {
    owner: Owner,
    address: u64,
    bytes: usize,
}

impl Allocation {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        calls::count_allocation();
        let failed = CudaError::driver("allocating GPU memory");
        let whole = bytes + SLACK_BYTES;
        // SAFETY: the memory is owned by the result, which frees it once.
        let address = unsafe { result::malloc_sync(whole) }.map_err(&failed)?;
        let allocation = Self { owner: Owner::Device(Arc::clone(device)), address, bytes };
        // SAFETY: exactly the bytes just allocated.
        unsafe { result::memset_d8_sync(address, POISON, whole) }.map_err(&failed)?;
        device.synchronise()?;
        Ok(allocation)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Device(device) => {
                if device.bind().is_ok() {
                    // SAFETY: nobody else frees it. After a fault the driver refuses, and has freed it.
                    let _ = unsafe { result::free_sync(self.address) };
                }
            }
            #[cfg(test)]
            // SAFETY: allocated with this layout, freed once.
            Owner::Heap(layout) => unsafe {
                std::alloc::dealloc(
                    std::ptr::with_exposed_provenance_mut(self.address as usize),
                    *layout,
                );
            },
        }
    }
}

/// An array in device memory that belongs to a block. Kernels write it through its address.
pub struct DeviceArray<T> {
    memory: Shared<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceArray<T> {
    /// Room for `len` elements; they hold nonsense.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let memory = Shared::new(Allocation::new(device, len * size_of::<T>())?);
        Ok(Self { memory, len, element: PhantomData })
    }

    /// An array on the host's heap, for a driver that needs no GPU.
    #[cfg(test)]
    pub(super) fn on_heap(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        let (owner, memory) = Owner::heap(bytes);
        let address = memory.expose_provenance() as u64;
        Self {
            memory: Shared::new(Allocation { owner, address, bytes }),
            len,
            element: PhantomData,
        }
    }

    pub(super) fn shared(&self) -> &Shared<Allocation> {
        &self.memory
    }

    fn device(&self) -> &Arc<Device> {
        self.memory.memory.owner.device()
    }

    /// Room for `len` elements of zero.
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let array = Self::new(device, len)?;
        // SAFETY: exactly the array's bytes.
        let cleared = unsafe { result::memset_d8_sync(array.address(), 0, array.bytes()) };
        cleared.map_err(CudaError::driver("clearing GPU memory"))?;
        device.synchronise()?;
        Ok(array)
    }

    /// A copy of `values`. Waits for the device: for the start, not for frames.
    pub fn from_slice(device: &Arc<Device>, values: &[T]) -> Result<Self, CudaError> {
        let mut array = Self::new(device, values.len())?;
        array.write(values)?;
        Ok(array)
    }

    /// Overwrites the first elements. Waits for the device: for the start, not for frames.
    pub fn write(&mut self, values: &[T]) -> Result<(), CudaError> {
        if values.len() > self.len {
            let reason = format!("{} elements into an array of {}", values.len(), self.len);
            return Err(CudaError::Library { what: "copying to the GPU", reason });
        }
        self.device().bind()?;
        // SAFETY: as many bytes as are there.
        let copied = unsafe { result::memcpy_htod_sync(self.address(), values) };
        copied.map_err(CudaError::driver("copying to the GPU"))?;
        self.device().synchronise()
    }

    /// A copy on the host. Waits for the device: for tests and for the end.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        self.device().synchronise()?;
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: as many bytes as are there.
        let copied = unsafe { result::memcpy_dtoh_sync(&mut values, self.address()) };
        copied.map_err(CudaError::driver("copying from the GPU"))?;
        Ok(values)
    }

    /// Address of its first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.memory.address
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

/// Host memory that devices reach directly, zero at first, freed when it is dropped. Whoever reads
/// or writes it makes sure that no device does.
pub(super) struct HostMemory {
    owner: Owner,
    /// Aligned for every element type.
    memory: *mut u128,
    bytes: usize,
}

// SAFETY: it owns its memory, which only unsafe code reads or writes.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        calls::count_allocation();
        // For all devices alike, and at the host's address; not write-combined, as hosts read it.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is owned by the result, which frees it once.
        let memory = unsafe { result::malloc_host(bytes.max(1), flags) }
            .map_err(CudaError::driver("allocating pinned memory"))?;
        // SAFETY: exactly the bytes just allocated.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes.max(1)) };
        Ok(Self { owner: Owner::Device(Arc::clone(device)), memory: memory.cast(), bytes })
    }

    /// Memory on the heap, for a driver that needs no GPU.
    #[cfg(test)]
    pub(super) fn on_heap(bytes: usize) -> Self {
        let (owner, memory) = Owner::heap(bytes);
        Self { owner, memory: memory.cast(), bytes }
    }

    /// Where it begins, aligned for every element type.
    pub(super) fn as_ptr(&self) -> *mut u128 {
        self.memory
    }

    /// Its size in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Its address on the device, which is that on the host.
    pub(super) fn address(&self) -> u64 {
        self.memory.expose_provenance() as u64
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Device(device) => {
                if device.bind().is_ok() {
                    // SAFETY: nobody else frees it.
                    let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
                }
            }
            #[cfg(test)]
            // SAFETY: allocated with this layout, freed once.
            Owner::Heap(layout) => unsafe { std::alloc::dealloc(self.memory.cast(), *layout) },
        }
    }
}

/// A job that is not over uses memory that the host wants to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the GPU still uses this memory: its job is not over")]
pub struct InUse;

impl From<InUse> for BlockError {
    fn from(error: InUse) -> Self {
        Self::new(error.to_string())
    }
}

/// An array in host memory that devices reach directly, and that copies of a
/// [`Lane`](super::Lane) fill or read. The host gets at it only while no such copy may be under way.
pub struct Pinned<T> {
    memory: Shared<HostMemory>,
    len: usize,
    /// Of the lane that copies it.
    progress: Option<Arc<Progress>>,
    /// Number of the last job that reads it, and of the last one that writes it.
    sent: u64,
    fetched: u64,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// `len` zeros.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        Ok(Self::of(HostMemory::new(device, len * size_of::<T>())?, len))
    }

    /// An array on the heap, for a driver that needs no GPU.
    #[cfg(test)]
    pub(super) fn on_heap(len: usize) -> Self {
        Self::of(HostMemory::on_heap(len * size_of::<T>()), len)
    }

    fn of(memory: HostMemory, len: usize) -> Self {
        let memory = Shared::new(memory);
        Self { memory, len, progress: None, sent: 0, fetched: 0, element: PhantomData }
    }

    fn is_over(&self, number: u64) -> bool {
        self.progress.as_ref().is_none_or(|progress| progress.is_over(number))
    }

    /// The elements, unless a copy of a job that is not over may write them.
    pub fn get(&self) -> Result<&[T], InUse> {
        if !self.is_over(self.fetched) {
            return Err(InUse);
        }
        // SAFETY: `len` elements, of which any bytes are values, that `self` owns; no copy writes them.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.memory.as_ptr().cast(), self.len) })
    }

    /// The elements, to be written, unless a copy of a job that is not over may read or write them.
    pub fn get_mut(&mut self) -> Result<&mut [T], InUse> {
        if !self.is_over(self.fetched.max(self.sent)) {
            return Err(InUse);
        }
        // SAFETY: as above, borrowed alone, and no copy reads them either.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.memory.as_ptr().cast(), self.len) })
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address on the device, which is that on the host.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.memory.address()
    }

    pub(super) fn shared(&self) -> &Shared<HostMemory> {
        &self.memory
    }

    /// Whether no job of another lane than that of `progress` uses it.
    pub(super) fn is_free_for(&self, progress: &Arc<Progress>) -> bool {
        self.progress.as_ref().is_none_or(|own| Arc::ptr_eq(own, progress))
            || self.is_over(self.fetched.max(self.sent))
    }

    /// Job `number` of the lane of `progress` reads it.
    pub(super) fn sent_with(&mut self, progress: &Arc<Progress>, number: u64) {
        self.lent_to(progress);
        self.sent = number;
    }

    /// Job `number` of the lane of `progress` writes it.
    pub(super) fn fetched_with(&mut self, progress: &Arc<Progress>, number: u64) {
        self.lent_to(progress);
        self.fetched = number;
    }

    fn lent_to(&mut self, progress: &Arc<Progress>) {
        if !self.progress.as_ref().is_some_and(|own| Arc::ptr_eq(own, progress)) {
            (self.sent, self.fetched) = (0, 0);
            self.progress = Some(Arc::clone(progress));
        }
    }
}

/// Payload of a frame in host memory. A frame is written by the one job or block that owns it, and
/// read by others only after that.
struct PinnedPayload(HostMemory);

impl HostBuffer for PinnedPayload {
    fn words(&self) -> &[u128] {
        let words = self.0.len() / size_of::<u128>();
        // SAFETY: whole words of memory that `self` owns, whose frame is shared for reading.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), words) }
    }
    fn words_mut(&mut self) -> &mut [u128] {
        let words = self.0.len() / size_of::<u128>();
        // SAFETY: as above, and the frame is borrowed alone: no job owns it.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), words) }
    }
}

/// Payloads of frames in the memory of a device.
pub struct DeviceAllocator(pub Arc<Device>);

/// Payload of a frame in device memory.
struct Payload(Allocation);

impl DeviceBuffer for Payload {
    fn len_bytes(&self) -> usize {
        self.0.bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Allocator for DeviceAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let memory = Allocation::new(&self.0, bytes)
            .map_err(|_| OutOfMemory { bytes, memory: format!("cuda:{}", self.0.ordinal()) })?;
        Ok(Storage::Device(Box::new(Payload(memory))))
    }
}

/// Payloads of frames in host memory that devices copy from or to.
pub struct PinnedAllocator(pub Arc<Device>);

impl Allocator for PinnedAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let memory = HostMemory::new(&self.0, bytes.next_multiple_of(size_of::<u128>()))
            .map_err(|_| OutOfMemory { bytes, memory: "pinned".to_owned() })?;
        Ok(Storage::Host(Box::new(PinnedPayload(memory))))
    }
}

/// Where the payload of `frame` lies on `device`.
pub fn frame_address(frame: &Frame, device: &Device) -> Result<u64, BlockError> {
    let payload = match frame.storage() {
        Storage::Device(buffer) => buffer.as_any().downcast_ref::<Payload>(),
        Storage::Host(_) => None,
    };
    match payload {
        Some(Payload(memory)) if memory.owner.device().ordinal() == device.ordinal() => {
            Ok(memory.address)
        }
        _ => Err(BlockError::new(format!("a frame does not lie on cuda:{}", device.ordinal()))),
    }
}
