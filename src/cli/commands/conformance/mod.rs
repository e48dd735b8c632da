//! `fxgraph conformance`

mod compare;
mod peers;
mod restarts;
mod run;
mod steady;

use crate::BUILD;
use crate::failure::{Failure, judge, reject_none};
use crate::flowgraph;
use crate::kernel_directory;
use crate::signals::Signals;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::DeviceName;
use fxgraph::cuda::{self, Device};
use fxgraph::examples::{Case, Example};
use fxgraph::lock::lock;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Checks every GPU implementation against the CPU reference
#[derive(Debug, clap::Args)]
pub struct Conformance {
    /// GPU to use
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0", value_parser = parse_gpu)]
    device: DeviceName,

    /// Runs only cases whose name contains this: a kind, an implementation, or a part of the case's description
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    #[command(flatten)]
    settings: Settings,

    /// Number of cases that run at the same time
    #[arg(long, value_name = "N", default_value_t = 4)]
    jobs: usize,

    /// Writes JSON
    #[arg(long)]
    json: bool,

    /// Runs this case alone, in this process
    #[arg(long, hide = true, value_name = "NUMBER")]
    case: Option<usize>,
}

/// Settings of all cases.
#[derive(Debug, clap::Args)]
struct Settings {
    /// Time limit of each case
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    timeout: Duration,

    /// Directory with edited GPU kernels, which replace the built-in ones of the same file name
    #[arg(long, value_name = "DIR", value_parser = kernel_directory::parse)]
    kernels: Option<PathBuf>,
}

fn parse_gpu(text: &str) -> Result<DeviceName, String> {
    match DeviceName::parse(text) {
        Some(device @ DeviceName::Cuda(_)) => Ok(device),
        _ => Err("give a GPU like `cuda:0`".to_owned()),
    }
}

/// A test case, identified by its number.
enum Trial {
    /// A GPU implementation against the CPU reference.
    Compared(Case),
    /// A flowgraph in steady state.
    Steady(Example),
}

impl Trial {
    /// All test cases, with implementations on `device`. A host with several GPUs has more.
    fn all(device: DeviceName) -> Vec<Self> {
        let gpus = cuda::count().unwrap_or(0);
        let other = (0..gpus).map(DeviceName::Cuda).find(|other| *other != device);
        let between = other.map(|other| peers::cases(device, other)).unwrap_or_default();
        let restarted = restarts::cases(cases(device));
        let compared = cases(device).chain(restarted).chain(between).map(Self::Compared);
        let examples = flowgraph::registry().examples(device);
        compared.chain(examples.into_iter().map(Self::Steady)).collect()
    }

    fn name(&self) -> String {
        match self {
            Self::Compared(case) => {
                format!("{} {}: {}", case.kind, case.implementation, case.name)
            }
            Self::Steady(example) => format!("steady state: {example}"),
        }
    }

    fn run(&self, settings: &Settings) -> Result<String, String> {
        let registry = flowgraph::registry();
        match self {
            Self::Compared(case) => run::alone(case, &registry, settings),
            Self::Steady(example) => steady::run(example, &registry, settings),
        }
    }
}

/// The cases of all kinds, with their implementations on `device`.
fn cases(device: DeviceName) -> impl Iterator<Item = Case> {
    let all: Vec<_> = flowgraph::registry().iter().map(|kind| kind.cases).collect();
    all.into_iter().flat_map(move |cases| cases(device))
}

/// Outcome of a test case.
struct Outcome {
    name: String,
    /// Description of the differences, or the error.
    result: Result<String, String>,
    took: Duration,
}

impl Conformance {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let DeviceName::Cuda(ordinal) = self.device else {
            return Err(Failure::failed("`--device` must be a GPU, got `cpu`"));
        };
        let all = Trial::all(self.device);
        if let Some(number) = self.case {
            let trial = all.get(number).ok_or_else(|| Failure::failed("no such case"))?;
            let said = trial.run(&self.settings);
            return said.map_err(Failure::failed).and_then(|text| terminal.results(&text));
        }
        let failed = |error: cuda::CudaError| Failure::failed(error.to_string());
        let properties = Device::open(ordinal).map_err(failed)?.properties().clone();
        let (major, minor) = cuda::compiler_version().map_err(failed)?;
        let on = format!("{}, NVRTC {major}.{minor}, {}", properties.name, BUILD);
        if !self.json {
            terminal.results(&terminal.paint(Paint::Bold, &on))?;
        }
        let is_chosen =
            |trial: &Trial| self.only.as_ref().is_none_or(|only| trial.name().contains(only));
        let chosen: Vec<(usize, &Trial)> =
            all.iter().enumerate().filter(|(_, trial)| is_chosen(trial)).collect();
        reject_none(chosen.len(), "case", self.only.as_deref())?;
        let signals = Signals::count()?;
        let outcomes = self.run_all(&chosen, &signals);
        let bad = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
        let good = outcomes.len() - bad;
        let written = if self.json {
            let cases: Vec<_> = outcomes.iter().map(Outcome::json).collect();
            terminal.json(&json!({ "on": on, "passed": good, "failed": bad, "cases": cases }))
        } else {
            terminal
                .results(&table(&outcomes, terminal))
                .and_then(|()| terminal.results(&format!("\n{good} passed, {bad} failed")))
        };
        let verdict = match (signals.look() > 0, bad) {
            (true, _) => Err(Failure::Interrupted),
            (false, 0) => Ok(()),
            (false, _) => Err(Failure::Shown),
        };
        judge(verdict, written, terminal)
    }

    /// Runs each case in its own process, so that a fault on the GPU does not affect other cases.
    fn run_all(&self, chosen: &[(usize, &Trial)], signals: &Signals) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.clamp(1, 64) {
                scope.spawn(|| {
                    while let Some((number, trial)) =
                        chosen.get(next.fetch_add(1, Ordering::Relaxed))
                        && signals.look() == 0
                    {
                        let began = Instant::now();
                        let result = run::apart(*number, self.device, &self.settings);
                        let outcome = Outcome { name: trial.name(), result, took: began.elapsed() };
                        let mut all = lock(&outcomes);
                        all.push((*number, outcome));
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

impl Outcome {
    fn json(&self) -> serde_json::Value {
        let (word, text) = match &self.result {
            Ok(text) => ("passed", text),
            Err(text) => ("failed", text),
        };
        json!({ "case": self.name, word: text, "seconds": self.took.as_secs_f64() })
    }
}

fn table(outcomes: &[Outcome], terminal: &Terminal) -> String {
    let columns = [("case", Align::Left), ("", Align::Left), ("difference", Align::Left)];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for Outcome { name, result, .. } in outcomes {
        let (word, text) = match result {
            Ok(text) => (terminal.paint(Paint::Good, "ok"), text),
            Err(text) => (terminal.paint(Paint::Bad, "FAILED"), text),
        };
        table.row([name.clone(), word, text.clone()]);
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench;
    use fxgraph::flowgraph::load_text;

    const GPU: DeviceName = DeviceName::Cuda(0);

    #[test]
    fn every_gpu_implementation_has_cases() {
        let cases: Vec<Case> = cases(GPU).collect();
        // The cases of these kinds need NumPy.
        let needs_numpy = |name: &str| ["kernel", "python"].contains(&name);
        for kind in flowgraph::registry().iter().filter(|kind| !needs_numpy(kind.name)) {
            for implementation in
                kind.implementations.iter().filter(|implementation| implementation.device == "cuda")
            {
                let has_cases = cases.iter().any(|case| {
                    (case.kind, case.implementation) == (kind.name, implementation.name)
                });
                assert!(has_cases, "{} {}", kind.name, implementation.name);
            }
        }
    }

    #[test]
    fn every_gpu_implementation_has_a_case_whose_sources_start_again() {
        let restarted = restarts::cases(cases(GPU));
        let of_kind = |case: &Case| (case.kind, case.implementation);
        for case in cases(GPU).filter(|case| case.kind != "null_source") {
            assert!(
                restarted.iter().any(|other| of_kind(other) == of_kind(&case)),
                "{}",
                case.name
            );
        }
        let sent = |case: &Case| case.flowgraph.matches("restart_every: ").count();
        assert!(restarted.iter().all(|case| sent(case) >= 1));
    }

    #[test]
    fn every_case_is_a_valid_flowgraph_with_equal_ports() {
        let restarted = restarts::cases(cases(GPU));
        for case in cases(GPU).chain(restarted).chain(peers::cases(GPU, DeviceName::Cuda(1))) {
            let registry = flowgraph::registry();
            let plan = bench::plan(&case.flowgraph, &registry)
                .and_then(|plan| run::changing(plan, &case, &registry))
                .unwrap_or_else(|problems| panic!("{}\n{}\n{problems}", case.name, case.flowgraph));
            let ports = |name| &plan.blocks[plan.block(name).unwrap()].ports.outputs;
            assert_eq!(ports("cpu"), ports("gpu"), "{}\n{}", case.name, case.flowgraph);
        }
    }

    #[test]
    fn every_kind_with_a_gpu_implementation_has_a_steady_state_example() {
        let registry = flowgraph::registry();
        // The check of a `kernel` needs NVRTC, that of `python` NumPy.
        let is_compiled = |kind: &str| !["kernel", "python"].contains(&kind);
        let examples = registry.examples(GPU).into_iter();
        let plans = examples.filter(|example| is_compiled(example.kind)).map(|example| {
            load_text("example.yaml", &example.flowgraph, &[], &registry).result.ok().unwrap()
        });
        let blocks: Vec<_> = plans.flat_map(|plan| plan.blocks).collect();
        let several = registry.iter().filter(|kind| kind.implementations.len() > 1);
        for kind in several.filter(|kind| is_compiled(kind.name)) {
            let is_there =
                blocks.iter().any(|block| block.kind == kind.name && block.device == GPU);
            assert!(is_there, "{}", kind.name);
        }
        assert!(["upload", "download"].iter().all(|way| blocks.iter().any(|b| b.kind == *way)));
    }

    #[test]
    fn trial_names_are_unique() {
        let mut names: Vec<String> = Trial::all(GPU).iter().map(Trial::name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
