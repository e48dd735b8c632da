//! What a device was at work on, readable after its context is gone.
//!
//! An illegal access or a failed assertion ends everything on the device at once, and the driver
//! says neither which kernel it was nor where it stood. So each lane has a word in pinned memory that
//! the device itself writes when the work of a job is done: it was at work on the one that follows.
//! The word is written beside the kernels, which would wait a microsecond for it between them, and
//! behind the callback of the job before. So a fault in the first microseconds of a job, or while the
//! host is late with that callback, may be told with a frame before.
#![allow(unsafe_code)] // words that the device writes

use super::memory::HostMemory;
use super::{CudaError, Device};
use cudarc::driver::sys;
use fxgraph_core::kind::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Jobs whose frames are remembered; more are never in flight.
const REMEMBERED: usize = 8;

/// What is known of one lane.
pub(super) struct Status {
    block: String,
    /// After a fault the driver runs no more callbacks, so somebody else has to wake the block.
    pub waker: Waker,
    /// Number of the job whose work was done last.
    worked: HostMemory,
    /// Number of the job that was begun last.
    begun: AtomicU32,
    /// Timestamps of the frames of the last jobs.
    frames: [AtomicU64; REMEMBERED],
}

impl Status {
    pub fn new(device: &Arc<Device>, block: &str, waker: Waker) -> Result<Arc<Self>, CudaError> {
        let worked = HostMemory::new(device, size_of::<u32>())?;
        let status = Arc::new(Self::with_word(worked, block, waker));
        device.keep_status(&status);
        Ok(status)
    }

    /// What is known of a lane that writes to the word in `worked`.
    pub fn with_word(worked: HostMemory, block: &str, waker: Waker) -> Self {
        let frames = [const { AtomicU64::new(0) }; REMEMBERED];
        let begun = AtomicU32::new(0);
        Self { block: block.to_owned(), waker, worked, begun, frames }
    }

    pub(super) fn word(&self) -> *mut u32 {
        self.worked.as_ptr().cast()
    }

    /// Notes that job `number`, on the frame of this timestamp, begins.
    pub fn begin(&self, number: u32, timestamp: u64) {
        self.frames[number as usize % REMEMBERED].store(timestamp, Ordering::Relaxed);
        self.begun.store(number, Ordering::Relaxed);
    }

    /// Notes that job `number` was the last one, and its work is done: the job after it was begun, and ended without
    /// being submitted. Nothing may be queued.
    pub fn over(&self, number: u32) {
        self.begun.store(number, Ordering::Relaxed);
        // SAFETY: the word is the memory's; the device, which has nothing to do, does not write it now.
        unsafe { self.word().write_volatile(number) };
    }

    /// Queues the note that the work of job `number` is done.
    pub fn worked(&self, stream: sys::CUstream, number: u32) -> Result<(), CudaError> {
        // SAFETY: the word is pinned memory, which has one address on host and device.
        let result =
            unsafe { sys::cuStreamWriteValue32_v2(stream, self.worked.address(), number, 0) };
        CudaError::check("queueing work", result)
    }

    /// The job that was begun and whose work is not done, the first of them, if there is one.
    pub fn at_work(&self) -> Option<String> {
        // SAFETY: the word is the memory's; the device may write it at any time.
        let worked = unsafe { self.word().read_volatile() };
        if worked == self.begun.load(Ordering::Relaxed) {
            return None;
        }
        let number = worked.wrapping_add(1);
        let timestamp = self.frames[number as usize % REMEMBERED].load(Ordering::Relaxed);
        Some(format!("`{}` on the frame with timestamp {timestamp}", self.block))
    }
}
