//! `fxgraph bench`

mod loads;
mod measure;
mod peaks;

use crate::BUILD;
use crate::failure::{Failure, judge, refuse_none};
use crate::flowgraph::{self, Target};
use crate::kernel_folder;
use crate::signals::Signals;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::diagnostic::Severity;
use fxgraph::examples::Benchmark;
use fxgraph::flowgraph::Setting;
use fxgraph::{DeviceName, Registry};
use measure::Measured;
use peaks::Peaks;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Measures blocks and flowgraphs on this machine
///
/// Without FILE it measures the benchmarks of all kinds. With FILE it runs this flowgraph at the rate of its sources and
/// measures the load of its blocks. `fxgraph plan --bench` reads the JSON of both.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns:
  time/frame    time per frame in the running flowgraph
  GPU/frame     time from the first to the last kernel of a frame
  overhead      fraction of time/frame outside GPU/frame
  samples/s     elements at all inputs
  of copy rate  bytes read and written per second, as a fraction of the rate of a memory copy
  operations/s  operations that the algorithm needs
  of peak       fraction of the peak rate of the matrix units")]
pub struct Bench {
    /// Flowgraph file, or `example:NAME`
    file: Option<PathBuf>,

    /// Sets a parameter of the flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = flowgraph::parse_setting, requires = "file")]
    set: Vec<Setting>,

    /// Device to run on: cpu, cuda:0, ...
    #[arg(
        long, value_name = "DEVICE", default_value = "cpu", value_parser = parse_device,
        conflicts_with = "file"
    )]
    device: DeviceName,

    /// Runs only benchmarks whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    only: Option<String>,

    /// Time to measure each benchmark, after a warm-up of a third of that
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1500ms")]
    time: Duration,

    /// Directory with edited GPU kernels, which replace the built-in ones of the same file name
    #[arg(long, value_name = "DIR", value_parser = kernel_folder::parse, conflicts_with = "file")]
    kernels: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

fn parse_device(text: &str) -> Result<DeviceName, String> {
    DeviceName::parse(text).ok_or_else(|| "give a device like `cpu` or `cuda:0`".to_owned())
}

pub use measure::{measure_plan, messages, plan};

impl Bench {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        if let Some(file) = self.file.clone() {
            let target = Target { file, set: self.set.clone() };
            return self.flowgraph(&target, terminal);
        }
        let registry = flowgraph::registry();
        let is_chosen = |benchmark: &Benchmark| {
            self.only.as_ref().is_none_or(|only| benchmark.name.contains(only.as_str()))
        };
        let chosen: Vec<Benchmark> = registry
            .iter()
            .flat_map(|kind| (kind.benchmarks)(self.device))
            .filter(is_chosen)
            .collect();
        refuse_none(chosen.len(), "benchmark", self.only.as_deref())?;
        let peaks = Peaks::measure(self.device).map_err(Failure::failed)?;
        let machine = peaks.machine();
        if !self.json {
            terminal.results(&terminal.paint(Paint::Bold, &format!("{machine}, {BUILD}")))?;
            terminal.results(&format!("{}\n", peaks.text()))?;
        }
        let signals = Signals::count()?;
        let mut results = Vec::new();
        for benchmark in chosen {
            if signals.look() > 0 {
                break;
            }
            if let Some(line) = terminal.progress() {
                line.0.set_message(benchmark.name.clone());
            }
            let measured = self.measure(&benchmark, &registry);
            results.push((benchmark.name, measured));
        }
        let bad = results.iter().any(|(_, result)| result.is_err());
        let written = if self.json {
            let all: Vec<Value> =
                results.iter().map(|(name, result)| as_json(name, result, &peaks)).collect();
            terminal.json(&json!({
                "machine": machine,
                "build": BUILD,
                "peaks": peaks.json(),
                "results": all,
            }))
        } else {
            terminal.results(&as_text(&results, &peaks, terminal))
        };
        let verdict = match (signals.look() > 0, bad) {
            (true, _) => Err(Failure::Interrupted),
            (false, true) => Err(Failure::Shown),
            (false, false) => Ok(()),
        };
        judge(verdict, written, terminal)
    }

    /// Measures the blocks of a flowgraph of the user.
    fn flowgraph(&self, target: &Target, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(target, Severity::Error, terminal)?;
        let loads = loads::run(&plan, self.time).map_err(Failure::failed)?;
        let devices = plan.memory().devices();
        let device = devices.last().copied().unwrap_or(DeviceName::Cpu);
        let machine = Peaks::measure(device).map_err(Failure::failed)?.machine();
        if self.json {
            return terminal.json(&json!({
                "machine": machine,
                "build": BUILD,
                "flowgraph": plan.name,
                "results": [{ "benchmark": plan.name, "loads": loads }],
            }));
        }
        let columns = [
            ("kind", Align::Left),
            ("implementation", Align::Left),
            ("cores", Align::Right),
            ("GPU", Align::Right),
        ];
        let mut table = Table::new(terminal.coloured_results, &columns);
        for load in &loads {
            table.row([
                load.kind.clone(),
                load.implementation.clone(),
                units::three_digits(load.load.cores),
                units::three_digits(load.load.gpu),
            ]);
        }
        let title = terminal.paint(Paint::Bold, &format!("{machine}, {BUILD}"));
        let text = table.finish();
        terminal.results(&format!("{title}\nper second of signal, in seconds:\n\n{text}"))
    }

    fn measure(&self, benchmark: &Benchmark, registry: &Registry) -> Result<Measured, String> {
        let mut plan = plan(&benchmark.flowgraph, registry)?;
        plan.kernel_folder.clone_from(&self.kernels);
        measure_plan(&plan, benchmark.blocks, self.time)
    }
}

type Results = [(String, Result<Measured, String>)];

fn as_text(results: &Results, peaks: &Peaks, terminal: &Terminal) -> String {
    let mut table = Table::new(
        terminal.coloured_results,
        &[
            ("benchmark", Align::Left),
            ("time/frame", Align::Right),
            ("GPU/frame", Align::Right),
            ("overhead", Align::Right),
            ("samples/s", Align::Right),
            ("of copy rate", Align::Right),
            ("operations/s", Align::Right),
            ("of peak", Align::Right),
        ],
    );
    let milliseconds = |seconds: f64| format!("{:.4} ms", 1e3 * seconds);
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "-".to_owned(),
    };
    let mut errors = String::new();
    for (name, result) in results {
        match result {
            Ok(measured) => {
                table.row([
                    name.clone(),
                    milliseconds(measured.seconds_per_frame),
                    measured.device_seconds_per_frame().map_or("-".to_owned(), milliseconds),
                    percent(measured.loss()),
                    units::scaled(measured.samples_per_second, "S/s"),
                    percent(Some(peaks.share_of_copy(measured.bytes_per_second))),
                    units::scaled(measured.operations_per_second, "op/s"),
                    percent(peaks.share_of_matrix(measured)),
                ]);
                if measured.blocks.len() > 1 {
                    for (block, seconds) in &measured.blocks {
                        let seconds = seconds.map_or("-".to_owned(), milliseconds);
                        table.row([format!("  {block}"), String::new(), seconds]);
                    }
                }
            }
            Err(error) => {
                errors.push_str(&format!("\n{}: {error}\n", terminal.paint(Paint::Bad, name)));
            }
        }
    }
    format!("{}{errors}", table.finish())
}

fn as_json(name: &str, result: &Result<Measured, String>, peaks: &Peaks) -> Value {
    match result {
        Err(error) => json!({ "benchmark": name, "error": error }),
        Ok(measured) => json!({
            "benchmark": name,
            "frames": measured.frames,
            "seconds_per_frame": measured.seconds_per_frame,
            "device_seconds_per_frame": measured.device_seconds_per_frame(),
            "loss": measured.loss(),
            "samples_per_second": measured.samples_per_second,
            "bytes_per_second": measured.bytes_per_second,
            "share_of_copy": peaks.share_of_copy(measured.bytes_per_second),
            "operations_per_second": measured.operations_per_second,
            "share_of_matrix_peak": peaks.share_of_matrix(measured),
            "loads": measured.loads,
            "blocks": measured.blocks.iter().map(|(block, seconds)| {
                json!({ "block": block, "device_seconds_per_frame": seconds })
            }).collect::<Vec<_>>(),
        }),
    }
}
