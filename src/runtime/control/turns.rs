//! Order of changes of the flowgraph: first come, first served.

use fxgraph_core::lock::lock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Queue of the callers that want to change the flowgraph.
#[derive(Default)]
pub(super) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Default)]
struct Line {
    next: u64,
    /// Numbers of the queued callers; the first one has the turn.
    waiting: VecDeque<u64>,
}

/// Exclusive right to change the flowgraph, until it is dropped; a panic drops it too.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// Waits for the turn up to `deadline`; `None` if the time limit passes first.
    pub fn take(&self, deadline: Instant) -> Option<Turn<'_>> {
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        while line.waiting.front() != Some(&number) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                line.waiting.retain(|waiting| *waiting != number);
                return None;
            }
            let woken = self.moved.wait_timeout(line, left);
            line = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.line().waiting.pop_front();
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn take(turns: &Turns, limit: Duration) -> Option<Turn<'_>> {
        turns.take(Instant::now() + limit)
    }

    #[test]
    fn turns_are_given_in_the_order_of_requests() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        let first = take(&turns, Duration::ZERO).unwrap();
        assert!(take(&turns, Duration::ZERO).is_none(), "the turn is taken");
        std::thread::scope(|scope| {
            for number in 0..5 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = take(turns, Duration::from_mins(1)).unwrap();
                    order.lock().unwrap().push(number);
                });
                while turns.line().waiting.len() < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn turn_ends_with_a_panic() {
        let turns = Turns::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = take(&turns, Duration::ZERO).unwrap();
            panic!("no such gain");
        }));
        assert!(panicked.is_err());
        assert!(take(&turns, Duration::ZERO).is_some());
    }
}
