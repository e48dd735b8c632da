//! Tests of live updates and probes of blocks that fail or are swapped.

use super::super::{TapOptions, Tapped};
use super::*;
use fxgraph_core::changes::Undecided;
use fxgraph_core::edge::Harness;
use fxgraph_flowgraph::Plan;

/// Timestamp that no test reaches.
pub(super) const NEVER: u64 = 100_000_000;

/// Starts a flowgraph with a level that fails at `fails_at`; its sink collects into `name`.
pub(super) fn start_level(name: &str, fails_at: u64) -> (Control, Running) {
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
pub(super) fn run_until(control: &Control, running: Running, until: u64) -> Report {
    while control.stats()[2].newest_timestamp.unwrap_or_default() < until {
        assert!(!control.wait_timeout(Duration::from_millis(1)), "the run ended");
    }
    stop(control, running)
}

/// Checks that each frame has the level in effect at its timestamp: the latest one of `levels`.
pub(super) fn assert_levels(name: &str, levels: &[(u64, i64)]) {
    let rows = rows(name);
    assert!(rows.last().is_some_and(|row| row.0 > levels.last().unwrap().0));
    for (time, _, _, level, _) in rows {
        let holds = levels.iter().rev().find(|(from, _)| *from <= time).unwrap();
        assert_eq!(level, holds.1, "at {time}");
    }
}

#[test]
fn restarted_block_keeps_live_values() {
    let (control, running) = start_level("live_values", 8000);
    let before = control.plan().config_id();
    let done = control.live_update("f: {level: 5}", None, LIMIT).unwrap();
    let at = done.effective_timestamp;
    assert!(at < 8000);
    let report = run_until(&control, running, 8200);
    assert_eq!((report.failures.len(), report.stats[1].restarts), (0, 1));
    assert_levels("live_values", &[(0, 1), (at, 5)]);
    for (time, _, _, _, config_id) in rows("live_values") {
        assert_ne!(time, 8000);
        assert_eq!(config_id, if time < at { before } else { done.config_id }, "at {time}");
    }
}

#[test]
fn live_update_right_after_a_fault_takes_effect_at_its_timestamp() {
    const BLOCKS: usize = 20;
    // As many faults within a minute as a block survives.
    const FAULTS: [u64; 5] = [20, 40, 60, 80, 100];
    let blocks = |entry: &dyn Fn(usize) -> String| (0..BLOCKS).map(entry).collect::<String>();
    let text = format!(
        "flowgraph: g\nblocks:\n  s: {{kind: ticks, parameters: {{period_microseconds: 20000}}}}\n{}{}",
        blocks(&|n| format!(
            "  f{n}: {{kind: level, input: s, on_fault: restart, queue: 200, \
             parameters: {{level: 0, fails_at: {NEVER}, fails_too: {FAULTS:?}}}}}\n"
        )),
        blocks(&|n| format!(
            "  o{n}: {{kind: collect, input: f{n}, parameters: {{into: after_fault_{n}}}}}\n"
        )),
    );
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    let mut levels = vec![vec![(0, 0)]; BLOCKS];
    for (round, fault) in FAULTS.into_iter().enumerate() {
        let mut waiting: Vec<usize> = (0..BLOCKS).collect();
        while !waiting.is_empty() {
            let stats = control.stats();
            let restarts =
                |n: usize| stats[control.plan().block(&format!("f{n}")).unwrap()].restarts;
            let Some(next) = waiting.iter().position(|n| restarts(*n) > round as u64) else {
                assert!(!control.wait_timeout(Duration::ZERO), "the run ended");
                continue;
            };
            let n = waiting.remove(next);
            let level = round as i64 + 1;
            // Every second block gets a timestamp that has passed.
            let at = (n % 2 == 1).then_some(fault / 2);
            let done =
                control.live_update(&format!("f{n}: {{level: {level}}}"), at, LIMIT).unwrap();
            assert!(done.effective_timestamp > fault, "{done:?}");
            assert_eq!(done.is_late, at.is_some());
            levels[n].push((done.effective_timestamp, level));
        }
    }
    let last = levels.iter().map(|levels| levels.last().unwrap().0).max().unwrap();
    while control.stats().iter().any(|stats| stats.newest_timestamp.unwrap_or_default() < last + 5)
    {
        assert!(!control.wait_timeout(Duration::from_millis(1)), "the run ended");
    }
    assert_eq!(stop(&control, running).failures, []);
    for (n, levels) in levels.iter().enumerate() {
        assert_levels(&format!("after_fault_{n}"), levels);
    }
}

#[test]
fn live_update_of_a_block_without_frames_accepts_any_number_of_changes() {
    let text = "flowgraph: g
blocks:
  s: {kind: ticks, parameters: {period_microseconds: 60000000000}}
  f: {kind: level, input: s, parameters: {level: 1, fails_at: 100}}
  o: {kind: collect, input: f, parameters: {into: nowhere}}
";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    for level in 100..500 {
        control.live_update(&format!("f: {{level: {level}}}"), None, LIMIT).unwrap();
    }
    assert_eq!(control.plan().blocks[1].parameters["level"], 499);
    control.abort();
    assert!(control.wait_timeout(LIMIT));
    drop(running);
}

#[test]
fn panic_of_a_live_value_is_a_diagnostic_and_does_not_block_other_changes() {
    let (control, running) = start_level("unlucky", NEVER);
    flow(&control);
    let rejected = control.live_update(&format!("f: {{level: {}}}", kinds::UNLUCKY), None, LIMIT);
    let Err(LiveUpdateError::Rejected(rejected)) = rejected else { panic!("{rejected:?}") };
    assert!(rejected.problems[0].message.contains("no such level"), "{:?}", rejected.problems);
    swap(&control, "f", "parameters: {level: 4}").unwrap();
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn change_of_an_ended_run_is_rejected_in_the_next_one() {
    let (control, running) = start_level("outlived", NEVER);
    flow(&control);
    let change = control.change("f", "parameters: {level: 4}").ok().unwrap();
    assert_eq!(stop(&control, running).failures, []);
    let prepared = control.prepare(Plan::clone(&control.plan())).unwrap();
    assert!(matches!(control.swap(&change, LIMIT, false), Err(SwapError::Outdated)));
    assert!(matches!(control.shadow(&change, false), Err(SwapError::Outdated)));
    assert_eq!(control.plan().blocks[1].parameters["level"], 1);
    prepared.discard();
}

#[test]
fn scheduled_parameters_are_limited_in_bytes() {
    let large = (0..50_000).map(|n| (NEVER + n).to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        "flowgraph: g
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 20000}}}}
  f: {{kind: level, input: s, parameters: {{level: 1, fails_at: {NEVER}, fails_too: [{large}]}}}}
  o: {{kind: collect, input: f, parameters: {{into: nowhere}}}}
"
    );
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    let live_update =
        |level: i64, at| control.live_update(&format!("f: {{level: {level}}}"), at, LIMIT);
    let later = |number: i64| NEVER / 2 + number as u64;
    let accepted = (20..).take_while(|n| match live_update(*n, Some(later(*n))) {
        Ok(_) => true,
        Err(LiveUpdateError::Rejected(rejected)) => {
            let message = &rejected.problems[0].message;
            assert!(message.contains("bytes of parameters are scheduled already"), "{message}");
            false
        }
        Err(error) => panic!("{error}"),
    });
    let accepted = accepted.count();
    assert!((5..20).contains(&accepted), "{accepted} of half a megabyte each");
    control.abort();
    assert!(control.wait_timeout(LIMIT));
    drop(running);
}

#[test]
fn live_update_does_not_affect_other_blocks() {
    let (control, running) = start_level("unchanged", NEVER);
    flow(&control);
    let before = control.plan().config_id();
    // More changes than an output keeps; the source receives them when it pushes a frame.
    let mut done = control.live_update("f: {level: 2}", None, LIMIT).unwrap();
    for level in 3..1200 {
        done = control.live_update(&format!("f: {{level: {level}}}"), None, LIMIT).unwrap();
    }
    run_until(&control, running, done.effective_timestamp + 100);
    let rows = rows("unchanged");
    assert_eq!((rows[0].4, rows.last().unwrap().4), (before, done.config_id));
    assert!(rows.iter().all(|row| row.0 < done.effective_timestamp || row.4 == done.config_id));
}

#[test]
fn scheduled_values_survive_a_restart_of_the_block() {
    let (control, running) = start_level("waiting", 6000);
    let live_update = |level: i64, at| {
        let done = control.live_update(&format!("f: {{level: {level}}}"), Some(at), LIMIT).unwrap();
        assert_eq!((done.effective_timestamp, done.is_late), (at, false));
    };
    // One value is in effect when the block fails, and one is replaced.
    for (level, at) in [(2, 5000), (3, 10000), (4, 12000), (5, 11000)] {
        live_update(level, at);
    }
    let report = run_until(&control, running, 11500);
    assert_eq!((report.failures.len(), report.stats[1].restarts), (0, 1));
    assert_levels("waiting", &[(0, 1), (5000, 2), (10000, 3), (11000, 5)]);
}

#[test]
fn scheduled_values_survive_a_swap() {
    let (control, running) = start_level("handed", NEVER);
    flow(&control);
    let at = |later: u64| control.stats()[1].newest_timestamp.unwrap() + later;
    let (first, second) = (at(4000), at(8000));
    control.live_update("f: {level: 2}", Some(first), LIMIT).unwrap();
    control.live_update("f: {level: 3}", Some(second), LIMIT).unwrap();
    swap(&control, "f", "parameters: {fails_at: 9000000}").unwrap();
    assert_eq!(control.plan().blocks[1].parameters["level"], 3, "the newest values are shown");
    let newest = control.stats()[1].newest_timestamp.unwrap();
    assert!(newest < first, "{newest} {first}");
    run_until(&control, running, second + 500);
    assert_levels("handed", &[(0, 1), (first, 2), (second, 3)]);
}

#[test]
fn swap_that_changes_a_parameter_replaces_its_scheduled_values() {
    let (control, running) = start_level("last_word", NEVER);
    flow(&control);
    let at = control.stats()[1].newest_timestamp.unwrap() + 4000;
    control.live_update("f: {level: 2}", Some(at), LIMIT).unwrap();
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
fn settled_plan_starts_with_values_in_effect_and_keeps_scheduled_ones() {
    let (control, running) = start_level("again", NEVER);
    let done = control.live_update("f: {level: 2}", None, LIMIT).unwrap();
    let later = done.effective_timestamp + 3000;
    let scheduled = control.live_update("f: {level: 3}", Some(later), LIMIT).unwrap();
    run_until(&control, running, done.effective_timestamp + 10);
    assert_levels("again", &[(0, 1), (done.effective_timestamp, 2)]);
    let before = rows("again").len();
    let prepared = control.prepare(Plan::clone(&control.settled_plan())).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    assert_eq!(control.plan_in_force().blocks[1].parameters["level"], 2);
    run_until(&control, running, later + 500);
    let ids = [done.config_id, scheduled.config_id];
    for (time, _, _, level, config_id) in rows("again").into_iter().skip(before) {
        let expected = if time < later { (2, ids[0]) } else { (3, ids[1]) };
        assert_eq!((level, config_id), expected, "at {time}");
    }
}

#[test]
fn block_restarted_before_the_decision_has_the_scheduled_values() {
    let text = "flowgraph: g
blocks:
  s: {kind: ticks, parameters: {period_microseconds: 300}}
  f: {kind: level, input: s, parameters: {level: 1, fails_at: 100}}
  o: {kind: collect, input: f, parameters: {into: nowhere}}
";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let level = |plan: &Plan, decide: &dyn Fn()| {
        let rebuild = plan.rebuild(1, Default::default()).unwrap();
        let mut harness = Harness::new(rebuild(0).unwrap(), &plan.blocks[1].ports, 4).unwrap();
        decide();
        harness.send(0, |frame| frame.header_mut().timestamp = 7);
        Harness::block_on(harness.run()).unwrap();
        harness.receive(0).unwrap().as_slice::<i64>().unwrap()[0]
    };
    for (is_decided, at, expected) in [(true, 7, 5), (true, 8, 1), (false, 0, 1)] {
        let moment = Undecided::new();
        let updated =
            plan.live_update(&registry(), "f: {level: 5}", moment.when()).ok().unwrap().plan;
        let moment = std::cell::Cell::new(Some(moment));
        let found = level(&updated, &|| {
            let moment = moment.take().unwrap();
            if is_decided {
                moment.decide(at);
            }
        });
        assert_eq!(found, expected, "{is_decided} {at}");
    }
}

#[test]
fn probe_continues_after_a_swap_of_its_block() {
    let (control, running) = start("tapped", 4);
    let mut tap = control.tap("f", TapOptions::default(), LIMIT).unwrap();
    let mut last = 0;
    for change in ["implementation: running", "implementation: cpu", "implementation: running"] {
        swap(&control, "f", change).unwrap();
        let seen = control.stats()[1].frames_out;
        // Frames of the new block arrive, and no frame arrives twice.
        while last < seen + 20 {
            let Tapped::Frame(frame) = tap.next(LIMIT).unwrap() else { panic!("no frame") };
            assert!(frame.header.sequence > last || last == 0);
            last = frame.header.sequence;
        }
    }
    drop(tap);
    let report = stop(&control, running);
    assert_whole(&rows("tapped"), &report, 4, |_| 1);
}

#[test]
fn prepared_live_update_applies_exactly_at_its_timestamp_or_not_at_all() {
    let (control, running) = start_level("prepared", NEVER);
    let level = |control: &Control| control.plan().blocks[1].parameters["level"].clone();
    let newest = |control: &Control| control.stats()[2].newest_timestamp.unwrap_or_default();
    let reach = |until: u64| {
        while newest(&control) < until {
            assert!(!control.wait_timeout(Duration::from_millis(1)), "the run ended");
        }
    };
    reach(20);
    let cancelled = control.live_update_prepared("f: {level: 2}", LIMIT, |prepared| {
        assert!(prepared.newest_timestamp.is_some_and(|newest| newest >= 20));
        assert!(prepared.clock.is_some());
        reach(newest(&control) + 20);
        None
    });
    assert!(cancelled.unwrap().is_none());
    let passed = control.live_update_prepared("f: {level: 3}", LIMIT, |_| Some(20));
    assert!(
        matches!(passed, Err(LiveUpdateError::Passed { at: 20, begun }) if begun > 20),
        "{passed:?}"
    );
    let far = control.live_update_prepared("f: {level: 3}", LIMIT, |_| Some(u64::MAX));
    assert!(matches!(far, Err(LiveUpdateError::Rejected(_))), "{far:?}");
    let unknown =
        control.live_update_prepared("f: {level: x}", LIMIT, |_| panic!("it is rejected"));
    assert!(matches!(unknown, Err(LiveUpdateError::Rejected(_))), "{unknown:?}");
    assert_eq!(level(&control), 1);
    let made = control.live_update_prepared("f: {level: 4}", LIMIT, |prepared| {
        Some(prepared.newest_timestamp.unwrap() + 500)
    });
    let (made, _) = made.unwrap().unwrap();
    assert!(!made.is_late);
    assert_eq!(level(&control), 4);
    let (in_force, scheduled) = control.in_force_and_scheduled();
    if newest(&control) < made.effective_timestamp {
        assert!(made.seconds_ahead > Some(0.0), "{made:?}");
        assert_eq!(in_force.blocks[1].parameters["level"], 1);
        assert_eq!(scheduled.len(), 1);
    }
    let report = run_until(&control, running, made.effective_timestamp + 20);
    assert_eq!(report.failures, []);
    assert_levels("prepared", &[(0, 1), (made.effective_timestamp, 4)]);
}

#[test]
fn implausible_values_of_changes_are_events() {
    let (control, running) = start_level("implausible", NEVER);
    let warnings = || events(&control, EventKind::Warning);
    control.live_update("f: {level: 2000000}", None, LIMIT).unwrap();
    assert_eq!(warnings(), ["a level of 2000000 is high; lower it"]);
    // Neither a change of another parameter nor a good value repeats it.
    swap(&control, "f", "{parameters: {fails_at: 99999999}}").unwrap();
    control.live_update("f: {level: 3}", None, LIMIT).unwrap();
    assert_eq!(warnings().len(), 1);
    swap(&control, "f", "{parameters: {fails_at: 99999998, level: 4000000}}").unwrap();
    assert_eq!(warnings()[1..], ["a level of 4000000 is high; lower it"]);
    stop(&control, running);
}
