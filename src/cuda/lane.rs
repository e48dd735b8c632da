//! Per-block CUDA pipeline: three streams with up to [`IN_FLIGHT`] jobs queued on them.
//!
//! What kernels and copies use belongs to the lane while they may run: frames go into the job
//! before its work is queued, and memory that copies use is kept by the lane from its first copy
//! on. An error between two calls leaves the job with the lane, which waits for the device before
//! it gives the frames away. No order of calls and of drops frees memory in use.
#![allow(unsafe_code)] // copies between memory that the lane keeps

use super::driver_calls::{Cuda, Driver, Mark, Queue};
use super::memory::{DeviceArray, Pinned, Shared};
use super::{CudaError, Device, frame_address};
use bytemuck::Pod;
use cudarc::driver::sys;
use fxgraph_core::counter::Counter;
use fxgraph_core::device_jobs::DeviceJobs;
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::Frame;
use fxgraph_core::kind::Env;
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Jobs that a lane queues at most: one that runs, one that is ready to run, and one that may be
/// done while its block is still to be woken.
pub const IN_FLIGHT: usize = 3;

/// How far the device is with the jobs of a lane: what host memory asks before it is read or
/// written.
pub(super) struct Progress {
    /// Number of the lane in this process, from 1.
    lane: u64,
    /// Every job up to this number is over.
    over: AtomicU64,
}

impl Progress {
    fn new() -> Arc<Self> {
        static LANES: AtomicU64 = AtomicU64::new(0);
        let lane = LANES.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Self { lane, over: AtomicU64::new(0) })
    }

    /// Whether job `number` is over.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.over.load(Ordering::Acquire) >= number
    }
}

/// The part of a job that is queued next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Tables,
    Work,
    Results,
}

impl Stage {
    fn queue(self) -> Queue {
        match self {
            Self::Tables => Queue::Tables,
            Self::Begun | Self::Work => Queue::Work,
            Self::Results => Queue::Results,
        }
    }
}

/// A job that is begun and not submitted.
struct Open<J> {
    number: u64,
    slot: usize,
    stage: Stage,
    has_work: bool,
    inputs: Vec<Arc<Frame>>,
    job: Option<J>,
}

/// A job that the device works on.
struct Queued<J> {
    number: u64,
    slot: usize,
    has_work: bool,
    inputs: Vec<Arc<Frame>>,
    job: J,
}

/// Per-block CUDA pipeline: its streams, and the jobs queued on them.
///
/// A job `J` owns what its kernels use: the frames they read and the one they write. It comes back
/// from [`done`](Self::done) once the device has finished it, in the order in which jobs were
/// submitted. Each job has a slot from 0 to [`IN_FLIGHT`] - 1 that no other job in flight has,
/// for tables that are copied along.
///
/// Kernels of one job follow those of the one before. Between them the device would wait for
/// each small copy, a few microseconds every time; so what has memory of the slot's own can be
/// queued aside, before the kernels ([`tables`](Self::tables)) and after them
/// ([`results`](Self::results)), and goes on while other jobs work.
pub struct Lane<J, D: Driver = Cuda> {
    driver: D,
    jobs: VecDeque<Queued<J>>,
    open: Option<Open<J>>,
    /// Jobs begun so far, with those that an error ended.
    begun: u64,
    /// Jobs submitted so far: the next one's slot follows.
    submitted: u64,
    progress: Arc<Progress>,
    /// Memory of all copies so far.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Empty lists for the inputs of jobs to come.
    spare: Vec<Vec<Arc<Frame>>>,
    device_nanoseconds: Counter,
    device_jobs: DeviceJobs,
}

impl<J> Lane<J> {
    /// A lane of the block that `env` belongs to, on the device of `env`.
    pub fn new(env: &Env) -> Result<Self, BlockError> {
        let device = Device::of(env);
        let device =
            device.ok_or_else(|| BlockError::new("the block was not given a CUDA device"))?;
        Ok(Self::with_driver(Cuda::new(&device, env)?, env))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        self.driver.device()
    }

    /// The stream to launch on, between [`begin`](Self::begin) and [`submit`](Self::submit).
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.driver.stream(self.queue())
    }

    /// Where the payload of `frame` lies on the device; the open job keeps the frame.
    pub fn read(&mut self, frame: &Arc<Frame>) -> Result<u64, BlockError> {
        let address = frame_address(frame, self.device())?;
        self.keep(Arc::clone(frame))?;
        Ok(address)
    }
}

impl<J, D: Driver> Lane<J, D> {
    pub(super) fn with_driver(driver: D, env: &Env) -> Self {
        Self {
            driver,
            jobs: VecDeque::with_capacity(IN_FLIGHT),
            open: None,
            begun: 0,
            submitted: 0,
            progress: Progress::new(),
            kept: Vec::new(),
            spare: (0..=IN_FLIGHT).map(|_| Vec::new()).collect(),
            device_nanoseconds: env.counters.device_nanoseconds().clone(),
            device_jobs: env.counters.device_jobs().clone(),
        }
    }

    fn queue(&self) -> Queue {
        self.open.as_ref().map_or(Queue::Work, |open| open.stage.queue())
    }

    fn open(&mut self) -> Result<&mut Open<J>, BlockError> {
        self.open.as_mut().ok_or_else(|| BlockError::new("no job of the CUDA pipeline is begun"))
    }

    /// Whether another job may be begun. If not, the block is woken when that changes.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.jobs.len() < IN_FLIGHT
    }

    /// Whether no job is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Begins a job on the frame with this timestamp; ask [`has_room`](Self::has_room) first.
    /// Returns its slot.
    ///
    /// What is queued on [`stream`](Self::stream) from here on comes after the work of the jobs
    /// before, but the time it takes is not counted: copies to memory that jobs share. Kernels come
    /// after [`work`](Self::work).
    pub fn begin(&mut self, timestamp: u64) -> Result<usize, BlockError> {
        self.abandon();
        if !self.has_room() {
            return Err(BlockError::new("the CUDA pipeline has no room for another job"));
        }
        self.driver.bind()?;
        self.begun += 1;
        let slot = (self.submitted % IN_FLIGHT as u64) as usize;
        self.open = Some(Open {
            number: self.begun,
            slot,
            stage: Stage::Begun,
            has_work: false,
            inputs: self.spare.pop().unwrap_or_default(),
            job: None,
        });
        self.driver.note_begin((self.submitted + 1) as u32, timestamp);
        Ok(slot)
    }

    /// Gives the lane what the open job's kernels write and what [`done`](Self::done) is to return.
    /// Comes before [`work`](Self::work): from then on the job is the device's, whatever fails.
    pub fn hold(&mut self, job: J) -> Result<(), BlockError> {
        self.open()?.job = Some(job);
        Ok(())
    }

    /// Has the open job keep `frame` until the device has finished it.
    pub fn keep(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        self.open()?.inputs.push(frame);
        Ok(())
    }

    /// What is queued from here to [`work`](Self::work) may run while the jobs before still do, so
    /// that a fault of it is reported with the frame of one of those:
    /// it must use nothing but memory of the job's slot, and the job's frames.
    pub fn tables(&mut self) {
        if let Some(open) = &mut self.open {
            open.stage = Stage::Tables;
        }
    }

    /// What is queued from here on is the job's work: it comes after the [`tables`](Self::tables),
    /// if there are any, and after the work of the jobs before, and its time is counted.
    pub fn work(&mut self) -> Result<(), BlockError> {
        self.await_tables()?;
        let open = self.open()?;
        if open.job.is_none() {
            return Err(BlockError::new("the CUDA pipeline does not hold the frames of the job"));
        }
        (open.stage, open.has_work) = (Stage::Work, true);
        let slot = open.slot;
        Ok(self.driver.record(Queue::Work, slot, Mark::Begun)?)
    }

    fn await_tables(&mut self) -> Result<(), BlockError> {
        let Open { slot, stage, .. } = *self.open()?;
        if stage == Stage::Tables {
            self.driver.record(Queue::Tables, slot, Mark::Ready)?;
            self.driver.follow(Queue::Work, slot, Mark::Ready)?;
        }
        Ok(())
    }

    /// What is queued from here on comes after the job's work, and may run while the next jobs
    /// already work: it must use nothing but memory of the job's slot, and the job's frames.
    pub fn results(&mut self) -> Result<(), BlockError> {
        self.await_tables()?;
        let open = self.open()?;
        open.stage = Stage::Results;
        let slot = open.slot;
        self.driver.record(Queue::Work, slot, Mark::Worked)?;
        self.driver.follow(Queue::Results, slot, Mark::Worked)?;
        Ok(self.driver.note_worked(Queue::Results, (self.submitted + 1) as u32)?)
    }

    /// Ends the open job. [`done`](Self::done) returns what the job holds.
    pub fn submit(&mut self) -> Result<(), BlockError> {
        self.driver.bind()?;
        let Open { slot, stage, .. } = *self.open()?;
        if stage != Stage::Results {
            self.results()?;
        }
        self.driver.record(Queue::Results, slot, Mark::Ended)?;
        self.driver.call_back(Queue::Results)?;
        // Only now: a job whose end was not recorded would be taken for one that is done.
        let none = || BlockError::new("the CUDA pipeline does not hold the frames of the job");
        if self.open()?.job.is_none() {
            return Err(none());
        }
        let Some(Open { number, slot, has_work, inputs, job: Some(job), .. }) = self.open.take()
        else {
            return Err(none());
        };
        self.jobs.push_back(Queued { number, slot, has_work, inputs, job });
        self.submitted += 1;
        Ok(())
    }

    /// Ends an open job that an error kept from being submitted: waits for the device, then drops
    /// what the job holds. A call without an open job does nothing.
    pub fn abandon(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let _ = self.driver.bind();
        // After a fault the open job stays the one that the device was at work on, if its turn had come.
        if self.wait().is_ok() {
            self.driver.note_over(self.submitted as u32);
        }
        open.inputs.clear();
        self.spare.push(open.inputs);
    }

    /// The oldest job, if the device has finished it.
    pub fn done(&mut self) -> Result<Option<J>, BlockError> {
        // What is open between two calls of `work` was left by an error.
        self.abandon();
        let Some(&Queued { number, slot, has_work, .. }) = self.jobs.front() else {
            return Ok(None);
        };
        self.driver.bind()?;
        let has_ended = self.driver.has_passed(slot, Mark::Ended);
        if !has_ended.map_err(|error| self.driver.fault(error))? {
            return Ok(None);
        }
        if has_work && let Some(nanoseconds) = self.driver.work_nanoseconds(slot) {
            self.device_nanoseconds.add(nanoseconds);
            self.device_jobs.add(nanoseconds);
        }
        self.progress.over.fetch_max(number, Ordering::Release);
        Ok(self.jobs.pop_front().map(|Queued { mut inputs, job, .. }| {
            inputs.clear();
            self.spare.push(inputs);
            job
        }))
    }

    /// Queues the copy of the elements `which` of `host` to the same place of `array`. Until the
    /// job is over the host may read them and not write them.
    pub fn send<T: Pod>(
        &mut self,
        host: &mut Pinned<T>,
        array: &DeviceArray<T>,
        which: Range<usize>,
    ) -> Result<(), BlockError> {
        let bytes = self.copied(host, array, &which)?;
        let skip = (which.start * size_of::<T>()) as u64;
        let number = self.lend(host, array)?;
        host.sent_with(&self.progress, number);
        // SAFETY: both have these elements, and the lane keeps them until the copy is made.
        unsafe { self.copy(array.address() + skip, host.address() + skip, bytes) }
    }

    /// Queues the copy of all elements of `array` to `host`. Until the job is over the host may not
    /// read them.
    pub fn fetch<T: Pod>(
        &mut self,
        array: &DeviceArray<T>,
        host: &mut Pinned<T>,
    ) -> Result<(), BlockError> {
        let bytes = self.copied(host, array, &(0..array.len()))?;
        let number = self.lend(host, array)?;
        host.fetched_with(&self.progress, number);
        // SAFETY: as above; nobody sees the host's elements meanwhile.
        unsafe { self.copy(host.address(), array.address(), bytes) }
    }

    /// Queues the clearing of all elements of `array`.
    pub fn zero<T: Pod>(&mut self, array: &DeviceArray<T>) -> Result<(), BlockError> {
        self.open()?;
        self.keep_memory(array.shared());
        // SAFETY: the array is as long, and the lane keeps it until it is cleared.
        unsafe { self.clear(array.address(), array.bytes()) }
    }

    /// Bytes of the elements `which`, if both have them.
    fn copied<T: Pod>(
        &self,
        host: &Pinned<T>,
        array: &DeviceArray<T>,
        which: &Range<usize>,
    ) -> Result<usize, BlockError> {
        let len = host.len().min(array.len());
        if which.start > which.end || which.end > len {
            let text = format!("elements {which:?} of a table of {len} cannot be copied");
            return Err(BlockError::new(text));
        }
        Ok(which.len() * size_of::<T>())
    }

    /// Keeps the memory of a copy; the number of the open job.
    fn lend<T: Pod>(
        &mut self,
        host: &Pinned<T>,
        array: &DeviceArray<T>,
    ) -> Result<u64, BlockError> {
        let number = self.open()?.number;
        if !host.is_free_for(&self.progress) {
            return Err(BlockError::new("another CUDA pipeline uses this memory"));
        }
        self.keep_memory(host.shared());
        self.keep_memory(array.shared());
        Ok(number)
    }

    fn keep_memory<M: Any + Send + Sync>(&mut self, memory: &Shared<M>) {
        if memory.kept_by.swap(self.progress.lane, Ordering::Relaxed) != self.progress.lane {
            let is_same = |kept: &Arc<dyn Any + Send + Sync>| {
                std::ptr::addr_eq(Arc::as_ptr(kept), Arc::as_ptr(&memory.memory))
            };
            if !self.kept.iter().any(is_same) {
                self.kept.push(memory.memory.clone());
            }
        }
    }

    /// Queues a copy of `bytes` bytes between any two of device memory and pinned host memory.
    ///
    /// # Safety
    /// Both addresses must be valid for so many bytes until the job is done.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            let queued = unsafe { self.driver.copy(self.queue(), to, from, bytes) };
            queued.map_err(|error| {
                let what = format!("{bytes} bytes from {from:#x} to {to:#x} cannot be copied");
                BlockError::new(what).because(error)
            })?;
        }
        Ok(())
    }

    /// Queues the clearing of device memory.
    ///
    /// # Safety
    /// The address must be valid for so many bytes until the job is done.
    pub unsafe fn clear(&self, address: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.driver.clear(self.queue(), address, bytes) }?;
        }
        Ok(())
    }

    /// Waits until nothing is queued. After a fault there is nothing to wait for.
    fn wait(&self) -> Result<(), CudaError> {
        let waited = self.driver.wait();
        self.progress.over.store(self.begun, Ordering::Release);
        waited
    }
}

impl<J, D: Driver> Drop for Lane<J, D> {
    fn drop(&mut self) {
        // Only at the end of a run: kernels may still use the jobs' frames and the kept memory.
        if self.driver.bind().is_ok() {
            let _ = self.wait();
        }
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
