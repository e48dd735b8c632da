//! One benchmark: a flowgraph, run for a while and looked at twice.

use fxgraph::diagnostic::Diagnostic;
use fxgraph::flowgraph::{Plan, load_text};
use fxgraph::runtime::{self, BlockStats, with_causes};
use fxgraph::{DeviceName, Registry};
use std::time::{Duration, Instant};

/// Time to begin with the first frame, which may mean compiling kernels.
const PATIENCE: Duration = Duration::from_mins(1);

/// What came of it.
pub struct Measured {
    /// Frames that the first block took at each input.
    pub frames: u64,
    pub seconds_per_frame: f64,
    /// For each measured block, the time that a GPU spent on a frame.
    pub blocks: Vec<(String, Option<f64>)>,
    /// Elements of all inputs of the first block.
    pub samples_per_second: f64,
    /// Into the first block and out of the last.
    pub bytes_per_second: f64,
    pub operations_per_second: f64,
    /// Whether the operations are of the sort that matrix units do.
    pub uses_matrix_units: bool,
}

impl Measured {
    /// Time that a GPU spends on a frame, all blocks together.
    pub fn device_seconds_per_frame(&self) -> Option<f64> {
        self.blocks.iter().map(|(_, seconds)| *seconds).sum()
    }

    /// What the flowgraph adds to the time of its one block. Of several blocks, whose kernels share
    /// the GPU, the times tell nothing about it.
    pub fn loss(&self) -> Option<f64> {
        let device = self.device_seconds_per_frame()?;
        (self.blocks.len() == 1).then(|| 1.0 - device / self.seconds_per_frame)
    }
}

/// What is in this text.
pub fn plan(flowgraph: &str, registry: &Registry) -> Result<Plan, String> {
    let loaded = load_text("flowgraph.yaml", flowgraph, &[], registry);
    loaded.result.map_err(|problems| messages(&problems))
}

/// What is wrong, on one line.
pub fn messages(problems: &[Diagnostic]) -> String {
    let messages: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
    messages.join("; ")
}

/// Runs `plan`, whose sources go on for ever, for `time` and looks at these blocks, in the order in
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
    // Sources fill each of their buffers before they are at full speed.
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
    let (before, start) = (running.stats(), Instant::now());
    let ended_early = ended_early || running.wait_timeout(time);
    let (after, seconds) = (running.stats(), start.elapsed().as_secs_f64());
    running.abort();
    let report = running.wait();
    if let Some(failure) = report.failures.first() {
        return Err(failure.to_string());
    }
    if ended_early {
        return Err("it ended by itself".to_owned());
    }
    let grown = |block: usize, figure: fn(&BlockStats) -> u64| {
        figure(&after[block]).saturating_sub(figure(&before[block])) as f64
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
        let busy = after[block].device_busy.saturating_sub(before[block].device_busy);
        let on_device = plan.blocks[block].device != DeviceName::Cpu;
        (plan.blocks[block].name.clone(), on_device.then(|| busy.as_secs_f64() / frames))
    };
    let kinds = blocks.iter().map(|&block| plan.blocks[block].kind);
    Ok(Measured {
        frames: frames as u64,
        seconds_per_frame: seconds / frames,
        blocks: blocks.iter().map(of_block).collect(),
        samples_per_second: frames * elements as f64 / seconds,
        bytes_per_second: bytes / seconds,
        operations_per_second: frames * operations / seconds,
        uses_matrix_units: kinds
            .into_iter()
            .any(|kind| ["correlator", "beamformer"].contains(&kind)),
    })
}

/// Useful operations that a frame of each input asks for.
fn operations_per_input_frame(plan: &Plan, block: usize) -> f64 {
    let block = &plan.blocks[block];
    let samples =
        |ports: &[fxgraph::PortType]| ports.first().map(|port| port.clock.samples_per_frame as f64);
    let (inputs, outputs) = (samples(&block.ports.inputs), samples(&block.ports.outputs));
    let input_frames = inputs.zip(outputs).map_or(1.0, |(input, output)| input / output);
    block.resources.operations_per_frame * input_frames
}
