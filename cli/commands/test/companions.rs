//! Starting and ending the flowgraphs of a test: the tested one and those that run beside it.

use crate::signals::Signals;
use fxgraph::flowgraph::{Plan, Probe};
use fxgraph::runtime::{self, Report, Running, with_causes};
use std::time::{Duration, Instant};

/// How long a flowgraph has to end once it is aborted.
const PATIENCE: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(20);

/// A plan, running.
pub fn start(plan: &Plan, probes: Vec<Probe>) -> Result<Running, Vec<String>> {
    let assembly = plan.build_with(probes).map_err(|error| vec![with_causes(&error)])?;
    runtime::start(assembly, crate::commands::run::options(plan))
        .map_err(|error| vec![with_causes(&error)])
}

/// What `running` reports at its end; from `deadline` on, or when a signal comes, it is aborted.
/// Nothing is left of it afterwards, no socket bound, or the error says so.
pub fn end(running: Running, deadline: Instant, signals: &Signals) -> Result<Report, String> {
    while !running.wait_timeout(TICK) {
        if Instant::now() >= deadline || signals.look() > 0 {
            running.abort();
            if running.wait_timeout(PATIENCE) {
                break;
            }
            return Err("a block holds on and does not end".to_owned());
        }
    }
    Ok(running.wait())
}

/// Running companions, each with its file's name.
pub struct Companions(Vec<(String, Running)>);

impl Companions {
    /// Starts them one after the other: each has its sockets open before the next one begins.
    pub fn start(plans: &[(String, Plan)], signals: &Signals) -> Result<Self, Vec<String>> {
        let mut running = Self(Vec::new());
        for (name, plan) in plans {
            match start(plan, Vec::new()) {
                Ok(started) => running.0.push((name.clone(), started)),
                Err(mut reasons) => {
                    reasons.extend(running.stop(Instant::now(), signals));
                    return Err(reasons);
                }
            }
        }
        Ok(running)
    }

    /// Stops those that still run, and those that do not stop until `deadline` at once; what went
    /// wrong in any of them.
    pub fn stop(self, deadline: Instant, signals: &Signals) -> Vec<String> {
        self.0.iter().for_each(|(_, running)| running.request_stop());
        let mut problems = Vec::new();
        for (name, running) in self.0 {
            match end(running, deadline, signals) {
                Ok(report) => {
                    problems.extend(report.failures.iter().map(|f| format!("{name}: {f}")));
                }
                Err(problem) => problems.push(format!("{name}: {problem}")),
            }
        }
        problems
    }
}
