//! Ports and resources of a block.

use crate::live_updates::Target;
use crate::port::{Clock, PortType};
use std::fmt;
use std::path::PathBuf;

/// Names of the ports on one side of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortNames {
    /// Exactly these ports.
    Fixed(&'static [&'static str]),
    /// The first `required` of these ports, and optionally the next ones.
    Optional {
        /// Names in order.
        names: &'static [&'static str],
        /// Number of ports that must be connected.
        required: usize,
    },
    /// Any number of ports from 1, named `{prefix}0`, `{prefix}1`, ...
    Numbered(&'static str),
}

impl fmt::Display for PortNames {
    /// Writes `pol0, [pol1]`, with optional ports in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed([]) => f.write_str("-"),
            Self::Fixed(names) => f.write_str(&names.join(", ")),
            Self::Optional { names, required } => {
                let shown = names.iter().enumerate().map(|(index, name)| {
                    if index < *required { (*name).to_owned() } else { format!("[{name}]") }
                });
                f.write_str(&shown.collect::<Vec<_>>().join(", "))
            }
            Self::Numbered(prefix) => write!(f, "{prefix}0, {prefix}1, ..."),
        }
    }
}

/// Source of the frames of an output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortPool {
    /// The port has its own pool.
    Own,
    /// The port passes on the frames of the input with this index.
    PassThrough(usize),
}

/// Resources of a block, for the plan.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Host memory that a CPU implementation allocates for itself (without frames), in bytes.
    pub host_bytes: usize,
    /// Frames of each input that it may hold in addition to the frame at work; missing entries are 0.
    pub holds: Vec<usize>,
    /// Frames of each output that it may fill at the same time; missing entries are 1.
    pub fills: Vec<usize>,
    /// Whether another process reads the frames of its inputs and fills those of its outputs: their pools are in shared
    /// memory.
    pub shares_frames: bool,
    /// Pools of the outputs; missing entries are [`PortPool::Own`].
    pub pools: Vec<PortPool>,
    /// Useful arithmetic operations per frame of output 0 (input 0 for sinks).
    pub operations_per_frame: f64,
    /// Sockets that it binds, for `fxgraph plan` and to reject two blocks on one socket.
    pub binds: Vec<String>,
    /// Sockets that it shares with other blocks, for `fxgraph plan`.
    pub sockets: Vec<String>,
    /// Files that it writes, to reject two writers of one file.
    pub writes: Vec<PathBuf>,
    /// Whether it cannot follow another centre frequency of its inputs while it runs, such as one that is in a file's
    /// header. Live updates and swaps upstream that would change it are rejected.
    pub fixes_band: bool,
    /// Whether data of one input are of no use without those of the others: its sources drop the same intervals when
    /// the flowgraph does not keep up.
    pub pairs_inputs: bool,
    /// Live parameters of other blocks that it changes, to reject those that do not exist.
    pub updates: Vec<Target>,
}

/// Checked port types of one block.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// Type of each input.
    pub inputs: Vec<PortType>,
    /// Type of each output.
    pub outputs: Vec<PortType>,
}

impl Ports {
    /// Clock of the effective timestamps of live updates: that of the first output, or else of the first input.
    #[must_use]
    pub fn clock(&self) -> Option<&Clock> {
        self.outputs.first().or(self.inputs.first()).map(|port| &port.clock)
    }
}
