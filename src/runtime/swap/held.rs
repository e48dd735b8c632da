//! Swaps of blocks without outputs: the old block ends and the new one starts, while the input queues hold
//! back the writers.

use super::NotSwapped;
use crate::cell::Cell;
use crate::connections::slot_block;
use crate::hosted::Vacant;
use crate::outcome::{Call, Outcome, attend};
use crate::report::Unanswered;
use crate::run::Run;
use crate::running::Handle;
use fxgraph_core::block::{Block, Input, Io, Next};
use fxgraph_core::edge::{Edge, FrameReader};
use fxgraph_core::error::BlockError;
use fxgraph_core::event::EventKind;
use fxgraph_core::lock::lock;
use fxgraph_core::sync::{mpsc, receive};
use fxgraph_flowgraph::{Part, Rebuild};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit for the new block to be in the slot.
const PUT: Duration = Duration::from_secs(10);

/// Block that fails at once, so that the run stops with this cause.
struct Lost(String);

impl Block for Lost {
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Err(BlockError::new(self.0.clone()))
    }
}

/// Calls a block on the caller's thread, outside the flowgraph.
struct Aside<'a> {
    run: &'a Run,
    cell: Arc<Cell>,
}

impl Aside<'_> {
    fn call<T>(
        &self,
        call: Call,
        future: impl Future<Output = Result<T, BlockError>>,
    ) -> Result<T, String> {
        match async_io::block_on(attend(self.run, &self.cell, call, future)) {
            Outcome::Done(value) => Ok(value),
            Outcome::Failed(fault) => Err(fault.cause),
            Outcome::Aborted => Err("the flowgraph was aborted".to_owned()),
        }
    }

    fn start(&self, block: &mut dyn Block) -> Result<(), String> {
        self.call(Call::Start, block.call_start())
    }

    /// Calls `block` with `inputs` ended inputs until it finishes, and ends it.
    fn end(
        &self,
        mut block: Box<dyn Block>,
        inputs: usize,
        deadline: Instant,
    ) -> Result<(), String> {
        let input = |_| {
            let edge = Edge::new(1);
            edge.end();
            Input { reader: FrameReader::new(edge) }
        };
        let mut inputs: Vec<Input> = (0..inputs).map(input).collect();
        let flushed = loop {
            let mut io = Io { inputs: &mut inputs, outputs: &mut [], stopping: true };
            match self.call(Call::Work, block.call_work(&mut io)) {
                Ok(Next::Finished) => break Ok(()),
                Ok(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(_) => break Err("the block did not end within the time limit".to_owned()),
                Err(cause) => break Err(cause),
            }
        };
        let finished = self.call(Call::Finish, block.call_finish());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(block)));
        flushed.and(finished)
    }
}

impl Handle {
    /// Swaps the block with the name of `part`, which has no outputs, for `part` at an input frame boundary.
    /// The old block ends as it does when its inputs end; with `ends_first` it ends before the new block
    /// starts.
    pub(crate) fn replace(
        &self,
        part: Part,
        ends_first: bool,
        limit: Duration,
    ) -> Result<(), NotSwapped> {
        let deadline = Instant::now() + limit;
        let name = part.name.clone();
        let Some(place) = self.run().cell(&name).map(Arc::clone) else {
            return Err(Unanswered::NoSuchBlock(name).into());
        };
        let aside = Aside { run: self.run(), cell: Cell::new(&part, Instant::now()) };
        self.run().add_candidate(&aside.cell);
        let inputs = part.ports.inputs.len();
        let mut slot_block = slot_block(&part);
        let mut new = part.block;
        if !ends_first && let Err(cause) = aside.start(new.as_mut()) {
            let _ = aside.call(Call::Finish, new.call_finish());
            return Err(NotSwapped::NotStarted(cause));
        }
        let (taking, out) = (Arc::clone(&place), Arc::new(Mutex::new(None)));
        let taken = Arc::clone(&out);
        let asked = self.ask(&name, limit, move |hosted| {
            let is_free = !hosted.is_held;
            if is_free {
                hosted.is_held = true;
                let old = std::mem::replace(&mut hosted.block, Box::new(Vacant));
                *lock(&taken) = Some((old, taking.begun(&hosted.inputs, &hosted.outputs)));
            }
            is_free
        });
        let old = match asked {
            Ok(_) => lock(&out).take().ok_or(NotSwapped::Busy),
            Err(error) => {
                // If the old block was taken out all the same, it goes back.
                let putting = Arc::clone(&out);
                self.tell_block(&name, move |hosted| {
                    if let Some((old, _)) = lock(&putting).take() {
                        hosted.block = old;
                        hosted.is_held = false;
                    }
                });
                if matches!(error, Unanswered::Ended(_))
                    && let Some((old, _)) = lock(&out).take()
                {
                    let _ = aside.end(old, inputs, deadline);
                }
                Err(error.into())
            }
        };
        let (old, begun) = match old {
            Ok(old) => old,
            // A block that has not started has nothing to end.
            Err(error) if ends_first => {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(new)));
                return Err(error);
            }
            Err(error) => {
                let _ = aside.end(new, inputs, deadline);
                return Err(error);
            }
        };
        if let Err(cause) = aside.end(old, inputs, deadline) {
            let text = format!("the old block failed at its end: {cause}");
            self.run().events.add(EventKind::DataLost, Some(&name), text);
        }
        let mut outcome = Ok(());
        if ends_first && let Err(cause) = aside.start(new.as_mut()) {
            let _ = aside.call(Call::Finish, new.call_finish());
            let old = lock(&place.counts).slot_block.rebuild.clone();
            new = aside.again(old, begun, &cause);
            outcome = Err(NotSwapped::RolledBack(cause));
        }
        let is_new = outcome.is_ok();
        let cell = Arc::clone(&place);
        // `Vacant` in the slot cannot be busy, so this command also runs on a slow machine.
        let (done, is_done) = mpsc::sync_channel(1);
        let new = Arc::new(Mutex::new(Some(new)));
        let putting = Arc::clone(&new);
        self.tell_block(&name, move |hosted| {
            let Some(new) = lock(&putting).take() else { return };
            hosted.block = new;
            hosted.begun = cell.begun(&hosted.inputs, &hosted.outputs);
            hosted.is_held = false;
            if is_new {
                lock(&cell.counts).swap(&mut slot_block);
            }
            let _ = done.send(());
        });
        if receive(&is_done, PUT) == Err(RecvTimeoutError::Disconnected) {
            // The slot has ended, so that nobody else ends the new block.
            if let Some(new) = lock(&new).take() {
                let _ = aside.end(new, inputs, Instant::now());
            }
            return Err(NotSwapped::Ended);
        }
        match &outcome {
            Ok(()) => self.run().events.add(EventKind::Swapped, Some(&name), "in place"),
            Err(error) => {
                self.run().events.add(EventKind::RolledBack, Some(&name), error.to_string());
            }
        }
        outcome
    }
}

impl Aside<'_> {
    /// Rebuilds and starts the old block; if that fails, returns a block that ends the run with both causes.
    fn again(&self, rebuild: Option<Rebuild>, begun: u64, cause: &str) -> Box<dyn Block> {
        let lost = |why: String| -> Box<dyn Block> { Box::new(Lost(format!("{cause}; {why}"))) };
        let Some(rebuild) = rebuild else {
            return lost("the old block cannot continue where it ended".to_owned());
        };
        let started = self
            .call(Call::Start, async { rebuild(begun) })
            .and_then(|mut block| self.start(block.as_mut()).map(|()| block));
        started.unwrap_or_else(|other| lost(format!("the old block cannot be restarted: {other}")))
    }
}
