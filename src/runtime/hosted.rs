//! A running block with its ports, and what may be asked of it between two frames.

use super::beside::Beside;
use super::timing::For;
use fxgraph_core::block::{Block, Input, Io, Next, Output};
use fxgraph_core::edge::{Edge, FrameReader, FrameWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::retune::{Change, Configurations};
use fxgraph_core::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use fxgraph_flowgraph::PartOutput;
use std::sync::{Arc, PoisonError};

/// A running block in its place in the flowgraph: what [`Handle::ask`](super::Handle::ask) gives
/// a look at.
pub struct Hosted {
    /// The block.
    pub block: Box<dyn Block>,
    /// Its inputs, in the order of the ports.
    pub inputs: Vec<Input>,
    /// Its outputs, in the order of the ports.
    pub outputs: Vec<Output>,
    /// Another block that is to take its place.
    pub(super) beside: Option<Beside>,
    /// The block is being exchanged while its queues hold.
    pub(super) is_held: bool,
    /// Blocks that were here before this one have begun to work on everything before this timestamp.
    pub(super) begun: u64,
    /// The block has ended, and frames that it made still wait for room.
    pub(super) has_ended: bool,
}

impl Hosted {
    /// `block` between these edges; its frames carry `config_id`, and what of `configurations` comes from
    /// here on.
    pub(super) fn new(
        block: Box<dyn Block>,
        inputs: &[Arc<Edge>],
        outputs: &[PartOutput],
        config_id: u64,
        configurations: &Arc<Configurations>,
    ) -> Self {
        let reading = |edge: &Arc<Edge>| Input { reader: FrameReader::new(Arc::clone(edge)) };
        let writing = |output: &PartOutput| {
            let (edges, pool) = (output.edges.clone(), output.pool.clone());
            Output { writer: FrameWriter::of_run(edges, pool, config_id, configurations.clone()) }
        };
        Self {
            block,
            inputs: inputs.iter().map(reading).collect(),
            outputs: outputs.iter().map(writing).collect(),
            beside: None,
            is_held: false,
            begun: 0,
            has_ended: false,
        }
    }

    /// Offers the block new values of its live parameters, which hold behind everything that it and the
    /// blocks before it have begun to work on.
    pub(crate) fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.block.retune(change.behind(self.begun))
    }

    /// Everyone who read its outputs has ended, so it works for nobody.
    pub(super) fn is_abandoned(&self) -> bool {
        let mut written = self.outputs.iter().filter_map(|o| o.writer.is_abandoned()).peekable();
        written.peek().is_some() && written.all(|abandoned| abandoned)
    }

    /// The block has ended; `false` if frames of it have to go out before.
    pub(super) fn may_end(&mut self) -> bool {
        self.has_ended = true;
        // Nobody takes its place any more.
        self.beside = None;
        self.outputs.iter_mut().for_each(|output| output.writer.end_switch());
        self.outputs.iter_mut().all(|output| output.writer.push_made_before())
    }

    /// What the block waits for that has nothing to do.
    pub(super) fn waits_for(&self) -> For {
        let waits = |input: &Input| input.reader.waits();
        let is_held_up = self.outputs.iter().any(|output| output.writer.is_held_up());
        if is_held_up && (self.inputs.is_empty() || self.inputs.iter().any(waits)) {
            For::Room
        } else {
            let lacks_input = self.inputs.is_empty() || !self.inputs.iter().all(waits);
            if lacks_input { For::Input } else { For::Itself }
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.reader.begin_turn());
        self.outputs.iter_mut().for_each(|output| output.writer.begin_turn());
    }

    pub(super) fn wants_another_turn(&self) -> bool {
        self.inputs.iter().any(|input| input.reader.wants_another_turn())
            || self.outputs.iter().any(|output| output.writer.wants_another_turn())
    }
}

/// Stands in for a block that is gone until the next one is there.
pub(super) struct Vacant;

impl Block for Vacant {
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Ok(Next::Finished)
    }
}

/// Something to be done to a running block.
pub(super) type Command = Box<dyn FnOnce(&mut Hosted) + Send>;

/// Commands for one block. They are done between two calls of its `work`, in order; those that
/// are left when it ends are dropped.
pub(super) struct Mailbox {
    /// All that a block without commands looks at.
    has_mail: AtomicBool,
    /// `None` once the block has ended.
    commands: Mutex<Option<Vec<Command>>>,
}

impl Default for Mailbox {
    fn default() -> Self {
        Self { has_mail: AtomicBool::new(false), commands: Mutex::new(Some(Vec::new())) }
    }
}

impl Mailbox {
    fn commands(&self) -> MutexGuard<'_, Option<Vec<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves `command`, which is dropped if the block has ended. The block is to be woken.
    pub fn post(&self, command: Command) {
        let mut commands = self.commands();
        if let Some(commands) = commands.as_mut() {
            commands.push(command);
            self.has_mail.store(true, Ordering::Release);
        }
    }

    /// What was left since the last time.
    pub fn take(&self) -> Vec<Command> {
        // No allocation in the steady state: an empty `Vec` has none.
        if !self.has_mail.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut commands = self.commands();
        self.has_mail.store(false, Ordering::Relaxed);
        commands.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// No command is done any more.
    pub fn close(&self) {
        let left = self.commands().take();
        // Outside the lock: a command's end may tell somebody.
        drop(left);
    }
}
