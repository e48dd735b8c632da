//! `fxgraph tune`

use super::bench::device_seconds;
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use fxgraph::cuda::{Arg, Choice, Device, DeviceArray, Grid, Tunable, Tuning, Way};
use fxgraph::diagnostic::Severity;
use fxgraph::{BlockError, DeviceName};
use fxgraph_blocks::gpu;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// Launches of one measurement take about this long.
const SECONDS: f64 = 2e-3;
const MOST_LAUNCHES: usize = 1000;
/// Arrays of one size are used in turns, until they are so many times what the GPU's cache holds.
const CACHES: usize = 4;
const MOST_TURNS: usize = 64;
/// A way that gains less than this is not worth another than the usual one.
const LEAST_GAIN: f64 = 1.01;

/// Measures how the GPU kernels of a flowgraph are cut best, and keeps the results
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every block on a GPU whose kernel can be cut in several ways is measured with each of \
                  them, for its shape. The results go into a file, by GPU, program and shape, where \
                  runs look for them: `fxgraph/tuning.json` in the user's folder for configuration \
                  ($XDG_CONFIG_HOME, or ~/.config), unless --tuning says where. What was measured \
                  before stays in it; it may be taken to another machine with such a GPU."
)]
pub struct Tune {
    #[command(flatten)]
    target: Target,

    /// File for the results
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

/// What was found for one block.
struct Found {
    block: String,
    tunable: Tunable,
    gpu: String,
    choice: Choice,
}

impl Tune {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(&self.target, Severity::Warning, terminal)?;
        let path = self.tuning.clone().or_else(Tuning::default_path);
        let path =
            path.ok_or_else(|| Failure::failed("say with --tuning where to keep results"))?;
        let unusable = |error| Failure::because("nothing was kept", &error);
        let mut tuning = Tuning::read(&path).map_err(unusable)?.unwrap_or_default();
        let mut found: Vec<Found> = Vec::new();
        for block in &plan.blocks {
            let tunable = block.configured.tunable(&block.ports, block.implementation);
            let (DeviceName::Cuda(ordinal), Some(tunable)) = (block.device, tunable) else {
                continue;
            };
            let failed = |error: BlockError| Failure::because(&format!("`{}`", block.name), &error);
            let device = Device::open(ordinal).map_err(|error| failed(error.into()))?;
            let gpu = device.properties().name.clone();
            let known = found.iter().find(|found| (&found.gpu, &found.tunable) == (&gpu, &tunable));
            let choice = match known {
                Some(known) => known.choice.clone(),
                None => choose(&device, &tunable).map_err(failed)?,
            };
            tuning.set(&gpu, &tunable, choice.clone());
            found.push(Found { block: block.name.clone(), tunable, gpu, choice });
        }
        if !found.is_empty() {
            tuning.write(&path).map_err(unusable)?;
        }
        if self.json {
            let all: Vec<Value> = found.iter().map(Found::json).collect();
            return terminal.json(&json!({ "file": path, "kernels": all }));
        }
        if found.is_empty() {
            return terminal
                .results("no block on a GPU has a kernel that can be cut in several ways");
        }
        terminal.results(&table(&found, terminal))?;
        terminal.results(&format!("\nkept in {}", path.display()))
    }
}

/// Measures all ways.
fn choose(device: &Arc<Device>, tunable: &Tunable) -> Result<Choice, BlockError> {
    let arrays = Arrays::new(device, tunable)?;
    let mut definition: Option<Vec<Vec<u8>>> = None;
    let mut times = Vec::new();
    for way in &tunable.ways {
        let (seconds, results) = measure(device, tunable, way, &arrays)?;
        let same = definition.get_or_insert_with(|| results.clone()) == &results;
        if !same {
            let text = format!("{} computes something else with {}", tunable.program, way.text());
            return Err(BlockError::new(text));
        }
        times.push((seconds, way));
    }
    let usual = times.first().map(|(seconds, _)| *seconds);
    let best = times.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(usual), Some(&(seconds, way))) = (usual, best) else {
        return Err(BlockError::new("the kernel offers no way to launch it"));
    };
    let (seconds, way) = match tunable.ways.first() {
        Some(first) if usual < seconds * LEAST_GAIN => (usual, first),
        _ => (seconds, way),
    };
    Ok(Choice {
        geometry: way.text(),
        microseconds: rounded(seconds * 1e6),
        usual_microseconds: rounded(usual * 1e6),
    })
}

fn rounded(microseconds: f64) -> f64 {
    (microseconds * 1000.0).round() / 1000.0
}

/// Arguments of a kernel, several times over so that caches do not help.
struct Arrays {
    turns: Vec<Vec<DeviceArray<u8>>>,
    inputs: usize,
}

impl Arrays {
    fn new(device: &Arc<Device>, tunable: &Tunable) -> Result<Self, BlockError> {
        let bytes: usize = tunable.inputs.iter().chain(&tunable.outputs).sum();
        let turns = (CACHES * device.properties().l2_bytes).div_ceil(bytes.max(1));
        let turn = || {
            let inputs = tunable.inputs.iter().map(|&bytes| noise(device, bytes));
            let outputs = tunable.outputs.iter().map(|&bytes| Ok(DeviceArray::new(device, bytes)?));
            inputs.chain(outputs).collect::<Result<Vec<_>, BlockError>>()
        };
        let turns = (0..turns.clamp(1, MOST_TURNS)).map(|_| turn()).collect::<Result<_, _>>()?;
        Ok(Self { turns, inputs: tunable.inputs.len() })
    }

    fn results(&self) -> Result<Vec<Vec<u8>>, BlockError> {
        self.turns[0][self.inputs..].iter().map(|array| Ok(array.read()?)).collect()
    }
}

/// An array of bytes without a pattern: the power that a GPU takes depends on its data.
fn noise(device: &Arc<Device>, bytes: usize) -> Result<DeviceArray<u8>, BlockError> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<u64> = (0..bytes.div_ceil(8)).map(|_| next()).collect();
    let all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).collect();
    Ok(DeviceArray::from_slice(device, &all)?)
}

/// Seconds of a launch, and what it wrote.
fn measure(
    device: &Arc<Device>,
    tunable: &Tunable,
    way: &Way,
    arrays: &Arrays,
) -> Result<(f64, Vec<Vec<u8>>), BlockError> {
    let program = gpu::program(device, tunable.program, tunable.defines(way))?;
    let mut kernel = program.kernel(tunable.kernel, way.shared_bytes)?;
    let grid = Grid::new([way.blocks, 1, 1], way.threads);
    let arguments: Vec<Vec<Arg<'_>>> = arrays
        .turns
        .iter()
        .map(|turn| turn.iter().map(|array| array.address().into()).collect())
        .collect();
    for output in &arrays.turns[0][arrays.inputs..] {
        device_seconds(device, |lane| {
            // SAFETY: the array's own bytes; it outlives the job.
            #[allow(unsafe_code, reason = "device memory is cleared by address")]
            unsafe {
                lane.clear(output.address(), output.bytes())
            }
        })?;
    }
    let mut seconds = |launches: usize| {
        device_seconds(device, |lane| {
            for arguments in arguments.iter().cycle().take(launches) {
                // SAFETY: the arrays that the block says its kernel takes, which outlive the job.
                #[allow(unsafe_code, reason = "a launch")]
                unsafe {
                    kernel.launch(lane.stream(), grid, arguments)?;
                }
            }
            Ok(())
        })
    };
    let launches = ((SECONDS / seconds(1)?.max(1e-9)) as usize).clamp(1, MOST_LAUNCHES);
    let seconds = seconds(launches)? / launches as f64;
    Ok((seconds, arrays.results()?))
}

impl Found {
    fn bytes(&self) -> f64 {
        self.tunable.inputs.iter().chain(&self.tunable.outputs).sum::<usize>() as f64
    }

    fn gain(&self) -> f64 {
        self.choice.usual_microseconds / self.choice.microseconds
    }

    fn json(&self) -> Value {
        json!({
            "block": self.block,
            "gpu": self.gpu,
            "program": self.tunable.program,
            "shape": self.tunable.shape_text(),
            "chosen": self.choice,
            "bytes": self.bytes(),
            "gain": self.gain(),
        })
    }
}

fn table(all: &[Found], terminal: &Terminal) -> String {
    let columns = [
        ("block", Align::Left),
        ("program", Align::Left),
        ("chosen", Align::Left),
        ("read and written", Align::Right),
        ("usual", Align::Right),
        ("gain", Align::Right),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for found in all {
        let rate = |microseconds: f64| units::scaled(found.bytes() / microseconds * 1e6, "B/s");
        table.row([
            found.block.clone(),
            found.tunable.program.to_owned(),
            found.choice.geometry.clone(),
            rate(found.choice.microseconds),
            rate(found.choice.usual_microseconds),
            format!("{:.1} %", 100.0 * (found.gain() - 1.0)),
        ]);
    }
    table.finish()
}
