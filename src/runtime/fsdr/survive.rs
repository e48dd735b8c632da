//! Faults of a block under its `on_fault` policy.

use super::workers;
use crate::cell::Cell;
use crate::fault::Fault;
use crate::hosted::{Hosted, Vacant};
use crate::outcome::{Call, Outcome, attend};
use crate::run::Run;
use fxgraph_core::block::Next;
use fxgraph_core::lock::lock;
use fxgraph_flowgraph::OnFault;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Largest number of restarts of a block within a minute; at the next fault the run stops.
const RESTARTS: usize = 5;
const MINUTE: Duration = Duration::from_mins(1);
/// Pause before the second restart within a minute; doubled before each further one.
const PAUSE: Duration = Duration::from_millis(100);

/// Faults of a block so far, for its `on_fault` policy.
#[derive(Default)]
pub(super) struct Survival {
    /// Times of the restarts in the last minute.
    restarts: VecDeque<Instant>,
    /// Number of frames consumed at the last fault.
    taken: Option<u64>,
}

impl Survival {
    /// Applies the `on_fault` policy of the block in `hosted` after a call of `work` that failed.
    pub(super) async fn survive(
        &mut self,
        hosted: &mut Hosted,
        (run, cell): (&Run, &Cell),
        fault: Fault,
    ) -> Next {
        if hosted.roll_back(&fault) {
            return Next::Wait;
        }
        let policy = lock(&cell.counts).slot_block.on_fault;
        match (policy, fault.panic) {
            (OnFault::Stop, _) => {
                run.fail(cell, fault);
                Next::Finished
            }
            (OnFault::Skip, false) => {
                run.skip(cell, fault);
                self.skip(hosted)
            }
            // After a panic the block's state may be inconsistent.
            (OnFault::Restart, _) | (OnFault::Skip, true) => {
                self.restart(hosted, (run, cell), fault).await
            }
        }
    }

    fn skip(&mut self, hosted: &mut Hosted) -> Next {
        // Usually the block has consumed the frame at which it failed. If it consumed none since its last
        // fault, it fails at the frames in its queues, and the first frame of each queue is skipped.
        let taken = hosted.inputs.iter().map(|input| input.reader.taken()).sum();
        if self.taken.replace(taken) == Some(taken) {
            hosted.inputs.iter_mut().for_each(|input| input.reader.skip());
        }
        if hosted.inputs.iter().all(fxgraph_core::Input::ended) {
            return Next::Finished;
        }
        let has_frames = hosted.inputs.iter().any(|input| input.reader.waits());
        if has_frames { Next::Again } else { Next::Wait }
    }

    async fn restart(
        &mut self,
        hosted: &mut Hosted,
        (run, cell): (&Run, &Cell),
        fault: Fault,
    ) -> Next {
        let recent = &mut self.restarts;
        while recent.front().is_some_and(|when| when.elapsed() > MINUTE) {
            recent.pop_front();
        }
        let restarts = recent.len();
        if restarts >= RESTARTS {
            let why = format!("gave up after {restarts} restarts within a minute");
            run.fail(cell, fault.because(&why));
            return Next::Finished;
        }
        recent.push_back(Instant::now());
        match renew(hosted, (run, cell), restarts).await {
            Outcome::Done(()) => {
                run.restarted(cell, fault);
                return Next::Again;
            }
            Outcome::Failed(other) => {
                let why = format!("cannot be restarted: {}", other.cause);
                run.fail(cell, fault.because(&why));
            }
            Outcome::Aborted => {}
        }
        Next::Finished
    }
}

/// Ends the block and starts a new one in its slot, which continues with the next frame and the next sequence
/// number on the same ports.
async fn renew(hosted: &mut Hosted, (run, cell): (&Run, &Cell), restarts: usize) -> Outcome<()> {
    let mut old = std::mem::replace(&mut hosted.block, Box::new(Vacant));
    // The block has failed already; an error at its end is not news.
    let _ = attend(run, cell, Call::Finish, old.call_finish()).await;
    let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
    hosted.begun = cell.begun(&hosted.inputs, &hosted.outputs);
    let begun = hosted.begun;
    let rebuild = lock(&cell.counts).slot_block.rebuild.clone();
    let Some(rebuild) = rebuild else {
        let cause = "a fresh block cannot continue where this one ended".to_owned();
        return Outcome::Failed(Fault::of(cause));
    };
    let pause = if restarts == 0 { Duration::ZERO } else { PAUSE * (1 << (restarts - 1)) };
    let built = async {
        // A cause outside the program, such as a cable or a file server, may need time to recover.
        workers::after(pause).await;
        rebuild(begun)
    };
    match attend(run, cell, Call::Start, built).await {
        Outcome::Done(block) => hosted.block = block,
        Outcome::Failed(fault) => return Outcome::Failed(fault),
        Outcome::Aborted => return Outcome::Aborted,
    }
    attend(run, cell, Call::Start, hosted.block.call_start()).await
}
