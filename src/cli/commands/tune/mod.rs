//! `fxgraph tune`

mod gain;
mod single_block;

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use crate::units;
use fxgraph::DeviceName;
use fxgraph::cuda::{Choice, Tunable, Tuning, properties};
use fxgraph::diagnostic::Severity;
use gain::{Contest, contest};
use serde_json::{Value, json};
use single_block::{Alone, frame_bytes};
use std::path::PathBuf;

/// Finds the fastest kernel configuration (tile and block sizes) for this GPU, and stores it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every GPU block with several launch configurations runs alone on random frames of its shape, \
                  once per configuration; all configurations must produce the same output. The default and the \
                  fastest other configuration are then measured in turn, nine times each; the other one is \
                  chosen if it gains at least 1 % and more than the measurements scatter. The chosen \
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
    contest: Contest,
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
            let contest = if let Some(known) = known {
                known.contest.clone()
            } else {
                let alone = Alone::new(block, &registry).map_err(failed)?;
                choose(&alone, &gpu, &tunable).map_err(failed)?
            };
            let choice = choice(&tunable, &contest);
            tuning.set(&gpu, &tunable, choice.clone());
            let bytes = frame_bytes(block);
            found.push(Found { block: block.name.clone(), tunable, gpu, contest, choice, bytes });
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

/// Launch configurations of `tunable`, measured against each other. All must produce the same output.
fn choose(alone: &Alone, gpu: &str, tunable: &Tunable) -> Result<Contest, String> {
    let tuning = |way: usize| {
        let mut tuning = Tuning::default();
        let geometry = tunable.way_text(way);
        let choice = Choice { geometry, microseconds: 0.0, usual_microseconds: 0.0 };
        tuning.set(gpu, tunable, choice);
        tuning
    };
    if tunable.ways.is_empty() {
        return Err("the kernel has no launch configuration".to_owned());
    }
    let reference = alone.made(&tuning(0))?;
    for way in 1..tunable.ways.len() {
        if alone.made(&tuning(way))? != reference {
            let way = tunable.way_text(way);
            return Err(format!("`{}` with {way} produces a different output", tunable.program));
        }
    }
    contest(tunable.ways.len(), |way| alone.seconds(&tuning(way)))
}

fn choice(tunable: &Tunable, contest: &Contest) -> Choice {
    Choice {
        geometry: tunable.way_text(contest.chosen()),
        microseconds: rounded(contest.chosen_seconds() * 1e6),
        usual_microseconds: rounded(contest.default_seconds * 1e6),
    }
}

fn rounded(microseconds: f64) -> f64 {
    (microseconds * 1000.0).round() / 1000.0
}

impl Found {
    fn json(&self) -> Value {
        json!({
            "block": self.block,
            "gpu": self.gpu,
            "program": self.tunable.program,
            "shape": self.tunable.shape_text(),
            "chosen": self.choice,
            "bytes": self.bytes,
            "gain": self.contest.gain(),
            "fastest_other": {
                "geometry": self.tunable.way_text(self.contest.other),
                "gain": self.contest.ratio,
                "gain_interval": self.contest.interval,
            },
        })
    }
}

fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

/// Gain of the fastest other configuration, with its interval.
fn gain_text(contest: &Contest) -> String {
    let [low, high] = contest.interval.map(percent);
    format!("{:.1} % ({low:.1} to {high:.1} %)", percent(contest.ratio))
}

fn table(all: &[Found], terminal: &Terminal) -> String {
    let columns = [
        ("block", Align::Left),
        ("program", Align::Left),
        ("chosen", Align::Left),
        ("read and written", Align::Right),
        ("default", Align::Right),
        ("gain", Align::Right),
        ("fastest other", Align::Left),
        ("its gain", Align::Right),
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
            format!("{:.1} %", percent(found.contest.gain())),
            found.tunable.way_text(found.contest.other),
            gain_text(&found.contest),
        ]);
    }
    table.finish()
}
