#![doc = include_str!("README.md")]

mod compile;
mod conformance;
mod counted;
mod cuda;
mod declaration;
mod file;
mod layout;
mod numbers;
mod prelude;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::util::python::{self, Interpreter, JOBS, Live, PROCESS_BYTES, Task, Values};
use fxgraph::access::{ExecutedPath, ExecutedText};
use fxgraph::cuda::GpuMapped;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::gpu::Properties;
use fxgraph::{
    At, Block, BlockError, Checked, Configured, DeviceName, Env, Implementation, Implementations,
    Kind, KindSpec, LiveKind, PortType, Rejection, Resources,
};
use layout::Layout;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::Duration;

/// Parameters of `kernel`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "kernel",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Kernel {
    /// File with the kernel and its declaration, relative to the working directory.
    pub file: Option<ExecutedPath>,
    /// Text with the kernel and its declaration, instead of `file`.
    pub code: Option<ExecutedText>,
    /// Text with the reference in Python, with `code`.
    pub reference_code: Option<ExecutedText>,
    /// Parameters of the kernel; those that it declares as live may change while the block runs.
    #[param(default, live)]
    pub values: Values,
    /// Time limit for the kernel on a GPU, for one frame. A kernel that exceeds it counts as one that never ends.
    #[param(default = 10.0, range = 0.01..=3600.0, unit = "s")]
    pub deadline_seconds: f64,
    /// Process of the reference.
    #[param(flatten)]
    pub interpreter: Interpreter,
    /// Whether the block runs on a GPU.
    #[param(skip)]
    pub is_on_gpu: bool,
}

/// Diagnostics of a block on the CPU.
fn check_reference(block: &Configured<Kernel>, _: Option<&Properties>) -> Vec<Rejection> {
    let file = &block.shape.file;
    let Some(program) = &block.shape.program else {
        let message = format!("`{}` has no reference in Python, which runs on the CPU", file.name);
        let help = "write a function of the same name beside it, or set `device: cuda:0`";
        let at = At::Parameter(file.parameter);
        return vec![
            Rejection::new(codes::IMPLEMENTATION, at, message)
                .label("runs on a GPU only")
                .help(help),
        ];
    };
    let hello = python::hello(program, &block.shape.values, &block.ports.inputs);
    let rejections = hello.err().map(|fault| {
        let mut rejection = fault.rejection(program);
        if rejection.at == At::Parameter("class") {
            let help = format!("write `def {}(frame, out, fx):` into the reference", file.kernel);
            rejection = rejection.help(help);
        }
        // Other places are parameters of the kind `python`.
        match rejection.at {
            At::Parameter("python") | At::Value(_) => rejection,
            _ => Rejection { at: At::Parameter(file.parameter), ..rejection },
        }
    });
    let is_checked = fxgraph::cuda::compiler_version().is_ok();
    let problems = if is_checked { compile::problems(block, None) } else { Vec::new() };
    rejections.into_iter().chain(problems).collect()
}

/// Runs the reference.
fn build_reference(block: &Configured<Kernel>, env: &Env) -> Result<Box<dyn Block>, BlockError> {
    let Layout { file, program, values, .. } = &block.shape;
    let program = program.clone().ok_or_else(|| {
        BlockError::new(format!(
            "`{}` has no reference in Python, which runs on the CPU",
            file.name
        ))
    })?;
    // The answer is known since the plan.
    let hello = python::hello(&program, values, &block.ports.inputs)
        .map_err(|fault| fault.error(&program))?;
    let task = Task {
        program,
        hello,
        values: values.clone(),
        timeout: Duration::from_secs_f64(block.parameters.interpreter.timeout_seconds),
        ports: block.ports.clone(),
        counters: counted::counters(&block.shape, env)?,
    };
    Ok(Box::new(python::Cpu::new(task, env)))
}

impl KindSpec for Kernel {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::<Self>::cpu(build_reference).check(check_reference),
        Implementation::<Self>::cuda("cuda", "the kernel", |block, env| {
            GpuMapped::build(env, |pipeline| cuda::Cuda::new(block, env, pipeline))
        })
        .suited(|parameters| Self { is_on_gpu: true, ..parameters })
        .check(compile::problems)
        .device_bytes(cuda::Cuda::device_bytes),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Layout> {
        let (layout, output) = Layout::new(self, &inputs[0])?;
        Ok((layout, vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        if block.parameters.is_on_gpu {
            return Resources {
                host_bytes: cuda::Cuda::pinned_bytes(block),
                ..Resources::default()
            };
        }
        Resources {
            host_bytes: PROCESS_BYTES + block.shape.buffer_bytes(),
            holds: vec![JOBS],
            fills: vec![JOBS + 1],
            shares_frames: true,
            ..Resources::default()
        }
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        // On a GPU it is an error.
        let warning = || compile::warning(block);
        (!block.parameters.is_on_gpu).then(warning).flatten().into_iter().collect()
    }

    /// The texts.
    fn content(block: &Configured<Self>) -> Option<String> {
        let mut hasher = DefaultHasher::new();
        let file = &block.shape.file;
        (&file.text, &file.reference).hash(&mut hasher);
        Some(format!("{} {:016x}", file.name, hasher.finish()))
    }

    /// The file and the reference.
    fn content_files(block: &Configured<Self>) -> Vec<PathBuf> {
        let Some(file) = &block.parameters.file else { return Vec::new() };
        let reference = block.shape.file.declared.declaration.reference.as_deref();
        [file, &file::reference(file, reference)].map(|file| PathBuf::from(&**file)).into()
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}

impl LiveKind for Kernel {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        KernelLive::Values: KernelLive,
        running: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        let file = &new.shape.file;
        if Self::content(new) != Self::content(running) {
            let message = "was edited after the start of the block: swap the block first";
            return Err(BlockError::new(format!("`{}` {message}", file.name)));
        }
        let (before, after) = (&running.shape.values, &new.shape.values);
        let parameters = &file.declared.declaration.parameters;
        for (name, _) in parameters.iter().filter(|(_, parameter)| !parameter.live) {
            if before.get(name) != after.get(name) {
                let message =
                    "cannot change while the block runs: swap the block for one with the new value";
                return Err(BlockError::new(format!("`{name}` of `{}` {message}", file.kernel)));
            }
        }
        let live = after
            .iter()
            .filter(|(name, _)| parameters.get(*name).is_some_and(|parameter| parameter.live));
        Ok(Live::Values(Values(live.map(|(name, value)| (name.clone(), value.clone())).collect())))
    }
}
