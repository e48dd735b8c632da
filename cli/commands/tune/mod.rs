//! `fxgraph tune`

mod alone;

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use alone::{Alone, frame_bytes};
use fxgraph::DeviceName;
use fxgraph::cuda::{Choice, Tunable, Tuning, properties};
use fxgraph::diagnostic::Severity;
use serde_json::{Value, json};
use std::path::PathBuf;

/// A way that gains less than this is not worth another than the usual one.
const LEAST_GAIN: f64 = 1.01;

/// Measures how the GPU kernels of a flowgraph are cut best, and keeps the results
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every block on a GPU whose kernel can be cut in several ways is run with each of them, \
                  alone, on random frames of its shape; they must all make the same. The results go into a file, by GPU, program and shape, where \
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
    /// Of a frame of its first input, and what is made of it.
    bytes: f64,
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
        let registry = flowgraph::registry();
        for block in &plan.blocks {
            let tunable = block.configured.tunable();
            let (DeviceName::Cuda(ordinal), Some(tunable)) = (block.device, tunable) else {
                continue;
            };
            let failed = |error: String| Failure::failed(format!("`{}`: {error}", block.name));
            let gpu = properties(ordinal).map_err(|error| failed(error.to_string()))?.name;
            let known = found.iter().find(|found| (&found.gpu, &found.tunable) == (&gpu, &tunable));
            let choice = if let Some(known) = known {
                known.choice.clone()
            } else {
                let alone = Alone::new(block, &registry).map_err(failed)?;
                choose(&alone, &gpu, &tunable).map_err(failed)?
            };
            tuning.set(&gpu, &tunable, choice.clone());
            let bytes = frame_bytes(block);
            found.push(Found { block: block.name.clone(), tunable, gpu, choice, bytes });
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
fn choose(alone: &Alone, gpu: &str, tunable: &Tunable) -> Result<Choice, String> {
    let mut usual: Option<(f64, u64)> = None;
    let mut best = (f64::INFINITY, 0);
    for way in 0..tunable.ways.len() {
        let mut tuning = Tuning::default();
        let geometry = tunable.way_text(way);
        let choice = Choice { geometry, microseconds: 0.0, usual_microseconds: 0.0 };
        tuning.set(gpu, tunable, choice);
        let made = alone.made(&tuning)?;
        let seconds = alone.seconds(&tuning)?;
        let (_, definition) = *usual.get_or_insert((seconds, made));
        if made != definition {
            let way = tunable.way_text(way);
            return Err(format!("{} makes something else with {way}", tunable.program));
        }
        if seconds < best.0 {
            best = (seconds, way);
        }
    }
    let Some((usual, _)) = usual else {
        return Err("the kernel offers no way to launch it".to_owned());
    };
    let (seconds, way) = if usual < best.0 * LEAST_GAIN { (usual, 0) } else { best };
    Ok(Choice {
        geometry: tunable.way_text(way),
        microseconds: rounded(seconds * 1e6),
        usual_microseconds: rounded(usual * 1e6),
    })
}

fn rounded(microseconds: f64) -> f64 {
    (microseconds * 1000.0).round() / 1000.0
}

impl Found {
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
            "bytes": self.bytes,
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
        let rate = |microseconds: f64| units::scaled(found.bytes / microseconds * 1e6, "B/s");
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
