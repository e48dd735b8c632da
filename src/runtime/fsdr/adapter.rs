//! The only FutureSDR kernel: it hosts any [`Block`] and hides faults of the block from FutureSDR.
//!
//! FutureSDR discards the cause of an error, skips the end of a block that failed and waits
//! forever for a block that panicked. Therefore the adapter always finishes normally and stores the cause
//! in the [`Run`].

use super::port::{InPort, OutPort};
use super::survive::Survival;
use super::workers;
use crate::cell::Cell;
use crate::fault::Fault;
use crate::hosted::{Hosted, Mailbox, Turn};
use crate::outcome::{Call, Outcome, attend};
use crate::report::State;
use crate::run::{Gate, Run};
use crate::timing::For;
use futuresdr::runtime::Result;
use futuresdr::runtime::dev::{
    BlockMeta, BufferReader, BufferWriter, Kernel, MessageOutputs, WorkIo,
};
use fxgraph_core::block::{Io, Next, Output};
use fxgraph_core::changes::Heard;
use fxgraph_core::patience::Patience;
use fxgraph_flowgraph::Part;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Time after which a busy block yields its worker thread to other blocks.
const SLICE: Duration = Duration::from_micros(200);

/// A block with its ports, as a FutureSDR kernel.
#[derive(futuresdr::runtime::macros::Block)]
pub(super) struct Adapter {
    #[input]
    inputs: Vec<InPort>,
    #[output]
    outputs: Vec<OutPort>,
    /// `None` once the block has ended.
    hosted: Option<Hosted>,
    run: Arc<Run>,
    cell: Arc<Cell>,
    /// Commands to the block, run between two calls of its `work`.
    mailbox: Arc<Mailbox>,
    survival: Survival,
    slice_began: Instant,
}

impl Adapter {
    pub fn new(
        part: Part,
        config_id: u64,
        run: Arc<Run>,
        (cell, mailbox): (Arc<Cell>, Arc<Mailbox>),
    ) -> Self {
        let heard = || Heard::from_start(config_id);
        let hosted =
            Hosted::new(part.block, &part.inputs, &part.outputs, heard, &run.configurations);
        Self {
            inputs: part.inputs.into_iter().map(InPort::new).collect(),
            outputs: part.outputs.into_iter().map(|o| OutPort::new(o.edges)).collect(),
            hosted: Some(hosted),
            survival: Survival::default(),
            run,
            cell,
            mailbox,
            slice_began: Instant::now(),
        }
    }

    /// Yields to other blocks if this one has used its worker thread for longer than [`SLICE`]: FutureSDR itself
    /// returns to its executor only when a block has nothing to do.
    /// Returns the time at which the block goes on.
    async fn share_the_thread(&mut self) -> Instant {
        let now = Instant::now();
        if now - self.slice_began > SLICE {
            self.slice_began = now;
            let mut yielded = false;
            std::future::poll_fn(|context| {
                if std::mem::replace(&mut yielded, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            return Instant::now();
        }
        now
    }

    /// Ends the block. Its ports end first, so that neighbours continue while it finishes.
    async fn end(&mut self) {
        let Some(Hosted { mut block, inputs, outputs, swap, .. }) = self.hosted.take() else {
            return;
        };
        workers::goes_on();
        self.note_pushed(&outputs);
        drop(swap);
        drop(outputs);
        drop(inputs);
        self.mailbox.close();
        let finished = attend(&self.run, &self.cell, Call::Finish, block.call_finish()).await;
        self.note(finished);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(block))) {
            self.run.fail(&self.cell, Fault::panic(panic.as_ref()));
        }
        self.cell.set_state(State::Finished);
    }

    /// Runs the commands in the mailbox; `false` if one of them panicked.
    fn obey(&mut self) -> bool {
        for command in self.mailbox.take() {
            workers::goes_on();
            let Some(hosted) = self.hosted.as_mut() else { return false };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| command(hosted))) {
                self.run.fail(&self.cell, Fault::panic(panic.as_ref()));
                return false;
            }
        }
        true
    }

    /// Prepares a call of the block's `work`; `false` if the call must not happen now.
    fn begin_work(&mut self, io: &mut WorkIo) -> bool {
        if !self.obey() {
            io.finished = true;
            return false;
        }
        let (run, cell) = (&self.run, &self.cell);
        let Some(hosted) = self.hosted.as_mut() else { return false };
        if run.is_aborting() || hosted.is_abandoned() {
            io.finished = true;
            return false;
        }
        match hosted.settle(run, cell) {
            Turn::Work if hosted.has_ended => io.finished = true,
            Turn::Work if !hosted.is_held => {
                hosted.begin_turn();
                return true;
            }
            turn @ (Turn::Work | Turn::Hold) => {
                cell.waits.begin(For::Room);
                if matches!(turn, Turn::Hold) {
                    io.block_on(workers::after(Patience::LOOK));
                }
            }
            Turn::Lost(fault) => {
                run.fail(cell, fault);
                io.finished = true;
            }
        }
        false
    }

    fn note_pushed(&self, outputs: &[Output]) {
        for (number, output) in outputs.iter().enumerate() {
            let writer = &output.writer;
            self.cell.set_pushed(number, writer.pushed(), writer.last());
        }
    }

    /// Whether a swap of the block is in progress.
    fn is_swapped(&self) -> bool {
        self.hosted.as_ref().is_some_and(|hosted| hosted.swap.is_some())
    }

    /// Fails the run if `outcome` is a failure.
    fn note<T>(&self, outcome: Outcome<T>) -> Option<T> {
        match outcome {
            Outcome::Done(value) => return Some(value),
            Outcome::Failed(fault) => self.run.fail(&self.cell, fault),
            Outcome::Aborted => {}
        }
        None
    }
}

impl Kernel for Adapter {
    async fn init(&mut self, _: &mut MessageOutputs, _: &mut BlockMeta) -> Result<()> {
        if self.cell.is_source() {
            self.run.receivers_started().await;
        }
        if let Some(hosted) = &mut self.hosted {
            let started =
                attend(&self.run, &self.cell, Call::Start, hosted.block.call_start()).await;
            self.note(started);
        }
        self.run.arrive(&self.cell);
        Ok(())
    }

    async fn work(
        &mut self,
        io: &mut WorkIo,
        _: &mut MessageOutputs,
        _: &mut BlockMeta,
    ) -> Result<()> {
        io.block_on = None;
        match self.run.gate() {
            Gate::Closed => return Ok(()),
            Gate::Open => {}
            Gate::Cancelled => {
                io.finished = true;
                return Ok(());
            }
        }
        self.cell.waits.end();
        let now = self.share_the_thread().await;
        if !self.begin_work(io) {
            return Ok(());
        }
        let (run, cell) = (&self.run, &self.cell);
        let Some(hosted) = self.hosted.as_mut() else { return Ok(()) };
        let Hosted { block, inputs, outputs, .. } = hosted;
        let mut ports = Io { inputs, outputs, stopping: run.is_stopping() };
        let call = attend(run, cell, Call::Work, block.call_work(&mut ports));
        let before = cell.busy();
        let outcome = workers::attended(now, cell.usual(), call).await;
        cell.count_work();
        cell.took(cell.busy().saturating_sub(before));
        if let Some(hosted) = &self.hosted {
            self.note_pushed(&hosted.outputs);
            if hosted.outputs.is_empty() {
                for (number, input) in hosted.inputs.iter().enumerate() {
                    self.cell.note_done(number, input.reader.turn_times());
                }
            }
            // Also for a block that waits for a time: its only cause may be the limit of frames per turn.
            io.call_again = hosted.wants_another_turn();
        }
        let next = match outcome {
            Outcome::Done(next) => next,
            Outcome::Failed(fault) => {
                workers::goes_on();
                let Some(hosted) = self.hosted.as_mut() else { return Ok(()) };
                self.survival.survive(hosted, (&self.run, &self.cell), fault).await
            }
            Outcome::Aborted => Next::Finished,
        };
        let next = match next {
            // A swap has time limits.
            Next::Wait if self.is_swapped() => Next::After(Patience::LOOK),
            Next::After(time) if self.is_swapped() => Next::After(time.min(Patience::LOOK)),
            next => next,
        };
        match next {
            Next::Wait => {}
            Next::Again => io.call_again = true,
            Next::After(time) => io.block_on(workers::after(time)),
            Next::Finished => io.finished = self.hosted.as_mut().is_none_or(Hosted::may_end),
        }
        let is_idle = matches!(next, Next::Wait | Next::After(_)) && !io.call_again;
        if let Some(hosted) = self.hosted.as_ref().filter(|_| is_idle) {
            self.cell.waits.begin(hosted.waits_for());
        }
        Ok(())
    }

    async fn deinit(&mut self, _: &mut MessageOutputs, _: &mut BlockMeta) -> Result<()> {
        self.end().await;
        Ok(())
    }
}
