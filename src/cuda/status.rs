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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

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
    /// Whether kernels were launched; otherwise the jobs only copy.
    launches: AtomicBool,
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
        let launches = AtomicBool::new(false);
        Self { block: block.to_owned(), waker, worked, begun, launches, frames }
    }

    pub(super) fn word(&self) -> *mut u32 {
        self.worked.as_ptr().cast()
    }

    /// Notes that a kernel is launched.
    pub fn launches(&self) {
        self.launches.store(true, Ordering::Relaxed);
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

    /// Returns the first job that has begun and whose kernels have not run.
    pub fn at_work(&self) -> Option<AtWork> {
        // SAFETY: the word is in the memory; the device may write it at any time.
        let worked = unsafe { self.word().read_volatile() };
        if worked == self.begun.load(Ordering::Relaxed) {
            return None;
        }
        let number = worked.wrapping_add(1);
        let timestamp = self.frames[number as usize % REMEMBERED].load(Ordering::Relaxed);
        let launches = self.launches.load(Ordering::Relaxed);
        Some(AtWork { block: self.block.clone(), timestamp, launches })
    }
}

/// A job that has begun and whose kernels have not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AtWork {
    pub block: String,
    /// Timestamp of its frame.
    pub timestamp: u64,
    /// Whether it has kernels.
    pub launches: bool,
}

/// Number of blocks and sources that a fault names.
const NAMED: usize = 3;

/// Text of a fault of `device` during one of `jobs`, after the sources `replaced` were replaced `ago`; and the block, if
/// there is only one that can be the cause.
pub(super) fn text(
    device: &str,
    jobs: &[AtWork],
    replaced: &[&str],
    ago: Duration,
) -> (String, Option<String>) {
    // A copy between memory that its job holds does not fail.
    let has_kernels = jobs.iter().any(|job| job.launches);
    let jobs: Vec<&AtWork> = jobs.iter().filter(|job| job.launches || !has_kernels).collect();
    let (mut text, block) = match jobs[..] {
        [] => (format!("{device} failed"), None),
        [AtWork { block, timestamp, .. }] => {
            let frame = format!("on the frame with timestamp {timestamp}");
            (format!("{device} failed during a job of `{block}` {frame}"), Some(block.clone()))
        }
        _ => {
            let names = listed(jobs.iter().map(|job| job.block.as_str()));
            (format!("{device} failed during a job of one of {names}"), None)
        }
    };
    if !replaced.is_empty() {
        let names = listed(replaced.iter().copied());
        text.push_str(&format!("; {names} was replaced {:.1} s before", ago.as_secs_f64()));
    }
    (text, block)
}

/// The first names, and the number of the others.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let shown: Vec<String> = names.take(NAMED).map(|name| format!("`{name}`")).collect();
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(block: &str, launches: bool) -> AtWork {
        AtWork { block: block.to_owned(), timestamp: 7, launches }
    }

    #[test]
    fn text_names_the_block_with_kernels_and_the_source_that_was_replaced() {
        let jobs = [job("pol0>cuda:0", false), job("pfb", true), job("out>cpu", false)];
        let (said, block) = text("cuda:0", &jobs, &["pfb.cu"], Duration::from_millis(1500));
        assert_eq!(
            said,
            "cuda:0 failed during a job of `pfb` on the frame with timestamp 7; `pfb.cu` was replaced 1.5 s before"
        );
        assert_eq!(block.as_deref(), Some("pfb"));
        let (said, block) = text("cuda:1", &jobs[..1], &[], Duration::ZERO);
        assert!(said.ends_with("a job of `pol0>cuda:0` on the frame with timestamp 7"), "{said}");
        assert!(block.is_some());
        assert_eq!(text("cuda:1", &[], &[], Duration::ZERO), ("cuda:1 failed".to_owned(), None));
    }

    #[test]
    fn text_names_three_of_many_blocks() {
        let jobs: Vec<AtWork> = ["a", "b", "c", "d", "e"].map(|name| job(name, true)).into();
        let (said, block) = text("cuda:0", &jobs, &[], Duration::ZERO);
        assert_eq!(said, "cuda:0 failed during a job of one of `a`, `b`, `c` and 2 more");
        assert_eq!(block, None);
    }
}
