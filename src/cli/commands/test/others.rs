//! Start and end of the flowgraphs of a test: the tested one and those in `alongside`.

use crate::ending::aborted;
use crate::flowgraph::registry;
use crate::runs::options;
use crate::signals::Signals;
use fxgraph::Control;
use fxgraph::flowgraph::{Plan, Probe};
use fxgraph::runtime::{Prepared, Report, Running, with_causes};
use std::ops::Deref;
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(20);

/// A running flowgraph, with the control that makes the live updates that its blocks request.
pub struct Started {
    running: Running,
    _control: Control,
}

impl Deref for Started {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

/// Starts a plan.
pub fn start(plan: &Plan, probes: Vec<Probe>) -> Result<Started, Vec<String>> {
    let assembly = plan.build_with(probes).map_err(|error| vec![with_causes(&error)])?;
    let prepared = Prepared::new(assembly).map_err(|error| vec![with_causes(&error)])?;
    let control = Control::new(plan.clone(), registry(), prepared.handle());
    let running = prepared.start(options(plan));
    let running = running.map_err(|error| vec![with_causes(&error)])?;
    Ok(Started { running, _control: control })
}

/// Waits for the end of `running` and returns its report; aborts it at `deadline` or when a signal
/// arrives. Returns an error if a block does not end, so that sockets may still be bound.
pub fn end(running: Started, deadline: Instant, signals: &Signals) -> Result<Report, String> {
    while !running.wait_timeout(TICK) {
        if Instant::now() >= deadline || signals.look() > 0 {
            return aborted(running.running);
        }
    }
    Ok(running.running.wait())
}

/// Running flowgraphs of `alongside`, each with its file name.
pub struct Others(Vec<(String, Started)>);

impl Others {
    /// Starts the flowgraphs one after the other, so that the sockets of each are open before the next one starts.
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

    /// Stops the flowgraphs, aborts those that run at `deadline`, and returns all errors.
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
