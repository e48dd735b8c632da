//! Queue of tasks that are ready to run, for which worker threads wait, and timers that make tasks ready.

use fxgraph_core::sync::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use std::task::Waker;
use std::time::{Duration, Instant};

/// Work for which no further thread is woken: about twice what it costs to wake one, see `src/adr/024-worker-threads.md`.
pub(crate) const SHORT: Duration = Duration::from_micros(50);

/// The queue.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    state: Mutex<State<T>>,
    woken: Condvar,
}

/// Who takes a task that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// The worker that adds it, soon, unless it calls [`Ready::wake`].
    This,
    /// Any worker.
    Any,
}

#[derive(Debug)]
struct State<T> {
    /// Tasks with their usual time.
    tasks: VecDeque<(T, Duration)>,
    /// Sum of these times.
    backlog: Duration,
    /// Workers that sleep, and those of them that were woken and have not noticed it.
    sleeping: usize,
    waking: usize,
    /// Tasks to wake at a time. The numbers tell timers of the same time apart.
    timers: BTreeMap<(Instant, u64), Waker>,
    timers_so_far: u64,
    /// Time up to which a worker sleeps.
    watched: Option<Instant>,
    is_closed: bool,
}

/// A timer that is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer(Instant, u64);

impl<T> Default for Ready<T> {
    fn default() -> Self {
        let state = State {
            tasks: VecDeque::new(),
            backlog: Duration::ZERO,
            sleeping: 0,
            waking: 0,
            timers: BTreeMap::new(),
            timers_so_far: 0,
            watched: None,
            is_closed: false,
        };
        Self { state: Mutex::new(state), woken: Condvar::new() }
    }
}

impl<T> State<T> {
    /// Whether another worker is woken, in addition to one that works for `ahead` before it takes the next task. `None`: there
    /// is no such worker.
    fn wakes(&mut self, ahead: Option<Duration>) -> bool {
        let coming = self.waking + usize::from(ahead.is_some());
        let work = self.backlog + ahead.unwrap_or_default();
        let wakes = !self.tasks.is_empty()
            && self.waking < self.sleeping
            && (coming == 0 || work > SHORT * coming as u32);
        self.waking += usize::from(wakes);
        wakes
    }

    /// Whether another worker is woken to watch the next timer, which no sleeping worker does.
    fn hands_over(&mut self) -> bool {
        let first = self.timers.first_key_value();
        let is_unwatched =
            first.is_some_and(|((at, _), _)| self.watched.is_none_or(|watched| *at < watched));
        let hands_over = is_unwatched && self.waking == 0 && self.sleeping > 0;
        self.waking += usize::from(hands_over);
        hands_over
    }

    /// Removes and returns the first timer whose time has come.
    fn due(&mut self) -> Option<Waker> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= Instant::now()).then(|| first.remove())
    }

    /// Time up to which a worker that goes to sleep watches the timers; `None` if another one does.
    fn watch(&mut self) -> Option<Instant> {
        let ((first, _), _) = self.timers.first_key_value()?;
        let is_first = self.watched.is_none_or(|watched| *first < watched);
        let until = is_first.then_some(*first);
        self.watched = until.or(self.watched);
        until
    }
}

impl<T> Ready<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a task that usually takes `time`.
    pub fn add(&self, task: T, time: Duration, taker: Taker) {
        let mut state = self.state();
        state.tasks.push_back((task, time));
        state.backlog += time;
        let wakes = state.wakes((taker == Taker::This).then_some(Duration::ZERO));
        drop(state);
        if wakes {
            self.woken.notify_one();
        }
    }

    /// Wakes a worker for tasks and timers that no running worker takes soon.
    pub fn wake(&self) {
        let mut state = self.state();
        let wakes = state.wakes(None) || state.hands_over();
        drop(state);
        if wakes {
            self.woken.notify_one();
        }
    }

    /// Waits for a task and takes it; `None` if the queue is closed. Also whether tasks are left for this worker.
    pub fn take(&self) -> Option<(T, bool)> {
        let mut state = self.state();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(waker) = state.due() {
                drop(state);
                waker.wake();
                state = self.state();
            } else if let Some((task, time)) = state.tasks.pop_front() {
                state.backlog -= time;
                let wakes = state.wakes(Some(time)) || (time >= SHORT && state.hands_over());
                let is_left = !state.tasks.is_empty() && state.waking == 0;
                drop(state);
                if wakes {
                    self.woken.notify_one();
                }
                return Some((task, is_left));
            } else {
                state = self.sleep(state);
            }
        }
    }

    /// Sleeps until this worker is woken, or for the next timer.
    fn sleep<'a>(&self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let until = state.watch();
        state.sleeping += 1;
        while state.waking == 0 && !state.is_closed {
            let Some(until) = until else {
                state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.woken.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleeping -= 1;
        // Also after a timer: this worker takes the next task.
        state.waking = state.waking.saturating_sub(1);
        if until.is_some() && state.watched == until {
            state.watched = None;
        }
        state
    }

    /// Sets a timer that wakes `waker` at `at`. Only for a worker, which watches the timers when its turn has ended.
    pub fn set(&self, at: Instant, waker: Waker) -> Timer {
        let mut state = self.state();
        state.timers_so_far += 1;
        let number = state.timers_so_far;
        state.timers.insert((at, number), waker);
        Timer(at, number)
    }

    /// Removes a timer.
    pub fn remove(&self, Timer(at, number): Timer) {
        let waker = self.state().timers.remove(&(at, number));
        drop(waker);
    }

    /// Number of timers that are set.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub fn timers(&self) -> usize {
        self.state().timers.len()
    }

    /// Lets all workers end. Tasks in the queue do not run.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let timers = std::mem::take(&mut state.timers);
        drop(state);
        drop(timers);
        self.woken.notify_all();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// A queue with one sleeping worker that does not notice wake-ups; returns whether it is woken by `then`.
    fn wakes(then: impl FnOnce(&Ready<u8>)) -> bool {
        let ready = Ready::default();
        ready.state().sleeping = 1;
        then(&ready);
        ready.state().waking == 1
    }

    const HALF: Duration = Duration::from_micros(SHORT.as_micros() as u64 / 2);

    #[test]
    fn worker_is_woken_for_tasks_that_no_other_worker_takes_soon() {
        assert!(wakes(|ready| ready.add(1, Duration::ZERO, Taker::Any)));
        assert!(!wakes(|ready| ready.add(1, SHORT, Taker::This)));
        assert!(wakes(|ready| ready.add(1, 2 * SHORT, Taker::This)));
        let three = |ready: &Ready<u8>| (0..3).for_each(|n| ready.add(n, HALF, Taker::This));
        assert!(wakes(three), "together they take longer than waking a thread");
        let goes_on = |ready: &Ready<u8>| {
            ready.add(1, HALF, Taker::This);
            ready.wake();
        };
        assert!(wakes(goes_on));
        assert!(!wakes(Ready::wake), "there is no task");
    }

    #[test]
    fn worker_that_takes_a_long_task_wakes_another_one_for_the_next() {
        for (time, is_woken) in [(SHORT, true), (HALF, false)] {
            let take = |ready: &Ready<u8>| {
                ready.add(1, time, Taker::This);
                ready.add(2, HALF / 2, Taker::This);
                assert_eq!(ready.take(), Some((1, !is_woken)));
            };
            assert_eq!(wakes(take), is_woken, "{time:?}");
        }
    }

    #[test]
    fn worker_is_woken_for_a_timer_that_no_worker_watches() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        for (watched, time, is_woken) in [
            (None, SHORT, true),
            (None, HALF, false),
            (Some(at(30)), SHORT, true),
            (Some(at(1)), SHORT, false),
        ] {
            let take = |ready: &Ready<u8>| {
                ready.state().watched = watched;
                for seconds in [60, 1] {
                    ready.set(at(seconds), Waker::noop().clone());
                }
                ready.add(1, time, Taker::This);
                assert_eq!(ready.take(), Some((1, false)));
            };
            assert_eq!(wakes(take), is_woken, "{watched:?} {time:?}");
        }
        let stalls = |ready: &Ready<u8>| {
            ready.set(now, Waker::noop().clone());
            ready.wake();
        };
        assert!(wakes(stalls));
    }

    #[test]
    fn further_tasks_wake_a_worker_once() {
        let ready = Ready::default();
        ready.state().sleeping = 3;
        ready.add(1, HALF, Taker::Any);
        ready.add(2, HALF, Taker::Any);
        assert_eq!(ready.state().waking, 1);
        ready.add(3, SHORT, Taker::Any);
        assert_eq!(ready.state().waking, 2);
        ready.add(4, 9 * SHORT, Taker::Any);
        ready.add(5, 9 * SHORT, Taker::Any);
        assert_eq!(ready.state().waking, 3, "there are no more");
    }
}
