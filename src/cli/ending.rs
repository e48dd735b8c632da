//! Limits on the time in which a flowgraph starts and ends. Each wait says what it waits for.

use crate::signals::end_program;
use crate::terminal::{ProgressLine, Terminal};
use crate::units;
use fxgraph::flowgraph::Plan;
use fxgraph::runtime::{BlockStats, Handle, Report, RunState, Running, State, Unfinished};
use rustix::time::{ClockId, clock_gettime};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A program that computes for less than this fraction of the time waits.
const IDLE: u32 = 50;
/// Time for blocks to end after an abort.
const ABORT: Duration = Duration::from_secs(10);

/// Limits of a run.
#[derive(Clone, Copy)]
struct Limits {
    /// For all blocks to start, while the program waits: it may simulate samples for longer.
    start: Duration,
    /// For a drain, if the user has set one.
    drain: Option<Duration>,
    /// Time without a frame after which a flowgraph that drains is aborted.
    quiet: Duration,
    /// For blocks to end after an abort.
    abort: Duration,
    /// For a block to finish its output: an archive is written a second time.
    finish: Duration,
    /// Interval between two notes about a wait.
    note: Duration,
}

impl Limits {
    /// A block may send a frame for as long as the signal in it takes.
    fn of(plan: &Plan, drain: Option<Duration>) -> Self {
        let ports = plan.blocks.iter().flat_map(|block| {
            block.ports.inputs.iter().chain(&block.ports.outputs).map(|port| port.clock)
        });
        let longest = ports.map(|clock| clock.frames_per_second().recip()).fold(0.0, f64::max);
        let frames = Duration::try_from_secs_f64(2.0 * longest).unwrap_or(Duration::MAX);
        Self {
            start: Duration::from_mins(5),
            drain,
            quiet: Duration::from_secs(10).saturating_add(frames),
            abort: ABORT,
            finish: Duration::from_mins(10),
            note: Duration::from_secs(5),
        }
    }
}

/// End of a run that was asked for, or that a failure has caused.
pub struct Ending {
    limits: Limits,
    draining: Option<Draining>,
    /// Time that the program has seen: a pause of the program is not silence of its blocks.
    clock: Duration,
    last: Instant,
}

struct Draining {
    since: Duration,
    /// Frames that have passed, and number of blocks that have not ended.
    progress: (u64, usize),
    moved: Duration,
    told: Duration,
    aborted: Option<Duration>,
}

/// Step that a run needs to end.
#[derive(Debug, PartialEq)]
enum Step {
    Wait,
    Note(String),
    Abort(String),
    /// Blocks do not end: the process ends without them.
    Leave(String),
}

impl Ending {
    /// Limits for runs of `plan`; `drain` limits the time in which one drains.
    pub fn new(plan: &Plan, drain: Option<Duration>) -> Self {
        Self::within(Limits::of(plan, drain))
    }

    fn within(limits: Limits) -> Self {
        Self { limits, draining: None, clock: Duration::ZERO, last: Instant::now() }
    }

    /// Aborts the run.
    pub fn abort(&mut self, run: &Handle) {
        run.abort();
        if let Some(draining) = &mut self.draining {
            draining.aborted.get_or_insert(self.clock);
        }
    }

    /// Aborts `run` if it drains without progress, and ends the program if a block does not end then. Called often.
    pub fn look(&mut self, run: &Handle, terminal: &Terminal) {
        /// Longest time between two looks that is no pause.
        const PAUSE: Duration = Duration::from_secs(1);
        let now = Instant::now();
        self.clock += (now - std::mem::replace(&mut self.last, now)).min(PAUSE);
        if run.state() != RunState::Draining {
            return;
        }
        let stats = run.stats();
        if self.draining.is_none() {
            self.limits.quiet = self.limits.quiet.saturating_add(2 * slowest(&stats));
        }
        let frames = stats.iter().map(|block| block.frames_in + block.frames_out).sum();
        match self.step(frames, &run.unfinished(), self.clock) {
            Step::Wait => {}
            Step::Note(text) => terminal.note(&text),
            Step::Abort(text) => {
                terminal.warning(&text);
                self.abort(run);
            }
            Step::Leave(text) => end_program(1, &format!("error: {text}")),
        }
    }

    /// Returns the next step of a run that drains, through which `frames` have passed.
    fn step(&mut self, frames: u64, unfinished: &[Unfinished], now: Duration) -> Step {
        let since = |then: Duration| now.saturating_sub(then);
        let limits = self.limits;
        let progress = (frames, unfinished.len());
        let draining = self.draining.get_or_insert(Draining {
            since: now,
            progress,
            moved: now,
            told: now,
            aborted: None,
        });
        if draining.progress != progress {
            (draining.progress, draining.moved, draining.told) = (progress, now, now);
        }
        let waits = || waits_for(unfinished);
        let is_finishing = unfinished.iter().any(|block| block.is_finishing);
        let drained = since(draining.since);
        if let Some(aborted) = draining.aborted {
            let is_patient = is_finishing && limits.drain.is_none();
            let limit = if is_patient { limits.finish } else { limits.abort };
            if since(aborted) > limit {
                let text = "does not end after the abort; the program ends without it, and files may be incomplete";
                return Step::Leave(format!("{} {text}", names(unfinished)));
            }
        } else if let Some(limit) = limits.drain.filter(|limit| drained > *limit) {
            let limit = units::elapsed(limit);
            return Step::Abort(format!(
                "not drained within {limit} (`--drain-limit`): {}; queued frames are dropped",
                waits()
            ));
        } else {
            let limit = if is_finishing { limits.finish } else { limits.quiet };
            if since(draining.moved) > limit {
                let limit = units::elapsed(limit);
                return Step::Abort(format!(
                    "no frame has passed for {limit} while the flowgraph drains: {}; queued frames are dropped",
                    waits()
                ));
            }
        }
        if since(draining.told) >= limits.note {
            draining.told = now;
            return Step::Note(format!("draining for {}: {}", units::elapsed(drained), waits()));
        }
        Step::Wait
    }
}

/// Aborts a run and returns its report; the error names blocks that do not end.
pub fn aborted(running: Running) -> Result<Report, String> {
    running.abort();
    if running.wait_timeout(ABORT) {
        return Ok(running.wait());
    }
    Err(format!("{} does not end after the abort", names(&running.handle().unfinished())))
}

/// Longest mean time that a block works on a frame, on a CPU or a GPU. A call that does not return does not count.
fn slowest(stats: &[BlockStats]) -> Duration {
    let time = |block: &BlockStats| {
        let frames = u32::try_from(block.frames_in.max(block.frames_out)).unwrap_or(u32::MAX);
        block.longest_busy().max(block.device_busy).checked_div(frames).unwrap_or_default()
    };
    stats.iter().map(time).max().unwrap_or_default()
}

/// Names of at most four blocks.
fn names(unfinished: &[Unfinished]) -> String {
    let shown: Vec<String> =
        unfinished.iter().take(4).map(|block| format!("`{}`", block.block)).collect();
    let more = unfinished.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

fn waits_for(unfinished: &[Unfinished]) -> String {
    let finishing: Vec<Unfinished> =
        unfinished.iter().filter(|block| block.is_finishing).cloned().collect();
    if finishing.is_empty() {
        format!("waits for {}", names(unfinished))
    } else {
        format!("waits until {} has written its output", names(&finishing))
    }
}

/// Time that all threads of this process have computed.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Thread that says which blocks do not start, and ends the program after a time limit. Ends when this is dropped.
pub struct Starting {
    started: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Starting {
    /// Watches the start of a run of `plan`.
    pub fn watch(
        run: Handle,
        plan: &Plan,
        line: Option<&ProgressLine>,
        terminal: &Terminal,
    ) -> Self {
        if let Some(line) = line {
            let run = run.clone();
            line.follow(move || {
                let progress = fxgraph_web::starting(&run.stats());
                format!("starting: {}", progress.as_deref().unwrap_or("all blocks have started"))
            });
        }
        let (limits, terminal) = (Limits::of(plan, None), terminal.clone());
        let (started, is_started) = mpsc::channel();
        let thread = thread::spawn(move || {
            let began = Instant::now();
            let (mut computed, mut waited) = (cpu_time(), Duration::ZERO);
            while is_started.recv_timeout(limits.note) == Err(RecvTimeoutError::Timeout) {
                let stats = run.stats();
                let starting = stats.iter().filter(|block| block.state == State::Starting);
                let starting: Vec<Unfinished> = starting
                    .map(|block| Unfinished { block: block.name.clone(), is_finishing: false })
                    .collect();
                if starting.is_empty() {
                    continue;
                }
                let names = names(&starting);
                let now = cpu_time();
                if now.saturating_sub(computed) < limits.note / IDLE {
                    waited += limits.note;
                }
                computed = now;
                if waited > limits.start {
                    let limit = units::elapsed(limits.start);
                    end_program(1, &format!("error: {names} must start within {limit}"));
                }
                let progress = fxgraph_web::starting(&stats).unwrap_or_default();
                let time = units::elapsed(began.elapsed());
                terminal.note(&format!("starting for {time}: waits for {names} ({progress})"));
            }
        });
        Self { started: Some(started), thread: Some(thread) }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.started.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Does `work` on a thread of its own for at most `limit`, and says that the program waits for `what`. Returns `None` at
/// the limit; the thread goes on.
pub fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    terminal: &Terminal,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    const NOTE: Duration = Duration::from_secs(5);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        // The other end is gone after the limit.
        let _ = done.send(work());
    });
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        match is_done.recv_timeout(left.min(NOTE)) {
            Ok(made) => return Some(made),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                let limit = units::elapsed(limit);
                terminal.warning(&format!("waited {limit} for {what}, without success"));
                return None;
            }
            Err(RecvTimeoutError::Timeout) => terminal.note(&format!("waits for {what}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ending(drain: Option<Duration>) -> Ending {
        let limits = Limits {
            start: SECOND,
            drain,
            quiet: 10 * SECOND,
            abort: 10 * SECOND,
            finish: 600 * SECOND,
            note: 5 * SECOND,
        };
        Ending::within(limits)
    }

    fn block(name: &str, is_finishing: bool) -> Unfinished {
        Unfinished { block: name.to_owned(), is_finishing }
    }

    #[test]
    fn drain_goes_on_while_frames_pass() {
        let mut ending = ending(None);
        let blocks = [block("sink", false)];
        for second in 0..3600 {
            assert_eq!(ending.step(u64::from(second), &blocks, second * SECOND), Step::Wait);
        }
    }

    #[test]
    fn drain_without_frames_is_aborted_and_then_left_with_the_names_of_its_blocks() {
        let mut ending = ending(None);
        let blocks = [block("check", false), block("sink", false)];
        let mut step = |second: u32| ending.step(7, &blocks, second * SECOND);
        assert_eq!(step(0), Step::Wait);
        let Step::Note(text) = step(5) else { panic!("no note") };
        assert!(text.contains("waits for `check`, `sink`"), "{text}");
        assert!(matches!(step(10), Step::Note(_)));
        let Step::Abort(text) = step(11) else { panic!("no abort") };
        assert!(text.contains("waits for `check`, `sink`"), "{text}");
        if let Some(draining) = &mut ending.draining {
            draining.aborted = Some(11 * SECOND);
        }
        let mut step = |second: u32| ending.step(7, &blocks, second * SECOND);
        assert!(matches!(step(20), Step::Note(_)));
        let Step::Leave(text) = step(22) else { panic!("it waits on") };
        assert!(text.starts_with("`check`, `sink` does not end"), "{text}");
    }

    #[test]
    fn block_that_writes_its_output_has_more_time_unless_the_user_limits_it() {
        let blocks = [block("out", true)];
        let mut patient = ending(None);
        assert_eq!(patient.step(7, &blocks, Duration::ZERO), Step::Wait);
        let Step::Note(text) = patient.step(7, &blocks, 500 * SECOND) else { panic!() };
        assert!(text.contains("waits until `out` has written its output"), "{text}");
        assert!(matches!(patient.step(7, &blocks, 601 * SECOND), Step::Abort(_)));
        let mut limited = ending(Some(20 * SECOND));
        assert_eq!(limited.step(7, &blocks, Duration::ZERO), Step::Wait);
        let Step::Abort(text) = limited.step(8, &blocks, 21 * SECOND) else { panic!() };
        assert!(text.contains("`--drain-limit`"), "{text}");
    }
}
