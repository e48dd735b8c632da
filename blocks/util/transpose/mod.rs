#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod kernel;
mod permutation;
#[cfg(test)]
mod tests;

use crate::common::parallel::{one_thread, refuse_threads, threads_for};
use fxgraph::DeviceName;
use fxgraph::cuda::{Properties, Tunable};
use fxgraph::diagnostic::codes;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::{
    At, Block, BlockError, CPU, Env, Header, Implementation, Kind, PortNames, PortType, Ports,
    Refusal, Resources,
};
use permutation::Permutation;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `transpose`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transpose {
    /// The input's axes in the order they are to have, slowest first.
    pub axes: Vec<String>,
    /// Threads that share the output's slowest axis, 0 for all cores. By default 1, because a
    /// flowgraph of many blocks already uses the cores.
    #[serde(default = "one_thread")]
    pub threads: usize,
}

/// Where everything of a frame goes.
struct Layout {
    /// The output's axes, slowest first.
    axes: Vec<permutation::Axis>,
    element_bytes: usize,
    /// For each validity count of the output, which one of the input it is.
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

    /// What moves a frame on a GPU.
    fn kernel(&self) -> Option<kernel::Kernel> {
        kernel::kernel(&Permutation::new(&self.axes, self.element_bytes))
    }

    fn header(&self, input: &Header, output: &mut Header) {
        output.continue_from(input);
        for (to, &from) in output.validity.iter_mut().zip(&self.validity) {
            *to = input.validity[from];
        }
    }
}

/// For each axis of `to`, its place in `from`. Of axes with one name each stands for itself.
fn order(from: &[fxgraph::Axis], to: &[fxgraph::Axis]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(to.len());
    for axis in to {
        let found = (0..from.len()).find(|n| from[*n].name == axis.name && !order.contains(n));
        order.extend(found);
    }
    order
}

impl Transpose {
    fn check(&self, input: &PortType) -> Vec<Refusal> {
        let mut refusals = Vec::from_iter(refuse_threads(self.threads));
        if !input.dtype.bits().is_multiple_of(8) {
            let message = format!("`{}` samples share bytes and cannot be moved", input.dtype);
            let refusal = Refusal::new(codes::INPUT_DTYPE, At::Input(0), message);
            refusals
                .push(refusal.help("put a block before this one that unpacks them, such as `pfb`"));
        }
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let mut wanted: Vec<&str> = self.axes.iter().map(String::as_str).collect();
        let mut present = names.clone();
        wanted.sort_unstable();
        present.sort_unstable();
        if wanted != present {
            let message = format!("[{}] are not the input's axes", self.axes.join("]["));
            let refusal = Refusal::parameter("axes", message)
                .note(At::Input(0), format!("the input is {input}"));
            let help = format!("name each of {} once", names.join(", "));
            refusals.push(refusal.help(help));
        }
        refusals
    }
}

/// `axes` with those that `order` names put in its order, in the places they have together.
fn reordered(axes: &[fxgraph::Axis], order: &[String]) -> Vec<fxgraph::Axis> {
    let is_named = |axis: &fxgraph::Axis| order.iter().any(|name| name == axis.name);
    let mut named: Vec<_> = axes.iter().filter(|axis| is_named(axis)).collect();
    named.sort_by_key(|axis| order.iter().position(|name| name == axis.name));
    let mut named = named.into_iter();
    let next = |axis| if is_named(axis) { named.next().unwrap_or(axis) } else { axis };
    axes.iter().map(next).cloned().collect()
}

impl Kind for Transpose {
    const NAME: &'static str = "transpose";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&["input"]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);
    const IMPLEMENTATIONS: &'static [Implementation] =
        &[CPU, Implementation::cuda("cuda", "in tiles, at the speed of the memory")];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let input = &inputs[0];
        let refusals = self.check(input);
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let mut output = input.clone();
        output.axes = reordered(&input.axes, &self.axes);
        output.validity.axes = reordered(&input.validity.axes, &self.axes);
        Ok(vec![output])
    }

    fn resources(&self, ports: &Ports) -> Resources {
        let layout = Layout::new(&ports.inputs[0], &ports.outputs[0]);
        let tables = size_of_val(layout.validity.as_slice());
        Resources {
            host_bytes: tables + cpu::bytes(&layout, threads_for(self.threads, f64::INFINITY)),
            ..Resources::default()
        }
    }

    fn check(
        &self,
        ports: &Ports,
        implementation: &str,
        _gpu: Option<&Properties>,
    ) -> Vec<Refusal> {
        let layout = Layout::new(&ports.inputs[0], &ports.outputs[0]);
        if implementation == CPU.name || layout.kernel().is_some() {
            return Vec::new();
        }
        let message = "kernels count fewer than 2^32 elements of a frame";
        let refusal = Refusal::new(codes::IMPLEMENTATION, At::Input(0), message);
        vec![refusal.label(format!("this is {}", ports.inputs[0]))]
    }

    fn tunable(&self, ports: &Ports, implementation: &str) -> Option<Tunable> {
        let layout = Layout::new(&ports.inputs[0], &ports.outputs[0]);
        let kernel = layout.kernel().filter(|_| implementation != CPU.name);
        kernel.map(|kernel| kernel.tunable)
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let layout = Layout::new(&ports.inputs[0], &ports.outputs[0]);
        match env.implementation {
            "cuda" => Ok(Box::new(cuda::Cuda::new(layout, env)?)),
            _ => Ok(Box::new(cpu::Cpu::new(self, layout)?)),
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}
