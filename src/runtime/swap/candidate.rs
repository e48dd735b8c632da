//! A second block on the inputs of a running one, on its own thread: the candidate of a swap, or a shadow.
//!
//! This thread calls the block without FutureSDR. The block reads the frames that the running block's inputs
//! hand to a [`Tee`](fxgraph_core::edge::Tee), and pushes its own frames into separate queues. Between two
//! calls of its `work`, the thread can be ordered to hand the block over to the running block's thread.

use crate::cell::Cell;
use crate::connections::slot_block;
use crate::fault::Fault;
use crate::hosted::Hosted;
use crate::outcome::{Call, Outcome, attend};
use crate::run::Run;
use crate::slot_counts::SlotBlock;
use fxgraph_core::block::{Io, Next};
use fxgraph_core::changes::{Change, ConfigIds, Heard};
use fxgraph_core::kind::Waker;
use fxgraph_core::sync::thread::{self, Thread};
use fxgraph_core::sync::{Condvar, Mutex, MutexGuard};
use fxgraph_flowgraph::Part;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Limit of the live updates that wait for a block.
const MOST_OFFERED: usize = 256;

/// A candidate or shadow, with everything that moves with it in a swap.
pub(crate) struct Candidate {
    pub hosted: Hosted,
    pub slot_block: SlotBlock,
}

/// Order to the candidate's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing yet.
    Rest,
    Work,
    /// Hand the block over, and wait for a block in return.
    ComeHome,
    End,
}

/// Result of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The candidate is in the slot.
    Swapped,
    /// The candidate took the slot and failed; the old block is back.
    RolledBack(String),
    /// The candidate never took the slot.
    GivenUp(GivenUp),
    /// The running block ended.
    Ended,
}

/// Reason why a candidate did not take the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// Frames arrived faster than the candidate consumed them.
    TooSlow,
    Failed(String),
    /// No frame of the candidate had the timestamp and validity of one of the running block.
    NeverCaughtUp,
}

/// State shared by three threads: that of the candidate, that of the running block, and that of the
/// caller of the swap.
pub(crate) struct Link {
    shared: Mutex<Shared>,
    changed: Condvar,
    /// Wakes the running block.
    pub main: Waker,
    /// The candidate's thread.
    thread: OnceLock<Thread>,
}

/// Lifecycle state of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Starting,
    Started,
    Gone,
}

struct Shared {
    order: Order,
    progress: Progress,
    /// The candidate has caught up with the running block.
    is_ready: bool,
    /// Handed over, for the running block's thread to take.
    at_home: Option<Candidate>,
    /// Handed back, for the candidate's thread to take.
    sent_back: Option<Candidate>,
    fault: Option<Fault>,
    verdict: Option<Verdict>,
    /// The caller's time limit has passed.
    is_overdue: bool,
    /// Live updates that the block has not got yet.
    offered: Vec<Change>,
}

impl Link {
    pub fn new(main: Waker) -> Arc<Self> {
        let shared = Shared {
            order: Order::Rest,
            progress: Progress::Starting,
            is_ready: false,
            at_home: None,
            sent_back: None,
            fault: None,
            verdict: None,
            is_overdue: false,
            offered: Vec::new(),
        };
        Arc::new(Self {
            shared: Mutex::new(shared),
            changed: Condvar::new(),
            main,
            thread: OnceLock::new(),
        })
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        let result = change(&mut self.shared());
        self.changed.notify_all();
        result
    }

    /// Waits until `found` returns a value, up to `deadline`.
    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut found: impl FnMut(&mut Shared) -> Option<T>,
    ) -> Option<T> {
        let mut shared = self.shared();
        loop {
            if let Some(found) = found(&mut shared) {
                return Some(found);
            }
            let left = match deadline {
                None => Duration::from_hours(1),
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return None;
            }
            let woken = self.changed.wait_timeout(shared, left);
            shared = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // Called by the running block's thread.

    /// Gives the candidate's thread `order`, and wakes it. The order to end is final: the running block may end before
    /// the caller orders to work.
    pub fn order(&self, order: Order) {
        self.change(|shared| {
            if shared.order != Order::End {
                shared.order = order;
            }
        });
        self.wake_candidate();
    }

    pub fn wake_candidate(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The candidate, if it was handed over.
    pub fn take_home(&self) -> Option<Candidate> {
        self.shared().at_home.take()
    }

    /// Hands the candidate, or the old block after a swap, back to the candidate's thread with `order`.
    pub fn send_back(&self, candidate: Candidate, order: Order) {
        self.change(|shared| {
            shared.sent_back = Some(candidate);
            shared.order = order;
        });
    }

    /// Cause of the candidate's failure, if it failed.
    pub fn fault(&self) -> Option<String> {
        self.shared().fault.as_ref().map(|fault| fault.cause.clone())
    }

    pub fn set_ready(&self, is_ready: bool) {
        self.change(|shared| shared.is_ready = is_ready);
    }

    pub fn is_overdue(&self) -> bool {
        self.shared().is_overdue
    }

    /// Ends the swap with the candidate in the slot; `false` if the caller's time limit has passed, so that nobody
    /// would know of it.
    pub fn accept(&self) -> bool {
        self.change(|shared| {
            if !shared.is_overdue {
                shared.verdict.get_or_insert(Verdict::Swapped);
            }
            !shared.is_overdue
        })
    }

    /// Sets the result; only the first call counts.
    pub fn decide(&self, verdict: Verdict) {
        self.change(|shared| {
            shared.verdict.get_or_insert(verdict);
        });
    }

    // Called by the thread that requested the swap.

    /// Waits until the candidate has started; the error says why it did not.
    pub fn wait_started(&self, deadline: Instant) -> Result<(), String> {
        let limit = || Err("it did not start within the time limit".to_owned());
        let outcome = self.wait(Some(deadline), |shared| match &shared.fault {
            Some(fault) => Some(Err(fault.cause.clone())),
            None if shared.progress == Progress::Gone => {
                Some(Err("the flowgraph was aborted".to_owned()))
            }
            None => (shared.progress != Progress::Starting).then_some(Ok(())),
        });
        outcome.unwrap_or_else(limit)
    }

    /// Waits until the candidate has caught up or the swap has ended, up to `deadline`.
    pub fn wait_ready(&self, deadline: Instant) -> Option<Result<(), Verdict>> {
        self.wait(Some(deadline), |shared| match &shared.verdict {
            Some(verdict) => Some(Err(verdict.clone())),
            None => shared.is_ready.then_some(Ok(())),
        })
    }

    /// Waits for the result, up to `deadline`.
    pub fn wait_verdict(&self, deadline: Instant) -> Option<Verdict> {
        self.wait(Some(deadline), |shared| shared.verdict.clone())
    }

    /// Requests a decision of the running block now.
    pub fn hurry(&self) {
        self.change(|shared| shared.is_overdue = true);
        self.main.wake();
    }

    /// Waits until the candidate's thread is about to end.
    pub fn wait_gone(&self, deadline: Instant) -> bool {
        self.wait(Some(deadline), |shared| (shared.progress == Progress::Gone).then_some(()))
            .is_some()
    }

    /// Offers the block new values of its live parameters, which it gets before the next call of its `work`; `false` if it
    /// has ended. A block that takes none of many has failed.
    pub fn offer(&self, change: Change) -> bool {
        let is_taken = self.change(|shared| {
            if shared.offered.len() >= MOST_OFFERED {
                let cause = format!("it did not take {MOST_OFFERED} live updates");
                shared.fault.get_or_insert_with(|| Fault::of(cause));
            }
            let is_over = shared.order == Order::End || shared.progress == Progress::Gone;
            if is_over || shared.fault.is_some() {
                shared.offered = Vec::new();
                return false;
            }
            shared.offered.push(change);
            true
        });
        self.wake_candidate();
        is_taken
    }

    // Called by the candidate's thread.

    /// Hands the block over and waits for the block that comes in return.
    fn come_home(&self, candidate: Candidate) -> Candidate {
        self.change(|shared| shared.at_home = Some(candidate));
        self.main.wake();
        let back = self.wait(None, |shared| match shared.sent_back.take() {
            Some(candidate) => Some(candidate),
            None if shared.order == Order::ComeHome => None,
            None => shared.at_home.take(),
        });
        match back {
            Some(candidate) => candidate,
            // Without a time limit the wait only ends with a block.
            None => unreachable!("the wait has no time limit"),
        }
    }
}

/// Starts `part` on its own thread, which waits for the order to work.
pub(crate) fn launch(
    part: Part,
    ids: &ConfigIds,
    run: &Arc<Run>,
    link: &Arc<Link>,
) -> std::io::Result<Arc<Cell>> {
    let cell = Cell::new(&part, Instant::now());
    run.add_candidate(&cell);
    let slot_block = slot_block(&part);
    let configurations = &run.configurations;
    let heard = || Heard::new(ids.clone(), configurations);
    let hosted = Hosted::new(part.block, &part.inputs, &part.outputs, heard, configurations);
    let candidate = Candidate { hosted, slot_block };
    let (run, known) = (Arc::clone(run), Arc::clone(link));
    let name = format!("{} candidate", part.name.replace('\0', ""));
    let seen = Arc::clone(&cell);
    let driver = Driver { cell, run, link: known };
    let thread = thread::Builder::new().name(name).spawn(move || driver.run(candidate))?;
    let _ = link.thread.set(thread.thread().clone());
    Ok(seen)
}

struct Driver {
    cell: Arc<Cell>,
    run: Arc<Run>,
    link: Arc<Link>,
}

impl Driver {
    fn run(self, mut candidate: Candidate) {
        let start = candidate.hosted.block.call_start();
        match async_io::block_on(attend(&self.run, &self.cell, Call::Start, start)) {
            Outcome::Done(()) => {
                self.link.change(|shared| shared.progress = Progress::Started);
                candidate = self.drive(candidate);
            }
            Outcome::Failed(fault) => self.link.change(|shared| shared.fault = Some(fault)),
            Outcome::Aborted => {}
        }
        let Candidate { mut hosted, slot_block } = candidate;
        let finish = hosted.block.call_finish();
        let _ = async_io::block_on(attend(&self.run, &self.cell, Call::Finish, finish));
        let _ = catch_unwind(AssertUnwindSafe(|| drop((hosted, slot_block))));
        self.link.change(|shared| shared.progress = Progress::Gone);
        self.link.main.wake();
    }

    fn drive(&self, mut candidate: Candidate) -> Candidate {
        loop {
            let order = self.link.shared().order;
            match order {
                Order::Rest => thread::park(),
                Order::ComeHome => candidate = self.link.come_home(candidate),
                Order::End => return candidate,
                Order::Work => match self.work(&mut candidate.hosted) {
                    Next::Again => {}
                    Next::Wait => thread::park(),
                    Next::After(time) => thread::park_timeout(time),
                    Next::Finished => {
                        self.link.wait(None, |shared| match shared.order {
                            Order::Work => None,
                            _ => Some(()),
                        });
                    }
                },
            }
        }
    }

    fn work(&self, hosted: &mut Hosted) -> Next {
        if self.run.is_aborting() {
            self.link.order(Order::End);
            return Next::Again;
        }
        let offered = std::mem::take(&mut self.link.shared().offered);
        if let Some(error) = offered.into_iter().find_map(|change| hosted.offer(change).err()) {
            let cause = format!("it rejected a live update: {error}");
            self.link.change(|shared| shared.fault = Some(Fault::of(cause)));
            return Next::Finished;
        }
        hosted.begin_turn();
        let mut io = Io {
            inputs: &mut hosted.inputs,
            outputs: &mut hosted.outputs,
            stopping: self.run.is_stopping(),
        };
        let work = hosted.block.call_work(&mut io);
        let outcome = async_io::block_on(attend(&self.run, &self.cell, Call::Work, work));
        self.cell.count_work();
        let fault = match outcome {
            Outcome::Done(Next::Finished) => Fault::of("the block finished by itself"),
            Outcome::Done(next) => {
                return if hosted.wants_another_turn() { Next::Again } else { next };
            }
            Outcome::Failed(fault) => fault,
            Outcome::Aborted => return Next::Again,
        };
        self.link.change(|shared| shared.fault = Some(fault));
        self.link.main.wake();
        Next::Finished
    }
}
