//! Device memory, and pinned host memory for copies from and to devices.
//!
//! The operations on device memory here use the driver's default stream, for which CUDA pipelines do not wait.
//! Therefore each call returns only when the device has finished it. Use them at the start of a run.
#![allow(unsafe_code)] // allocations of the driver, which these types own

use super::ipc::{HANDLE_BYTES, Handle};
use super::jobs::Progress;
use super::{CudaError, Device, calls};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use fxgraph_core::error::BlockError;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// Readable bytes after every buffer, so that kernels may read a full vector at its end.
pub const SLACK_BYTES: usize = 256;
/// Fill pattern of new device memory: a NaN as float and an implausible integer sample.
const POISON: u8 = 0xff;

/// Memory that a CUDA pipeline may keep longer than its owner.
pub(super) struct Shared<M> {
    pub memory: Arc<M>,
    /// Number of the CUDA pipeline that keeps it; 0 if there is none.
    pub kept_by: AtomicU64,
}

impl<M> Shared<M> {
    fn new(memory: M) -> Self {
        Self { memory: Arc::new(memory), kept_by: AtomicU64::new(0) }
    }
}

/// Allocator of memory, which frees it.
pub(super) enum Owner {
    Device(Arc<Device>),
    /// The host's heap, in tests without a GPU.
    #[cfg(test)]
    Heap(std::alloc::Layout),
}

impl Owner {
    #[cfg(test)]
    pub(super) fn heap(bytes: usize) -> (Self, *mut c_void) {
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), 64).unwrap();
        // SAFETY: the size is not 0.
        (Self::Heap(layout), unsafe { std::alloc::alloc_zeroed(layout) }.cast())
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        match self {
            Self::Device(device) => device,
            #[cfg(test)]
            Self::Heap(_) => unreachable!("this test has no GPU"),
        }
    }
}

/// Device memory, freed on drop.
pub(super) struct Allocation {
    pub owner: Owner,
    pub address: u64,
    /// Handle for other processes, made when the first one needs it.
    pub handle: OnceLock<Handle>,
}

impl Allocation {
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.reject_stuck()?;
        device.bind()?;
        calls::count_allocation();
        let failed = CudaError::driver("allocating GPU memory");
        let whole = bytes + SLACK_BYTES;
        // SAFETY: the memory is owned by the result, which frees it once.
        let address = unsafe { result::malloc_sync(whole) }.map_err(&failed)?;
        let allocation =
            Self { owner: Owner::Device(Arc::clone(device)), address, handle: OnceLock::new() };
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
                // To free memory, the driver waits for all kernels.
                if device.reject_stuck().is_ok() && device.bind().is_ok() {
                    // SAFETY: only freed here. After a fault the driver has freed it, and returns an error.
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

/// An array in device memory, owned by a block. Kernels access it through its address.
pub struct DeviceArray<T> {
    memory: Shared<Allocation>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceArray<T> {
    /// Allocates `len` elements without defined values.
    ///
    /// # Errors
    /// If there is not enough device memory, or if the driver fails.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let memory = Shared::new(Allocation::new(device, len * size_of::<T>())?);
        Ok(Self { memory, len, element: PhantomData })
    }

    /// Allocates an array on the host's heap, for a test driver without a GPU.
    #[cfg(test)]
    pub(super) fn on_heap(len: usize) -> Self {
        let (owner, memory) = Owner::heap(len * size_of::<T>());
        let address = memory.expose_provenance() as u64;
        let memory = Allocation { owner, address, handle: OnceLock::new() };
        Self { memory: Shared::new(memory), len, element: PhantomData }
    }

    pub(super) fn shared(&self) -> &Shared<Allocation> {
        &self.memory
    }

    fn device(&self) -> &Arc<Device> {
        self.memory.memory.owner.device()
    }

    /// Allocates `len` elements of value 0.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let array = Self::new(device, len)?;
        // SAFETY: exactly the array's bytes.
        let cleared = unsafe { result::memset_d8_sync(array.address(), 0, array.bytes()) };
        cleared.map_err(CudaError::driver("clearing GPU memory"))?;
        device.synchronise()?;
        Ok(array)
    }

    /// Copies `values` to a new array. Waits for the device: for the start of a run, not for frames.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn from_slice(device: &Arc<Device>, values: &[T]) -> Result<Self, CudaError> {
        let mut array = Self::new(device, values.len())?;
        array.write(values)?;
        Ok(array)
    }

    /// Overwrites the first elements. Waits for the device: for the start of a run, not for frames.
    ///
    /// # Errors
    /// If there are more `values` than elements, or if the driver fails.
    pub fn write(&mut self, values: &[T]) -> Result<(), CudaError> {
        if values.len() > self.len {
            let reason = format!("{} elements into an array of {}", values.len(), self.len);
            return Err(CudaError::Library { what: "copying to the GPU", reason });
        }
        self.device().bind()?;
        // SAFETY: the array has at least these bytes.
        let copied = unsafe { result::memcpy_htod_sync(self.address(), values) };
        copied.map_err(CudaError::driver("copying to the GPU"))?;
        self.device().synchronise()
    }

    /// Copies the elements to the host. Waits for the device: for tests and for the end of a run.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        self.device().synchronise()?;
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: the array has exactly these bytes.
        let copied = unsafe { result::memcpy_dtoh_sync(&mut values, self.address()) };
        copied.map_err(CudaError::driver("copying from the GPU"))?;
        Ok(values)
    }

    /// Device address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.memory.address
    }

    /// Returns the handle with which another process opens the array: with `cuIpcOpenMemHandle`.
    ///
    /// # Errors
    /// If the driver has no CUDA IPC.
    pub fn exported(&self) -> Result<&[u8; HANDLE_BYTES], CudaError> {
        Ok(self.memory.memory.exported()?.bytes())
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }
}

/// Pinned host memory, which devices access directly. Initially zero, freed on drop. Code that reads or writes it must
/// ensure that no device accesses it at the same time.
pub(super) struct HostMemory {
    owner: Owner,
    /// Aligned for every element type.
    memory: *mut u128,
    bytes: usize,
}

// SAFETY: the type owns its memory, which only unsafe code reads or writes.
unsafe impl Send for HostMemory {}
// SAFETY: safe code neither reads nor writes the memory.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.reject_stuck()?;
        device.bind()?;
        calls::count_allocation();
        // Accessible to all devices at the host's address; not write-combined, because the host reads it.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is owned by the result, which frees it once.
        let memory = unsafe { result::malloc_host(bytes.max(1), flags) }
            .map_err(CudaError::driver("allocating pinned memory"))?;
        // SAFETY: exactly the bytes just allocated.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes.max(1)) };
        Ok(Self { owner: Owner::Device(Arc::clone(device)), memory: memory.cast(), bytes })
    }

    /// Allocates memory on the heap, for a test driver without a GPU.
    #[cfg(test)]
    pub(super) fn on_heap(bytes: usize) -> Self {
        let (owner, memory) = Owner::heap(bytes);
        Self { owner, memory: memory.cast(), bytes }
    }

    /// Returns the start of the memory, aligned for every element type.
    pub(super) fn as_ptr(&self) -> *mut u128 {
        self.memory
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Address on the device, equal to that on the host.
    pub(super) fn address(&self) -> u64 {
        self.memory.expose_provenance() as u64
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Device(device) => {
                // To free memory, the driver waits for all kernels.
                if device.reject_stuck().is_ok() && device.bind().is_ok() {
                    // SAFETY: only freed here.
                    let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
                }
            }
            #[cfg(test)]
            // SAFETY: allocated with this layout, freed once.
            Owner::Heap(layout) => unsafe { std::alloc::dealloc(self.memory.cast(), *layout) },
        }
    }
}

/// Error of an access by the host to memory that an unfinished job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the GPU still uses this memory: a job has not finished")]
pub struct InUse;

impl From<InUse> for BlockError {
    fn from(error: InUse) -> Self {
        Self::new(error.to_string())
    }
}

/// An array in pinned host memory, for copies of a CUDA pipeline ([`Pipeline`](super::Pipeline)). The host gets access only
/// while no such copy may be in flight.
pub struct Pinned<T> {
    memory: Shared<HostMemory>,
    len: usize,
    /// Progress of the CUDA pipeline that copies it.
    progress: Option<Arc<Progress>>,
    /// Number of the last job that reads it.
    sent: u64,
    /// Number of the last job that writes it.
    fetched: u64,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    /// Allocates `len` elements of value 0.
    ///
    /// # Errors
    /// If there is not enough memory, or if the driver fails.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        Ok(Self::of(HostMemory::new(device, len * size_of::<T>())?, len))
    }

    /// Allocates an array on the heap, for a test driver without a GPU.
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

    /// Returns the elements.
    ///
    /// # Errors
    /// If a copy of an unfinished job may write them.
    pub fn get(&self) -> Result<&[T], InUse> {
        if !self.is_over(self.fetched) {
            return Err(InUse);
        }
        // SAFETY: `len` elements, of which any bytes are values, that `self` owns; no copy writes them.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.memory.as_ptr().cast(), self.len) })
    }

    /// Returns the elements for writing.
    ///
    /// # Errors
    /// If a copy of an unfinished job may read or write them.
    pub fn get_mut(&mut self) -> Result<&mut [T], InUse> {
        if !self.is_over(self.fetched.max(self.sent)) {
            return Err(InUse);
        }
        // SAFETY: initialised elements of the owned memory, borrowed alone; no copy reads or writes them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.memory.as_ptr().cast(), self.len) })
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address on the device, equal to that on the host.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.memory.address()
    }

    pub(super) fn shared(&self) -> &Shared<HostMemory> {
        &self.memory
    }

    /// Whether no job of another CUDA pipeline than that of `progress` uses the array.
    pub(super) fn is_free_for(&self, progress: &Arc<Progress>) -> bool {
        self.progress.as_ref().is_none_or(|own| Arc::ptr_eq(own, progress))
            || self.is_over(self.fetched.max(self.sent))
    }

    /// Notes that job `number` of the CUDA pipeline of `progress` reads the array.
    pub(super) fn sent_with(&mut self, progress: &Arc<Progress>, number: u64) {
        self.lent_to(progress);
        self.sent = number;
    }

    /// Notes that job `number` of the CUDA pipeline of `progress` writes the array.
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
