//! A block's place on a device.
#![allow(unsafe_code)] // streams and events of the driver, which these types own

use super::status::Status;
use super::{CudaError, Device, calls};
use crate::block::{BlockError, Io, Next};
use crate::counter::Counter;
use crate::frame::{Frame, FrameMut};
use crate::kind::{Env, Waker};
use cudarc::driver::{result, sys};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// Jobs that a lane queues at most: one that runs, one that is ready to run, and one that may be
/// done while its block is still to be woken.
pub const IN_FLIGHT: usize = 3;

struct Stream(sys::CUstream);
struct Event(sys::CUevent);

// SAFETY: handles that any thread may use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Event {}

impl Stream {
    fn new() -> Result<Self, CudaError> {
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .map(Self)
            .map_err(CudaError::driver("making a stream"))
    }
}

impl Event {
    fn new() -> Result<Self, CudaError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .map(Self)
            .map_err(CudaError::driver("making an event"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once; the lane has bound its device.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// Where a job began and ended on its stream.
struct Marks {
    begun: Event,
    ended: Event,
}

/// A block's place on a device: a stream, and the jobs queued on it.
///
/// A job `J` owns what its kernels use: the frames they read and the one they write. It comes back
/// from [`done`](Self::done) once the device has finished it, in the order in which jobs were
/// submitted. Each job has a slot from 0 to [`IN_FLIGHT`] - 1 that no other job in flight has,
/// for tables that are copied along.
pub struct Lane<J> {
    device: Arc<Device>,
    block: String,
    jobs: VecDeque<J>,
    /// Jobs begun so far; the last one may not be submitted yet.
    begun: u32,
    /// Jobs given back so far.
    given_back: u32,
    marks: Vec<Marks>,
    stream: Stream,
    /// Runs the callbacks, so that kernels never wait for the host.
    callbacks: Stream,
    status: Arc<Status>,
    /// The callbacks' argument: at one place for as long as the lane lives.
    #[allow(clippy::box_collection, reason = "an address that stays")]
    waker: Box<Waker>,
    device_nanoseconds: Counter,
}

impl<J> Lane<J> {
    /// A lane of the block that `env` belongs to, on the device of `env`.
    pub fn new(env: &Env) -> Result<Self, BlockError> {
        let device = env
            .device
            .as_ref()
            .ok_or_else(|| BlockError::new("the block was not given a CUDA device"))?;
        device.bind()?;
        let marks = || Ok::<_, CudaError>(Marks { begun: Event::new()?, ended: Event::new()? });
        Ok(Self {
            device: Arc::clone(device),
            block: env.name.clone(),
            jobs: VecDeque::with_capacity(IN_FLIGHT),
            begun: 0,
            given_back: 0,
            marks: (0..IN_FLIGHT).map(|_| marks()).collect::<Result<_, _>>()?,
            stream: Stream::new()?,
            callbacks: Stream::new()?,
            status: Status::new(device, &env.name, env.wake.clone())?,
            waker: Box::new(env.wake.clone()),
            device_nanoseconds: env.counters.device_nanoseconds().clone(),
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The stream to launch on, between [`begin`](Self::begin) and [`submit`](Self::submit).
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.stream.0
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
    /// What is queued on [`stream`](Self::stream) until [`submit`](Self::submit) is its work.
    /// Its slot.
    pub fn begin(&mut self, timestamp: u64) -> Result<usize, BlockError> {
        self.device.bind()?;
        let slot = self.begun as usize % IN_FLIGHT;
        self.begun = self.begun.wrapping_add(1);
        self.status.begin(self.stream.0, self.begun, timestamp)?;
        // SAFETY: both are the lane's own.
        unsafe { result::event::record(self.marks[slot].begun.0, self.stream.0) }
            .map_err(CudaError::driver("queueing work"))?;
        Ok(slot)
    }

    /// Ends the job begun last. `job` comes back from [`done`](Self::done).
    pub fn submit(&mut self, job: J) -> Result<(), BlockError> {
        let failed = CudaError::driver("queueing work");
        let slot = (self.begun.wrapping_sub(1)) as usize % IN_FLIGHT;
        let ended = &self.marks[slot].ended;
        self.device.bind()?;
        // From here on the frames are in the device's hands, whatever goes wrong below.
        self.jobs.push_back(job);
        self.status.end(self.stream.0, self.begun)?;
        let argument = (&raw const *self.waker).cast_mut().cast::<c_void>();
        // SAFETY: streams and event are the lane's own. The callback's argument lives as long as
        // the lane, which waits for its streams before it goes.
        unsafe {
            result::event::record(ended.0, self.stream.0).map_err(&failed)?;
            let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            result::stream::wait_event(self.callbacks.0, ended.0, flags).map_err(&failed)?;
            result::stream::launch_host_function(self.callbacks.0, wake, argument)
                .map_err(&failed)?;
        }
        Ok(())
    }

    /// The oldest job, if the device has finished it.
    pub fn done(&mut self) -> Result<Option<J>, BlockError> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let slot = self.given_back as usize % IN_FLIGHT;
        let Marks { begun, ended } = &self.marks[slot];
        self.device.bind()?;
        // SAFETY: the event is the lane's own.
        match unsafe { result::event::query(ended.0) } {
            Ok(()) => {}
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => return Ok(None),
            Err(error) => return Err(self.fault(CudaError::driver("a kernel")(error))),
        }
        // SAFETY: both events are the lane's own and have happened.
        if let Ok(milliseconds) = unsafe { result::event::elapsed(begun.0, ended.0) } {
            self.device_nanoseconds.add((f64::from(milliseconds) * 1e6) as u64);
        }
        self.given_back = self.given_back.wrapping_add(1);
        Ok(self.jobs.pop_front())
    }

    /// What a failure of the device says to the user.
    fn fault(&self, error: CudaError) -> BlockError {
        let at_work = self.device.at_work();
        let device = self.device.ordinal();
        let text = match at_work.as_slice() {
            [] => format!("cuda:{device} failed, seen by `{}`", self.block),
            [one] => format!("cuda:{device} failed while at work for {one}"),
            several => {
                format!("cuda:{device} failed while at work for one of {}", several.join(", "))
            }
        };
        BlockError::new(text).because(error)
    }

    /// Queues a copy of `bytes` bytes between any two of device memory and pinned host memory.
    ///
    /// # Safety
    /// Both addresses must be valid for so many bytes until the job is done.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BlockError> {
        if bytes > 0 {
            // SAFETY: the caller's promise.
            let result = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream.0) };
            CudaError::check("queueing a copy", result).map_err(|error| {
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
            unsafe { result::memset_d8_async(address, 0, bytes, self.stream.0) }
                .map_err(CudaError::driver("queueing work"))?;
        }
        Ok(())
    }
}

/// What a block that makes one frame of each it reads is to do.
pub enum Turn {
    /// Begin a job on this frame, which makes that one.
    Begin(Arc<Frame>, FrameMut),
    /// Nothing now.
    Rest(Next),
}

impl Lane<(Arc<Frame>, FrameMut)> {
    /// The turn of a block that makes one frame of each it reads: what is done is pushed, and the
    /// next frames are taken if there is room.
    pub fn turn(&mut self, io: &mut Io<'_>) -> Result<Turn, BlockError> {
        while io.outputs[0].has_room()
            && let Some((_, output)) = self.done()?
        {
            io.outputs[0].push(output);
        }
        if io.inputs[0].ended() && self.is_idle() {
            return Ok(Turn::Rest(Next::Finished));
        }
        if !self.has_room() || io.inputs[0].peek().is_none() {
            return Ok(Turn::Rest(Next::Wait));
        }
        let Some(output) = io.outputs[0].take() else { return Ok(Turn::Rest(Next::Wait)) };
        let Some(input) = io.inputs[0].pop() else { return Ok(Turn::Rest(Next::Wait)) };
        Ok(Turn::Begin(input, output))
    }
}

impl<J> Drop for Lane<J> {
    fn drop(&mut self) {
        // Only at the end of a run: kernels may still use the jobs' frames.
        if self.device.bind().is_ok() {
            calls::count_wait();
            // SAFETY: both streams are the lane's own. After a fault there is nothing to wait for.
            unsafe {
                let _ = result::stream::synchronize(self.stream.0);
                let _ = result::stream::synchronize(self.callbacks.0);
            }
        }
    }
}

/// Called by a thread of the driver when a job is done.
unsafe extern "C" fn wake(waker: *mut c_void) {
    // SAFETY: the lane's waker, see `submit`.
    let waker = unsafe { &*waker.cast::<Waker>() };
    // A panic must not reach the driver, and there is nobody to tell.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}
