//! Kinds of blocks: what can be said of a block from its parameters, without I/O and without
//! a device.

use crate::block::{Block, BlockError};
use crate::counter::Counters;
use crate::cuda;
use crate::flowgraph::value::{ReadError, Reader};
use crate::port::PortType;
use crate::recording::Recorders;
use crate::retune::LiveValue;
use crate::summary::Summary;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

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
            label: "refused here".to_owned(),
            notes: Vec::new(),
            help: None,
        }
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

/// What a block gets when it is built.
#[derive(Clone)]
pub struct Env {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Counters shown with the block.
    pub counters: Counters,
    /// What the block wants printed under its name after a run.
    pub summary: Summary,
    /// `implementation:` of the block, one of its kind's [`Kind::IMPLEMENTATIONS`].
    pub implementation: &'static str,
    /// The GPU it runs on, if `implementation` is a form for one.
    pub device: Option<Arc<cuda::Device>>,
    /// Wakes the block from any thread: sockets, devices, helper threads.
    pub wake: Waker,
    /// Hash over the resolved flowgraph; what file headers and provenance quote.
    pub config_hash: String,
    /// The resolved flowgraph as YAML, for provenance.
    pub resolved_yaml: Arc<str>,
    /// Where relative paths of files that the block writes begin.
    pub output_folder: PathBuf,
    /// Where a block that records says so, to be seen and triggered from outside.
    pub recorders: Recorders,
}

impl Env {
    /// An environment outside any flowgraph, for a block driven by hand in tests and benchmarks.
    #[must_use]
    pub fn detached(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            counters: Counters::default(),
            summary: Summary::default(),
            implementation: CPU.name,
            device: None,
            wake: Waker::default(),
            config_hash: String::new(),
            resolved_yaml: Arc::from(""),
            output_folder: PathBuf::new(),
            recorders: Recorders::default(),
        }
    }
}

/// Wakes a block; cheap to clone, callable from any thread, does nothing before the start.
#[derive(Clone, Default)]
pub struct Waker(pub(crate) Arc<std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Waker {
    /// Has [`Block::work`] called again.
    pub fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }

    /// Gives the waker its target; `false` if it has one already.
    pub(crate) fn set(&self, wake: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(wake)).is_ok()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
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

/// Reads the parameters of a kind, for one of its implementations.
pub type Configure = fn(Reader<'_>, &str) -> Result<Box<dyn Configured>, ReadError>;

/// What the registry knows of a kind.
pub struct KindEntry {
    /// The word after `kind:`.
    pub name: &'static str,
    /// The block's page.
    pub doc: &'static str,
    /// Inputs.
    pub inputs: PortNames,
    /// Outputs.
    pub outputs: PortNames,
    /// Forms to choose from.
    pub implementations: &'static [Implementation],
    /// Parameters that may change while a block runs.
    pub live: &'static [&'static str],
    /// JSON Schema of the parameters; live ones have `x-live: true`.
    pub schema: fn() -> schemars::Schema,
    /// Reads the parameters.
    pub configure: Configure,
}

impl KindEntry {
    /// The entry of `K`, for a registry.
    #[must_use]
    pub fn of<K: Kind>() -> Self {
        Self {
            name: K::NAME,
            doc: K::DOC,
            inputs: K::INPUTS,
            outputs: K::OUTPUTS,
            implementations: K::IMPLEMENTATIONS,
            live: K::LIVE,
            schema: schema::<K>,
            configure: |reader, form| Ok(Box::new(K::deserialize(reader)?.suited_to(form))),
        }
    }

    /// What the block does, in one sentence: the first of its page.
    #[must_use]
    pub fn summary(&self) -> String {
        first_sentence(self.doc)
    }
}

/// The first sentence of a page below its heading, on one line.
fn first_sentence(page: &str) -> String {
    let prose = page
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty() && !line.starts_with('#'));
    let paragraph = prose.collect::<Vec<_>>().join(" ");
    let end = paragraph.find(". ").map_or(paragraph.len(), |dot| dot + 1);
    paragraph[..end].trim_end_matches('.').to_owned()
}

fn schema<K: Kind>() -> schemars::Schema {
    let mut schema = schemars::schema_for!(K);
    for name in K::LIVE {
        if let Some(parameter) = schema.pointer_mut(&format!("/properties/{name}")) {
            parameter["x-live"] = true.into();
        }
    }
    schema
}

/// The kinds a program knows.
pub struct Registry(Vec<KindEntry>);

impl Registry {
    /// A registry of these kinds, sorted by name; of two with one name the first counts.
    #[must_use]
    pub fn new(mut kinds: Vec<KindEntry>) -> Self {
        kinds.sort_by_key(|kind| kind.name);
        kinds.dedup_by_key(|kind| kind.name);
        Self(kinds)
    }

    /// The kind `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&KindEntry> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// All kinds, by name.
    pub fn iter(&self) -> impl Iterator<Item = &KindEntry> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn the_summary_is_the_first_sentence_of_the_page() {
        assert_eq!(
            first_sentence("# pfb\n\nFilters\nsamples. More.\n\n## Ports"),
            "Filters samples"
        );
        assert_eq!(first_sentence("# pfb\n"), "");
    }
}
