//! What a device was at work on, readable after its context is gone.
//!
//! An illegal access or a failed assertion ends everything on the device at once, and the driver
//! says neither which kernel it was nor where it stood. So each lane has two words in pinned memory
//! that the device itself writes when the work of a job begins and when all of it is done.
#![allow(unsafe_code)] // words that the device writes

use super::{CudaError, Device, Pinned};
use crate::kind::Waker;
use cudarc::driver::sys;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of the job last begun, and of the one last finished.
const WORDS: usize = 2;
/// Jobs whose frames are remembered; more are never in flight.
const REMEMBERED: usize = 8;

/// One lane's words.
pub(super) struct Status {
    block: String,
    /// After a fault the driver runs no more callbacks, so somebody else has to wake the block.
    pub waker: Waker,
    words: Mutex<Pinned<u32>>,
    /// Timestamps of the frames of the last jobs.
    frames: [AtomicU64; REMEMBERED],
}

impl Status {
    pub fn new(device: &Arc<Device>, block: &str, waker: Waker) -> Result<Arc<Self>, CudaError> {
        let words = Mutex::new(Pinned::new(device, WORDS)?);
        let frames = [const { AtomicU64::new(0) }; REMEMBERED];
        let status = Arc::new(Self { block: block.to_owned(), waker, words, frames });
        device.keep_status(&status);
        Ok(status)
    }

    /// Queues the note that job `number`, on the frame of this timestamp, has begun.
    pub fn begin(
        &self,
        stream: sys::CUstream,
        number: u32,
        timestamp: u64,
    ) -> Result<(), CudaError> {
        self.frames[number as usize % REMEMBERED].store(timestamp, Ordering::Relaxed);
        self.write(stream, 0, number)
    }

    /// Queues the note that job `number` is done.
    pub fn end(&self, stream: sys::CUstream, number: u32) -> Result<(), CudaError> {
        self.write(stream, 1, number)
    }

    fn write(&self, stream: sys::CUstream, word: usize, number: u32) -> Result<(), CudaError> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let at = words.address() + (word * size_of::<u32>()) as u64;
        // SAFETY: the word is pinned memory, which has one address on host and device.
        let result = unsafe { sys::cuStreamWriteValue32_v2(stream, at, number, 0) };
        CudaError::check("queueing work", result)
    }

    /// The job that was begun and not finished, if there is one.
    pub fn at_work(&self) -> Option<String> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: both words lie in the array; the device may write them at any time.
        let [begun, ended] = [0, 1].map(|word| unsafe { words.as_ptr().add(word).read_volatile() });
        if begun == ended {
            return None;
        }
        let timestamp = self.frames[begun as usize % REMEMBERED].load(Ordering::Relaxed);
        Some(format!("`{}` on the frame with timestamp {timestamp}", self.block))
    }
}
