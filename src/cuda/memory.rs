//! Memory of a device, and memory of the host that devices copy from and to.
//!
//! What is done here to device memory goes by the driver's own stream, for which lanes do not wait:
//! so each of these calls ends when the device has done it. They belong to the start of a run.
#![allow(unsafe_code)] // allocations of the driver, which these types own

use super::{CudaError, Device, calls};
use crate::block::BlockError;
use crate::frame::{Allocator, DeviceBuffer, Frame, HostBuffer, OutOfMemory, Storage};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes behind every buffer that kernels may read, so that they need not cut their last vector.
pub const SLACK_BYTES: usize = 256;
/// What device memory holds before anything is written: no number, and no plausible sample.
const POISON: u8 = 0xff;

/// A stretch of device memory.
struct Allocation {
    device: Arc<Device>,
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
        let allocation = Self { device: Arc::clone(device), address, bytes };
        // SAFETY: exactly the bytes just allocated.
        unsafe { result::memset_d8_sync(address, POISON, whole) }.map_err(&failed)?;
        device.synchronise()?;
        Ok(allocation)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: nobody else frees it. After a fault the driver refuses, and has freed it.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

/// An array in device memory that belongs to a block. Kernels write it through its address.
pub struct DeviceArray<T> {
    memory: Allocation,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceArray<T> {
    /// Room for `len` elements; they hold nonsense.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let memory = Allocation::new(device, len * size_of::<T>())?;
        Ok(Self { memory, len, element: PhantomData })
    }

    /// Room for `len` elements of zero.
    pub fn zeros(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        let array = Self::new(device, len)?;
        // SAFETY: exactly the array's bytes.
        let cleared = unsafe { result::memset_d8_sync(array.memory.address, 0, array.bytes()) };
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
        self.memory.device.bind()?;
        // SAFETY: as many bytes as are there.
        let copied = unsafe { result::memcpy_htod_sync(self.memory.address, values) };
        copied.map_err(CudaError::driver("copying to the GPU"))?;
        self.memory.device.synchronise()
    }

    /// A copy on the host. Waits for the device: for tests and for the end.
    pub fn read(&self) -> Result<Vec<T>, CudaError> {
        self.memory.device.synchronise()?;
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: as many bytes as are there.
        let copied = unsafe { result::memcpy_dtoh_sync(&mut values, self.memory.address) };
        copied.map_err(CudaError::driver("copying from the GPU"))?;
        Ok(values)
    }

    /// Address of its first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address
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

/// An array in host memory that devices reach directly.
pub struct Pinned<T> {
    device: Arc<Device>,
    memory: *mut T,
    len: usize,
}

// SAFETY: it owns its memory like a `Box<[T]>`.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    /// `len` zeros.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        device.bind()?;
        calls::count_allocation();
        let bytes = (len * size_of::<T>()).max(1);
        // For all devices alike, and at the host's address; not write-combined, as hosts read it.
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the memory is owned by the result, which frees it once.
        let memory = unsafe { result::malloc_host(bytes, flags) }
            .map_err(CudaError::driver("allocating pinned memory"))?;
        // SAFETY: exactly the bytes just allocated; zeros are values of every `Pod`.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { device: Arc::clone(device), memory: memory.cast(), len })
    }

    /// Its address on the device, which is that on the host.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory as u64
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: nobody else frees it.
            let _ = unsafe { result::free_host(self.memory.cast::<c_void>()) };
        }
    }
}

impl<T> Deref for Pinned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` initialised elements that `self` owns.
        unsafe { std::slice::from_raw_parts(self.memory, self.len) }
    }
}

impl<T> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory, self.len) }
    }
}

impl HostBuffer for Pinned<u128> {
    fn words(&self) -> &[u128] {
        self
    }
    fn words_mut(&mut self) -> &mut [u128] {
        self
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
        let words = bytes.div_ceil(size_of::<u128>());
        let memory = Pinned::<u128>::new(&self.0, words)
            .map_err(|_| OutOfMemory { bytes, memory: "pinned".to_owned() })?;
        Ok(Storage::Host(Box::new(memory)))
    }
}

/// Where the payload of `frame` lies on `device`.
pub fn frame_address(frame: &Frame, device: &Device) -> Result<u64, BlockError> {
    let payload = match frame.storage() {
        Storage::Device(buffer) => buffer.as_any().downcast_ref::<Payload>(),
        Storage::Host(_) => None,
    };
    match payload {
        Some(payload) if payload.0.device.ordinal() == device.ordinal() => Ok(payload.0.address),
        _ => Err(BlockError::new(format!("a frame does not lie on cuda:{}", device.ordinal()))),
    }
}
