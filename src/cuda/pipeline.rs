//! Per-block CUDA pipeline: upload, compute and download streams with up to [`IN_FLIGHT`] jobs in flight.
//!
//! The CUDA pipeline owns all memory that queued kernels and copies use: a job gets its frames before its work is
//! queued, and memory of copies is kept from the first copy on. After an error between two calls, the pipeline
//! still owns the job, and waits for the device before it releases the frames. So no order of calls and drops
//! frees memory in use.
#![allow(unsafe_code)] // copies between memory that the CUDA pipeline keeps

use super::driver_calls::{Cuda, Driver, Mark, Queue};
use super::jobs::{IN_FLIGHT, Progress};
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
use std::sync::atomic::Ordering;
use std::time::Duration;

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

/// A job that has begun and is not submitted.
struct Open<J> {
    number: u64,
    slot: usize,
    stage: Stage,
    has_work: bool,
    inputs: Vec<Arc<Frame>>,
    job: Option<J>,
}

/// A submitted job.
struct Queued<J> {
    number: u64,
    slot: usize,
    has_work: bool,
    inputs: Vec<Arc<Frame>>,
    job: J,
}

/// Per-block CUDA pipeline: its streams, and the jobs queued on them.
///
/// A job `J` owns the frames that its kernels read and write. [`done`](Self::done) returns jobs in the order in which
/// they were submitted, once the device has finished them. Each job has a slot from 0 to [`IN_FLIGHT`] - 1, distinct
/// from those of other jobs in flight, for the memory of tables that are copied with it.
///
/// The kernels of all jobs run in order on the compute stream. A small copy between them would stall this stream for
/// a few microseconds. Therefore copies that use only memory of the slot run on the upload stream before the kernels
/// ([`tables`](Self::tables)) and on the download stream after them ([`results`](Self::results)), while kernels of
/// other jobs run.
pub struct Pipeline<J, D: Driver = Cuda> {
    driver: D,
    jobs: VecDeque<Queued<J>>,
    open: Option<Open<J>>,
    /// Number of jobs begun so far, including those ended by an error.
    begun: u64,
    /// Number of jobs submitted so far, from which the slot of the next one follows.
    submitted: u64,
    progress: Arc<Progress>,
    /// Memory of all copies so far.
    kept: Vec<Arc<dyn Any + Send + Sync>>,
    /// Empty lists for the inputs of later jobs.
    spare: Vec<Vec<Arc<Frame>>>,
    device_nanoseconds: Counter,
    device_jobs: DeviceJobs,
}

impl<J> Pipeline<J> {
    /// Creates the CUDA pipeline of the block of `env`, on its device.
    ///
    /// # Errors
    /// If the block has no CUDA device, or if the driver fails.
    pub fn new(env: &Env) -> Result<Self, BlockError> {
        let device = Device::of(env);
        let device = device.ok_or_else(|| BlockError::new("the block has no CUDA device"))?;
        Ok(Self::with_driver(Cuda::new(&device, env)?, env))
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        self.driver.device()
    }

    /// Sets the time limit for the kernels of a job. After it, [`done`](Self::done) returns an error that names them, such
    /// as "the kernel `gain`", and neither this CUDA pipeline nor a later one waits for the device: a kernel ends only with
    /// the CUDA context. Only the first call has an effect.
    pub fn set_deadline(&self, kernel: &str, limit: Duration) {
        self.driver.set_deadline(kernel, limit);
    }

    /// Returns the stream for launches, between [`begin`](Self::begin) and [`submit`](Self::submit).
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.driver.launch_stream(self.queue())
    }

    /// Returns the device address of the payload of `frame`, which the open job keeps.
    ///
    /// # Errors
    /// If the frame is not on the device, or if no job has begun.
    pub fn read(&mut self, frame: &Arc<Frame>) -> Result<u64, BlockError> {
        let address = frame_address(frame, self.device())?;
        self.keep(Arc::clone(frame))?;
        Ok(address)
    }
}

impl<J, D: Driver> Pipeline<J, D> {
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
        self.open.as_mut().ok_or_else(|| BlockError::new("no job of the CUDA pipeline has begun"))
    }

    /// Whether another job may begin. If not, the block is woken when a job has finished.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.jobs.len() < IN_FLIGHT
    }

    /// Whether no job is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Begins a job on the frame with this timestamp, and returns its slot. Check [`has_room`](Self::has_room) first.
    ///
    /// Operations queued on [`stream`](Self::stream) between this call and [`tables`](Self::tables) or
    /// [`work`](Self::work) run after the kernels of earlier jobs, and their time is not counted: for copies to memory
    /// that jobs share. Kernels are queued after [`work`](Self::work).
    ///
    /// # Errors
    /// If [`IN_FLIGHT`] jobs are in flight, or if the driver fails.
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

    /// Moves the job, with the frames that its kernels write, into the CUDA pipeline; [`done`](Self::done) returns it.
    /// Required before [`work`](Self::work), so that the pipeline owns the frames even after an error.
    ///
    /// # Errors
    /// If no job has begun.
    pub fn hold(&mut self, job: J) -> Result<(), BlockError> {
        self.open()?.job = Some(job);
        Ok(())
    }

    /// Keeps `frame` until the device has finished the open job.
    ///
    /// # Errors
    /// If no job has begun.
    pub fn keep(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        self.open()?.inputs.push(frame);
        Ok(())
    }

    /// Switches to the upload stream. Operations queued between this call and [`work`](Self::work) may run in parallel
    /// with earlier jobs, so they must use only memory of the job's slot and the job's frames. An error in them may be
    /// reported for the frame of an earlier job.
    pub fn tables(&mut self) {
        if let Some(open) = &mut self.open {
            open.stage = Stage::Tables;
        }
    }

    /// Switches to the compute stream. Operations queued from here on run after the job's [`tables`](Self::tables) and
    /// after the kernels of earlier jobs, and their time is counted.
    ///
    /// # Errors
    /// If the job does not [hold](Self::hold) its frames, or if the driver fails.
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

    /// Switches to the download stream. Operations queued from here on run after the job's kernels, in parallel with
    /// later jobs, so they must use only memory of the job's slot and the job's frames.
    ///
    /// # Errors
    /// If no job has begun, or if the driver fails.
    pub fn results(&mut self) -> Result<(), BlockError> {
        self.await_tables()?;
        let open = self.open()?;
        open.stage = Stage::Results;
        let slot = open.slot;
        self.driver.record(Queue::Work, slot, Mark::Worked)?;
        self.driver.follow(Queue::Results, slot, Mark::Worked)?;
        Ok(self.driver.note_worked(Queue::Results, (self.submitted + 1) as u32)?)
    }

    /// Submits the open job, which [`done`](Self::done) returns later.
    ///
    /// # Errors
    /// If the job does not [hold](Self::hold) its frames, or if the driver fails.
    pub fn submit(&mut self) -> Result<(), BlockError> {
        self.driver.bind()?;
        let Open { slot, stage, .. } = *self.open()?;
        if stage != Stage::Results {
            self.results()?;
        }
        self.driver.record(Queue::Results, slot, Mark::Ended)?;
        self.driver.call_back(Queue::Results)?;
        // Only after the event `Ended` is recorded: without it the job would appear to be done.
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

    /// Ends an open job that was not submitted because of an error: waits for the device, then drops the job and its
    /// frames. Has no effect without an open job.
    pub fn abandon(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let _ = self.driver.bind();
        // After a fault of the device, the open job may be the one to report.
        if self.wait().is_ok() {
            self.driver.note_over(self.submitted as u32);
        }
        open.inputs.clear();
        self.spare.push(open.inputs);
    }

    /// Returns the oldest job, if the device has finished it.
    ///
    /// # Errors
    /// If the device has failed.
    pub fn done(&mut self) -> Result<Option<J>, BlockError> {
        // A job that is still open here was left by an error.
        self.abandon();
        let Some(&Queued { number, slot, has_work, .. }) = self.jobs.front() else {
            return Ok(None);
        };
        self.driver.bind()?;
        let has_ended = self.driver.has_passed(slot, Mark::Ended);
        if !has_ended.map_err(|error| self.driver.fault(error))? {
            return self.driver.reject_overdue().map(|()| None).map_err(BlockError::from);
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

    /// Queues a copy of the elements `which` of `host` to the same elements of `array`. Until the job has finished,
    /// the host may read `host` but not write it.
    ///
    /// # Errors
    /// If no job has begun, if `which` is out of range, if another CUDA pipeline uses `host`, or if the driver fails.
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
        // SAFETY: both have these elements, and the CUDA pipeline keeps them until the copy is made.
        unsafe { self.copy(array.address() + skip, host.address() + skip, bytes) }
    }

    /// Queues a copy of all elements of `array` to `host`. Until the job has finished, the host may not read `host`.
    ///
    /// # Errors
    /// If no job has begun, if `host` is shorter, if another CUDA pipeline uses `host`, or if the driver fails.
    pub fn fetch<T: Pod>(
        &mut self,
        array: &DeviceArray<T>,
        host: &mut Pinned<T>,
    ) -> Result<(), BlockError> {
        let bytes = self.copied(host, array, &(0..array.len()))?;
        let number = self.lend(host, array)?;
        host.fetched_with(&self.progress, number);
        // SAFETY: both have these elements; the CUDA pipeline keeps them until the copy is made, and the host cannot
        // access them meanwhile.
        unsafe { self.copy(host.address(), array.address(), bytes) }
    }

    /// Queues the clearing of all elements of `array`.
    ///
    /// # Errors
    /// If no job has begun, or if the driver fails.
    pub fn zero<T: Pod>(&mut self, array: &DeviceArray<T>) -> Result<(), BlockError> {
        self.open()?;
        self.keep_memory(array.shared());
        // SAFETY: the array has these bytes, and the CUDA pipeline keeps it until it is cleared.
        unsafe { self.clear(array.address(), array.bytes()) }
    }

    /// Returns the size of the elements `which` in bytes, if both arrays have them.
    fn copied<T: Pod>(
        &self,
        host: &Pinned<T>,
        array: &DeviceArray<T>,
        which: &Range<usize>,
    ) -> Result<usize, BlockError> {
        let len = host.len().min(array.len());
        if which.start > which.end || which.end > len {
            let text = format!("cannot copy elements {which:?} of a table of {len} elements");
            return Err(BlockError::new(text));
        }
        Ok(which.len() * size_of::<T>())
    }

    /// Keeps the memory of a copy, and returns the number of the open job.
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
        if memory.kept_by.swap(self.progress.pipeline, Ordering::Relaxed) != self.progress.pipeline
        {
            let is_same = |kept: &Arc<dyn Any + Send + Sync>| {
                std::ptr::addr_eq(Arc::as_ptr(kept), Arc::as_ptr(&memory.memory))
            };
            if !self.kept.iter().any(is_same) {
                self.kept.push(memory.memory.clone());
            }
        }
    }

    /// Queues a copy of `bytes` bytes from address `from` to address `to`, each in device memory or pinned host
    /// memory.
    ///
    /// # Safety
    /// Both addresses must be valid for `bytes` bytes until the job is done.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            let queued = unsafe { self.driver.copy(self.queue(), to, from, bytes) };
            queued.map_err(|error| {
                if error.is_sticky() {
                    return self.driver.fault(error);
                }
                let what = format!("cannot copy {bytes} bytes from {from:#x} to {to:#x}");
                BlockError::new(what).because(error)
            })?;
        }
        Ok(())
    }

    /// Queues the clearing of `bytes` bytes of device memory.
    ///
    /// # Safety
    /// The address must be valid for `bytes` bytes until the job is done.
    pub unsafe fn clear(&self, address: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.driver.clear(self.queue(), address, bytes) }?;
        }
        Ok(())
    }

    /// Waits until all queued work is done, or returns the fault of the device. Does not wait for a device that is stuck: it
    /// may go on to use the memory, which then stays allocated.
    fn wait(&self) -> Result<(), CudaError> {
        if self.driver.is_stuck() {
            return Ok(());
        }
        let waited = self.driver.wait();
        self.progress.over.store(self.begun, Ordering::Release);
        waited
    }
}

impl<J, D: Driver> Drop for Pipeline<J, D> {
    fn drop(&mut self) {
        // This wait is only at the end of a run: kernels may still use the jobs' frames and the kept memory.
        if self.driver.bind().is_ok() {
            let _ = self.wait();
        }
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
