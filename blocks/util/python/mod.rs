#![doc = include_str!("README.md")]

mod ask;
mod bench;
#[cfg(test)]
mod chain_tests;
mod conformance;
mod cpu;
mod fault;
mod gpu;
mod lines;
mod live;
mod log;
mod memory;
mod patience;
mod port;
mod process;
mod program;
mod running;

pub(crate) use ask::hello;
pub(crate) use cpu::{COUNTERS, Cpu, Task};
pub(crate) use live::Scheduled;
pub(crate) use memory::JOBS;
pub(crate) use port::to_json;
pub(crate) use program::{BYTE_ORDER_MARK, Program, has_numpy, text_of};

use ask::Hello;
use fxgraph::access::{ExecutedPath, ExecutedText};
use fxgraph::cuda::{CONTEXT_BYTES, IN_FLIGHT};
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, BlockError, Checked, Configured, DeviceName, Implementation, Implementations, Kind,
    KindSpec, LiveKind, Parameters, PortType, Rejection, Resources,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Largest program in bytes.
const FILE_LIMIT_BYTES: u64 = 1 << 20;
/// Memory of a process with NumPy, in bytes, for the plan.
pub(crate) const PROCESS_BYTES: usize = 64 << 20;
/// Longest time limit in seconds.
const MAX_TIMEOUT_SECONDS: f64 = 86_400.0;

/// Values of the parameters of a class in Python.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Values(pub(crate) Map<String, Value>);

impl JsonSchema for Values {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Values".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": true, "x-merged": true})
    }
}

/// Parameters of the process that runs a block, and its limits.
#[derive(Clone, Debug, Parameters)]
pub struct Interpreter {
    /// Interpreter, with NumPy; by default that of the active virtual environment, or else `python3`.
    pub python: Option<ExecutedText>,
    /// Longest time for one frame. A process that takes longer is killed, and the block fails.
    #[param(default = 10.0, range = 0.01..=MAX_TIMEOUT_SECONDS, unit = "s")]
    pub timeout_seconds: f64,
    /// Limit of the private memory of the process, without frames; 0 is no limit.
    #[param(default = 4_294_967_296_u64)]
    pub memory_limit_bytes: u64,
}

impl Interpreter {
    /// Path of the interpreter.
    pub(crate) fn path(&self) -> String {
        self.python.as_deref().map_or_else(program::interpreter, str::to_owned)
    }
}

/// Parameters of `python`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "python",
    page = "README.md",
    examples("example.yaml", "gpu.yaml"),
    inputs("input"),
    outputs(optional("output"))
)]
pub struct Python {
    /// File with the class, relative to the working directory.
    pub file: Option<ExecutedPath>,
    /// Text with the class, instead of `file`.
    pub code: Option<ExecutedText>,
    /// Name of the class: a dataclass that derives from `fxgraph.block.Block`.
    pub class: String,
    /// Parameters of the class; those that it declares as live may change while the block runs.
    #[param(default, live)]
    pub values: Values,
    /// Process of the block.
    #[param(flatten)]
    pub interpreter: Interpreter,
    /// GPU memory that the class allocates, in bytes, for the plan.
    #[param(default = 0)]
    pub device_memory_bytes: usize,
    /// Whether the block runs on a GPU.
    #[param(skip)]
    pub is_on_gpu: bool,
}

/// A block as its process describes it.
pub struct Described {
    program: Program,
    hello: Arc<Hello>,
}

/// New values of live parameters.
pub enum Live {
    /// Values of the class.
    Values(Values),
}

/// Work of the process of `block`.
fn task(block: &Configured<Python>) -> Task {
    Task {
        program: block.shape.program.clone(),
        hello: Arc::clone(&block.shape.hello),
        values: block.parameters.values.0.clone(),
        timeout: Duration::from_secs_f64(block.parameters.interpreter.timeout_seconds),
        ports: block.ports.clone(),
        counters: Vec::new(),
    }
}

impl KindSpec for Python {
    type Shape = Described;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::<Self>::cpu(|block, env| Ok(Box::new(Cpu::new(task(block), env)))),
        Implementation::<Self>::cuda(
            "cuda",
            "arrays in GPU memory, for CuPy, Numba and PyTorch",
            |block, env| Ok(Box::new(Cpu::new(task(block), env))),
        )
        .suited(|parameters| Self { is_on_gpu: true, ..parameters })
        .device_bytes(|block| CONTEXT_BYTES + block.parameters.device_memory_bytes),
    ];

    /// Runs the program once, the only source of its ports and parameters, unless the answer is known.
    fn ports(&self, inputs: &[PortType]) -> Checked<Described> {
        let program = Program::read(self)?;
        let hello = hello(&program, &self.values.0, inputs)
            .map_err(|fault| vec![fault.rejection(&program)])?;
        let output = hello.output.as_ref().map(|output| output.port(&inputs[0])).transpose();
        let output = output.map_err(|why| {
            let message = format!("`ports` of `{}` must return a valid port: {why}", self.class);
            vec![Rejection::new(
                codes::PARAMETER_OUT_OF_RANGE,
                At::Parameter(program.parameter()),
                message,
            )]
        })?;
        Ok((Described { program, hello }, output.into_iter().collect()))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let is_on_gpu = block.parameters.is_on_gpu;
        // On a GPU, the plan adds the frames of a CUDA pipeline.
        let (holds, fills) = if is_on_gpu {
            let jobs = gpu::jobs(&block.ports);
            (jobs - IN_FLIGHT, jobs + 2 - IN_FLIGHT)
        } else {
            (JOBS, JOBS + 1)
        };
        Resources {
            host_bytes: PROCESS_BYTES,
            holds: vec![holds],
            fills: vec![fills; block.ports.outputs.len()],
            shares_frames: !is_on_gpu,
            ..Resources::default()
        }
    }

    /// The text and the files beside it.
    fn content(block: &Configured<Self>) -> Option<String> {
        let Described { program, hello } = &block.shape;
        let mut hasher = DefaultHasher::new();
        program.text.hash(&mut hasher);
        hello.files().for_each(|file| file.hash(&mut hasher));
        Some(format!("{} {:016x}", program.name, hasher.finish()))
    }

    fn content_files(block: &Configured<Self>) -> Vec<PathBuf> {
        let file = block.parameters.file.as_deref().map(PathBuf::from);
        file.into_iter().chain(block.shape.hello.imported().map(PathBuf::from)).collect()
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

impl LiveKind for Python {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        PythonLive::Values: PythonLive,
        running: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        let class = &new.parameters.class;
        if Self::content(new) != Self::content(running) {
            let name = &new.shape.program.name;
            return Err(BlockError::new(format!(
                "`{name}` was edited after the start of the block: swap the block first"
            )));
        }
        let (before, after) = (&running.parameters.values.0, &new.parameters.values.0);
        let parameters = &new.shape.hello.parameters;
        for parameter in parameters.iter().filter(|parameter| !parameter.live) {
            if before.get(&parameter.name) != after.get(&parameter.name) {
                return Err(BlockError::new(format!(
                    "`{}` of `{class}` cannot change while the block runs: swap the block for one with the new value",
                    parameter.name
                )));
            }
        }
        let live =
            |(name, _): &(&String, &Value)| parameters.iter().any(|p| p.live && p.name == **name);
        let values = after.iter().filter(live).map(|(name, value)| (name.clone(), value.clone()));
        Ok(Live::Values(Values(values.collect())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
pub(crate) mod tests;
