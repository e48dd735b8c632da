//! Tests of the order of calls, the memory and the error paths of the CUDA pipeline, with a driver that needs no
//! GPU: the test decides when queued operations run, and any call can be made to fail.

use super::super::memory::HostMemory;
use super::super::status::Status;
use super::super::{CudaError, InUse};
use super::*;
use fxgraph_core::frame::{HostAllocator, Pool};
use fxgraph_core::kind::Waker;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A call of the driver.
#[derive(Clone, Debug, PartialEq)]
enum Did {
    Record(Queue, usize, Mark),
    Follow(Queue, usize, Mark),
    Copy(Queue),
    Clear(Queue),
    CallBack(Queue),
    NoteWorked(Queue, u32),
    NoteBegin(u32),
    NoteOver(u32),
    Wait,
}

/// An operation queued on a stream.
#[derive(Clone, Copy, Debug)]
enum Op {
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Clear {
        address: u64,
        bytes: usize,
    },
    Record(usize, Mark, u64),
    /// Waits until the record with this number of the event has been passed.
    Follow(usize, Mark, u64),
    CallBack,
    NoteWorked(u32),
}

/// Number of records of an event, and number of the last one passed.
#[derive(Clone, Copy, Default)]
struct Recorded {
    recorded: u64,
    passed: u64,
}

struct State {
    status: Status,
    log: RefCell<Vec<Did>>,
    streams: RefCell<[VecDeque<Op>; 3]>,
    events: RefCell<[[Recorded; 4]; IN_FLIGHT]>,
    called_back: Cell<u64>,
    /// Number of calls that still succeed before one fails.
    fails_after: Cell<Option<usize>>,
    /// The device has failed and runs no operation.
    has_failed: Cell<bool>,
    /// A kernel has exceeded its time limit.
    is_stuck: Cell<bool>,
}

/// A driver whose operations run in the test.
#[derive(Clone)]
struct Fake(Rc<State>);

impl Fake {
    fn new() -> Self {
        let word = HostMemory::on_heap(size_of::<u32>());
        Self(Rc::new(State {
            status: Status::with_word(word, "block", Waker::default()),
            log: RefCell::default(),
            streams: RefCell::default(),
            events: RefCell::default(),
            called_back: Cell::default(),
            fails_after: Cell::default(),
            has_failed: Cell::default(),
            is_stuck: Cell::default(),
        }))
    }

    fn call(&self, did: Did) -> Result<(), CudaError> {
        self.0.log.borrow_mut().push(did);
        match self.0.fails_after.get() {
            Some(0) => {
                self.0.fails_after.set(None);
                Err(CudaError::Library { what: "a call", reason: "as requested".to_owned() })
            }
            left => {
                self.0.fails_after.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }

    fn queue(&self, queue: Queue, op: Op) {
        self.0.streams.borrow_mut()[queue as usize].push_back(op);
    }

    /// Runs the next operation of a stream; `false` if there is none that can run.
    fn step(&self, queue: Queue) -> bool {
        if self.0.has_failed.get() {
            return false;
        }
        let Some(op) = self.0.streams.borrow()[queue as usize].front().copied() else {
            return false;
        };
        let memory = |address: u64| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        match op {
            // SAFETY: the CUDA pipeline keeps both ends valid until the copy is made; Miri reports it if not.
            Op::Copy { to, from, bytes } => unsafe {
                std::ptr::copy_nonoverlapping(memory(from), memory(to), bytes);
            },
            // SAFETY: the CUDA pipeline keeps the memory valid until it is cleared; Miri reports it if not.
            Op::Clear { address, bytes } => unsafe { memory(address).write_bytes(0, bytes) },
            Op::Record(slot, mark, number) => {
                self.0.events.borrow_mut()[slot][mark as usize].passed = number;
            }
            Op::Follow(slot, mark, number) => {
                if self.0.events.borrow()[slot][mark as usize].passed < number {
                    return false;
                }
            }
            Op::CallBack => self.0.called_back.set(self.0.called_back.get() + 1),
            // SAFETY: the word is in the memory of the status.
            Op::NoteWorked(number) => unsafe { self.0.status.word().write_volatile(number) },
        }
        self.0.streams.borrow_mut()[queue as usize].pop_front();
        true
    }

    /// Runs all operations that can run.
    fn finish(&self) {
        while Queue::ALL.into_iter().any(|queue| self.step(queue)) {}
    }

    fn is_idle(&self) -> bool {
        self.0.streams.borrow().iter().all(VecDeque::is_empty)
    }

    fn take_log(&self) -> Vec<Did> {
        self.0.log.take()
    }
}

impl Driver for Fake {
    fn bind(&self) -> Result<(), CudaError> {
        Ok(())
    }
    fn record(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError> {
        self.call(Did::Record(queue, slot, mark))?;
        let event = &mut self.0.events.borrow_mut()[slot][mark as usize];
        event.recorded += 1;
        self.queue(queue, Op::Record(slot, mark, event.recorded));
        Ok(())
    }
    fn follow(&self, queue: Queue, slot: usize, mark: Mark) -> Result<(), CudaError> {
        self.call(Did::Follow(queue, slot, mark))?;
        let number = self.0.events.borrow()[slot][mark as usize].recorded;
        self.queue(queue, Op::Follow(slot, mark, number));
        Ok(())
    }
    fn has_passed(&self, slot: usize, mark: Mark) -> Result<bool, CudaError> {
        let event = self.0.events.borrow()[slot][mark as usize];
        // As in the CUDA driver, an event that was never recorded counts as passed.
        Ok(event.passed == event.recorded)
    }
    fn work_nanoseconds(&self, _: usize) -> Option<u64> {
        Some(1000)
    }
    unsafe fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize) -> Result<(), CudaError> {
        self.call(Did::Copy(queue))?;
        self.queue(queue, Op::Copy { to, from, bytes });
        Ok(())
    }
    unsafe fn clear(&self, queue: Queue, address: u64, bytes: usize) -> Result<(), CudaError> {
        self.call(Did::Clear(queue))?;
        self.queue(queue, Op::Clear { address, bytes });
        Ok(())
    }
    fn call_back(&self, queue: Queue) -> Result<(), CudaError> {
        self.call(Did::CallBack(queue))?;
        self.queue(queue, Op::CallBack);
        Ok(())
    }
    fn wait(&self) -> Result<(), CudaError> {
        self.0.log.borrow_mut().push(Did::Wait);
        if self.0.has_failed.get() {
            return Err(CudaError::Library { what: "a kernel", reason: "a fault".to_owned() });
        }
        self.finish();
        assert!(self.is_idle(), "the streams wait for each other");
        Ok(())
    }
    fn note_begin(&self, number: u32, timestamp: u64) {
        self.0.log.borrow_mut().push(Did::NoteBegin(number));
        self.0.status.begin(number, timestamp);
    }
    fn note_over(&self, number: u32) {
        self.0.log.borrow_mut().push(Did::NoteOver(number));
        self.0.status.over(number);
    }
    fn note_worked(&self, queue: Queue, number: u32) -> Result<(), CudaError> {
        self.call(Did::NoteWorked(queue, number))?;
        self.queue(queue, Op::NoteWorked(number));
        Ok(())
    }
    fn fault(&self, error: CudaError) -> BlockError {
        error.into()
    }
    fn reject_overdue(&self) -> Result<(), CudaError> {
        let why = || CudaError::Stuck { why: "a kernel never ends".to_owned() };
        if self.is_stuck() { Err(why()) } else { Ok(()) }
    }
    fn is_stuck(&self) -> bool {
        self.0.is_stuck.get()
    }
}

fn pipeline<J>() -> (Pipeline<J, Fake>, Fake) {
    let fake = Fake::new();
    (Pipeline::with_driver(fake.clone(), &Env::detached("block")), fake)
}

/// A table with its arrays on host and device.
struct Table {
    host: Pinned<u32>,
    array: DeviceArray<u32>,
    back: Pinned<u32>,
}

impl Table {
    fn new(len: usize) -> Self {
        Self {
            host: Pinned::on_heap(len),
            array: DeviceArray::on_heap(len),
            back: Pinned::on_heap(len),
        }
    }
}

/// Queues a job that holds `job` and copies `values` to the device and back.
fn queue<J>(
    pipeline: &mut Pipeline<J, Fake>,
    job: J,
    table: &mut Table,
    values: &[u32],
) -> Result<usize, BlockError> {
    let slot = pipeline.begin(0)?;
    table.host.get_mut()?.copy_from_slice(values);
    pipeline.hold(job)?;
    pipeline.tables();
    pipeline.send(&mut table.host, &table.array, 0..values.len())?;
    pipeline.work()?;
    pipeline.results()?;
    pipeline.fetch(&table.array, &mut table.back)?;
    pipeline.submit()?;
    Ok(slot)
}

fn tables() -> Vec<Table> {
    (0..IN_FLIGHT).map(|_| Table::new(4)).collect()
}

fn frame(pool: &Arc<Pool>) -> Arc<Frame> {
    pool.take().unwrap().freeze()
}

#[test]
fn job_with_tables_and_results_queues_operations_in_order() {
    use Queue::{Results, Tables, Work};
    let (mut pipeline, fake) = pipeline();
    queue(&mut pipeline, (), &mut Table::new(4), &[1, 2, 3, 4]).unwrap();
    let expected = [
        Did::NoteBegin(1),
        Did::Copy(Tables),
        Did::Record(Tables, 0, Mark::Ready),
        Did::Follow(Work, 0, Mark::Ready),
        Did::Record(Work, 0, Mark::Begun),
        Did::Record(Work, 0, Mark::Worked),
        Did::Follow(Results, 0, Mark::Worked),
        Did::NoteWorked(Results, 1),
        Did::Copy(Results),
        Did::Record(Results, 0, Mark::Ended),
        Did::CallBack(Results),
    ];
    assert_eq!(fake.take_log(), expected);
}

#[test]
fn steady_state_does_not_wait_and_keeps_each_memory_once() {
    let (mut pipeline, fake) = pipeline();
    let mut tables = tables();
    for n in 0..20_u32 {
        let slot = (n as usize) % IN_FLIGHT;
        assert_eq!(queue(&mut pipeline, n, &mut tables[slot], &[n; 4]).unwrap(), slot);
        if pipeline.has_room() {
            continue;
        }
        assert_eq!(pipeline.done().unwrap(), None, "no job is done yet");
        fake.finish();
        while let Some(n) = pipeline.done().unwrap() {
            assert_eq!(tables[n as usize % IN_FLIGHT].back.get().unwrap(), [n; 4]);
        }
    }
    assert_eq!(pipeline.kept.len(), 3 * IN_FLIGHT);
    assert!(!fake.take_log().contains(&Did::Wait));
}

#[test]
fn done_returns_jobs_in_order_once_their_results_are_fetched() {
    let (mut pipeline, fake) = pipeline();
    let mut tables = tables();
    for n in 0..3_u32 {
        queue(&mut pipeline, n, &mut tables[n as usize], &[n; 4]).unwrap();
    }
    assert!(!pipeline.has_room());
    assert!(pipeline.begin(0).is_err(), "the slot is in use");
    while [Queue::Tables, Queue::Work].into_iter().any(|queue| fake.step(queue)) {}
    assert_eq!(pipeline.done().unwrap(), None, "the results are not fetched");
    while fake.step(Queue::Results) {}
    assert_eq!([0, 1, 2].map(|_| pipeline.done().unwrap()), [Some(0), Some(1), Some(2)]);
    assert_eq!(fake.0.called_back.get(), 3);
}

#[test]
fn host_memory_rejects_access_while_a_copy_may_be_in_flight() {
    let (mut pipeline, fake) = pipeline();
    let mut table = Table::new(4);
    queue(&mut pipeline, (), &mut table, &[1, 2, 3, 4]).unwrap();
    assert_eq!(table.host.get().unwrap(), [1, 2, 3, 4], "the device only reads the memory");
    assert_eq!(table.host.get_mut(), Err(InUse));
    assert_eq!(table.back.get(), Err(InUse));
    assert_eq!(table.back.get_mut(), Err(InUse));
    fake.finish();
    assert_eq!(table.back.get(), Err(InUse), "the pipeline has not seen the end of the job");
    pipeline.done().unwrap().unwrap();
    assert_eq!(table.back.get().unwrap(), [1, 2, 3, 4]);
    table.host.get_mut().unwrap().fill(0);
}

#[test]
fn memory_dropped_before_its_copy_is_freed_with_the_pipeline() {
    let (mut pipeline, fake) = pipeline();
    let mut table = Table::new(4);
    queue(&mut pipeline, (), &mut table, &[1; 4]).unwrap();
    let memory = [Arc::downgrade(&table.host.shared().memory)];
    drop(table);
    assert!(memory[0].upgrade().is_some());
    fake.finish();
    pipeline.done().unwrap().unwrap();
    queue(&mut pipeline, (), &mut Table::new(4), &[2; 4]).unwrap();
    assert!(!fake.is_idle());
    drop(pipeline);
    assert!(fake.is_idle(), "the pipeline waits before it frees memory");
    assert!(memory[0].upgrade().is_none());
}

#[test]
fn send_rejects_memory_of_another_pipeline_until_its_job_is_done() {
    let ((mut one, fake), (mut other, _)) = (pipeline(), pipeline::<()>());
    let mut table = Table::new(4);
    queue(&mut one, (), &mut table, &[1; 4]).unwrap();
    other.begin(0).unwrap();
    assert!(other.send(&mut table.host, &table.array, 0..4).is_err());
    fake.finish();
    one.done().unwrap().unwrap();
    other.send(&mut table.host, &table.array, 0..4).unwrap();
}

#[test]
fn copies_beyond_a_table_or_outside_a_job_are_rejected() {
    let (mut pipeline, _) = pipeline::<()>();
    let mut table = Table::new(4);
    assert!(pipeline.send(&mut table.host, &table.array, 0..4).is_err(), "no job has begun");
    assert!(pipeline.zero(&table.array).is_err());
    pipeline.begin(0).unwrap();
    assert!(pipeline.send(&mut table.host, &table.array, 0..5).is_err());
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = pipeline.send(&mut table.host, &table.array, 3..2);
    assert!(reversed.is_err());
    assert!(pipeline.fetch(&DeviceArray::on_heap(5), &mut table.back).is_err());
    table.host.get_mut().unwrap();
    assert!(pipeline.work().is_err(), "the job does not hold its frames");
}

#[test]
fn failed_call_leaves_frames_with_the_pipeline_until_the_device_is_done() {
    let pool = Pool::new(&HostAllocator, 8, 64, 1).unwrap();
    // A job is queued by ten calls of the driver.
    for fails_after in 0..10 {
        let (mut pipeline, fake) = pipeline();
        let mut tables = tables();
        // Slot 0 has been used before: its events have passed once.
        queue(&mut pipeline, frame(&pool), &mut tables[0], &[1; 4]).unwrap();
        fake.finish();
        drop(pipeline.done().unwrap().unwrap());
        queue(&mut pipeline, frame(&pool), &mut tables[1], &[2; 4]).unwrap();
        queue(&mut pipeline, frame(&pool), &mut tables[2], &[3; 4]).unwrap();
        let home = pool.available();
        fake.0.fails_after.set(Some(fails_after));
        assert!(
            queue(&mut pipeline, frame(&pool), &mut tables[0], &[4; 4]).is_err(),
            "{fails_after}"
        );
        assert_eq!(pool.available(), home - 1, "{fails_after}: an unfinished frame was released");
        assert!(!fake.is_idle());
        fake.take_log();
        // The failed job is never returned, but those before it are.
        drop(pipeline.done().unwrap().unwrap());
        assert_eq!(fake.take_log(), [Did::Wait, Did::NoteOver(3)], "{fails_after}");
        assert_eq!(tables[1].back.get().unwrap(), [2; 4]);
        drop(pipeline.done().unwrap().unwrap());
        assert!(
            pipeline.done().unwrap().is_none(),
            "{fails_after}: an unfinished job was returned"
        );
        assert_eq!(pool.available(), pool.size());
        // The slot is free for the next job.
        assert_eq!(queue(&mut pipeline, frame(&pool), &mut tables[0], &[5; 4]).unwrap(), 0);
        fake.finish();
        drop(pipeline.done().unwrap().unwrap());
        assert_eq!(tables[0].back.get().unwrap(), [5; 4]);
    }
}

/// Begins a job on the frame with this timestamp, and queues its work.
fn work_on(pipeline: &mut Pipeline<(), Fake>, timestamp: u64) {
    pipeline.begin(timestamp).unwrap();
    pipeline.hold(()).unwrap();
    pipeline.work().unwrap();
}

#[test]
fn at_work_ignores_a_job_ended_by_an_error() {
    // Errors before and after the note that its kernels have run.
    for calls_after_work in 0..5 {
        let (mut pipeline, fake) = pipeline();
        work_on(&mut pipeline, 10);
        pipeline.submit().unwrap();
        fake.finish();
        pipeline.done().unwrap().unwrap();
        work_on(&mut pipeline, 20);
        fake.0.fails_after.set(Some(calls_after_work));
        assert!(pipeline.submit().is_err(), "{calls_after_work}");
        pipeline.abandon();
        assert_eq!(fake.0.status.at_work(), None, "{calls_after_work}");
        work_on(&mut pipeline, 30);
        let at_work = fake.0.status.at_work();
        let timestamp = at_work.map(|job| job.timestamp);
        assert_eq!(timestamp, Some(30), "{calls_after_work}");
    }
}

#[test]
fn at_work_reports_a_job_ended_by_a_fault_before_submission() {
    let (mut pipeline, fake) = pipeline();
    for timestamp in [10, 20] {
        work_on(&mut pipeline, timestamp);
        pipeline.submit().unwrap();
    }
    fake.finish();
    work_on(&mut pipeline, 30);
    fake.0.has_failed.set(true);
    pipeline.abandon();
    let at_work = fake.0.status.at_work();
    assert_eq!(at_work.map(|job| (job.block, job.timestamp)), Some(("block".to_owned(), 30)));
}

#[test]
fn drop_after_an_error_waits_before_it_releases_frames() {
    let pool = Pool::new(&HostAllocator, 2, 64, 1).unwrap();
    let (mut pipeline, fake) = pipeline();
    fake.0.fails_after.set(Some(8));
    assert!(queue(&mut pipeline, frame(&pool), &mut Table::new(4), &[1; 4]).is_err());
    assert_eq!(pool.available(), 1);
    drop(pipeline);
    assert!(fake.is_idle());
    assert_eq!(pool.available(), 2);
}

#[test]
fn stuck_job_is_an_error_and_nothing_waits_for_it() {
    let (mut pipeline, fake) = pipeline();
    work_on(&mut pipeline, 10);
    pipeline.submit().unwrap();
    assert!(pipeline.done().unwrap().is_none(), "it runs");
    fake.0.is_stuck.set(true);
    let error = pipeline.done().unwrap_err();
    assert_eq!(error.to_string(), "a kernel never ends; restart the process");
    drop(pipeline);
    assert!(!fake.take_log().contains(&Did::Wait));
    assert!(!fake.is_idle(), "the work is still queued");
}

#[test]
fn kept_inputs_are_released_when_the_job_is_done() {
    let pool = Pool::new(&HostAllocator, 2, 64, 1).unwrap();
    let (mut pipeline, fake) = pipeline();
    pipeline.begin(0).unwrap();
    pipeline.keep(frame(&pool)).unwrap();
    pipeline.hold(()).unwrap();
    pipeline.submit().unwrap();
    assert_eq!(pool.available(), 1);
    fake.finish();
    pipeline.done().unwrap().unwrap();
    assert_eq!(pool.available(), 2);
}

#[test]
fn slots_stay_in_order_beyond_32_bits() {
    let (mut pipeline, fake) = pipeline();
    // As after 49.7 days with one job per millisecond; 2^32 is not a multiple of the number of slots.
    let before = u64::from(u32::MAX) - 4;
    (pipeline.begun, pipeline.submitted) = (before, before);
    let mut tables = tables();
    let mut slots = Vec::new();
    for n in 0..9_u32 {
        let slot = (before + u64::from(n)) as usize % IN_FLIGHT;
        slots.push(queue(&mut pipeline, n, &mut tables[slot], &[n; 4]).unwrap());
        if !pipeline.has_room() {
            fake.step(Queue::Tables);
            fake.finish();
            let done = pipeline.done().unwrap().unwrap();
            assert_eq!(done + 2, n);
        }
    }
    for (before, after) in slots.iter().zip(&slots[1..]) {
        assert_eq!((before + 1) % IN_FLIGHT, *after);
    }
}
