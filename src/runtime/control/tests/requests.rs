//! Tests of live updates that blocks request.

use super::*;
use fxgraph_core::diagnostic::{Style, render_all};
use std::time::Instant;

fn text(into: &str, target: &str, step: i64) -> String {
    format!(
        "flowgraph: g
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{kind: level, input: s, parameters: {{level: 1, fails_at: 100000000}}}}
  o: {{kind: collect, input: f, parameters: {{into: {into}}}}}
  r: {{kind: raise, input: f, parameters: {{target: {target}, step: {step}}}}}
"
    )
}

fn start_raise(into: &str, step: i64) -> (Control, Running) {
    let plan = load_text("g.yaml", &text(into, "f", step), &[], &registry());
    let plan = plan.result.ok().unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    (control, running)
}

/// Waits until the counter `name` of `r` has reached `count`.
fn wait_for(control: &Control, name: &str, count: u64) {
    let began = Instant::now();
    let counted = || {
        let stats = control.stats();
        let block = stats.iter().find(|block| block.name == "r").unwrap();
        let counter = block.counters.iter().find(|counter| counter.name == name).unwrap();
        counter.counter.get()
    };
    while counted() < count {
        assert!(began.elapsed() < Duration::from_mins(1), "{name}: {}", counted());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn block_changes_another_block_at_the_effective_timestamp() {
    let (control, running) = start_raise("raised", 1);
    // A frame at which one update is in effect requests the next: five are in effect when the sixth is made.
    wait_for(&control, "raised", 6);
    let level = control.plan().blocks[1].parameters["level"].as_i64().unwrap();
    let report = stop(&control, running);
    assert_eq!(report.failures.len(), 0);
    let events = events(&control, EventKind::LiveUpdate);
    assert!(events.len() >= 6 && level >= 7, "{events:?} {level}");
    // Every update has its own timestamp and configuration, and all frames from there on have its level.
    let (mut last, mut last_config) = (1, None);
    for (time, _, _, level, config_id) in rows("raised") {
        if level != last {
            assert_eq!(level, last + 1, "at {time}");
            assert_ne!(last_config, Some(config_id), "at {time}");
            let from = format!("from timestamp {time} on");
            assert!(events.iter().any(|event| event.contains(&from)), "{time}: {events:?}");
        }
        (last, last_config) = (level, Some(config_id));
    }
    assert!(last > 5);
}

#[test]
fn rejected_update_is_answered_and_changes_nothing() {
    let step = kinds::UNLUCKY - 1;
    let (control, running) = start_raise("unlucky_request", step);
    wait_for(&control, "rejected", 2);
    let report = stop(&control, running);
    assert_eq!(report.failures.len(), 0);
    assert!(rows("unlucky_request").iter().all(|(_, _, _, level, _)| *level == 1));
}

#[test]
fn targets_that_do_not_exist_or_are_not_live_are_errors_of_the_flowgraph() {
    let problems = |target: &str| {
        let loaded = load_text("g.yaml", &text("none", target, 1), &[], &registry());
        let problems = loaded.result.err().unwrap();
        render_all(&problems, &loaded.sources, Style::Plain)
    };
    let unknown = problems("ff");
    assert!(unknown.contains("there is no block `ff`"), "{unknown}");
    assert!(unknown.contains("g.yaml:6:") && unknown.contains("`f`"), "{unknown}");
    let fixed = problems("o");
    assert!(fixed.contains("`o` of kind `collect` has no live parameter `level`"), "{fixed}");
}
