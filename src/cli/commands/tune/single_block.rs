//! A block of a plan, run alone on random frames.

use crate::commands::bench::{measure_plan, plan};
use fxgraph::cuda::Tuning;
use fxgraph::flowgraph::{Plan, PlannedBlock, Probe};
use fxgraph::lock::lock;
use fxgraph::runtime::{self, with_causes};
use fxgraph::{Block, BlockError, Io, Next, PortType, Registry};
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Measuring time of each launch configuration.
const TIME: Duration = Duration::from_millis(600);
/// Time limit for a few frames.
const PATIENCE: Duration = Duration::from_mins(1);

/// Bytes of one frame of each input, and of the output frames made of them.
pub fn frame_bytes(block: &PlannedBlock) -> f64 {
    let samples = |port: &PortType| port.clock.samples_per_frame as f64;
    let inputs: usize = block.ports.inputs.iter().map(PortType::frame_bytes).sum();
    let made = |output: &PortType| {
        output.frame_bytes() as f64 * samples(&block.ports.inputs[0]) / samples(output)
    };
    inputs as f64 + block.ports.outputs.iter().map(made).sum::<f64>()
}

/// Flowgraphs that contain the block alone.
pub struct Alone {
    /// With endless sources.
    endless: Plan,
    /// With sources that end after a few frames.
    short: Plan,
}

impl Alone {
    /// Creates the flowgraphs for `block`, on its device and with its parameters.
    pub fn new(block: &PlannedBlock, registry: &Registry) -> Result<Self, String> {
        let (input, output) = (block.ports.inputs.first(), block.ports.outputs.first());
        let samples = |port: Option<&PortType>| port.map_or(1, |port| port.clock.samples_per_frame);
        // Enough for two output frames, and for the start-up of the first one.
        let frames = 2 * samples(output).div_ceil(samples(input)) + 2;
        Ok(Self {
            endless: plan(&flowgraph(block, None), registry)?,
            short: plan(&flowgraph(block, Some(frames)), registry)?,
        })
    }

    /// GPU time per frame in seconds.
    pub fn seconds(&self, tuning: &Tuning) -> Result<f64, String> {
        let measured = measure_plan(&tuned(&self.endless, tuning), &["block"], TIME)?;
        measured
            .device_seconds_per_frame()
            .ok_or_else(|| "the block does not run on a GPU".to_owned())
    }

    /// Hash of the output for a few random frames.
    pub fn made(&self, tuning: &Tuning) -> Result<u64, String> {
        let plan = tuned(&self.short, tuning);
        let block = plan.block("block").ok_or("the block is missing")?;
        let (hash, frames) = (Arc::<Mutex<DefaultHasher>>::default(), Arc::<AtomicU64>::default());
        let reader = Hash { hasher: Arc::clone(&hash), frames: Arc::clone(&frames) };
        let probe = Probe {
            name: "hash".to_owned(),
            source: (block, 0),
            block: Box::new(reader),
            queue: 2,
        };
        let assembly = plan.build_with(vec![probe]).map_err(|error| with_causes(&error))?;
        let running = runtime::start(assembly, runtime::Options::default());
        let running = running.map_err(|error| with_causes(&error))?;
        if !running.wait_timeout(PATIENCE) {
            return Err(format!("the block did not end within {} s", PATIENCE.as_secs()));
        }
        if let Some(failure) = running.wait().failures.first() {
            return Err(failure.to_string());
        }
        if frames.load(Ordering::Relaxed) == 0 {
            return Err("the block made no output of random frames".to_owned());
        }
        Ok(lock(&hash).finish())
    }
}

fn tuned(plan: &Plan, tuning: &Tuning) -> Plan {
    let mut plan = plan.clone();
    plan.tuning = Arc::new(tuning.clone());
    plan
}

/// Text of a flowgraph with `block` between sources, which end after `frames`, and sinks.
fn flowgraph(block: &PlannedBlock, frames: Option<u64>) -> String {
    let inputs: Vec<String> = (0..block.ports.inputs.len()).map(|n| format!("source{n}")).collect();
    let mut text =
        format!("flowgraph: tune\ndevice: {}\nblocks:\n", json!(block.device.to_string()));
    for (seed, (name, port)) in inputs.iter().zip(&block.ports.inputs).enumerate() {
        let parameters = source(port, seed, frames);
        text += &format!("  {name}: {{kind: null_source, parameters: {parameters}}}\n");
    }
    text += &format!(
        "  block: {{kind: {}, implementation: {}, inputs: {}, parameters: {}}}\n",
        block.kind,
        block.implementation,
        json!(inputs),
        *block.parameters
    );
    for name in &block.output_names {
        text += &format!("  {name}_sink: {{kind: null_sink, input: block.{name}}}\n");
    }
    text
}

/// Parameters of a `null_source` of random frames of type `port`.
fn source(port: &PortType, seed: usize, frames: Option<u64>) -> Value {
    let axes = |axes: &[fxgraph::Axis]| -> Vec<Value> {
        axes.iter().map(|axis| json!({"name": axis.name, "len": axis.len})).collect()
    };
    let mut parameters = json!({
        "dtype": port.dtype.to_string(),
        "axes": axes(&port.axes),
        "validity_axes": axes(&port.validity.axes),
        "validity_full": port.validity.full,
        "samples_per_frame": port.clock.samples_per_frame,
        "adc_sample_rate_hz": port.clock.adc_sample_rate_hz,
        "sync_time_seconds": port.clock.sync_time,
        "filter_delay_samples": port.clock.filter_delay_samples,
        "pattern": "random",
        "seed": seed,
    });
    if let Some(band) = &port.band {
        parameters["band"] = json!({
            "channels": band.channels,
            "first_channel": band.first_channel,
            "centre_hz": band.centre_hz,
            "bandwidth_hz": band.signed_bandwidth_hz(),
        });
    }
    if let Some(frames) = frames {
        parameters["frames"] = json!(frames);
    }
    parameters
}

/// Block that hashes the frames it reads.
struct Hash {
    hasher: Arc<Mutex<DefaultHasher>>,
    frames: Arc<AtomicU64>,
}

impl Block for Hash {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(frame) = io.inputs[0].pop() else {
            return Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait });
        };
        let mut hash = lock(&self.hasher);
        hash.write_u64(frame.header().timestamp);
        frame.header().validity.iter().for_each(|count| hash.write_u32(*count));
        hash.write(frame.as_slice::<u8>()?);
        self.frames.fetch_add(1, Ordering::Relaxed);
        Ok(Next::Again)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::flowgraph::registry;
    use fxgraph::DeviceName;

    #[test]
    fn tunable_blocks_run_alone_with_the_same_ports() {
        let registry = registry();
        let mut kinds = Vec::new();
        // The check of a `kernel` needs NVRTC, that of `python` NumPy.
        let examples = registry.examples(DeviceName::Cuda(0)).into_iter();
        for example in examples.filter(|example| !["kernel", "python"].contains(&example.kind)) {
            let whole = plan(&example.flowgraph, &registry).unwrap();
            for block in &whole.blocks {
                let tunable = block.configured.tunable();
                let Some(tunable) = tunable else { continue };
                let alone = Alone::new(block, &registry).unwrap();
                for plan in [&alone.endless, &alone.short] {
                    let found = &plan.blocks[plan.block("block").unwrap()];
                    assert_eq!(found.ports.outputs, block.ports.outputs, "{}", block.name);
                    let again = found.configured.tunable();
                    assert_eq!(again.as_ref(), Some(&tunable), "{}", block.name);
                }
                assert!(frame_bytes(block) > 0.0);
                kinds.push(block.kind);
            }
        }
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds, ["antenna_stack", "beamformer", "ddc", "pfb", "postproc", "transpose"]);
    }
}
