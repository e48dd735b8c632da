//! The current job of a device, readable after a fault has destroyed the CUDA context.
//!
//! An illegal access or a failed assertion ends all work on the device at once, and the driver does not report the
//! kernel. Therefore each CUDA pipeline has a word in pinned memory to which the device writes the number of each job
//! whose kernels have run: at a fault, the device was running the next job. The word is written on the download
//! stream, because a write between kernels would cost a microsecond, and after the callback of the job before. So a
//! fault in the first microseconds of a job, or while that callback is late, may be reported with an earlier frame.
#![allow(unsafe_code)] // words that the device writes

use super::memory::HostMemory;
use super::{CudaError, Device};
use cudarc::driver::sys;
use fxgraph_core::kind::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of jobs whose timestamps are stored, more than can be in flight.
const REMEMBERED: usize = 8;

/// State of one CUDA pipeline, for error messages.
pub(super) struct Status {
    block: String,
    /// For the thread that watches the device, because after a fault the driver runs no callbacks.
    pub waker: Waker,
    /// Number of the last job whose kernels have run.
    worked: HostMemory,
    /// Number of the last job that has begun.
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

    /// Creates the state of a CUDA pipeline that writes to the word in `worked`.
    pub fn with_word(worked: HostMemory, block: &str, waker: Waker) -> Self {
        let frames = [const { AtomicU64::new(0) }; REMEMBERED];
        let begun = AtomicU32::new(0);
        Self { block: block.to_owned(), waker, worked, begun, frames }
    }

    pub(super) fn word(&self) -> *mut u32 {
        self.worked.as_ptr().cast()
    }

    /// Notes that job `number`, on the frame with this timestamp, begins.
    pub fn begin(&self, number: u32, timestamp: u64) {
        self.frames[number as usize % REMEMBERED].store(timestamp, Ordering::Relaxed);
        self.begun.store(number, Ordering::Relaxed);
    }

    /// Notes that job `number` was the last one, and that its kernels have run: the job after it had begun, and ended
    /// without being submitted. No work may be queued.
    pub fn over(&self, number: u32) {
        self.begun.store(number, Ordering::Relaxed);
        // SAFETY: the word is in the memory; the device is idle and does not write it now.
        unsafe { self.word().write_volatile(number) };
    }

    /// Queues the note that the kernels of job `number` have run.
    pub fn worked(&self, stream: sys::CUstream, number: u32) -> Result<(), CudaError> {
        // SAFETY: the word is pinned memory, which has one address on host and device.
        let result =
            unsafe { sys::cuStreamWriteValue32_v2(stream, self.worked.address(), number, 0) };
        CudaError::check("queueing work", result)
    }

    /// Returns the first job that has begun and whose kernels have not run, as text.
    pub fn at_work(&self) -> Option<String> {
        // SAFETY: the word is in the memory; the device may write it at any time.
        let worked = unsafe { self.word().read_volatile() };
        if worked == self.begun.load(Ordering::Relaxed) {
            return None;
        }
        let number = worked.wrapping_add(1);
        let timestamp = self.frames[number as usize % REMEMBERED].load(Ordering::Relaxed);
        Some(format!("`{}` on the frame with timestamp {timestamp}", self.block))
    }
}
