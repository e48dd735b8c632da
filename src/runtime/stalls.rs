//! Blocks that no frame passes, as a state and as events.

use super::cell::Cell;
use super::run::lock;
use super::timing::For;
use fxgraph_core::event::{EventKind, Events};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A block is stalled when no frame has passed it for this many times the time that frames are apart, or when it
/// has taken input for this many frames of its outputs and pushed none ...
const FRAMES: f64 = 10.0;
/// ... and for this long: a machine that is busy takes blocks off their cores for that.
const PATIENCE: Duration = Duration::from_secs(1);
/// A block that works, or that blocks which move frames give none to, is given so many times as long.
const MORE_PATIENCE: u32 = 10;

/// What shows whether frames pass a block, and what would keep them from it.
pub(super) struct Progress<'a> {
    pub is_running: bool,
    /// Frames that it took; a source: that it pushed.
    pub frames: u64,
    /// Frames that it pushed.
    pub pushed: u64,
    /// Time of the signal that it took; of several inputs the shortest.
    pub taken_seconds: f64,
    /// Time of the signal from one frame that it pushes to the next; 0 if none is expected.
    pub push_seconds: f64,
    /// Time that they should be apart.
    pub frame_seconds: f64,
    /// What it waits for; `None` while it works.
    pub waits: Option<For>,
    /// Whether no frame waits before one of its inputs.
    pub lacks_input: bool,
    /// Numbers of the blocks directly before it.
    pub before: &'a [usize],
}

/// What is known of a block.
struct Known {
    first: Instant,
    frames: u64,
    /// When the last frame passed.
    since: Instant,
    /// Frames that it had pushed at the last look at which there were more, what it had taken then, and when.
    pushed: u64,
    taken_seconds: f64,
    pushed_at: Instant,
    is_stalled: bool,
    /// Whether it was reported.
    is_told: bool,
}

/// What is known of the blocks of a run.
#[derive(Default)]
pub(super) struct Stalls(Mutex<Vec<Known>>);

/// What holds a block up that no frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Itself, or the world before a source.
    Itself(&'static str),
    /// Blocks behind it, or a stalled one before it.
    Others,
}

/// Whether a block is stalled past which no frame came for `silent`, and why. In the mean they came
/// `mean_seconds` apart.
fn judge(
    progress: &Progress,
    silent: Duration,
    mean_seconds: f64,
    has_stalled_before: bool,
) -> Option<Cause> {
    let apart = FRAMES * progress.frame_seconds.max(mean_seconds);
    let patience = Duration::try_from_secs_f64(apart).unwrap_or(Duration::MAX).max(PATIENCE);
    let (cause, patience) = match progress.waits {
        Some(For::Room) => (Cause::Others, patience),
        _ if progress.lacks_input && has_stalled_before => (Cause::Others, patience),
        _ if progress.lacks_input => {
            (Cause::Itself("it waits for frames"), patience.saturating_mul(MORE_PATIENCE))
        }
        None => (Cause::Itself("it works"), patience.saturating_mul(MORE_PATIENCE)),
        Some(For::Input) => (Cause::Itself("it waits for data"), patience),
        Some(For::Itself) => (Cause::Itself("frames wait before it"), patience),
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
            is_stalled: false,
            is_told: false,
        }
    }

    /// Whether the block takes frames, and has pushed none for so long that some were due.
    fn swallows(&mut self, progress: &Progress, now: Instant) -> bool {
        if progress.pushed != self.pushed || !progress.is_running {
            self.pushed = progress.pushed;
            self.taken_seconds = progress.taken_seconds;
            self.pushed_at = now;
        }
        // An interval that is infinite or not a number is never over.
        let is_overdue =
            progress.taken_seconds - self.taken_seconds >= FRAMES * progress.push_seconds;
        let silent = now.saturating_duration_since(self.pushed_at);
        progress.push_seconds > 0.0 && is_overdue && silent >= PATIENCE
    }
}

impl Stalls {
    /// Looks at all blocks; says of those that hold themselves up when it begins and when it is over.
    pub fn look(&self, cells: &[Arc<Cell>], events: &Events) {
        let now = Instant::now();
        let mut all = lock(&self.0);
        if all.is_empty() {
            all.extend(cells.iter().map(|_| Known::new(now)));
        }
        for (number, cell) in cells.iter().enumerate() {
            let progress = cell.progress();
            let has_stalled_before = progress.before.iter().any(|before| all[*before].is_stalled);
            let known = &mut all[number];
            let swallows = known.swallows(&progress, now);
            if swallows {
                known.since = known.pushed_at;
            }
            let silent = now.saturating_duration_since(known.since);
            if !swallows && (progress.frames != known.frames || !progress.is_running) {
                known.frames = progress.frames;
                known.since = now;
                if std::mem::take(&mut known.is_told) && progress.is_running {
                    let text = format!("frames pass again after {:.1} s", silent.as_secs_f64());
                    events.add(EventKind::Resumed, Some(&cell.name), text);
                }
                if std::mem::take(&mut known.is_stalled) {
                    cell.set_stalled(false);
                }
                continue;
            }
            let passing = known.since.saturating_duration_since(known.first).as_secs_f64();
            let mean_seconds = if known.frames > 0 { passing / known.frames as f64 } else { 0.0 };
            let cause = if swallows {
                Some(Cause::Itself("it takes frames and pushes none"))
            } else {
                judge(&progress, silent, mean_seconds, has_stalled_before)
            };
            let Some(cause) = cause else { continue };
            if !std::mem::replace(&mut known.is_stalled, true) {
                cell.set_stalled(true);
            }
            if let (Cause::Itself(why), false) = (cause, known.is_told) {
                known.is_told = true;
                let passed = if swallows { known.pushed } else { known.frames };
                let since = if passed > 0 { "" } else { " since the start" };
                let text = format!("no frame{since} for {:.1} s: {why}", silent.as_secs_f64());
                events.add(EventKind::Stalled, Some(&cell.name), text);
            }
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
    fn block_is_stalled_after_ten_expected_or_usual_intervals() {
        let source = progress(Some(For::Input), false, &[]);
        let at = |silent: f64, mean| judge(&source, Duration::from_secs_f64(silent), mean, false);
        assert_eq!(at(1.9, 0.0), None);
        assert_eq!(at(2.0, 0.0), Some(Cause::Itself("it waits for data")));
        assert_eq!(at(2.0, 1.0), None);
        let fast = Progress { frame_seconds: 1e-4, ..progress(Some(For::Input), false, &[]) };
        assert_eq!(judge(&fast, Duration::from_millis(900), 0.0, false), None);
        assert!(judge(&fast, PATIENCE, 0.0, false).is_some());
    }

    #[test]
    fn block_swallows_once_ten_of_its_frames_are_due_and_none_was_pushed() {
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
        assert!(!look(at(4, 53.0), 53), "a dump has come");
        assert!(!look(Progress { push_seconds: 0.0, ..at(4, 1e9) }, 100), "it has no outputs");
        assert!(!look(Progress { push_seconds: f64::NAN, ..at(4, 1e9) }, 101));
        // A file is read faster than real time.
        assert!(!look(at(5, 1000.0), 102) && !look(at(5, 2000.0), 102));
        assert!(look(at(5, 2000.0), 103));
    }

    #[test]
    fn only_the_block_that_holds_itself_up_is_the_cause() {
        let silent = Duration::from_secs(3);
        let cause = |progress: &Progress, has_stalled_before| {
            judge(progress, silent, 0.0, has_stalled_before)
        };
        let held_up = progress(Some(For::Room), false, &[0]);
        assert_eq!(cause(&held_up, false), Some(Cause::Others));
        let starving = progress(Some(For::Input), true, &[0]);
        assert_eq!(cause(&starving, true), Some(Cause::Others));
        assert_eq!(cause(&starving, false), None, "the block before it may come to a frame yet");
        let hung = progress(Some(For::Itself), false, &[0]);
        assert_eq!(cause(&hung, false), Some(Cause::Itself("frames wait before it")));
        let works = progress(None, false, &[0]);
        assert_eq!(cause(&works, false), None);
        assert_eq!(
            judge(&works, Duration::from_secs(20), 0.0, false),
            Some(Cause::Itself("it works"))
        );
    }
}
