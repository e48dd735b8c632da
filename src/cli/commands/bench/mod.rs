//! `fxgraph bench`

mod loads;
mod measure;
mod network;
mod peaks;
mod spread;
mod state;

use crate::BUILD;
use crate::failure::{Failure, judge, reject_none};
use crate::flowgraph::{self, Target};
use crate::kernel_directory;
use crate::signals::Signals;
use crate::table::{Align, Table, width};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::diagnostic::Severity;
use fxgraph::examples::Benchmark;
use fxgraph::flowgraph::Setting;
use fxgraph::{DeviceName, Registry};
use peaks::Peaks;
use serde_json::{Value, json};
use spread::{Runs, Spread};
use state::State;
use std::path::PathBuf;
use std::time::Duration;

/// Measures blocks and flowgraphs on this machine
///
/// Without FILE it measures the benchmarks of all kinds. With FILE it runs this flowgraph at the rate of its sources and
/// measures the load of its blocks. `fxgraph plan --bench` reads the JSON of both.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns:
  time/frame    time per frame in the running flowgraph, median of all runs
  spread        difference of the slowest and fastest run, as a fraction of the median
  GPU/frame     time from the first to the last kernel of a frame
  overhead      fraction of time/frame outside GPU/frame
  samples/s     elements at all inputs
  of copy rate  bytes read and written per second, as a fraction of the rate of a memory copy
  operations/s  operations that the algorithm needs
  of peak       fraction of the peak rate of the matrix units

Columns with --network:
  rate, sent    samples per second of each polarisation: requested, and sent
  missing       heaps of spectra that did not arrive, as a fraction of those expected
  p50 ...       latency from the sending of the last sample that a heap of spectra needs to the
                arrival of the heap's last packet
  cores         cores that the threads of the flowgraph use")]
pub struct Bench {
    /// Flowgraph file, or `example:NAME`
    file: Option<PathBuf>,

    /// Sets a parameter of the flowgraph, such as `channels=1024`; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = flowgraph::parse_setting)]
    set: Vec<Setting>,

    /// Device to run on: cpu, cuda:0, ...; `cpu` by default. FILE names its devices itself, except with --network
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Option<DeviceName>,

    /// Runs only benchmarks whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    only: Option<String>,

    /// Runs of each benchmark; each run starts the flowgraph again
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_runs)]
    runs: usize,

    /// Time to measure in each run, after a warm-up of a third of that
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1500ms")]
    time: Duration,

    /// Directory with edited GPU kernels, which replace the built-in ones of the same file name
    #[arg(long, value_name = "DIR", value_parser = kernel_directory::parse)]
    kernels: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    network: network::Options,
}

fn parse_device(text: &str) -> Result<DeviceName, String> {
    DeviceName::parse(text).ok_or_else(|| "give a device like `cpu` or `cuda:0`".to_owned())
}

fn parse_runs(text: &str) -> Result<usize, String> {
    let runs = text.parse().ok().filter(|runs| (1..=1000).contains(runs));
    runs.ok_or_else(|| "the number of runs must be between 1 and 1000".to_owned())
}

pub use measure::{measure_plan, messages, plan};

impl Bench {
    pub fn execute(mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        let (device, set) = (self.device.unwrap_or(DeviceName::Cpu), std::mem::take(&mut self.set));
        if self.network.network {
            (self.network.flowgraph, self.network.set) = (self.file.take(), set);
            return self.network.execute(device, self.kernels.as_ref(), self.json, terminal);
        }
        if let Some(file) = self.file.take() {
            if self.device.is_some() {
                return Err(Failure::failed(
                    "with FILE, the flowgraph names the device: leave --device out",
                ));
            }
            return self.flowgraph(&Target { file, set }, terminal);
        }
        if !set.is_empty() {
            return Err(Failure::failed("--set needs FILE, or --network"));
        }
        let registry = flowgraph::registry();
        let is_chosen = |benchmark: &Benchmark| {
            self.only.as_ref().is_none_or(|only| benchmark.name.contains(only.as_str()))
        };
        let chosen: Vec<Benchmark> =
            registry.iter().flat_map(|kind| (kind.benchmarks)(device)).filter(is_chosen).collect();
        reject_none(chosen.len(), "benchmark", self.only.as_deref())?;
        let peaks = Peaks::measure(device).map_err(Failure::failed)?;
        let machine = peaks.machine();
        let state = State::read(device);
        if !self.json {
            terminal.results(&terminal.paint(Paint::Bold, &format!("{machine}, {BUILD}")))?;
            if !state.text().is_empty() {
                terminal.results(&state.text())?;
            }
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
            let measured = self.measure(&benchmark, &registry, &signals);
            results.push((benchmark.name, measured));
        }
        let bad = results.iter().any(|(_, result)| result.is_err());
        let written = if self.json {
            let all: Vec<Value> =
                results.iter().map(|(name, result)| as_json(name, result, &peaks)).collect();
            terminal.json(&json!({
                "machine": machine,
                "build": BUILD,
                "state": state.json(),
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
        let mut plan = flowgraph::plan(target, Severity::Error, terminal)?;
        plan.kernel_directory.clone_from(&self.kernels);
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

    fn measure(
        &self,
        benchmark: &Benchmark,
        registry: &Registry,
        signals: &Signals,
    ) -> Result<Runs, String> {
        let mut plan = plan(&benchmark.flowgraph, registry)?;
        plan.kernel_directory.clone_from(&self.kernels);
        let run = || measure_plan(&plan, benchmark.blocks, self.time);
        Runs::measure(self.runs, || signals.look() > 0, run)
    }
}

type Results = [(String, Result<Runs, String>)];

/// Columns of a terminal in which a benchmark takes one line.
const WIDE: u16 = 140;

fn as_text(results: &Results, peaks: &Peaks, terminal: &Terminal) -> String {
    // In a pipe every benchmark is one line.
    let is_wide = width().is_none_or(|columns| columns >= WIDE);
    table(results, peaks, terminal, is_wide)
}

/// Returns the results as a table. On a narrow terminal the name of a benchmark is a line of its own, the
/// overhead is left out, and a line has less than 80 columns.
fn table(results: &Results, peaks: &Peaks, terminal: &Terminal, is_wide: bool) -> String {
    let mut columns = vec![("", Align::Left)];
    if is_wide {
        columns[0].0 = "benchmark";
    }
    columns.extend([("time/frame", Align::Right), ("spread", Align::Right)]);
    columns.push(("GPU/frame", Align::Right));
    if is_wide {
        columns.push(("overhead", Align::Right));
    }
    columns.push(("samples/s", Align::Right));
    columns.push((if is_wide { "of copy rate" } else { "of copy" }, Align::Right));
    columns.push((if is_wide { "operations/s" } else { "op/s" }, Align::Right));
    columns.push(("of peak", Align::Right));
    let mut table = Table::new(terminal.coloured_results, &columns);
    let milliseconds = |seconds: f64| format!("{:.4} ms", 1e3 * seconds);
    let percent = |share: Option<f64>| match share {
        Some(share) => format!("{:.1} %", 100.0 * share),
        None => "-".to_owned(),
    };
    let (mut names, mut errors) = (Vec::new(), String::new());
    for (name, result) in results {
        let runs = match result {
            Ok(runs) => runs,
            Err(error) => {
                errors.push_str(&format!("\n{}: {error}\n", terminal.paint(Paint::Bad, name)));
                continue;
            }
        };
        let (frame, device, run) =
            (runs.seconds_per_frame(), runs.device_seconds_per_frame(), runs.median());
        // A single run has no spread.
        let spread = (runs.count() > 1).then(|| frame.fraction());
        let mut cells = vec![
            if is_wide { name.clone() } else { String::new() },
            milliseconds(frame.median),
            percent(spread),
            device.map_or("-".to_owned(), |device| milliseconds(device.median)),
        ];
        if is_wide {
            cells.push(percent(run.loss()));
        }
        cells.extend([
            units::scaled(run.samples_per_second, "S/s"),
            percent(Some(peaks.share_of_copy(run.bytes_per_second))),
            units::scaled(run.operations_per_second, "op/s"),
            percent(peaks.share_of_matrix(run)),
        ]);
        table.row(cells);
        names.push(Some(name));
        for (block, seconds) in run.blocks.iter().filter(|_| run.blocks.len() > 1) {
            let seconds = seconds.map_or("-".to_owned(), milliseconds);
            let block = format!("  {block}");
            if is_wide {
                table.row([block, String::new(), String::new(), seconds]);
            } else {
                table.row([String::new(), block, String::new(), seconds]);
            }
            names.push(None);
        }
    }
    let rows = table.finish();
    let mut text = String::new();
    for (line, name) in rows.lines().zip(std::iter::once(None).chain(names)) {
        if let Some(name) = name.filter(|_| !is_wide) {
            text.push_str(&format!("{name}\n"));
        }
        text.push_str(&format!("{line}\n"));
    }
    text + &errors
}

fn spread_json(spread: Option<Spread>) -> Value {
    spread.map_or(Value::Null, |spread| {
        json!({
            "median": spread.median,
            "minimum": spread.minimum,
            "maximum": spread.maximum,
        })
    })
}

/// Keys that older files have, too, are those of the median run.
fn as_json(name: &str, result: &Result<Runs, String>, peaks: &Peaks) -> Value {
    let runs = match result {
        Ok(runs) => runs,
        Err(error) => return json!({ "benchmark": name, "error": error }),
    };
    let measured = runs.median();
    json!({
        "benchmark": name,
        "runs": runs.count(),
        "frames": measured.frames,
        "seconds_per_frame": measured.seconds_per_frame,
        "seconds_per_frame_spread": spread_json(Some(runs.seconds_per_frame())),
        "device_seconds_per_frame": measured.device_seconds_per_frame(),
        "device_seconds_per_frame_spread": spread_json(runs.device_seconds_per_frame()),
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
        "states": runs.states().map(State::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::terminal::Color;
    use measure::Measured;
    use std::cell::Cell;

    fn peaks() -> Peaks {
        Peaks {
            machine: "GPU".to_owned(),
            copy_bytes_per_second: 4e12,
            matrix_operations_per_second: Some(2e15),
        }
    }

    /// Three runs of a chain of two blocks.
    fn runs() -> Runs {
        let next = Cell::new(0);
        let measure = || {
            let index = next.replace(next.get() + 1);
            let seconds = [0.2, 0.3, 0.25][index];
            Ok(Measured {
                frames: 1000,
                seconds_per_frame: seconds,
                blocks: ["beamformer", "frb_search"]
                    .map(|b| (b.to_owned(), Some(seconds / 3.0)))
                    .into(),
                samples_per_second: 123e12,
                bytes_per_second: 3.999e12,
                operations_per_second: 999e12,
                uses_matrix_units: true,
                loads: Vec::new(),
                state: State::Gpu(None),
            })
        };
        Runs::measure(3, || false, measure).unwrap()
    }

    #[test]
    fn narrow_table_fits_80_columns_and_names_every_benchmark() {
        let name = "a benchmark with a name of more than fifty characters";
        let results =
            [(name.to_owned(), Ok(runs())), ("failed".to_owned(), Err("no memory".to_owned()))];
        let terminal = Terminal::new(Color::Never);
        let narrow = table(&results, &peaks(), &terminal, false);
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
        let lines: Vec<&str> = narrow.lines().collect();
        assert_eq!(lines[1], name);
        assert!(lines[2].contains("250.0000 ms") && lines[2].contains("40.0 %"), "{narrow}");
        assert!(lines[3].contains("beamformer"), "{narrow}");
        assert!(narrow.ends_with("failed: no memory\n"), "{narrow}");
        let wide = table(&results, &peaks(), &terminal, true);
        assert!(wide.lines().nth(1).unwrap().starts_with(name), "{wide}");
    }

    #[test]
    fn json_of_a_benchmark_has_spread_and_the_keys_of_older_files() {
        let row = as_json("name", &Ok(runs()), &peaks());
        assert_eq!(row["runs"], 3);
        let spread = json!({"median": 0.25, "minimum": 0.2, "maximum": 0.3});
        assert_eq!(row["seconds_per_frame_spread"], spread);
        assert_eq!(row["seconds_per_frame"], 0.25);
        assert_eq!(row["states"].as_array().unwrap().len(), 3);
        let older =
            include_str!("../../../../benches/results/2026-11-22-nvidia-h200-adefdd2-bench.json");
        let older: Value = serde_json::from_str(older).unwrap();
        for key in older["results"][0].as_object().unwrap().keys() {
            assert!(row.get(key).is_some(), "{key}");
        }
    }
}
