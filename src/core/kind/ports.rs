//! Ports of a block, and what else it needs.

use crate::port::{Clock, PortType};
use std::fmt;
use std::path::PathBuf;

/// Names of the ports on one side of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortNames {
    /// These ports, all of them.
    Fixed(&'static [&'static str]),
    /// The first `required` of these ports, and any more of them.
    Optional {
        /// Names in order.
        names: &'static [&'static str],
        /// How many must be connected.
        required: usize,
    },
    /// Any number of ports from 1, named `{prefix}0`, `{prefix}1`, ...
    Numbered(&'static str),
}

impl fmt::Display for PortNames {
    /// `pol0, [pol1]`; an optional port stands in brackets.
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

/// Where the frames of an output port come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortPool {
    /// A pool of the port's own.
    Own,
    /// The port hands on the frames of input number `n`.
    PassThrough(usize),
}

/// What a block needs, for the plan.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    /// Host memory that the form on the processor allocates for itself (not frames), in bytes.
    pub host_bytes: usize,
    /// Frames of each input that it may hold besides the one it works on; missing entries are 0.
    pub holds: Vec<usize>,
    /// Frames of each output it may fill at the same time; missing entries are 1.
    pub fills: Vec<usize>,
    /// Pools of the outputs; missing entries are [`PortPool::Own`].
    pub pools: Vec<PortPool>,
    /// Useful arithmetic operations per frame of output 0 (input 0 for sinks).
    pub operations_per_frame: f64,
    /// Sockets it binds, for `plan` and to refuse the same one twice.
    pub binds: Vec<String>,
    /// Sockets it uses that others may use too, for `plan`.
    pub sockets: Vec<String>,
    /// Files it writes, to refuse the same one twice.
    pub writes: Vec<PathBuf>,
}

/// The ports of one block, checked.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// What each input carries.
    pub inputs: Vec<PortType>,
    /// What each output carries.
    pub outputs: Vec<PortType>,
}

impl Ports {
    /// The clock whose timestamps live updates of the block have.
    #[must_use]
    pub fn clock(&self) -> Option<&Clock> {
        self.outputs.first().or(self.inputs.first()).map(|port| &port.clock)
    }
}
