//! `fxgraph tune`

mod single_block;

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use fxgraph::DeviceName;
use fxgraph::cuda::{Choice, Tunable, Tuning, properties};
use fxgraph::diagnostic::Severity;
use serde_json::{Value, json};
use single_block::{Alone, frame_bytes};
use std::path::PathBuf;

/// Smallest gain for which a launch configuration replaces the default one.
const LEAST_GAIN: f64 = 1.01;

/// Finds the fastest kernel configuration (tile and block sizes) for this GPU, and stores it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every GPU block with several launch configurations runs alone on random frames of its shape, \
                  once per configuration; all configurations must produce the same output. The fastest \
                  ones are stored by GPU, program and shape in `fxgraph/tuning.json` in the user's \
                  configuration directory ($XDG_CONFIG_HOME or ~/.config), or in the file given with \
                  --tuning, and `fxgraph run` uses them. Earlier results in the file are kept. The file can \
                  be copied to another machine with the same GPU."
)]
pub struct Tune {
    #[command(flatten)]
    target: Target,

    /// File to store the results in
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

/// Result for one block.
struct Found {
    block: String,
    tunable: Tunable,
    gpu: String,
    choice: Choice,
    /// Bytes of one frame of its inputs and of the output made of it.
    bytes: f64,
}

impl Tune {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(&self.target, Severity::Warning, terminal)?;
        let path = self.tuning.clone().or_else(Tuning::default_path);
        let path = path.ok_or_else(|| {
            Failure::failed("no configuration directory; give a file with `--tuning`")
        })?;
        let unusable = |error| Failure::because("nothing was stored", &error);
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
            return terminal.results("no block on a GPU has several launch configurations");
        }
        terminal.results(&table(&found, terminal))?;
        terminal.results(&format!("\nstored in {}", path.display()))
    }
}

/// Measures all launch configurations and returns the fastest.
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
        let (_, reference) = *usual.get_or_insert((seconds, made));
        if made != reference {
            let way = tunable.way_text(way);
            return Err(format!("`{}` with {way} produces a different output", tunable.program));
        }
        if seconds < best.0 {
            best = (seconds, way);
        }
    }
    let Some((usual, _)) = usual else {
        return Err("the kernel has no launch configuration".to_owned());
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
        ("default", Align::Right),
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
