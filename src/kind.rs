//! Kinds of blocks: what can be said of a block from its parameters, without I/O and without
//! a device.

mod env;
mod registry;

pub use env::{Env, Waker};
pub use registry::{Configure, KindEntry, Registry};

use crate::block::{Block, BlockError};
use crate::cuda;
use crate::device::DeviceName;
use crate::diagnostic::codes;
use crate::examples::{Benchmark, Case};
use crate::port::{Clock, PortType};
use crate::retune::LiveValue;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::Any;
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

/// Where a problem lies, in the block's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The block as a whole.
    Block,
    /// One of its parameters (path with dots for nested ones).
    Parameter(&'static str),
    /// One of its inputs, by position.
    Input(usize),
    /// Where the length of an axis of an input was decided.
    InputAxis(usize, &'static str),
    /// What chose its implementation: `implementation:` or `device:`.
    Implementation,
}

/// Why a block refuses its parameters or inputs.
///
/// `code` is one of the codes in [`crate::diagnostic::codes`]; texts are lower case, say what is
/// wrong, and never name a Rust type.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Stable code, `E0203`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    pub at: At,
    /// Label under that place.
    pub label: String,
    /// Other places that explain it.
    pub notes: Vec<(At, String)>,
    /// What to do.
    pub help: Option<String>,
}

impl Refusal {
    /// A refusal of something at `at`.
    pub fn new(code: &'static str, at: At, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at,
            label: "invalid".to_owned(),
            notes: Vec::new(),
            help: None,
        }
    }

    /// A refusal of the value of the parameter `name`.
    pub fn parameter(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(codes::PARAMETER_OUT_OF_RANGE, At::Parameter(name), message)
    }

    /// The same with another label under the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same with another place that explains it.
    #[must_use]
    pub fn note(mut self, at: At, text: impl Into<String>) -> Self {
        self.notes.push((at, text.into()));
        self
    }

    /// The same with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
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
    pub(crate) fn clock(&self) -> Option<&Clock> {
        self.outputs.first().or(self.inputs.first()).map(|port| &port.clock)
    }
}

/// One form of a kind that `implementation:` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Implementation {
    /// The word in the YAML.
    pub name: &'static str,
    /// `cpu` or `cuda`.
    pub device: &'static str,
    /// One line about it.
    pub summary: &'static str,
}

impl Implementation {
    /// A form for CUDA devices.
    #[must_use]
    pub const fn cuda(name: &'static str, summary: &'static str) -> Self {
        Self { name, device: "cuda", summary }
    }
}

/// The form every kind has.
pub const CPU: Implementation =
    Implementation { name: "cpu", device: "cpu", summary: "the definition" };

/// A kind of block. The type itself is the block's parameters, read from YAML; its field docs
/// are the parameter docs users see.
pub trait Kind: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The word after `kind:`.
    const NAME: &'static str;
    /// The block's page (`README.md` of its folder).
    const DOC: &'static str;
    /// Inputs.
    const INPUTS: PortNames;
    /// Outputs.
    const OUTPUTS: PortNames;
    /// Forms to choose from; the first of each sort of device is the default there.
    const IMPLEMENTATIONS: &'static [Implementation] = &[CPU];
    /// Parameters that may change while a block of the kind runs.
    const LIVE: &'static [&'static str] = &[];

    /// The same parameters, with what this implementation takes where nothing is given. It comes
    /// first: ports may depend on it.
    #[must_use]
    fn suited_to(self, _implementation: &str) -> Self {
        self
    }

    /// What the outputs carry, given what the inputs carry; all refusals at once.
    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>>;

    /// Why this implementation cannot do between `ports` what the definition can; all refusals at
    /// once. `gpu` is the one that it is to run on, unless there is none on this machine.
    fn check(
        &self,
        _ports: &Ports,
        _implementation: &str,
        _gpu: Option<&cuda::Properties>,
    ) -> Vec<Refusal> {
        Vec::new()
    }

    /// What the block needs.
    fn resources(&self, ports: &Ports) -> Resources;

    /// Device memory that this implementation allocates for itself (not frames), in bytes.
    fn device_bytes(&self, _ports: &Ports, _implementation: &str) -> usize {
        0
    }

    /// Its kernel that can be cut in several ways, if this implementation has one.
    fn tunable(&self, _ports: &Ports, _implementation: &str) -> Option<cuda::Tunable> {
        None
    }

    /// What a block that was built with the parameters `running`, in whatever form, makes of the
    /// [live](Self::LIVE) `parameter` of these: what its [`Block::retune`] gets. Work belongs here, off the
    /// data path.
    fn live_value(
        &self,
        parameter: &str,
        _running: &Self,
        _ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        Err(BlockError::new(format!("`{parameter}` cannot change while `{}` runs", Self::NAME)))
    }

    /// Why a fresh block of this kind cannot go on where another one ended, if so: it would begin
    /// its stream again, or overwrite what was written.
    fn cannot_restart(&self) -> Option<&'static str> {
        (Self::INPUTS == PortNames::Fixed(&[])).then_some("its stream would begin again")
    }

    /// Flowgraphs that compare its other implementations, on `device`, with the reference.
    #[must_use]
    fn cases(_device: DeviceName) -> Vec<Case> {
        Vec::new()
    }

    /// Flowgraphs that `fxgraph bench` measures on `device`.
    #[must_use]
    fn benchmarks(_device: DeviceName) -> Vec<Benchmark> {
        Vec::new()
    }

    /// The block, ready to start, of what [`ports`](Self::ports) and [`check`](Self::check) let
    /// through; no I/O yet.
    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError>;
}

/// [`Kind`] with its type erased: a block's parameters, read and kept.
pub trait Configured: Any + Send + Sync {
    /// See [`Kind::ports`].
    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>>;
    /// See [`Kind::check`].
    fn check(
        &self,
        _ports: &Ports,
        _implementation: &str,
        _gpu: Option<&cuda::Properties>,
    ) -> Vec<Refusal> {
        Vec::new()
    }
    /// See [`Kind::resources`].
    fn resources(&self, ports: &Ports) -> Resources;
    /// See [`Kind::device_bytes`].
    fn device_bytes(&self, ports: &Ports, implementation: &str) -> usize;
    /// See [`Kind::tunable`].
    fn tunable(&self, _ports: &Ports, _implementation: &str) -> Option<cuda::Tunable> {
        None
    }
    /// See [`Kind::live_value`].
    fn live_value(
        &self,
        parameter: &str,
        _running: &dyn Configured,
        _ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        Err(BlockError::new(format!("`{parameter}` cannot change while the block runs")))
    }
    /// See [`Kind::cannot_restart`].
    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }
    /// See [`Kind::build`].
    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError>;
}

impl<K: Kind> Configured for K {
    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Kind::ports(self, inputs)
    }
    fn check(
        &self,
        ports: &Ports,
        implementation: &str,
        gpu: Option<&cuda::Properties>,
    ) -> Vec<Refusal> {
        Kind::check(self, ports, implementation, gpu)
    }
    fn resources(&self, ports: &Ports) -> Resources {
        Kind::resources(self, ports)
    }
    fn device_bytes(&self, ports: &Ports, implementation: &str) -> usize {
        Kind::device_bytes(self, ports, implementation)
    }
    fn tunable(&self, ports: &Ports, implementation: &str) -> Option<cuda::Tunable> {
        Kind::tunable(self, ports, implementation)
    }
    fn live_value(
        &self,
        parameter: &str,
        running: &dyn Configured,
        ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        let running: &dyn Any = running;
        let running = running
            .downcast_ref()
            .ok_or_else(|| BlockError::new(format!("the running block is no `{}`", K::NAME)))?;
        Kind::live_value(self, parameter, running, ports)
    }
    fn cannot_restart(&self) -> Option<&'static str> {
        Kind::cannot_restart(self)
    }
    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Kind::build(self, ports, env)
    }
}
