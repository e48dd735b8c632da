//! `fxgraph bench --network`: a flowgraph from network to network.
//!
//! # Layout
//! - `search`: bisection for the highest rate
//! - `trial`: one run at one rate
//! - `sender`, `receiver`: streams into the flowgraph and out of it
//! - `layout`: heaps of both streams
//! - `cores`: use of cores by each thread

mod cores;
mod layout;
mod receiver;
mod search;
mod sender;
mod trial;

use super::state::State;
use crate::BUILD;
use crate::failure::{Failure, judge};
use crate::flowgraph;
use crate::signals::Signals;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::DeviceName;
use fxgraph::diagnostic::render_all;
use fxgraph::flowgraph::{Loaded, Plan, SetTo, Setting};
use layout::Layout;
use search::{Verdict, highest_lossless};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use trial::{Addresses, Heaps, Latency, OWN_THREADS, Times, Trial};

/// The default flowgraph.
const FLOWGRAPH: &str = "example:02_f_engine";
/// Shortest warm-up: the first frames on a GPU load its kernels.
const LEAST_WARM_UP: Duration = Duration::from_millis(500);
/// Longest trial. Its heaps are kept in memory.
const LONGEST: Duration = Duration::from_mins(10);
/// Limits of the rates, in samples per second.
const RATES: std::ops::RangeInclusive<f64> = 1e4..=1e11;

/// Options of `--network`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct Options {
    /// Measures from network to network instead: sends digitiser heaps of two polarisations, receives heaps of spectra,
    /// and finds the highest rate without missing data, with latencies and cores. FILE, `example:02_f_engine` by default,
    /// needs the parameters of that example
    #[arg(long, conflicts_with_all = ["only", "runs", "time"])]
    pub network: bool,

    /// Flowgraph with the parameters of `example:02_f_engine`, by default that one.
    #[arg(skip)]
    pub flowgraph: Option<PathBuf>,

    /// Values of its parameters.
    #[arg(skip)]
    pub set: Vec<Setting>,

    /// Network interface, by name or address: the loopback interface, or one whose multicast packets return to this host
    #[arg(long, value_name = "INTERFACE", default_value = "127.0.0.1", requires = "network")]
    interface: String,

    /// Measured time of each rate, after a warm-up of a quarter of that and at least 0.5 s
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "5s", requires = "network")]
    seconds: Duration,

    /// Lowest rate, in samples per second of each polarisation
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "5e6", requires = "network")]
    min_rate: f64,

    /// Highest rate; the same as the lowest one measures this rate only
    #[arg(long, value_name = "RATE", value_parser = parse_rate, default_value = "4e9", requires = "network")]
    max_rate: f64,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text)?;
    if time > LONGEST {
        return Err(format!("the time must be at most {} s", LONGEST.as_secs()));
    }
    Ok(time)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().ok().filter(|rate| RATES.contains(rate));
    rate.ok_or_else(|| {
        format!(
            "the rate must be between {:e} and {:e} samples per second, such as 1712e6",
            RATES.start(),
            RATES.end()
        )
    })
}

impl Options {
    pub fn execute(
        &self,
        device: DeviceName,
        kernels: Option<&PathBuf>,
        is_json: bool,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        if self.min_rate > self.max_rate {
            return Err(Failure::failed(format!(
                "`--min-rate` must be at most `--max-rate`, got {} and {}",
                self.min_rate, self.max_rate
            )));
        }
        let state = State::read(device);
        let machine = machine(device)?;
        let signals = Signals::count()?;
        let mut trials: Vec<Trial> = Vec::new();
        let progress = terminal.progress();
        let found = highest_lossless(self.min_rate, self.max_rate, |rate| {
            if let Some(line) = &progress {
                let rate = units::scaled(rate, "S/s");
                line.show(format!("trial {}: {rate}", trials.len() + 1));
            }
            let trial = self.trial(rate, device, kernels, &signals, terminal)?;
            let verdict = trial.verdict();
            trials.push(trial);
            Ok::<Verdict, Failure>(verdict)
        });
        drop(progress);
        // An error of a later trial does not hide the earlier trials.
        let (found, verdict) = match found {
            Ok(Some(rate)) => (Some(rate), Ok(())),
            Ok(None) => (None, Err(Failure::Shown)),
            Err(failure) if trials.is_empty() => return Err(failure),
            Err(failure) => (best(&trials).map(|trial| trial.rate_hz), Err(failure)),
        };
        let written = if is_json {
            terminal.json(&json!({
                "machine": machine,
                "build": BUILD,
                "state": state.json(),
                "network": self.as_json(device, found, &trials),
            }))
        } else {
            let heading = terminal.paint(Paint::Bold, &format!("{machine}, {BUILD}"));
            terminal.results(&format!("{heading}\n{}", as_text(found, &trials, terminal)))
        };
        judge(verdict, written, terminal)
    }

    fn times(&self) -> Times {
        Times { warm_up: (self.seconds / 4).max(LEAST_WARM_UP), measured: self.seconds }
    }

    fn trial(
        &self,
        rate: f64,
        device: DeviceName,
        kernels: Option<&PathBuf>,
        signals: &Signals,
        terminal: &Terminal,
    ) -> Result<Trial, Failure> {
        if signals.look() > 0 {
            return Err(Failure::Interrupted);
        }
        let (addresses, batch) = Addresses::open(&self.interface)?;
        let mut plan = self.plan(rate, device, &addresses, terminal)?;
        plan.kernel_directory = kernels.cloned();
        let layout = Layout::of(&plan).map_err(Failure::failed)?;
        trial::run(&plan, layout, device, (addresses, batch), self.times(), signals)
    }

    fn plan(
        &self,
        rate: f64,
        device: DeviceName,
        addresses: &Addresses,
        terminal: &Terminal,
    ) -> Result<Plan, Failure> {
        let set = |name: &str, value: String| Setting::text(name, value);
        let mut settings = vec![
            set("device", device.to_string()),
            set("adc_sample_rate_hz", rate.to_string()),
            set("pol0", addresses.pols[0].to_string()),
            set("pol1", addresses.pols[1].to_string()),
            set("out", addresses.out.clone()),
            set("interface", addresses.interface.to_string()),
            set("stop_after_senders", "1".to_owned()),
        ];
        settings.extend(self.set.iter().cloned());
        let Loaded { sources, result, .. } = flowgraph::load_file(self.file(), &settings);
        result.map_err(|diagnostics| {
            Failure::Configuration(render_all(&diagnostics, &sources, flowgraph::style(terminal)))
        })
    }

    fn file(&self) -> &Path {
        self.flowgraph.as_deref().unwrap_or(Path::new(FLOWGRAPH))
    }

    fn as_json(&self, device: DeviceName, found: Option<f64>, trials: &[Trial]) -> Value {
        let times = self.times();
        json!({
            "flowgraph": self.file().display().to_string(),
            "set": self.set.iter().map(setting_json).collect::<serde_json::Map<_, _>>(),
            "device": device.to_string(),
            "interface": self.interface,
            "seconds": times.measured.as_secs_f64(),
            "warm_up_seconds": times.warm_up.as_secs_f64(),
            "highest_lossless_rate_hz": found,
            "limited_by": limit(trials),
            "trials": trials.iter().map(trial_json).collect::<Vec<_>>(),
        })
    }
}

/// Name of the CPU or GPU.
fn machine(device: DeviceName) -> Result<String, Failure> {
    match device {
        DeviceName::Cpu => {
            let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Ok(format!("{}, {cores} cores", super::state::model(&info)))
        }
        DeviceName::Cuda(ordinal) => fxgraph::cuda::properties(ordinal)
            .map(|properties| properties.name)
            .map_err(|error| Failure::failed(error.to_string())),
    }
}

/// The trial at the highest lossless rate.
fn best(trials: &[Trial]) -> Option<&Trial> {
    let lossless = trials.iter().filter(|trial| trial.verdict() == Verdict::Lossless);
    lossless.max_by(|a, b| a.rate_hz.total_cmp(&b.rate_hz))
}

/// Cause of missing data in the trial at the lowest rate that was not lossless.
fn limit(trials: &[Trial]) -> Option<String> {
    let limited = trials.iter().filter(|trial| trial.verdict() != Verdict::Lossless);
    limited.min_by(|a, b| a.rate_hz.total_cmp(&b.rate_hz))?.limit()
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", 1e3 * seconds)
}

/// Missing heaps in percent of those expected.
fn missing(heaps: Heaps) -> String {
    match heaps.expected {
        0 => "-".to_owned(),
        _ => format!("{:.2} %", 100.0 * heaps.missing_fraction()),
    }
}

fn as_text(found: Option<f64>, trials: &[Trial], terminal: &Terminal) -> String {
    let mut table = Table::new(
        terminal.coloured_results,
        &[
            ("rate", Align::Right),
            ("sent", Align::Right),
            ("missing", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("maximum", Align::Right),
            ("cores", Align::Right),
        ],
    );
    for trial in trials {
        let latency = |value: fn(&Latency) -> f64| {
            trial.last_packet.as_ref().map_or("-".to_owned(), |all| milliseconds(value(all)))
        };
        table.row([
            units::scaled(trial.rate_hz, "S/s"),
            units::scaled(trial.sent_rate_hz, "S/s"),
            missing(trial.heaps),
            latency(|all| all.p50),
            latency(|all| all.p99),
            latency(|all| all.maximum),
            format!("{:.2}", trial.flowgraph_cores()),
        ]);
    }
    let mut text = format!("{}\n", table.finish());
    match found {
        Some(rate) => text.push_str(&format!(
            "Highest rate without missing data: {}{} per polarisation\n",
            // No trial was beyond the limit.
            if trials.iter().all(|trial| trial.verdict() == Verdict::Lossless) {
                "at least "
            } else {
                ""
            },
            units::scaled(rate, "S/s")
        )),
        None => text.push_str("Data was missing at the lowest rate\n"),
    }
    if let Some(limit) = limit(trials) {
        text.push_str(&format!("Limited by: {limit}\n"));
    }
    if let Some(trial) = found.and(best(trials)) {
        text.push_str(&details(trial));
    }
    text
}

/// Latencies and threads of the trial at the highest rate.
fn details(trial: &Trial) -> String {
    let mut text = format!(
        "Latency of {} heaps of spectra, from the sending of the last sample that a heap needs\n",
        trial.heaps.received
    );
    for (name, latency) in [("first", trial.first_packet), ("last", trial.last_packet)] {
        if let Some(Latency { minimum, p50, p99, maximum }) = latency {
            let [minimum, p50, p99, maximum] = [minimum, p50, p99, maximum].map(milliseconds);
            text.push_str(&format!(
                "  to its {name} packet: minimum {minimum}, p50 {p50}, p99 {p99}, maximum {maximum}\n"
            ));
        }
    }
    if trial.at_start.missing() > 0 {
        let Heaps { expected, .. } = trial.at_start;
        let missing = trial.at_start.missing();
        text.push_str(&format!("Missing during the warm-up: {missing} of {expected} heaps\n"));
    }
    if !trial.state.text().is_empty() {
        text.push_str(&format!("Device near the end of the stream: {}\n", trial.state.text()));
    }
    for is_own in [false, true] {
        let threads = trial.threads.iter();
        let threads = threads.filter(|usage| usage.name.starts_with(OWN_THREADS) == is_own);
        let cores: f64 = threads.clone().map(|usage| usage.cores).sum();
        let whose = if is_own { "measurement" } else { "flowgraph" };
        text.push_str(&format!("Cores of the {whose}: {cores:.2}\n"));
        for usage in threads.filter(|usage| usage.cores >= 0.005) {
            let count = if usage.threads > 1 {
                format!(", {} threads", usage.threads)
            } else {
                String::new()
            };
            text.push_str(&format!("  {}: {:.2}{count}\n", usage.name, usage.cores));
        }
    }
    text
}

fn setting_json(set: &Setting) -> (String, Value) {
    // The command line gives texts only.
    let value = match &set.value {
        SetTo::Typed(text) | SetTo::Text(text) => Value::from(text.clone()),
        SetTo::Value(_) => Value::Null,
    };
    (set.name.clone(), value)
}

fn latency_json(latency: Option<Latency>) -> Value {
    latency.map_or(Value::Null, |latency| {
        json!({
            "minimum": latency.minimum,
            "p50": latency.p50,
            "p99": latency.p99,
            "maximum": latency.maximum,
        })
    })
}

fn heaps_json(heaps: Heaps) -> Value {
    json!({
        "expected": heaps.expected,
        "received": heaps.received,
        "missing": heaps.missing(),
        "missing_fraction": heaps.missing_fraction(),
    })
}

fn trial_json(trial: &Trial) -> Value {
    json!({
        "rate_hz": trial.rate_hz,
        "sent_rate_hz": trial.sent_rate_hz,
        "heaps_sent": trial.heaps_sent,
        "sender_delay_seconds": trial.sender_delay.as_secs_f64(),
        "is_lossless": trial.verdict() == Verdict::Lossless,
        "limited_by": trial.limit(),
        "heaps": heaps_json(trial.heaps),
        "heaps_at_start": heaps_json(trial.at_start),
        "latency_seconds": {
            "first_packet": latency_json(trial.first_packet),
            "last_packet": latency_json(trial.last_packet),
        },
        "receiver_dropped_packets": trial.receiver_dropped,
        "counters": trial.losses.iter().map(|loss| json!({
            "block": loss.block,
            "counter": loss.counter,
            "count": loss.count,
        })).collect::<Vec<_>>(),
        "cores": trial.flowgraph_cores(),
        "threads": trial.threads.iter().map(|usage| json!({
            "name": usage.name,
            "threads": usage.threads,
            "cores": usage.cores,
            "is_of_measurement": usage.name.starts_with(OWN_THREADS),
        })).collect::<Vec<_>>(),
        "state": trial.state.json(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_beyond_the_limits_are_errors() {
        assert_eq!(parse_rate("1712e6"), Ok(1.712e9));
        for text in ["", "fast", "0", "-1e6", "nan", "inf", "1e12"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("2s"), Ok(Duration::from_secs(2)));
        assert!(parse_seconds("1h").is_err());
    }
}
