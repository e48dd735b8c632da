//! Time limit of a process that counts only the time in which the process could run.
//!
//! On a busy machine an import takes as long as the machine lets it. That is no error of the program, so the time in which
//! the process waits for a core, for a disk, or is stopped does not count.

use rustix::process::Pid;
use std::time::{Duration, Instant};

/// Longest time between two looks at the process.
const TICK: Duration = Duration::from_millis(100);
/// Clock tick of `/proc`, which is 1/100 s on every architecture that this program runs on.
const TICK_MILLISECONDS: u64 = 10;
/// The whole time is limited, too, to this many times the limit: a disk may never answer.
const LONGEST: u32 = 20;

/// State of a process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Whether the process waits for something that it asked for itself: a lock, a socket, a timer.
    sleeps: bool,
    /// CPU time of all its threads, in clock ticks.
    ticks: u64,
}

impl State {
    /// Reads the text of `/proc/PID/stat`.
    fn parse(text: &str) -> Option<Self> {
        // The name before it may contain spaces and brackets.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        let sleeps = fields.next()? == "S";
        let mut times = fields.skip(10).map(str::parse::<u64>);
        let ticks = times.next()?.ok()? + times.next()?.ok()?;
        Some(Self { sleeps, ticks })
    }
}

/// Counts the time of a process.
pub struct Patience {
    limit: Duration,
    pid: Option<Pid>,
    began: Instant,
    looked: Instant,
    ticks: u64,
    counted: Duration,
}

impl Patience {
    /// Starts counting the time of the process `pid`.
    pub fn new(limit: Duration, pid: Option<Pid>) -> Self {
        let now = Instant::now();
        let mut patience =
            Self { limit, pid, began: now, looked: now, ticks: 0, counted: Duration::ZERO };
        patience.ticks = patience.state().map_or(0, |state| state.ticks);
        patience
    }

    fn state(&self) -> Option<State> {
        let path = format!("/proc/{}/stat", self.pid?.as_raw_nonzero());
        State::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// Time until the next look.
    pub fn tick(&self) -> Duration {
        TICK.min(self.limit / 8).max(Duration::from_millis(1))
    }

    /// Looks at the process; returns whether its time is over.
    pub fn is_over(&mut self) -> bool {
        let (now, state) = (Instant::now(), self.state());
        let passed = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.counted += match state {
            Some(State { sleeps: false, ticks }) => {
                let used = ticks.saturating_sub(self.ticks);
                self.ticks = ticks;
                Duration::from_millis(used.saturating_mul(TICK_MILLISECONDS))
            }
            Some(State { ticks, .. }) => {
                self.ticks = ticks;
                passed
            }
            None => passed,
        };
        self.counted >= self.limit
            || now.saturating_duration_since(self.began) >= LONGEST * self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};

    #[test]
    fn state_of_a_process_is_read_past_a_name_with_brackets() {
        let rest = "1 7 7 0 -1 4194560 900 0 3 0 12 5 0 0 20 0 1 0 88 1 2";
        for (letter, sleeps) in [("S", true), ("R", false), ("D", false), ("T", false)] {
            let text = format!("77 (a) S (b) {letter} {rest}");
            assert_eq!(State::parse(&text), Some(State { sleeps, ticks: 17 }), "{text}");
        }
        assert_eq!(State::parse("77 (python) S 1 7"), None);
    }

    #[test]
    fn sleeping_process_uses_its_time_and_a_stopped_one_does_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        // Looks at the process until `passed` have passed; returns the time that counts.
        let look = |passed: Duration| {
            let mut patience = Patience::new(Duration::from_mins(1), Some(pid));
            while patience.began.elapsed() < passed {
                std::thread::sleep(Duration::from_millis(2));
                patience.is_over();
            }
            patience.counted
        };
        let signal = |signal: Signal, sleeps: bool| {
            kill_process(pid, signal).unwrap();
            let patience = Patience::new(Duration::ZERO, Some(pid));
            while patience.state().unwrap().sleeps != sleeps {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        signal(Signal::CONT, true);
        signal(Signal::STOP, false);
        assert_eq!(look(Duration::from_millis(50)), Duration::ZERO);
        signal(Signal::CONT, true);
        assert!(look(Duration::from_millis(50)) >= Duration::from_millis(50));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
