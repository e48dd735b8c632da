//! Frames on a device, copied to the host without a part in any block's work.
#![allow(unsafe_code)] // copies from frames that are borrowed until they are done

use super::driver_calls::Stream;
use super::memory::HostMemory;
use super::{CudaError, Device, frame_address};
use cudarc::driver::{result, sys};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Frame, Storage};
use std::sync::Arc;

/// Reads payloads by a stream of its own: the thread that asks waits for them, nobody else.
pub struct Readout {
    device: Arc<Device>,
    stream: Stream,
    staging: HostMemory,
}

impl Readout {
    /// A readout of payloads of `bytes` bytes.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let (stream, staging) = (Stream::new()?, HostMemory::new(device, bytes)?);
        Ok(Self { device: Arc::clone(device), stream, staging })
    }

    /// Puts the payload of `frame` into `payload`, reusing its allocation.
    pub fn read(&mut self, frame: &Frame, payload: &mut Vec<u8>) -> Result<(), BlockError> {
        self.device.bind()?;
        let from = frame_address(frame, &self.device)?;
        let (to, bytes) = (self.staging.address(), self.staging.len());
        if let Storage::Device(buffer) = frame.storage()
            && buffer.len_bytes() < bytes
        {
            return Err(BlockError::new("the frames have become shorter"));
        }
        // SAFETY: payload and staging have so many bytes and stay until the copy is done.
        unsafe {
            CudaError::check("copying", sys::cuMemcpyAsync(to, from, bytes, self.stream.0))?;
            result::stream::synchronize(self.stream.0).map_err(CudaError::driver("copying"))?;
        }
        payload.clear();
        // SAFETY: the copy is done, and nothing else writes the staging.
        payload.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.staging.as_ptr().cast(), bytes)
        });
        Ok(())
    }
}

/// The payload of `frame` in host memory: where it lies, or copied into `copy` by the readout of the
/// device on which it lies.
pub fn payload<'a>(
    frame: &'a Frame,
    readout: Option<&mut Readout>,
    copy: &'a mut Vec<u8>,
) -> Result<&'a [u8], BlockError> {
    match (frame.storage(), readout) {
        (Storage::Host(_), _) => Ok(frame.as_slice()?),
        (Storage::Device(_), Some(readout)) => readout.read(frame, copy).map(|()| &copy[..]),
        (Storage::Device(_), None) => Err(BlockError::new("the frames have moved to a device")),
    }
}

impl Drop for Readout {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: its own stream, which may still copy to the staging after an error.
            let _ = unsafe { result::stream::synchronize(self.stream.0) };
        }
    }
}
