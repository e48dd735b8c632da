//! Copies of frames from a device to the host, independent of the work of blocks.
#![allow(unsafe_code)] // copies from frames that are borrowed until they are done

use super::driver_calls::Stream;
use super::memory::HostMemory;
use super::{CudaError, Device, frame_address};
use cudarc::driver::{result, sys};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Frame, Storage};
use std::sync::Arc;

/// Copies payloads on a separate stream; only the calling thread waits for them.
pub struct Readout {
    device: Arc<Device>,
    stream: Stream,
    staging: HostMemory,
}

impl Readout {
    /// Creates a readout of payloads of `bytes` bytes.
    ///
    /// # Errors
    /// If there is not enough pinned memory, or if the driver fails.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let (stream, staging) = (Stream::new()?, HostMemory::new(device, bytes)?);
        Ok(Self { device: Arc::clone(device), stream, staging })
    }

    /// Copies the payload of `frame` to `payload`, reusing its allocation.
    ///
    /// # Errors
    /// If the frame is not on the device or too short, or if the driver fails.
    pub fn read(&mut self, frame: &Frame, payload: &mut Vec<u8>) -> Result<(), BlockError> {
        self.device.bind()?;
        let from = frame_address(frame, &self.device)?;
        let (to, bytes) = (self.staging.address(), self.staging.len());
        if let Storage::Device(buffer) = frame.storage()
            && buffer.len_bytes() < bytes
        {
            return Err(BlockError::new("the payload of the frame is too short"));
        }
        // SAFETY: payload and staging have at least `bytes` bytes and stay until the copy is done.
        unsafe {
            CudaError::check("copying", sys::cuMemcpyAsync(to, from, bytes, self.stream.0))?;
            result::stream::synchronize(self.stream.0).map_err(CudaError::driver("copying"))?;
        }
        payload.clear();
        // SAFETY: the copy is done, and no other code writes the staging memory.
        payload.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.staging.as_ptr().cast(), bytes)
        });
        Ok(())
    }
}

/// Returns the payload of `frame` in host memory: in place, or copied to `copy` by `readout` if the frame is on a
/// device.
///
/// # Errors
/// If the frame is on a device and there is no readout, or if the copy fails.
pub fn payload<'a>(
    frame: &'a Frame,
    readout: Option<&mut Readout>,
    copy: &'a mut Vec<u8>,
) -> Result<&'a [u8], BlockError> {
    match (frame.storage(), readout) {
        (Storage::Host(_), _) => Ok(frame.as_slice()?),
        (Storage::Device(_), Some(readout)) => readout.read(frame, copy).map(|()| &copy[..]),
        (Storage::Device(_), None) => Err(BlockError::new("the frames have moved to a GPU")),
    }
}

impl Drop for Readout {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: own stream, which may still copy to the staging memory after an error.
            let _ = unsafe { result::stream::synchronize(self.stream.0) };
        }
    }
}
