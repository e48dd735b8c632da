//! The runs of one `fxgraph run`: the first run, and one more for each start and each flowgraph requested
//! over HTTP.

use crate::ending::Starting;
use crate::failure::Failure;
use crate::flowgraph::registry;
use crate::signals::Signals;
use crate::terminal::{ProgressLine, Terminal};
use fxgraph::Control;
use fxgraph::control::{NotPrepared, Wanted};
use fxgraph::flowgraph::Plan;
use fxgraph::runtime::{Options, Prepared, RunState, Running, with_causes};
use std::time::{Duration, Instant};

/// Time between two checks for signals.
const TICK: Duration = Duration::from_millis(100);

/// Runs that wait for a start request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// None: the only run starts at once.
    None,
    /// The only run.
    Once,
    /// Every run; another one may follow each.
    All,
}

/// Sequence of runs under one control handle.
pub struct Runs {
    control: Control,
    signals: Signals,
    prepared: Option<Prepared>,
    /// The previous flowgraph, restored if `prepared` cannot be started.
    before: Option<Plan>,
    /// Whether `prepared` waits for a start request.
    waits: bool,
    /// Whether another run may follow (`--hold`).
    is_held: bool,
    is_over: bool,
    /// Time to build and start the last run.
    starting: Duration,
}

impl Runs {
    /// Builds `plan`, whose runs wait for a start request as `hold` says.
    pub fn new(plan: Plan, hold: Hold, signals: &Signals) -> Result<Self, Failure> {
        let began = Instant::now();
        let name = plan.name.clone();
        let (control, prepared) = signals
            .starting(|| false, || Control::prepared(plan, registry()))?
            .map_err(|error| Failure::because(&not_started(&name), &error))?;
        let (waits, is_held) = (hold != Hold::None, hold == Hold::All);
        if waits {
            control.hold();
        }
        let (prepared, starting) = (Some(prepared), began.elapsed());
        Ok(Self {
            control,
            signals: signals.clone(),
            prepared,
            before: None,
            is_over: false,
            waits,
            is_held,
            starting,
        })
    }

    /// Control handle, the same for all runs.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the time to build and start the last run.
    pub fn starting(&self) -> Duration {
        self.starting
    }

    /// Waits for the next run and starts it, with its progress in `line`; returns `None` if no run follows.
    pub fn next(
        &mut self,
        line: Option<&ProgressLine>,
        terminal: &Terminal,
    ) -> Result<Option<Running>, Failure> {
        while !self.is_over {
            if self.waits {
                match self.wait() {
                    None => return Ok(None),
                    Some(Wanted::Start) => {}
                    Some(Wanted::Other(plan)) => {
                        self.go_over(*plan, terminal)?;
                        continue;
                    }
                }
            }
            let Some(prepared) = self.take_prepared(terminal)? else { continue };
            let began = Instant::now();
            let plan = self.control.plan();
            let run = prepared.handle();
            let is_running = move || has_begun(run.state());
            let watched = Starting::watch(prepared.handle(), &plan, line, terminal);
            let started = self.signals.starting(is_running, || prepared.start(options(&plan)))?;
            drop(watched);
            match started {
                Ok(running) => {
                    self.control.note_started();
                    self.starting += began.elapsed();
                    self.before = None;
                    return Ok(Some(running));
                }
                Err(error) => {
                    let Some(before) = self.before.take() else {
                        return Err(Failure::because(&not_started(&plan.name), &error));
                    };
                    self.tell(&with_causes(&error), terminal);
                    self.prepare(before)?;
                }
            }
        }
        Ok(None)
    }

    /// Takes the prepared run, or prepares the ended run again. Returns `None` if that fails and another
    /// start request may follow.
    fn take_prepared(&mut self, terminal: &Terminal) -> Result<Option<Prepared>, Failure> {
        if self.prepared.is_none()
            && let Err(error) = self.try_prepare(Plan::clone(&self.control.settled_plan()))?
        {
            let name = not_started(&self.control.plan().name);
            if !self.is_held {
                return Err(Failure::because(&name, &error));
            }
            let why = with_causes(&error);
            self.control.tell_not_started(&why);
            terminal.note(&format!("{name}: {why}"));
            self.waits = true;
        }
        Ok(self.prepared.take())
    }

    /// Prepares the run that follows an ended one, if any. With `is_held`, the statistics of the ended run
    /// stay available until the next start request.
    pub fn ended(&mut self, terminal: &Terminal) -> Result<(), Failure> {
        if self.signals.look() > 0 {
            self.is_over = true;
            return Ok(());
        }
        match self.control.take_last_wanted() {
            Some(Wanted::Other(plan)) => {
                self.waits = false;
                self.go_over(*plan, terminal)
            }
            wanted => {
                self.is_over = !self.is_held;
                self.waits = wanted.is_none();
                Ok(())
            }
        }
    }

    fn wait(&self) -> Option<Wanted> {
        while self.signals.look() == 0 {
            if let Some(wanted) = self.control.wait_wanted(TICK) {
                return Some(wanted);
            }
        }
        None
    }

    /// Prepares `plan`, or the previous flowgraph if `plan` cannot be built.
    fn go_over(&mut self, plan: Plan, terminal: &Terminal) -> Result<(), Failure> {
        // Frees its sockets, files and memory for `plan`.
        if let Some(prepared) = self.prepared.take() {
            prepared.discard();
        }
        let before = Plan::clone(&self.control.settled_plan());
        match self.try_prepare(plan)? {
            Ok(()) => {
                self.before = Some(before);
                Ok(())
            }
            Err(error) => {
                self.tell(&with_causes(&error), terminal);
                self.prepare(before)
            }
        }
    }

    fn prepare(&mut self, plan: Plan) -> Result<(), Failure> {
        let name = plan.name.clone();
        self.try_prepare(plan)?.map_err(|error| Failure::because(&not_started(&name), &error))
    }

    /// Prepares `plan`; the outer error means that a signal arrived.
    fn try_prepare(&mut self, plan: Plan) -> Result<Result<(), NotPrepared>, Failure> {
        let began = Instant::now();
        let prepared = self.signals.starting(|| false, || self.control.prepare(plan))?;
        self.starting = began.elapsed();
        Ok(prepared.map(|prepared| self.prepared = Some(prepared)))
    }

    fn tell(&self, why: &str, terminal: &Terminal) {
        self.control.tell_not_started(why);
        terminal.note(&format!(
            "the new flowgraph was not started, the previous one is restored: {why}"
        ));
    }
}

fn not_started(flowgraph: &str) -> String {
    format!("`{flowgraph}` was not started")
}

/// Whether frames of a run in this state may have moved.
fn has_begun(state: RunState) -> bool {
    !matches!(state, RunState::Prepared | RunState::Starting)
}

/// Runtime options of `plan`.
pub fn options(plan: &Plan) -> Options {
    Options { config_id: plan.config_id(), ..Options::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_when_its_start_ends() {
        use RunState::{Draining, Ended, Failed, Prepared, Running, Starting};
        assert_eq!([Prepared, Starting].map(has_begun), [false; 2]);
        assert_eq!([Running, Draining, Ended, Failed].map(has_begun), [true; 4]);
    }
}
