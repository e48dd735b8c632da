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
use fxgraph_core::lock::lock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

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
    deadline: OnceLock<Deadline>,
    /// Job whose kernels run, and the time at which it was seen first.
    seen: Mutex<Option<(u32, Instant)>>,
    /// Text of the job that has exceeded the time limit.
    overdue: OnceLock<String>,
}

/// Time limit for a job, and its kernel.
struct Deadline {
    kernel: String,
    limit: Duration,
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
        let (deadline, seen, overdue) = Default::default();
        Self {
            block: block.to_owned(),
            waker,
            worked,
            begun,
            launches,
            frames,
            deadline,
            seen,
            overdue,
        }
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

    /// Sets the time limit for a job, whose kernel is called `kernel`. Only the first call has an effect.
    pub fn set_deadline(&self, kernel: &str, limit: Duration) {
        let _ = self.deadline.set(Deadline { kernel: kernel.to_owned(), limit });
    }

    /// Looks at the job at work. Returns the text of the one that has exceeded the time limit, if there is one.
    pub fn look(&self, now: Instant) -> Option<&str> {
        let deadline = self.deadline.get()?;
        let mut seen = lock(&self.seen);
        let Some(number) = self.number_at_work() else {
            *seen = None;
            return self.overdue();
        };
        let known = seen.filter(|(known, _)| *known == number);
        let (_, since) = *seen.insert(known.unwrap_or((number, now)));
        if now.saturating_duration_since(since) >= deadline.limit {
            self.overdue.get_or_init(|| {
                let Deadline { kernel, limit } = deadline;
                let (block, timestamp) = (&self.block, self.timestamp(number));
                format!(
                    "{kernel} of `{block}` must finish a frame within {} s, and has not finished the one with timestamp \
                     {timestamp}",
                    limit.as_secs_f64()
                )
            });
        }
        self.overdue()
    }

    /// Text of the job that has exceeded the time limit.
    pub fn overdue(&self) -> Option<&str> {
        self.overdue.get().map(String::as_str)
    }

    /// Number of the first job that has begun and whose kernels have not run.
    fn number_at_work(&self) -> Option<u32> {
        // SAFETY: the word is in the memory; the device may write it at any time.
        let worked = unsafe { self.word().read_volatile() };
        (worked != self.begun.load(Ordering::Relaxed)).then(|| worked.wrapping_add(1))
    }

    fn timestamp(&self, number: u32) -> u64 {
        self.frames[number as usize % REMEMBERED].load(Ordering::Relaxed)
    }

    /// Returns the first job that has begun and whose kernels have not run.
    pub fn at_work(&self) -> Option<AtWork> {
        let timestamp = self.timestamp(self.number_at_work()?);
        let launches = self.launches.load(Ordering::Relaxed);
        let kernel = self.deadline.get().map(|deadline| deadline.kernel.clone());
        Some(AtWork { block: self.block.clone(), timestamp, launches, kernel })
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
    /// Its kernel, if the block has told it.
    pub kernel: Option<String>,
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
        [AtWork { block, timestamp, kernel, .. }] => {
            let frame = format!("on the frame with timestamp {timestamp}");
            let kernel = kernel.as_ref().map_or(String::new(), |kernel| format!("{kernel} of "));
            let text = format!("{device} failed during a job of {kernel}`{block}` {frame}");
            (text, Some(block.clone()))
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
        AtWork { block: block.to_owned(), timestamp: 7, launches, kernel: None }
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
    fn text_names_the_kernel_of_a_file() {
        let jobs =
            [AtWork { kernel: Some("the kernel `gain` (gain.cu)".to_owned()), ..job("b", true) }];
        let (said, _) = text("cuda:0", &jobs, &[], Duration::ZERO);
        let expected = "cuda:0 failed during a job of the kernel `gain` (gain.cu) of `b` on the frame with timestamp 7";
        assert_eq!(said, expected);
    }

    #[test]
    fn job_is_overdue_once_it_alone_has_taken_the_limit() {
        let status =
            Status::with_word(HostMemory::on_heap(size_of::<u32>()), "b", Waker::default());
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        status.begin(1, 100);
        assert_eq!(status.look(after(0)).or(status.look(after(99))), None, "without a limit");
        status.set_deadline("the kernel `k`", Duration::from_secs(10));
        assert_eq!(status.look(after(100)), None);
        assert_eq!(status.look(after(109)), None);
        // The next job has a time of its own, and a pause counts for none.
        status.begin(2, 200);
        // SAFETY: no device writes the word.
        unsafe { status.word().write_volatile(1) };
        assert_eq!(status.look(after(111)), None);
        status.over(2);
        assert_eq!(status.look(after(130)), None);
        status.begin(3, 300);
        assert_eq!(status.look(after(140)), None);
        let why = "the kernel `k` of `b` must finish a frame within 10 s, and has not finished the one with timestamp 300";
        assert_eq!(status.look(after(150)), Some(why));
        assert_eq!(status.overdue(), Some(why));
    }

    #[test]
    fn text_names_three_of_many_blocks() {
        let jobs: Vec<AtWork> = ["a", "b", "c", "d", "e"].map(|name| job(name, true)).into();
        let (said, block) = text("cuda:0", &jobs, &[], Duration::ZERO);
        assert_eq!(said, "cuda:0 failed during a job of one of `a`, `b`, `c` and 2 more");
        assert_eq!(block, None);
    }
}
