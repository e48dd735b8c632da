//! One run of a benchmark: rates of a running flowgraph between two samples of its statistics.

use super::loads::{self, Totals};
use super::state::State;
use crate::ending::aborted;
use fxgraph::diagnostic::Diagnostic;
use fxgraph::flowgraph::{MeasuredLoad, Plan, load_text};
use fxgraph::runtime::{self, BlockStats, with_causes};
use fxgraph::{DeviceName, Registry};
use std::time::{Duration, Instant};

/// Time to wait for the first frame, including the compilation of kernels.
const PATIENCE: Duration = Duration::from_mins(1);

/// Results of one run of a benchmark.
pub struct Measured {
    /// Frames consumed at each input of the first block.
    pub frames: u64,
    pub seconds_per_frame: f64,
    /// Per measured block: name and GPU time per frame in seconds.
    pub blocks: Vec<(String, Option<f64>)>,
    /// Loads of all blocks, sources and sinks included.
    pub loads: Vec<MeasuredLoad>,
    /// Elements per second at all inputs of the first block.
    pub samples_per_second: f64,
    /// Bytes per second into the first block and out of the last block.
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
    /// Whether the operations can run on matrix units.
    pub uses_matrix_units: bool,
    /// State of the device at the end, while the flowgraph still ran.
    pub state: State,
}

impl Measured {
    /// GPU time per frame in seconds, summed over all blocks.
    pub fn device_seconds_per_frame(&self) -> Option<f64> {
        self.blocks.iter().map(|(_, seconds)| *seconds).sum()
    }

    /// Fraction of the time per frame in which the GPU does not work on the frame. `None` for several
    /// blocks, whose kernels share the GPU.
    pub fn loss(&self) -> Option<f64> {
        let device = self.device_seconds_per_frame()?;
        (self.blocks.len() == 1).then(|| 1.0 - device / self.seconds_per_frame)
    }
}

/// Returns the plan of a flowgraph text, or its diagnostics on one line.
pub fn plan(flowgraph: &str, registry: &Registry) -> Result<Plan, String> {
    let loaded = load_text("flowgraph.yaml", flowgraph, &[], registry);
    loaded.result.map_err(|problems| messages(&problems))
}

/// Joins the messages of diagnostics on one line.
pub fn messages(problems: &[Diagnostic]) -> String {
    let messages: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    messages.join("; ")
}

/// Runs `plan`, whose sources are endless, for `time` and measures `blocks`, given in the order in
/// which frames pass them.
pub fn measure_plan(plan: &Plan, blocks: &[&str], time: Duration) -> Result<Measured, String> {
    let blocks: Vec<usize> = blocks
        .iter()
        .map(|name| plan.block(name).ok_or_else(|| format!("there is no block `{name}`")))
        .collect::<Result<_, _>>()?;
    let assembly = plan.build().map_err(|error| with_causes(&error))?;
    let running = runtime::start(assembly, runtime::Options::default());
    let running = running.map_err(|error| with_causes(&error))?;
    let (first, last) = (blocks[0], blocks[blocks.len() - 1]);
    // Sources reach full speed after they have filled each of their buffers once.
    let sources = plan.blocks.iter().zip(plan.pool_frames());
    let sources = sources.filter(|(block, _)| block.inputs.is_empty());
    let to_fill = sources.flat_map(|(_, frames)| frames).max().unwrap_or(0);
    let to_fill = (to_fill * plan.blocks[first].inputs.len()) as u64;
    let began = Instant::now();
    while running.stats()[first].frames_in <= to_fill && began.elapsed() < PATIENCE {
        if running.wait_timeout(Duration::from_millis(20)) {
            break;
        }
    }
    let ended_early = running.wait_timeout(time / 3);
    let (before, start) = (Totals::of(&running), Instant::now());
    let ended_early = ended_early || running.wait_timeout(time);
    let (after, seconds) = (Totals::of(&running), start.elapsed().as_secs_f64());
    // Clocks and power change within milliseconds of the end.
    let state = State::read(plan.blocks[first].device);
    let report = aborted(running)?;
    if let Some(failure) = report.failures.first() {
        return Err(failure.to_string());
    }
    if ended_early {
        return Err("the flowgraph ended by itself".to_owned());
    }
    let grown = |block: usize, figure: fn(&BlockStats) -> u64| {
        figure(&after.blocks[block]).saturating_sub(figure(&before.blocks[block])) as f64
    };
    let inputs = plan.blocks[first].ports.inputs.len().max(1) as f64;
    let frames = grown(first, |block| block.frames_in) / inputs;
    if frames < 3.0 {
        return Err(format!("only {frames} frames in {seconds:.1} s"));
    }
    let elements: usize =
        plan.blocks[first].ports.inputs.iter().map(fxgraph::PortType::elements).sum();
    let bytes = grown(first, |block| block.bytes_in) + grown(last, |block| block.bytes_out);
    let operations: f64 = blocks.iter().map(|&block| operations_per_input_frame(plan, block)).sum();
    let of_block = |&block: &usize| {
        let (before, after) = (&before.blocks[block], &after.blocks[block]);
        let busy = after.device_busy.saturating_sub(before.device_busy);
        let on_device = plan.blocks[block].device != DeviceName::Cpu;
        (plan.blocks[block].name.clone(), on_device.then(|| busy.as_secs_f64() / frames))
    };
    let kinds = blocks.iter().map(|&block| plan.blocks[block].kind);
    Ok(Measured {
        frames: frames as u64,
        seconds_per_frame: seconds / frames,
        blocks: blocks.iter().map(of_block).collect(),
        loads: loads::loads(plan, &before, &after),
        samples_per_second: frames * elements as f64 / seconds,
        bytes_per_second: bytes / seconds,
        operations_per_second: frames * operations / seconds,
        uses_matrix_units: kinds
            .into_iter()
            .any(|kind| ["correlator", "beamformer"].contains(&kind)),
        state,
    })
}

/// Useful operations per frame of each input.
fn operations_per_input_frame(plan: &Plan, block: usize) -> f64 {
    let block = &plan.blocks[block];
    let samples =
        |ports: &[fxgraph::PortType]| ports.first().map(|port| port.clock.samples_per_frame as f64);
    let (inputs, outputs) = (samples(&block.ports.inputs), samples(&block.ports.outputs));
    let input_frames = inputs.zip(outputs).map_or(1.0, |(input, output)| input / output);
    block.resources.operations_per_frame * input_frames
}
