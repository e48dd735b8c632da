//! Tests of live updates that are taken back, with changes of other clients in between.

use super::kinds::rows;
use super::live_update::{NEVER, assert_levels, run_until, start_level};
use super::{Control, LIMIT, Running, swap};
use crate::control::{LiveUpdate, LiveUpdateError, Replaced, TakenBack};
use std::time::Duration;

/// Samples, of 300 us each, from the newest one to the timestamp of an update.
const AHEAD: u64 = 3000;

struct Bench {
    name: &'static str,
    control: Control,
    running: Running,
}

impl Bench {
    /// A running flowgraph with level 1.
    fn start(name: &'static str) -> Self {
        let (control, running) = start_level(name, NEVER);
        let bench = Self { name, control, running };
        bench.reach(20);
        bench
    }

    fn newest(&self) -> u64 {
        self.control.stats()[2].newest_timestamp.unwrap_or_default()
    }

    fn reach(&self, until: u64) {
        while self.newest() < until {
            assert!(!self.control.wait_timeout(Duration::from_millis(1)), "the run ended");
        }
    }

    /// Sets the level to 9 at a timestamp.
    fn update(&self, ahead: u64) -> (u64, Replaced) {
        let made = self.control.live_update_prepared("f: {level: 9}", LIMIT, |prepared| {
            Some(prepared.newest_timestamp.unwrap() + ahead)
        });
        let (made, replaced) = made.unwrap().unwrap();
        (made.effective_timestamp, replaced)
    }

    fn set(&self, level: i64, at: Option<u64>) -> LiveUpdate {
        let made = self.control.live_update(&format!("f: {{level: {level}}}"), at, LIMIT).unwrap();
        assert!(!made.is_late, "the machine is too slow for the test");
        made
    }

    fn take_back(&self, replaced: &Replaced) -> TakenBack {
        self.control.take_back(replaced, LIMIT).unwrap()
    }

    /// Takes an update back before its timestamp, and checks whether a later change has set the level.
    fn take_back_in_time(&self, replaced: &Replaced, is_kept: bool) {
        let taken = self.take_back(replaced);
        assert!(!taken.is_late, "the machine is too slow for the test");
        assert_eq!(taken.effective_timestamp, replaced.at());
        let kept = [("f".to_owned(), "level")];
        assert_eq!(taken.kept, &kept[..usize::from(is_kept)]);
    }

    /// Runs to timestamp `until`, and checks that each frame has the level in effect, and the configuration of this
    /// level.
    fn end(self, until: u64, levels: &[(u64, i64)]) {
        let Self { name, control, running } = self;
        assert_eq!(run_until(&control, running, until).failures, []);
        assert_levels(name, levels);
        let rows = rows(name);
        for row in &rows {
            let first = rows.iter().find(|first| first.3 == row.3).unwrap();
            assert_eq!(row.4, first.4, "at {}", row.0);
        }
    }
}

#[test]
fn update_that_is_taken_back_has_no_effect() {
    let bench = Bench::start("taken_back");
    let before = bench.control.plan().config_id();
    let (at, replaced) = bench.update(AHEAD);
    bench.take_back_in_time(&replaced, false);
    assert_eq!(bench.control.plan().config_id(), before);
    // Once more, when it is no longer there.
    bench.take_back_in_time(&replaced, true);
    bench.end(at + 200, &[(0, 1)]);
}

#[test]
fn update_that_is_taken_back_leaves_the_values_scheduled_before_and_after() {
    let bench = Bench::start("taken_back_scheduled");
    let newest = bench.newest();
    let [first, last] = [newest + AHEAD, newest + 2 * AHEAD];
    bench.set(2, Some(first));
    bench.set(3, Some(last));
    let (at, replaced) = bench.update(3 * AHEAD / 2);
    assert!(first < at && at < last, "the machine is too slow for the test");
    bench.take_back_in_time(&replaced, false);
    bench.end(last + 200, &[(0, 1), (first, 2), (last, 3)]);
}

#[test]
fn later_change_of_the_level_stays_when_the_update_is_taken_back() {
    let bench = Bench::start("taken_back_later");
    bench.set(3, Some(bench.newest() + 2 * AHEAD));
    let (at, replaced) = bench.update(AHEAD);
    let from = bench.set(2, None).effective_timestamp;
    assert!(from < at, "the machine is too slow for the test");
    bench.take_back_in_time(&replaced, true);
    bench.end(at + AHEAD + 200, &[(0, 1), (from, 2)]);
}

#[test]
fn change_scheduled_after_the_update_stays_when_the_update_is_taken_back() {
    let bench = Bench::start("taken_back_after");
    let (at, replaced) = bench.update(AHEAD);
    bench.set(2, Some(at + 1000));
    bench.take_back_in_time(&replaced, true);
    bench.end(at + 1200, &[(0, 1), (at + 1000, 2)]);
}

#[test]
fn swap_of_the_block_stays_when_the_update_is_taken_back() {
    let bench = Bench::start("taken_back_swap");
    let (at, replaced) = bench.update(2 * AHEAD);
    swap(&bench.control, "f", &format!("parameters: {{fails_at: {}}}", NEVER + 1)).unwrap();
    bench.take_back_in_time(&replaced, false);
    let parameters = &bench.control.plan().blocks[1].parameters;
    assert_eq!(parameters, &serde_json::json!({"level": 1, "fails_at": NEVER + 1}));
    let Bench { name, control, running } = bench;
    assert_eq!(run_until(&control, running, at + 200).failures, []);
    assert_levels(name, &[(0, 1)]);
}

#[test]
fn take_back_with_too_many_scheduled_values_changes_nothing() {
    let bench = Bench::start("taken_back_refused");
    let (at, replaced) = bench.update(3 * AHEAD);
    let later = (1..=200).map(|n| (at + 5 * n, n as i64));
    let later: Vec<(u64, i64)> = later.collect();
    for (from, level) in &later {
        bench.set(*level, Some(*from));
    }
    let before = bench.control.plan();
    let rejected = bench.control.take_back(&replaced, LIMIT);
    assert!(matches!(rejected, Err(LiveUpdateError::Rejected(_))), "{rejected:?}");
    assert_eq!(bench.control.plan().config_id(), before.config_id());
    assert!(bench.newest() < at, "the machine is too slow for the test");
    let Bench { name, control, running } = bench;
    assert_eq!(run_until(&control, running, at + 1200).failures, []);
    assert_levels(name, &[&[(0, 1), (at, 9)], &later[..]].concat());
}

#[test]
fn late_take_back_restores_values_unless_another_change_may_have_set_them() {
    let bench = Bench::start("taken_back_late");
    let (first, replaced) = bench.update(100);
    bench.reach(first + 10);
    let taken = bench.take_back(&replaced);
    let from = taken.effective_timestamp;
    assert!(taken.is_late && from > first && taken.kept.is_empty(), "{taken:?}");
    // The values of the second update are in force, and nothing says whose they are.
    let (at, replaced) = bench.update(100);
    bench.reach(at + 10);
    bench.control.live_update("f: {}", None, LIMIT).unwrap();
    let taken = bench.control.take_back(&replaced, LIMIT);
    assert!(
        matches!(taken, Err(LiveUpdateError::Unclear { at: passed }) if passed == at),
        "{taken:?}"
    );
    bench.end(at + 200, &[(0, 1), (first, 9), (from, 1), (at, 9)]);
}
