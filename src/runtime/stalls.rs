//! Detection of stalled blocks, which no frame passes, as a state and as events.

use super::cell::{Cell, Progress};
use super::deadlocks::{self, Deadlock};
use super::report::RunState;
use super::timing::For;
use fxgraph_core::event::{EventKind, Events};
use fxgraph_core::lock::lock;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of frame intervals without a frame after which a block is stalled; also number of output frames for
/// which a block may consume input without pushing one.
const FRAMES: f64 = 10.0;
/// Shortest time without a frame after which a block is stalled: a busy machine may deschedule blocks for shorter.
const PATIENCE: Duration = Duration::from_secs(1);
/// Factor on the time limit of a block that is busy, or that lacks input although no upstream block is stalled.
const MORE_PATIENCE: u32 = 10;

/// Progress of a block at earlier checks.
struct Known {
    first: Instant,
    frames: u64,
    /// Time at which the last frame passed.
    since: Instant,
    /// Number of pushed frames when it last grew.
    pushed: u64,
    /// Duration of the consumed signal at that time, in seconds.
    taken_seconds: f64,
    /// Time at which `pushed` last grew.
    pushed_at: Instant,
    /// Cause, while the block is stalled.
    stalled: Option<Cause>,
    /// Whether the stall was reported as an event, and whether as a deadlock.
    is_told: bool,
    is_told_as_deadlock: bool,
}

/// Progress of the blocks of a run at earlier checks.
#[derive(Default)]
pub(super) struct Stalls(Mutex<Vec<Known>>);

/// Cause of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The block, or the input of a source.
    Itself(Reason),
    /// Downstream blocks, or a stalled upstream block.
    Others,
}

/// Reason for which no frame passes the block that causes a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is a source, and its data do not come.
    WaitsForData,
    /// One of its inputs gets no frames, and no upstream block says why.
    NoInputFrames,
    /// It has frames at its inputs, and does not take them.
    InputWaits,
    /// One call of `work` does not return.
    IsBusy,
    /// It takes frames and pushes none, although several are due.
    PushesNothing,
}

impl Reason {
    /// Description, as in "no frame for 3 s: the block is busy".
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::WaitsForData => "the source waits for data",
            Self::NoInputFrames => "no input frames",
            Self::InputWaits => "input frames are waiting",
            Self::IsBusy => "the block is busy",
            Self::PushesNothing => "the block consumes frames and pushes none",
        }
    }

    /// Whether the block holds frames that it has got: a restart may help. It does not help against data that do not
    /// come.
    #[must_use]
    pub fn holds_frames(self) -> bool {
        !matches!(self, Self::WaitsForData | Self::NoInputFrames)
    }
}

/// A block that no frame passes, and that is the cause itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Stall {
    /// Name of the block.
    pub block: String,
    /// Time since the last frame.
    pub silent: Duration,
    /// Reason.
    pub reason: Reason,
    /// Names of the upstream blocks from which it has no frame.
    pub lacks: Vec<String>,
}

/// Shortest time without a frame after which a block with this mean frame interval is stalled.
fn patience(progress: &Progress, mean_seconds: f64) -> Duration {
    let apart = FRAMES * progress.frame_seconds.max(mean_seconds);
    Duration::try_from_secs_f64(apart).unwrap_or(Duration::MAX).max(PATIENCE)
}

/// Returns the cause if a block that no frame has passed for `silent` is stalled.
fn judge(
    progress: &Progress,
    silent: Duration,
    patience: Duration,
    has_stalled_before: bool,
) -> Option<Cause> {
    let (cause, patience) = match progress.waits {
        Some(For::Room) => (Cause::Others, patience),
        _ if progress.lacks_input && has_stalled_before => (Cause::Others, patience),
        _ if progress.lacks_input => {
            (Cause::Itself(Reason::NoInputFrames), patience.saturating_mul(MORE_PATIENCE))
        }
        None => (Cause::Itself(Reason::IsBusy), patience.saturating_mul(MORE_PATIENCE)),
        Some(For::Input) => (Cause::Itself(Reason::WaitsForData), patience),
        Some(For::Itself) => (Cause::Itself(Reason::InputWaits), patience),
    };
    (silent >= patience).then_some(cause)
}

impl Known {
    fn new(now: Instant) -> Self {
        Self {
            first: now,
            frames: 0,
            since: now,
            pushed: 0,
            taken_seconds: 0.0,
            pushed_at: now,
            stalled: None,
            is_told: false,
            is_told_as_deadlock: false,
        }
    }

    /// Adds the event for the begin of a stall of a block that `passed` frames have passed so far.
    fn tell(&mut self, cell: &Cell, events: &Events, passed: u64, silent: Duration, why: &str) {
        self.is_told = true;
        let since = if passed > 0 { "" } else { " since the start" };
        let text = format!("no frame{since} for {:.1} s: {why}", silent.as_secs_f64());
        events.add(EventKind::Stalled, Some(&cell.name), text);
    }

    /// Whether the block consumes frames and pushes none, although several are due.
    fn swallows(&mut self, progress: &Progress, now: Instant) -> bool {
        if progress.pushed != self.pushed || !progress.is_running {
            self.pushed = progress.pushed;
            self.taken_seconds = progress.taken_seconds;
            self.pushed_at = now;
        }
        // An infinite or NaN interval never ends.
        let is_overdue =
            progress.taken_seconds - self.taken_seconds >= FRAMES * progress.push_seconds;
        let silent = now.saturating_duration_since(self.pushed_at);
        progress.push_seconds > 0.0 && is_overdue && silent >= PATIENCE
    }
}

impl Stalls {
    /// Blocks that cause a stall, as of the last check.
    pub fn list(&self, cells: &[Arc<Cell>]) -> Vec<Stall> {
        let now = Instant::now();
        let all = lock(&self.0);
        let stalls = cells.iter().zip(&*all).filter_map(|(cell, known)| {
            let Some(Cause::Itself(reason)) = known.stalled else { return None };
            let lacks = cell.inputs().filter(|(edge, _)| edge.waiting() == 0);
            Some(Stall {
                block: cell.name.clone(),
                silent: now.saturating_duration_since(known.since),
                reason,
                lacks: lacks.map(|(_, writer)| cells[writer].name.clone()).collect(),
            })
        });
        stalls.collect()
    }

    /// Checks all blocks, and resolves deadlocks. Adds events for the begin and the end of a stall that the block itself
    /// causes. While the run drains, only deadlocks count: blocks without frames then wait for the end.
    pub fn look(&self, cells: &[Arc<Cell>], events: &Events, state: RunState) {
        let now = Instant::now();
        let mut all = lock(&self.0);
        if all.is_empty() {
            all.extend(cells.iter().map(|_| Known::new(now)));
        }
        let mut idle = vec![None; cells.len()];
        for (number, cell) in cells.iter().enumerate() {
            let progress = cell.progress();
            let has_stalled_before =
                progress.before.iter().any(|before| all[*before].stalled.is_some());
            let known = &mut all[number];
            let swallows = state == RunState::Running && known.swallows(&progress, now);
            if swallows {
                known.since = known.pushed_at;
            }
            let silent = now.saturating_duration_since(known.since);
            if !swallows && (progress.frames != known.frames || !progress.is_running) {
                known.frames = progress.frames;
                known.since = now;
                known.is_told_as_deadlock = false;
                if std::mem::take(&mut known.is_told) && progress.is_running {
                    let text = format!("frames pass again after {:.1} s", silent.as_secs_f64());
                    events.add(EventKind::Resumed, Some(&cell.name), text);
                }
                if known.stalled.take().is_some() {
                    cell.set_stalled(false);
                }
                continue;
            }
            let passing = known.since.saturating_duration_since(known.first).as_secs_f64();
            let mean_seconds = if known.frames > 0 { passing / known.frames as f64 } else { 0.0 };
            let patience = patience(&progress, mean_seconds);
            // A block may work on frames that it has taken, as others do on a GPU, and lack input meanwhile.
            let is_idle = !swallows && silent >= patience.saturating_mul(MORE_PATIENCE);
            idle[number] = is_idle.then_some(known.frames);
            if state == RunState::Draining {
                continue;
            }
            let cause = if swallows {
                Some(Cause::Itself(Reason::PushesNothing))
            } else {
                judge(&progress, silent, patience, has_stalled_before)
            };
            let Some(cause) = cause else { continue };
            if known.stalled.replace(cause).is_none() {
                cell.set_stalled(true);
            }
            if let (Cause::Itself(reason), false) = (cause, known.is_told) {
                let passed = if swallows { known.pushed } else { known.frames };
                known.tell(cell, events, passed, silent, reason.text());
            }
        }
        for Deadlock { reader, writer, lacked } in deadlocks::resolve(cells, &idle) {
            let [writer, lacked] = [writer, lacked].map(|block| &cells[block].name);
            let why = format!(
                "the block waits for frames of `{lacked}`, which gets none because `{writer}` waits for room in a full \
                 queue to this block; `{writer}` now drops frames without room there"
            );
            let known = &mut all[reader];
            if std::mem::replace(&mut known.is_told_as_deadlock, true) {
                continue;
            }
            let silent = now.saturating_duration_since(known.since);
            known.tell(&cells[reader], events, known.frames, silent, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(waits: Option<For>, lacks_input: bool, before: &[usize]) -> Progress<'_> {
        Progress {
            is_running: true,
            frames: 5,
            pushed: 5,
            taken_seconds: 1.0,
            push_seconds: 0.2,
            frame_seconds: 0.2,
            waits,
            lacks_input,
            before,
        }
    }

    #[test]
    fn block_without_frames_is_stalled_after_ten_frame_intervals() {
        let source = progress(Some(For::Input), false, &[]);
        let at = |silent: f64, mean| {
            judge(&source, Duration::from_secs_f64(silent), patience(&source, mean), false)
        };
        assert_eq!(at(1.9, 0.0), None);
        assert_eq!(at(2.0, 0.0), Some(Cause::Itself(Reason::WaitsForData)));
        assert_eq!(at(2.0, 1.0), None);
        let fast = Progress { frame_seconds: 1e-4, ..progress(Some(For::Input), false, &[]) };
        let least = patience(&fast, 0.0);
        assert_eq!(judge(&fast, Duration::from_millis(900), least, false), None);
        assert!(judge(&fast, PATIENCE, least, false).is_some());
    }

    #[test]
    fn block_that_pushes_nothing_is_stalled_once_ten_frames_are_due() {
        let start = Instant::now();
        let mut known = Known::new(start);
        // Dumps of 4 s from frames of 0.2 s.
        let at = |pushed, taken_seconds| Progress {
            pushed,
            taken_seconds,
            push_seconds: 4.0,
            ..progress(Some(For::Input), true, &[])
        };
        let mut look = |progress: Progress, seconds| {
            known.swallows(&progress, start + Duration::from_secs(seconds))
        };
        assert!(!look(at(3, 12.0), 12));
        assert!(!look(at(3, 51.0), 51));
        assert!(look(at(3, 52.0), 52));
        assert!(!look(at(4, 53.0), 53), "a dump was pushed");
        assert!(!look(Progress { push_seconds: 0.0, ..at(4, 1e9) }, 100), "no outputs");
        assert!(!look(Progress { push_seconds: f64::NAN, ..at(4, 1e9) }, 101));
        // A file is read faster than real time.
        assert!(!look(at(5, 1000.0), 102) && !look(at(5, 2000.0), 102));
        assert!(look(at(5, 2000.0), 103));
    }

    #[test]
    fn stall_names_the_block_that_causes_it() {
        let silent = Duration::from_secs(3);
        let cause = |progress: &Progress, has_stalled_before| {
            judge(progress, silent, patience(progress, 0.0), has_stalled_before)
        };
        let held_up = progress(Some(For::Room), false, &[0]);
        assert_eq!(cause(&held_up, false), Some(Cause::Others));
        let starving = progress(Some(For::Input), true, &[0]);
        assert_eq!(cause(&starving, true), Some(Cause::Others));
        assert_eq!(cause(&starving, false), None, "the upstream block may still push a frame");
        let hung = progress(Some(For::Itself), false, &[0]);
        assert_eq!(cause(&hung, false), Some(Cause::Itself(Reason::InputWaits)));
        let works = progress(None, false, &[0]);
        assert_eq!(cause(&works, false), None);
        assert_eq!(
            judge(&works, Duration::from_secs(20), patience(&works, 0.0), false),
            Some(Cause::Itself(Reason::IsBusy))
        );
    }
}
