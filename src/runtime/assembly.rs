//! A flowgraph whose blocks are built and whose edges exist: what the runtime starts.

use super::edge::Edge;
use super::event::BlockEvents;
use super::report::StartError;
use super::tally::Occupant;
use crate::block::{Block, BlockError};
use crate::counter::Counters;
use crate::frame::Pool;
use crate::kind::{Ports, Waker};
use crate::summary::Summary;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Everything that runs together. Started once; another run needs another assembly.
pub struct Assembly {
    /// Name of the flowgraph.
    pub name: String,
    /// The blocks.
    pub parts: Vec<Part>,
}

/// A built block with its edges.
pub struct Part {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The block.
    pub block: Box<dyn Block>,
    /// The counters it was built with.
    pub counters: Counters,
    /// The summary it was built with.
    pub summary: Summary,
    /// The events it was built with.
    pub events: BlockEvents,
    /// The waker it was built with.
    pub wake: Waker,
    /// One edge per input, in the order of the ports.
    pub inputs: Vec<Arc<Edge>>,
    /// Outputs, in the order of the ports.
    pub outputs: Vec<PartOutput>,
    /// What the ports carry.
    pub ports: Ports,
    /// Where the block runs.
    pub thread: Thread,
    /// What is done when it fails.
    pub on_fault: OnFault,
    /// Makes the block anew; `None` for one that can be made only once, whose faults stop the run
    /// unless they are errors that [`OnFault::Skip`] passes over.
    pub rebuild: Option<Rebuild>,
}

/// Makes a block anew, as it was built first, in a place where others have begun to work on everything
/// before a timestamp.
pub type Rebuild = Arc<dyn Fn(u64) -> Result<Box<dyn Block>, BlockError> + Send + Sync>;

/// What is done when a block fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// The run stops with the cause; what is queued still flows to its end.
    #[default]
    Stop,
    /// The block is built anew and goes on with its next input frame.
    Restart,
    /// The frame at work is lost and the block goes on; after a panic it is built anew.
    Skip,
}

impl OnFault {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Restart, Self::Skip];

    /// The word in flowgraph files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Skip => "skip",
        }
    }
}

/// One output port of a [`Part`].
pub struct PartOutput {
    /// One edge per reader. An output without readers never holds its block up.
    pub edges: Vec<Arc<Edge>>,
    /// Where the frames come from; `None` for a port that passes frames through.
    pub pool: Option<Arc<Pool>>,
}

/// Where a block runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thread {
    /// On the worker threads, with the others.
    #[default]
    Shared,
    /// On a thread of its own, if asked for bound to one core.
    Own {
        /// Number of the core.
        core: Option<usize>,
    },
}

/// How to run an [`Assembly`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Threads for the blocks that share them; 0 stands for the number of cores.
    pub workers: usize,
    /// What frame headers carry as `config_id`.
    pub config_id: u64,
}

/// Where an edge leads, by numbers of parts and ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub from: usize,
    pub output: usize,
    pub to: usize,
    pub input: usize,
}

impl Assembly {
    /// All connections, after a check that each edge has one writer and one reader and was never
    /// part of another run.
    pub(super) fn connections(&self) -> Result<Vec<Connection>, StartError> {
        let mut names = HashSet::new();
        let mut readers = HashMap::new();
        for (to, part) in self.parts.iter().enumerate() {
            if !names.insert(part.name.as_str()) {
                return Err(part.refuse("another block has the same name"));
            }
            if part.wake.is_set() {
                return Err(part.refuse("it was part of another run"));
            }
            if part.inputs.len() != part.ports.inputs.len()
                || part.outputs.len() != part.ports.outputs.len()
            {
                return Err(part.refuse("its edges do not match its ports"));
            }
            for (input, edge) in part.inputs.iter().enumerate() {
                if edge.reader.is_set() || edge.writer.is_set() {
                    return Err(part.refuse(format!("input {input} was part of another run")));
                }
                if readers.insert(Arc::as_ptr(edge), (to, input)).is_some() {
                    return Err(part.refuse(format!("input {input} shares its edge with another")));
                }
            }
        }
        let mut connections = Vec::with_capacity(readers.len());
        for (from, part) in self.parts.iter().enumerate() {
            for (output, port) in part.outputs.iter().enumerate() {
                for edge in &port.edges {
                    let Some((to, input)) = readers.remove(&Arc::as_ptr(edge)) else {
                        let reason = format!("output {output} writes an edge nobody else reads");
                        return Err(part.refuse(reason));
                    };
                    if to == from {
                        return Err(part.refuse(format!("output {output} leads back to itself")));
                    }
                    connections.push(Connection { from, output, to, input });
                }
            }
        }
        match readers.values().min() {
            Some(&(to, input)) => {
                Err(self.parts[to].refuse(format!("nobody writes input {input}")))
            }
            None => Ok(connections),
        }
    }
}

impl Part {
    /// What comes and goes with its block.
    pub(super) fn occupant(&self) -> Occupant {
        Occupant {
            kind: self.kind,
            counters: self.counters.clone(),
            summary: self.summary.clone(),
            events: self.events.clone(),
            on_fault: self.on_fault,
            rebuild: self.rebuild.clone(),
        }
    }

    fn refuse(&self, reason: impl Into<String>) -> StartError {
        StartError::Wiring { block: self.name.clone(), reason: reason.into() }
    }
}
