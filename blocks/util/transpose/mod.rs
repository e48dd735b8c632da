#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod kernel;
#[cfg(test)]
mod tests;

use crate::common::parallel::{MAX_THREADS, threads_for};
use fxgraph::DeviceName;
use fxgraph::cuda::GpuMapped;
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, Checked, Configured, Implementation, Implementations, Kind, KindSpec, Mapped, PortType,
    Rejection, Resources,
};
use fxgraph_dsp::permutation::{self, Permutation};

/// Parameters of `transpose`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "transpose",
    page = "README.md",
    examples("example.yaml", "samples.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct Transpose {
    /// All axes of the input in the order of the output, slowest first.
    pub axes: Vec<String>,
    /// Threads that share the output's slowest axis, 0 for all cores. By default 1, because a
    /// flowgraph of many blocks already uses the cores.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

/// The permutation of a frame and its validity.
#[derive(Clone)]
pub struct Layout {
    /// The output's axes, slowest first.
    axes: Vec<permutation::Axis>,
    element_bytes: usize,
    /// Index in the input of each validity count of the output.
    validity: Vec<usize>,
}

impl Layout {
    fn new(input: &PortType, output: &PortType) -> Self {
        let lengths = |axes: &[fxgraph::Axis]| axes.iter().map(|axis| axis.len).collect::<Vec<_>>();
        let (from, to) = (&input.validity.axes, &output.validity.axes);
        let units = permutation::axes(&lengths(from), &order(from, to));
        let fastest_first: Vec<_> = units.into_iter().rev().collect();
        let unit = |index| permutation::offsets(&fastest_first, index)[0];
        Self {
            axes: permutation::axes(&lengths(&input.axes), &order(&input.axes, &output.axes)),
            element_bytes: input.dtype.bits() / 8,
            validity: (0..input.validity.units()).map(unit).collect(),
        }
    }

    /// Returns the kernel that permutes a frame on a GPU, if there is one.
    fn kernel(&self) -> Option<kernel::Kernel> {
        kernel::kernel(&Permutation::new(&self.axes, self.element_bytes))
    }

    /// Returns a diagnostic if no kernel can permute the frame.
    fn rejection(&self, input: &PortType) -> Option<Rejection> {
        self.kernel().is_none().then(|| {
            let message = "frames on a GPU must have fewer than 2^32 elements";
            let rejection = Rejection::new(codes::IMPLEMENTATION, At::Input(0), message);
            rejection.label(format!("this is {input}"))
        })
    }

    fn validity(&self, input: &[u32], output: &mut [u32]) {
        for (to, &from) in output.iter_mut().zip(&self.validity) {
            *to = input[from];
        }
    }
}

/// Returns the index in `from` of each axis of `to`. Axes with the same name keep their order.
fn order(from: &[fxgraph::Axis], to: &[fxgraph::Axis]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(to.len());
    for axis in to {
        let found = (0..from.len()).find(|n| from[*n].name == axis.name && !order.contains(n));
        order.extend(found);
    }
    order
}

impl Transpose {
    fn rejections(&self, input: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        if !input.dtype.bits().is_multiple_of(8) {
            let message =
                format!("elements must be whole bytes, got packed samples `{}`", input.dtype);
            let rejection = Rejection::new(codes::INPUT_DTYPE, At::Input(0), message);
            rejections
                .push(rejection.help("insert a block that unpacks the samples, such as `pfb`"));
        }
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let mut wanted: Vec<&str> = self.axes.iter().map(String::as_str).collect();
        let mut present = names.clone();
        wanted.sort_unstable();
        present.sort_unstable();
        if wanted != present {
            let message = format!(
                "`axes` must list each axis of the input once, got [{}]",
                self.axes.join("][")
            );
            let rejection = Rejection::parameter("axes", message)
                .note(At::Input(0), format!("the input is {input}"));
            let help = format!("give a permutation of [{}]", names.join(", "));
            rejections.push(rejection.help(help));
        }
        rejections
    }
}

/// Returns `axes` with the axes named in `order` rearranged among themselves; other axes keep their index.
fn reordered(axes: &[fxgraph::Axis], order: &[String]) -> Vec<fxgraph::Axis> {
    let is_named = |axis: &fxgraph::Axis| order.iter().any(|name| name == axis.name);
    let mut named: Vec<_> = axes.iter().filter(|axis| is_named(axis)).collect();
    named.sort_by_key(|axis| order.iter().position(|name| name == axis.name));
    let mut named = named.into_iter();
    let next = |axis| if is_named(axis) { named.next().unwrap_or(axis) } else { axis };
    axes.iter().map(next).cloned().collect()
}

impl KindSpec for Transpose {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, _| {
            Ok(Box::new(Mapped(cpu::Cpu::new(&block.parameters, block.shape.clone())?)))
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "tiled, at the bandwidth of the memory",
            |block, env| {
                GpuMapped::build(env, |pipeline| {
                    cuda::Cuda::new(block.shape.clone(), pipeline.device())
                })
            },
        )
        .check(|block, _| Vec::from_iter(block.shape.rejection(&block.ports.inputs[0])))
        .tunable(|block| block.shape.kernel().map(|kernel| kernel.tunable)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Layout> {
        let input = &inputs[0];
        let rejections = self.rejections(input);
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let mut output = input.clone();
        output.axes = reordered(&input.axes, &self.axes);
        output.validity.axes = reordered(&input.validity.axes, &self.axes);
        Ok((Layout::new(input, &output), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let threads = threads_for(block.parameters.threads, f64::INFINITY);
        let tables = size_of_val(block.shape.validity.as_slice());
        Resources { host_bytes: tables + cpu::bytes(&block.shape, threads), ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}
