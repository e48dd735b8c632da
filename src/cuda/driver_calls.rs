//! Calls of the CUDA driver by the CUDA pipeline. The order of the calls is in `pipeline`, whose tests need no GPU.
#![allow(unsafe_code)] // streams and events of the driver, which these types own

use super::jobs::IN_FLIGHT;
use super::memory::{DeviceArray, HostMemory};
use super::status::Status;
use super::{CudaError, Device, calls};
use cudarc::driver::{result, sys};
use fxgraph_core::error::BlockError;
use fxgraph_core::kind::{Env, Waker};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// Size in bytes of the copies that warm up the streams before the first frame.
const WARM_UP_BYTES: usize = 1 << 20;

/// A stream of the CUDA pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Upload stream: copies to the device, before the kernels.
    Tables,
    /// Compute stream: kernels.
    Work,
    /// Download stream: copies to the host. Also runs the callbacks, so that kernels never wait for the host.
    Results,
}

impl Queue {
    /// All streams.
    pub const ALL: [Self; 3] = [Self::Tables, Self::Work, Self::Results];
}

/// A CUDA event in the job of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The job's tables are on the device.
    Ready,
    /// The job's kernels begin.
    Begun,
    /// The job's kernels have run.
    Worked,
    /// The job's results are on the host.
    Ended,
}

/// Driver interface of the CUDA pipeline: three streams, and four events for each slot.
pub trait Driver {
    /// Selects the device for the following driver calls of the calling thread.
    fn bind(&self) -> Result<(), CudaError>;

    /// Records the event `mark` of `slot` on `queue`.
    fn record(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError>;

    /// Makes all later work on `queue` wait for the event `mark` of `slot`.
    fn follow(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError>;

    /// Whether the device has passed the last record of the event `mark` of `slot`.
    fn has_passed(&self, slot: usize, mark: Mark) -> Result<bool, CudaError>;

    /// Time in nanoseconds between the events `Begun` and `Worked` of `slot`, which the device has passed.
    fn work_nanoseconds(&self, slot: usize) -> Option<u64>;

    /// Queues a copy of `bytes` bytes from address `from` to address `to`, each in device memory or pinned host
    /// memory.
    ///
    /// # Safety
    /// Both addresses must be valid for `bytes` bytes until the device has made the copy.
    unsafe fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize) -> Result<(), CudaError>;

    /// Queues the clearing of `bytes` bytes of device memory.
    ///
    /// # Safety
    /// The address must be valid for `bytes` bytes until the device has cleared them.
    unsafe fn clear(&self, queue: Queue, address: u64, bytes: usize) -> Result<(), CudaError>;

    /// Queues a callback on `queue` that wakes the block.
    fn call_back(&self, queue: Queue) -> Result<(), CudaError>;

    /// Waits until the device has finished all queued work. After a fault of the device, returns the fault at
    /// once.
    fn wait(&self) -> Result<(), CudaError>;

    /// Notes, for error messages, that job `number` begins, on the frame with this timestamp.
    fn note_begin(&self, number: u32, timestamp: u64);

    /// Notes, for error messages, that job `number` was the last one, and that its kernels have run. Called while no
    /// work is queued.
    fn note_over(&self, number: u32);

    /// Queues a note, for error messages, that the kernels of job `number` have run.
    fn note_worked(&self, queue: Queue, number: u32) -> Result<(), CudaError>;

    /// Converts a failure of the device to an error for the user.
    fn fault(&self, error: CudaError) -> BlockError;

    /// Returns an error if a job of the CUDA pipeline has exceeded its time limit.
    fn reject_overdue(&self) -> Result<(), CudaError>;

    /// Whether a kernel on the device, of any block, has exceeded its time limit: the device must not be waited for.
    fn is_stuck(&self) -> bool;
}

/// A CUDA stream; its owner selects the device before dropping the stream.
pub(super) struct Stream(pub(super) sys::CUstream);
struct Event(sys::CUevent);

// SAFETY: a stream is a handle that any thread may use.
unsafe impl Send for Stream {}
// SAFETY: an event is a handle that any thread may use.
unsafe impl Send for Event {}

impl Stream {
    pub(super) fn new() -> Result<Self, CudaError> {
        result::stream::create(result::stream::StreamKind::NonBlocking)
            .map(Self)
            .map_err(CudaError::driver("creating a CUDA stream"))
    }
}

impl Event {
    /// Creates a CUDA event with timing.
    fn timed() -> Result<Self, CudaError> {
        Self::new(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// Creates a CUDA event without timing (cheaper).
    fn untimed() -> Result<Self, CudaError> {
        Self::new(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(flags: sys::CUevent_flags) -> Result<Self, CudaError> {
        result::event::create(flags).map(Self).map_err(CudaError::driver("creating a CUDA event"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once; the owner has selected the device.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: owned, destroyed once; the owner has selected the device.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// The events of a slot.
struct Marks {
    ready: Event,
    begun: Event,
    worked: Event,
    ended: Event,
}

impl Marks {
    fn new() -> Result<Self, CudaError> {
        Ok(Self {
            ready: Event::untimed()?,
            begun: Event::timed()?,
            worked: Event::timed()?,
            ended: Event::untimed()?,
        })
    }
}

/// Driver of a GPU for one CUDA pipeline.
pub struct Cuda {
    device: Arc<Device>,
    marks: Vec<Marks>,
    tables: Stream,
    work: Stream,
    results: Stream,
    status: Arc<Status>,
    /// Argument of the callbacks, at a fixed address for the lifetime of the CUDA pipeline.
    #[allow(clippy::box_collection, reason = "an address that stays")]
    waker: Box<Waker>,
}

impl Cuda {
    /// Creates streams and events on `device` for the block of `env`.
    pub(super) fn new(device: &Arc<Device>, env: &Env) -> Result<Self, CudaError> {
        device.bind()?;
        let driver = Self {
            device: Arc::clone(device),
            marks: (0..IN_FLIGHT).map(|_| Marks::new()).collect::<Result<_, _>>()?,
            tables: Stream::new()?,
            work: Stream::new()?,
            results: Stream::new()?,
            status: Status::new(device, &env.name, env.wake.clone())?,
            waker: Box::new(env.wake.clone()),
        };
        driver.warm_up()?;
        Ok(driver)
    }

    /// Runs each operation of a job once on each stream. At the first copy, the first clearing and the first callback
    /// of a stream, the driver sets up channels and threads, which takes milliseconds: too long for live data.
    fn warm_up(&self) -> Result<(), CudaError> {
        let host = HostMemory::new(&self.device, WARM_UP_BYTES)?;
        let one = DeviceArray::<u8>::new(&self.device, WARM_UP_BYTES)?;
        let other = DeviceArray::<u8>::new(&self.device, WARM_UP_BYTES)?;
        let queued = self.use_streams([host.address(), one.address(), other.address()]);
        queued.and(self.wait())
    }

    fn use_streams(&self, [host, one, other]: [u64; 3]) -> Result<(), CudaError> {
        for queue in Queue::ALL {
            // SAFETY: all three have this size and stay allocated until `warm_up` has waited.
            unsafe {
                self.copy(queue, one, host, WARM_UP_BYTES)?;
                self.copy(queue, other, one, WARM_UP_BYTES)?;
                self.clear(queue, one, WARM_UP_BYTES)?;
                self.copy(queue, host, other, WARM_UP_BYTES)?;
            }
            for slot in 0..IN_FLIGHT {
                for mark in [Mark::Ready, Mark::Begun, Mark::Worked, Mark::Ended] {
                    self.record(queue, slot, mark)?;
                    self.follow(Queue::Work, slot, mark)?;
                }
            }
            self.note_worked(queue, 0)?;
            self.call_back(queue)?;
        }
        Ok(())
    }

    /// See [`Pipeline::set_deadline`](super::Pipeline::set_deadline).
    pub(super) fn set_deadline(&self, kernel: &str, limit: Duration) {
        self.status.set_deadline(kernel, limit);
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the CUDA handle of a stream, for a launch.
    pub(super) fn launch_stream(&self, queue: Queue) -> sys::CUstream {
        self.status.launches();
        self.stream(queue)
    }

    /// Returns the CUDA handle of a stream.
    fn stream(&self, queue: Queue) -> sys::CUstream {
        match queue {
            Queue::Tables => self.tables.0,
            Queue::Work => self.work.0,
            Queue::Results => self.results.0,
        }
    }

    fn event(&self, slot: usize, mark: Mark) -> sys::CUevent {
        let marks = &self.marks[slot];
        match mark {
            Mark::Ready => marks.ready.0,
            Mark::Begun => marks.begun.0,
            Mark::Worked => marks.worked.0,
            Mark::Ended => marks.ended.0,
        }
    }
}

impl Driver for Cuda {
    fn bind(&self) -> Result<(), CudaError> {
        self.device.bind()
    }

    fn record(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError> {
        // SAFETY: own handles.
        unsafe { result::event::record(self.event(slot, mark), self.stream(queue)) }
            .map_err(CudaError::driver("queueing work"))
    }

    fn follow(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: own handles.
        unsafe { result::stream::wait_event(self.stream(queue), self.event(slot, mark), flags) }
            .map_err(CudaError::driver("queueing work"))
    }

    fn has_passed(&self, slot: usize, mark: Mark) -> Result<bool, CudaError> {
        // SAFETY: own handle.
        match unsafe { result::event::query(self.event(slot, mark)) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(CudaError::driver("a kernel")(error)),
        }
    }

    fn work_nanoseconds(&self, slot: usize) -> Option<u64> {
        let Marks { begun, worked, .. } = &self.marks[slot];
        // SAFETY: own handles, of events with timing.
        let milliseconds = unsafe { result::event::elapsed(begun.0, worked.0) }.ok()?;
        Some((f64::from(milliseconds) * 1e6) as u64)
    }

    unsafe fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let result = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream(queue)) };
        CudaError::check("queueing a copy", result)
    }

    unsafe fn clear(&self, queue: Queue, address: u64, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(address, 0, bytes, self.stream(queue)) }
            .map_err(CudaError::driver("queueing work"))
    }

    fn call_back(&self, queue: Queue) -> Result<(), CudaError> {
        let argument = (&raw const *self.waker).cast_mut().cast::<c_void>();
        // SAFETY: the callback's argument lives as long as the CUDA pipeline, which waits for its streams
        // before it is dropped, or for ever if the device is stuck.
        unsafe { result::stream::launch_host_function(self.stream(queue), wake, argument) }
            .map_err(CudaError::driver("queueing work"))
    }

    fn wait(&self) -> Result<(), CudaError> {
        calls::count_wait();
        let waited = Queue::ALL.map(|queue| {
            // SAFETY: own handle.
            unsafe { result::stream::synchronize(self.stream(queue)) }
        });
        waited.into_iter().collect::<Result<(), _>>().map_err(CudaError::driver("a kernel"))
    }

    fn note_begin(&self, number: u32, timestamp: u64) {
        self.status.begin(number, timestamp);
    }

    fn note_over(&self, number: u32) {
        self.status.over(number);
    }

    fn note_worked(&self, queue: Queue, number: u32) -> Result<(), CudaError> {
        self.status.worked(self.stream(queue), number)
    }

    fn fault(&self, error: CudaError) -> BlockError {
        self.device.fault(error)
    }

    fn reject_overdue(&self) -> Result<(), CudaError> {
        let why = self.status.overdue();
        why.map_or(Ok(()), |why| Err(CudaError::Stuck { why: why.to_owned() }))
    }

    fn is_stuck(&self) -> bool {
        self.device.reject_stuck().is_err()
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.is_stuck() {
            // Nothing has waited for the streams: their callbacks may come later.
            std::mem::forget(std::mem::take(&mut self.waker));
        }
    }
}

/// Called by a thread of the driver when a job is done.
unsafe extern "C" fn wake(waker: *mut c_void) {
    // SAFETY: the waker of the CUDA pipeline, see `call_back`.
    let waker = unsafe { &*waker.cast::<Waker>() };
    // A panic must not unwind into the driver, and no caller can handle it.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
}
