//! A running block with its ports, and its mailbox for commands between two frames.

use super::cell::Cell;
use super::fault::Fault;
use super::run::Run;
use super::timing::For;
use fxgraph_core::block::{Block, Input, Io, Next, Output};
use fxgraph_core::changes::{Change, Configurations, Heard};
use fxgraph_core::edge::{Edge, FrameReader, FrameWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use fxgraph_core::time_base::{BasesTaken, TimeBase};
use fxgraph_flowgraph::PartOutput;
use std::sync::{Arc, PoisonError};

/// A running block with its ports; [`Handle::ask`](super::Handle::ask) gives access to it.
pub struct Hosted {
    /// The block.
    pub block: Box<dyn Block>,
    /// Its inputs, in the order of the ports.
    pub inputs: Vec<Input>,
    /// Its outputs, in the order of the ports.
    pub outputs: Vec<Output>,
    /// A swap of the block in progress.
    pub(super) swap: Option<Box<dyn Swapping>>,
    /// The block is being swapped while its input queues hold.
    pub(super) is_held: bool,
    /// Timestamp before which earlier blocks in this slot have begun to work on all samples.
    pub(super) begun: u64,
    /// The block has ended, and frames of it still wait for room in an output queue.
    pub(super) has_ended: bool,
}

impl Hosted {
    /// Connects `block` to these edges. `heard` returns the configuration of the frames of an output, and later the
    /// changes in `configurations`.
    pub(super) fn new(
        block: Box<dyn Block>,
        inputs: &[Arc<Edge>],
        outputs: &[PartOutput],
        heard: impl Fn() -> Heard,
        configurations: &Arc<Configurations>,
    ) -> Self {
        let bases = BasesTaken::default();
        let reading = |edge: &Arc<Edge>| Input {
            reader: FrameReader::of_block(Arc::clone(edge), bases.clone()),
        };
        let writing = |output: &PartOutput| {
            let (edges, pool) = (output.edges.clone(), output.pool.clone());
            let (configurations, bases) = (configurations.clone(), bases.clone());
            Output { writer: FrameWriter::of_run(edges, pool, heard(), configurations, bases) }
        };
        Self {
            block,
            inputs: inputs.iter().map(reading).collect(),
            outputs: outputs.iter().map(writing).collect(),
            swap: None,
            is_held: false,
            begun: 0,
            has_ended: false,
        }
    }

    /// Offers the block new values of its live parameters. They take effect after all samples that the block,
    /// and earlier blocks in its slot, have begun to work on.
    pub(crate) fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.block.update(change.behind(self.begun))
    }

    /// Time base of the newest frame that has arrived.
    pub(crate) fn base(&self) -> TimeBase {
        let bases = self.inputs.iter().map(|input| input.reader.base());
        bases.max_by_key(|base| base.from).unwrap_or_default()
    }

    /// Whether all readers of its outputs have ended, so that its frames are not used any more.
    pub(super) fn is_abandoned(&self) -> bool {
        let mut written = self.outputs.iter().filter_map(|o| o.writer.is_abandoned()).peekable();
        written.peek().is_some() && written.all(|abandoned| abandoned)
    }

    /// Notes that the block has ended; `false` if frames of it still have to be pushed.
    pub(super) fn may_end(&mut self) -> bool {
        self.has_ended = true;
        // A swap in progress is given up.
        self.swap = None;
        self.outputs.iter_mut().for_each(|output| output.writer.end_switch());
        self.outputs.iter_mut().all(|output| output.writer.push_made_before())
    }

    /// Cause of the wait of a block that has nothing to do.
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

/// Next action of the running block.
pub(super) enum Turn {
    Work,
    /// Wait: for the old block to come back, or for readers to take frames of the new one.
    Hold,
    /// Both blocks have failed.
    Lost(Fault),
}

/// A swap of a block in progress, on the thread of the block.
pub(super) trait Swapping: Send {
    /// Advances the swap before a call of `work`: the block's next action, and whether the swap is over.
    fn step(&mut self, hosted: &mut Hosted, run: &Run, cell: &Cell) -> (Turn, bool);

    /// Starts a roll-back to the old block after a fault of the new one with this `cause`; `false` if that is not possible
    /// any more, for example because the old block `has_lost_sight` of frames.
    fn roll_back(&mut self, cause: &str, has_lost_sight: bool) -> bool;
}

/// Placeholder between the removal of a block and its replacement.
pub(super) struct Vacant;

impl Block for Vacant {
    fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        Ok(Next::Finished)
    }
}

/// A command to a running block.
pub(super) type Command = Box<dyn FnOnce(&mut Hosted) + Send>;

/// Queue of commands to one block. They run in order, between two calls of its `work`; commands left
/// at the block's end are dropped.
pub(super) struct Mailbox {
    /// Checked before the lock, so that a block without commands takes no lock.
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

    /// Appends `command`, or drops it if the block has ended. The caller then has to wake the block.
    pub fn post(&self, command: Command) {
        let mut commands = self.commands();
        if let Some(commands) = commands.as_mut() {
            commands.push(command);
            self.has_mail.store(true, Ordering::Release);
        }
    }

    /// Removes and returns the commands posted since the last call.
    pub fn take(&self) -> Vec<Command> {
        // No allocation in the steady state: an empty `Vec` has none.
        if !self.has_mail.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut commands = self.commands();
        self.has_mail.store(false, Ordering::Relaxed);
        commands.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops all commands, and those posted from now on.
    pub fn close(&self) {
        let left = self.commands().take();
        // Outside the lock: dropping a command may notify its sender.
        drop(left);
    }
}
