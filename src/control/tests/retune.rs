//! Retuned and tapped blocks that fail or are swapped.

use super::super::{TapOptions, Tapped};
use super::*;
use crate::flowgraph::Plan;
use crate::retune::Undecided;
use crate::runtime::edge::Harness;

/// A time at which no test is any more.
const NEVER: u64 = 100_000_000;

/// A flowgraph with a level that fails at `fails_at`; its sink collects into `name`.
fn start_level(name: &str, fails_at: u64) -> (Control, Running) {
    let text = format!(
        "flowgraph: g
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{kind: level, input: s, on_fault: restart, parameters: {{level: 1, fails_at: {fails_at}}}}}
  o: {{kind: collect, input: f, parameters: {{into: {name}}}}}
"
    );
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    (control, running)
}

/// Waits until the sink has seen frames up to timestamp `until`, and stops.
fn run_until(control: &Control, running: Running, until: u64) -> Report {
    while control.stats()[2].newest_timestamp.unwrap_or_default() < until {
        assert!(!control.wait_timeout(Duration::from_millis(1)), "it ended");
    }
    stop(control, running)
}

/// Each frame has the level that holds at its time: of `levels`, the last one that has begun.
fn assert_levels(name: &str, levels: &[(u64, i64)]) {
    let rows = rows(name);
    assert!(rows.last().is_some_and(|row| row.0 > levels.last().unwrap().0));
    for (time, _, _, level, _) in rows {
        let holds = levels.iter().rev().find(|(from, _)| *from <= time).unwrap();
        assert_eq!(level, holds.1, "at {time}");
    }
}

#[test]
fn a_block_that_was_retuned_is_built_anew_with_its_new_values() {
    let (control, running) = start_level("retuned", 8000);
    let before = control.plan().config_id();
    let done = control.retune("f: {level: 5}", None, LIMIT).unwrap();
    let at = done.effective_timestamp;
    assert!(at < 8000);
    let report = run_until(&control, running, 8200);
    assert_eq!((report.failures.len(), report.stats[1].restarts), (0, 1));
    assert_levels("retuned", &[(0, 1), (at, 5)]);
    for (time, _, _, _, config_id) in rows("retuned") {
        assert_ne!(time, 8000);
        assert_eq!(config_id, if time < at { before } else { done.config_id }, "at {time}");
    }
}

#[test]
fn what_waits_for_its_time_outlives_the_block_that_it_was_said_to() {
    let (control, running) = start_level("waiting", 6000);
    let retune = |level: i64, at| {
        let done = control.retune(&format!("f: {{level: {level}}}"), Some(at), LIMIT).unwrap();
        assert_eq!((done.effective_timestamp, done.is_late), (at, false));
    };
    // One of them has come when the block fails, and one is replaced.
    for (level, at) in [(2, 5000), (3, 10000), (4, 12000), (5, 11000)] {
        retune(level, at);
    }
    let report = run_until(&control, running, 11500);
    assert_eq!((report.failures.len(), report.stats[1].restarts), (0, 1));
    assert_levels("waiting", &[(0, 1), (5000, 2), (10000, 3), (11000, 5)]);
}

#[test]
fn what_waits_for_its_time_is_handed_to_the_block_that_is_swapped_in() {
    let (control, running) = start_level("handed", NEVER);
    flow(&control);
    let at = |later: u64| control.stats()[1].newest_timestamp.unwrap() + later;
    let (first, second) = (at(4000), at(8000));
    control.retune("f: {level: 2}", Some(first), LIMIT).unwrap();
    control.retune("f: {level: 3}", Some(second), LIMIT).unwrap();
    swap(&control, "f", "parameters: {fails_at: 9000000}").unwrap();
    assert_eq!(control.plan().blocks[1].parameters["level"], 3, "the newest values are shown");
    let newest = control.stats()[1].newest_timestamp.unwrap();
    assert!(newest < first, "{newest} {first}");
    run_until(&control, running, second + 500);
    assert_levels("handed", &[(0, 1), (first, 2), (second, 3)]);
}

#[test]
fn a_swap_that_gives_a_parameter_another_value_has_the_last_word_on_it() {
    let (control, running) = start_level("last_word", NEVER);
    flow(&control);
    let at = control.stats()[1].newest_timestamp.unwrap() + 4000;
    control.retune("f: {level: 2}", Some(at), LIMIT).unwrap();
    let told = |control: &Control| events(control, EventKind::Swapped).len();
    swap(&control, "f", "parameters: {level: 7}").unwrap();
    assert_eq!(told(&control), 1);
    run_until(&control, running, at + 500);
    let rows = rows("last_word");
    let swapped = rows.iter().position(|row| row.3 != 1).unwrap();
    assert!(rows[swapped].0 < at);
    assert!(rows[swapped..].iter().all(|row| row.3 == 7));
}

#[test]
fn what_has_come_holds_from_the_start_of_the_next_run() {
    let (control, running) = start_level("again", NEVER);
    let done = control.retune("f: {level: 2}", None, LIMIT).unwrap();
    let later = done.effective_timestamp + 3000;
    control.retune("f: {level: 3}", Some(later), LIMIT).unwrap();
    run_until(&control, running, done.effective_timestamp + 10);
    assert_levels("again", &[(0, 1), (done.effective_timestamp, 2)]);
    let before = rows("again").len();
    let prepared = control.prepare(Plan::clone(&control.settled_plan())).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    run_until(&control, running, later + 500);
    for (time, _, _, level, _) in rows("again").into_iter().skip(before) {
        assert_eq!(level, if time < later { 2 } else { 3 }, "at {time}");
    }
}

#[test]
fn a_block_built_anew_before_the_decision_knows_of_the_offer() {
    let text = "flowgraph: g
blocks:
  s: {kind: ticks, parameters: {period_microseconds: 300}}
  f: {kind: level, input: s, parameters: {level: 1, fails_at: 100}}
  o: {kind: collect, input: f, parameters: {into: nowhere}}
";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let level = |plan: &Plan, decide: &dyn Fn()| {
        let rebuild = plan.rebuild(1, Default::default()).unwrap();
        let mut harness = Harness::new(rebuild().unwrap(), &plan.blocks[1].ports, 4).unwrap();
        decide();
        harness.send(0, |frame| frame.header_mut().timestamp = 7);
        Harness::block_on(harness.run()).unwrap();
        harness.receive(0).unwrap().as_slice::<i64>()[0]
    };
    for (is_decided, at, expected) in [(true, 7, 5), (true, 8, 1), (false, 0, 1)] {
        let moment = Undecided::new();
        let retuned = plan.retune(&registry(), "f: {level: 5}", moment.when()).ok().unwrap().plan;
        let moment = std::cell::Cell::new(Some(moment));
        let found = level(&retuned, &|| {
            let moment = moment.take().unwrap();
            if is_decided {
                moment.decide(at);
            }
        });
        assert_eq!(found, expected, "{is_decided} {at}");
    }
}

#[test]
fn a_tap_goes_on_when_its_block_is_swapped() {
    let (control, running) = start("tapped", 4);
    let mut tap = control.tap("f", TapOptions::default(), LIMIT).unwrap();
    let mut last = 0;
    for change in ["implementation: running", "implementation: cpu", "implementation: running"] {
        swap(&control, "f", change).unwrap();
        let seen = control.stats()[1].frames_out;
        // Frames of the new block come, and no frame comes twice.
        while last < seen + 20 {
            let Tapped::Frame(frame) = tap.next(LIMIT).unwrap() else { panic!("nothing comes") };
            assert!(frame.header.sequence > last || last == 0);
            last = frame.header.sequence;
        }
    }
    drop(tap);
    let report = stop(&control, running);
    assert_whole(&rows("tapped"), &report, 4, |_| 1);
}
