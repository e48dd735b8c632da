//! A block's place on a device.
#![allow(unsafe_code)] // streams and events of the driver, which these types own

use super::status::Status;
use super::{CudaError, Device, calls};
use crate::block::{BlockError, Io, Next};
use crate::counter::Counter;
use crate::device_jobs::DeviceJobs;
use crate::frame::{Frame, FrameMut};
use crate::kind::{Env, Waker};
use cudarc::driver::{result, sys};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

/// Jobs that a lane queues at most: one that runs, one that is ready to run, and one that may be
/// done while its block is still to be woken.
pub const IN_FLIGHT: usize = 3;

/// A stream; whoever drops it has bound its device.
pub(super) struct Stream(pub(super) sys::CUstream);
struct Event(sys::CUevent);

// SAFETY: handles that any thread may use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Event {}

impl Stream {
    pub(super) fn new() -> Result<Self, CudaError> {
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .map(Self)
            .map_err(CudaError::driver("making a stream"))
    }
}

impl Event {
    /// An event that says when it happened.
    fn timed() -> Result<Self, CudaError> {
        Self::new(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event that only happens, which costs the device less.
    fn untimed() -> Result<Self, CudaError> {
        Self::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(flags: sys::CUevent_flags) -> Result<Self, CudaError> {
        result::event::create(flags).map(Self).map_err(CudaError::driver("making an event"))
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

/// Where the device is in a job.
struct Marks {
    /// Its tables have come in.
    ready: Event,
    /// Its work is next.
    begun: Event,
    /// Its kernels are done.
    worked: Event,
    /// Its results are out, too.
    ended: Event,
    /// Whether it has kernels, whose time is counted.
    has_work: bool,
}

impl Marks {
    fn new() -> Result<Self, CudaError> {
        Ok(Self {
            ready: Event::untimed()?,
            begun: Event::timed()?,
            worked: Event::timed()?,
            ended: Event::untimed()?,
            has_work: false,
        })
    }
}

/// What is being queued of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Tables,
    Work,
    Results,
}

/// A block's place on a device: its streams, and the jobs queued on them.
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
pub struct Lane<J> {
    device: Arc<Device>,
    block: String,
    jobs: VecDeque<J>,
    /// Jobs begun so far.
    begun: u32,
    /// The last one is not submitted yet.
    is_open: bool,
    /// Jobs given back so far.
    given_back: u32,
    marks: Vec<Marks>,
    stage: Stage,
    tables: Stream,
    work: Stream,
    /// Also runs the callbacks, so that kernels never wait for the host.
    results: Stream,
    status: Arc<Status>,
    /// The callbacks' argument: at one place for as long as the lane lives.
    #[allow(clippy::box_collection, reason = "an address that stays")]
    waker: Box<Waker>,
    device_nanoseconds: Counter,
    device_jobs: DeviceJobs,
}

impl<J> Lane<J> {
    /// A lane of the block that `env` belongs to, on the device of `env`.
    pub fn new(env: &Env) -> Result<Self, BlockError> {
        let device = env
            .device
            .as_ref()
            .ok_or_else(|| BlockError::new("the block was not given a CUDA device"))?;
        device.bind()?;
        Ok(Self {
            device: Arc::clone(device),
            block: env.name.clone(),
            jobs: VecDeque::with_capacity(IN_FLIGHT),
            begun: 0,
            is_open: false,
            given_back: 0,
            marks: (0..IN_FLIGHT).map(|_| Marks::new()).collect::<Result<_, _>>()?,
            stage: Stage::Begun,
            tables: Stream::new()?,
            work: Stream::new()?,
            results: Stream::new()?,
            status: Status::new(device, &env.name, env.wake.clone())?,
            waker: Box::new(env.wake.clone()),
            device_nanoseconds: env.counters.device_nanoseconds().clone(),
            device_jobs: env.counters.device_jobs().clone(),
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
        match self.stage {
            Stage::Tables => self.tables.0,
            Stage::Begun | Stage::Work => self.work.0,
            Stage::Results => self.results.0,
        }
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
    /// Its slot.
    ///
    /// What is queued on [`stream`](Self::stream) from here on comes after the work of the jobs
    /// before, but the time it takes is not counted: copies to memory that jobs share. Kernels come
    /// after [`work`](Self::work).
    pub fn begin(&mut self, timestamp: u64) -> Result<usize, BlockError> {
        self.device.bind()?;
        if self.is_open {
            // An error came before the last one was submitted. It does not count, but what is
            // queued of it may still use the slot.
            self.wait();
            self.begun = self.begun.wrapping_sub(1);
        }
        self.is_open = true;
        let slot = self.begun as usize % IN_FLIGHT;
        self.begun = self.begun.wrapping_add(1);
        self.stage = Stage::Begun;
        self.marks[slot].has_work = false;
        self.status.begin(self.begun, timestamp);
        Ok(slot)
    }

    fn slot(&self) -> usize {
        self.begun.wrapping_sub(1) as usize % IN_FLIGHT
    }

    /// What is queued from here to [`work`](Self::work) may run while the jobs before still do, so
    /// that a fault of it is reported with the frame of one of those:
    /// it must use nothing but memory of the job's slot, and the job's frames.
    pub fn tables(&mut self) {
        self.stage = Stage::Tables;
    }

    /// What is queued from here on is the job's work: it comes after the [`tables`](Self::tables),
    /// if there are any, and after the work of the jobs before, and its time is counted.
    pub fn work(&mut self) -> Result<(), BlockError> {
        self.await_tables()?;
        let slot = self.slot();
        self.marks[slot].has_work = true;
        record(&self.marks[slot].begun, &self.work)?;
        self.stage = Stage::Work;
        Ok(())
    }

    fn await_tables(&self) -> Result<(), BlockError> {
        if self.stage == Stage::Tables {
            let ready = &self.marks[self.slot()].ready;
            record(ready, &self.tables)?;
            follow(&self.work, ready)?;
        }
        Ok(())
    }

    /// What is queued from here on comes after the job's work, and may run while the next jobs
    /// already work: it must use nothing but memory of the job's slot, and the job's frames.
    pub fn results(&mut self) -> Result<(), BlockError> {
        self.await_tables()?;
        let worked = &self.marks[self.slot()].worked;
        record(worked, &self.work)?;
        follow(&self.results, worked)?;
        self.status.worked(self.results.0, self.begun)?;
        self.stage = Stage::Results;
        Ok(())
    }

    /// Ends the job begun last. `job` comes back from [`done`](Self::done).
    pub fn submit(&mut self, job: J) -> Result<(), BlockError> {
        self.device.bind()?;
        // From here on the frames are in the device's hands, whatever goes wrong below.
        self.jobs.push_back(job);
        self.is_open = false;
        if self.stage != Stage::Results {
            self.results()?;
        }
        record(&self.marks[self.slot()].ended, &self.results)?;
        let argument = (&raw const *self.waker).cast_mut().cast::<c_void>();
        // SAFETY: the stream is the lane's own. The callback's argument lives as long as the lane,
        // which waits for its streams before it goes.
        unsafe { result::stream::launch_host_function(self.results.0, wake, argument) }
            .map_err(CudaError::driver("queueing work"))?;
        Ok(())
    }

    /// The oldest job, if the device has finished it.
    pub fn done(&mut self) -> Result<Option<J>, BlockError> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let slot = self.given_back as usize % IN_FLIGHT;
        let Marks { begun, worked, ended, has_work, .. } = &self.marks[slot];
        self.device.bind()?;
        // SAFETY: the event is the lane's own.
        match unsafe { result::event::query(ended.0) } {
            Ok(()) => {}
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => return Ok(None),
            Err(error) => return Err(self.fault(CudaError::driver("a kernel")(error))),
        }
        if *has_work
            // SAFETY: both events are the lane's own and have happened.
            && let Ok(milliseconds) = unsafe { result::event::elapsed(begun.0, worked.0) }
        {
            let nanoseconds = (f64::from(milliseconds) * 1e6) as u64;
            self.device_nanoseconds.add(nanoseconds);
            self.device_jobs.add(nanoseconds);
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
            let result = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream()) };
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
            unsafe { result::memset_d8_async(address, 0, bytes, self.stream()) }
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
        self.turn_when(io, |_| true)
    }

    /// The same for a block that may have no room of its own for another job, given whether the lane is idle; when
    /// it is, there has to be room.
    pub fn turn_when(
        &mut self,
        io: &mut Io<'_>,
        has_room: impl FnOnce(bool) -> bool,
    ) -> Result<Turn, BlockError> {
        while io.outputs[0].has_room()
            && let Some((_, output)) = self.done()?
        {
            io.outputs[0].push(output);
        }
        if io.inputs[0].ended() && self.is_idle() {
            return Ok(Turn::Rest(Next::Finished));
        }
        if !self.has_room() || !has_room(self.is_idle()) || io.inputs[0].peek().is_none() {
            return Ok(Turn::Rest(Next::Wait));
        }
        let Some(output) = io.outputs[0].take() else { return Ok(Turn::Rest(Next::Wait)) };
        let Some(input) = io.inputs[0].pop() else { return Ok(Turn::Rest(Next::Wait)) };
        Ok(Turn::Begin(input, output))
    }
}

impl<J> Lane<J> {
    /// Waits until nothing is queued. After a fault there is nothing to wait for.
    fn wait(&self) {
        calls::count_wait();
        for stream in [&self.tables, &self.work, &self.results] {
            // SAFETY: the lane's own.
            let _ = unsafe { result::stream::synchronize(stream.0) };
        }
    }
}

impl<J> Drop for Lane<J> {
    fn drop(&mut self) {
        // Only at the end of a run: kernels may still use the jobs' frames.
        if self.device.bind().is_ok() {
            self.wait();
        }
    }
}

fn record(event: &Event, stream: &Stream) -> Result<(), CudaError> {
    // SAFETY: both belong to a lane, which keeps them until its streams have come to their end.
    unsafe { result::event::record(event.0, stream.0) }.map_err(CudaError::driver("queueing work"))
}

/// What is queued on `stream` from here on comes after `event`.
fn follow(stream: &Stream, event: &Event) -> Result<(), CudaError> {
    let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
    // SAFETY: as above.
    unsafe { result::stream::wait_event(stream.0, event.0, flags) }
        .map_err(CudaError::driver("queueing work"))
}

/// Called by a thread of the driver when a job is done.
unsafe extern "C" fn wake(waker: *mut c_void) {
    // SAFETY: the lane's waker, see `submit`.
    let waker = unsafe { &*waker.cast::<Waker>() };
    // A panic must not reach the driver, and there is nobody to tell.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}
