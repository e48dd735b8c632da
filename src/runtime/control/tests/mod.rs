//! Tests of the control of small flowgraphs.

mod in_force;
mod kinds;
mod live_update;
mod record;
mod requests;
mod shadows;
mod take_back;
mod update;

use super::*;
use crate::{Compared, Hosted, NotSwapped, Options, Prepared, Report, Running};
use fxgraph_core::event::EventKind;
use fxgraph_flowgraph::load_text;
use kinds::{Row, events, registry, rows};
use std::time::Duration;

const LIMIT: Duration = Duration::from_mins(1);

/// Starts a flowgraph whose sink collects into `name`.
fn start(name: &str, frames: usize) -> (Control, Running) {
    let text = format!(
        "flowgraph: g
parameters: {{frames: {frames}}}
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{kind: total, input: s, parameters: {{frames: \"${{frames}}\"}}}}
  o: {{kind: collect, input: f, parameters: {{into: {name}, socket: here}}}}
"
    );
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    assert_eq!(control.state(), RunState::Prepared);
    let running = prepared.start(options).unwrap();
    (control, running)
}

fn swap(control: &Control, block: &str, change: &str) -> Result<(), SwapError> {
    let change = control.change(block, change).ok().unwrap();
    control.swap(&change, LIMIT, false)
}

/// Waits until the sink has consumed 10 more frames.
fn flow(control: &Control) {
    let seen = || control.stats()[2].frames_in;
    let (began, before) = (std::time::Instant::now(), seen());
    while seen() < before + 10 {
        assert!(began.elapsed() < Duration::from_mins(1), "no frames arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stop(control: &Control, running: Running) -> Report {
    control.request_stop();
    assert!(control.wait_timeout(Duration::from_mins(1)), "the run hangs");
    running.wait()
}

/// Checks that every frame arrived once, in order, with the right sum and validity.
fn assert_whole(rows: &[Row], report: &Report, frames: i64, factor: impl Fn(&Row) -> i64) {
    assert_eq!(rows.len() as u64, report.stats[0].frames_out);
    for (n, row) in rows.iter().enumerate() {
        let n = n as i64;
        assert_eq!((row.0, row.1), (n as u64, n as u64));
        let sum: i64 = ((n - frames + 1).max(0)..=n).map(|t| t * t).sum();
        let right = match factor(row) {
            1 => (u32::from(n + 1 >= frames), sum),
            factor => (1, factor * n * n),
        };
        assert_eq!((row.2, row.3), right, "at {n}");
    }
}

#[test]
fn control_shows_plan_state_and_events() {
    let (control, running) = start("told", 4);
    assert_eq!(control.state(), RunState::Running);
    let plan = control.plan();
    assert_eq!((plan.name.as_str(), plan.blocks.len()), ("g", 3));
    flow(&control);
    assert!(control.elapsed() > Duration::ZERO);
    stop(&control, running);
    assert_eq!(control.state(), RunState::Ended);
    let names: Vec<_> = control.events_since(0).iter().map(|event| event.kind.name()).collect();
    assert_eq!(names, ["started", "stopping", "ended"]);
    assert_eq!(events(&control, EventKind::Stopping), ["stop requested"]);
}

#[test]
fn start_requested_twice_starts_once() {
    let text = "flowgraph: g\nblocks:\n  s: {kind: ticks, parameters: {period_microseconds: 300}}\n  \
                o: {kind: collect, input: s, parameters: {into: once}}\n";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    control.hold();
    control.request_start().unwrap();
    assert!(matches!(control.wait_wanted(LIMIT), Some(Wanted::Start)));
    control.request_start().unwrap();
    let running = prepared.start(Options::default()).unwrap();
    control.note_started();
    control.request_start().unwrap();
    assert!(control.wait_wanted(Duration::ZERO).is_none(), "no second start at its end");
    stop(&control, running);
    control.request_start().unwrap();
    assert!(matches!(control.wait_wanted(LIMIT), Some(Wanted::Start)));
}

#[test]
fn change_reports_method_and_differences_without_making_it() {
    let (control, running) = start("dry", 4);
    let change = control.change("f", "implementation: running").ok().unwrap();
    assert_eq!((&change.way, change.way.gap().as_str()), (&Way::Seamless, "none"));
    let [difference] = &change.differences[..] else { panic!("{:?}", change.differences) };
    assert_eq!((difference.key.as_str(), &difference.to), ("implementation", &"running".into()));
    assert!(change.memory[&fxgraph_core::DeviceName::Cpu] > 64 * 8);
    let way = |block, text| control.change(block, text).ok().unwrap().way;
    assert_eq!(way("f", "parameters: {frames: 4}"), Way::Nothing);
    assert_eq!(way("o", "parameters: {into: x}"), Way::Held { ends_first: true });
    assert_eq!(way("o", "parameters: {socket: x}"), Way::Held { ends_first: false });
    let source = control.change("s", "parameters: {period_microseconds: 9}").ok().unwrap();
    let error = control.swap(&source, LIMIT, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`ticks` has no inputs: its stream would begin again: stop the flowgraph and start it with \
         the change"
    );
    let Err(rejected) = control.change("f", "parameters: {width: 2}") else { panic!("accepted") };
    assert_eq!(rejected.problems[0].code, "E0401");
    assert_eq!(control.plan().blocks[1].implementation, "cpu", "no change was made");
    stop(&control, running);
}

#[test]
fn swapped_block_continues_where_the_old_one_ended() {
    let (control, running) = start("swapped", 4);
    flow(&control);
    let before = control.plan();
    let stale = control.change("f", "parameters: {frames: 9}").ok().unwrap();
    swap(&control, "f", "implementation: running").unwrap();
    let after = control.plan();
    assert_ne!(before.config_hash, after.config_hash);
    assert!(after.resolved_yaml().contains("implementation: running"));
    assert!(matches!(control.swap(&stale, LIMIT, false), Err(SwapError::Outdated)));
    let between = rows("swapped").len();
    flow(&control);
    swap(&control, "f", "kind: tenfold").unwrap();
    assert_eq!(control.stats()[1].kind, "tenfold");
    assert_eq!(control.plan().blocks[1].parameters, serde_json::json!({}));
    let last = control.plan().config_id();
    flow(&control);
    let report = stop(&control, running);
    let rows = rows("swapped");
    assert!(rows.len() > between);
    assert_whole(&rows, &report, 4, |row| if row.4 == last { 10 } else { 1 });
    for id in [before.config_id(), after.config_id(), last] {
        assert!(rows.iter().any(|row| row.4 == id), "frames of all three configurations");
    }
    let summed = report.stats[1].counters.iter().find(|named| named.name == "frames").unwrap();
    let by_total = rows.iter().filter(|row| row.4 != last).count() as u64;
    let counted = summed.counter.get();
    // Frames counted outside the slot and pushed in the slot, or the other way round.
    assert!(counted.abs_diff(by_total) <= 128, "{counted} counted of {by_total}");
}

#[test]
fn hundred_swaps_under_load_drop_and_duplicate_no_frame() {
    let (control, running) = start("hundred", 5);
    let mut is_running = false;
    let (mut swapped, mut rolled_back) = (0, 0);
    for n in 0..100 {
        let flaw = match n % 10 {
            1 => "build",
            3 => "start",
            5 => "frames",
            7 => "panic",
            9 if n % 50 == 9 => "slow",
            _ => "~",
        };
        let implementation = if is_running { "cpu" } else { "running" };
        let change = format!("{{implementation: {implementation}, parameters: {{flaw: {flaw}}}}}");
        let change = control.change("f", &change).ok().unwrap();
        let limit = if flaw == "slow" { Duration::from_millis(500) } else { LIMIT };
        match (flaw, control.swap(&change, limit, false)) {
            ("~", Ok(())) => {
                swapped += 1;
                is_running = !is_running;
            }
            ("build", Err(error)) => assert!(matches!(error, SwapError::Build(_)), "{error}"),
            ("start", Err(error)) => {
                assert_eq!(error.to_string(), "the new block could not be started: no such core");
            }
            ("frames" | "panic", Err(SwapError::NotSwapped(NotSwapped::RolledBack(_)))) => {
                rolled_back += 1;
            }
            ("slow", Err(SwapError::NotSwapped(NotSwapped::TooSlow))) => {}
            (flaw, outcome) => panic!("swap {n}, {flaw}: {outcome:?}"),
        }
    }
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    assert_whole(&rows("hundred"), &report, 5, |_| 1);
    assert_eq!((swapped, rolled_back), (58, 20));
    assert_eq!(events(&control, EventKind::Swapped).len(), swapped);
    assert_eq!(events(&control, EventKind::RolledBack).len(), rolled_back);
    assert_eq!(events(&control, EventKind::NotSwapped).len(), 22);
}

#[test]
fn swap_of_a_sink_drops_no_frame() {
    let (control, running) = start("sink", 4);
    // With the same socket one after the other, with another socket both at once.
    flow(&control);
    swap(&control, "o", "parameters: {into: sink_2}").unwrap();
    flow(&control);
    swap(&control, "o", "parameters: {into: sink_3, socket: there}").unwrap();
    flow(&control);
    // Two failed swaps, after which the old block is back.
    for change in ["{fails_to_start: true}", "{fails_to_start: true, socket: elsewhere}"] {
        let error = swap(&control, "o", &format!("parameters: {change}")).unwrap_err();
        assert!(error.to_string().contains("no such network"), "{error}");
    }
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    let mut all = rows("sink");
    assert!(!all.is_empty() && !rows("sink_2").is_empty() && !rows("sink_3").is_empty());
    all.extend(rows("sink_2"));
    all.extend(rows("sink_3"));
    assert_whole(&all, &report, 4, |_| 1);
}

#[test]
fn finishing_limit_of_long_frames_is_eight_frames() {
    let (control, running) = start("long", 4);
    let mut change = control.change("f", "implementation: running").ok().unwrap();
    assert_eq!(change.finishing_limit(), Duration::from_secs(10));
    // At a sample rate of 1 MHz.
    change.after.blocks[1].ports.outputs[0].clock.samples_per_frame = 8_000_000;
    assert_eq!(change.finishing_limit(), Duration::from_secs(64));
    stop(&control, running);
}

/// Frames of 2.3 hours, as the clock of their port says; the run is not paced by it.
#[test]
fn frames_of_hours_are_swapped_and_rolled_back() {
    let text = "flowgraph: g
blocks:
  s: {kind: ticks, parameters: {period_microseconds: 300, samples_per_frame: 8192000000}}
  f: {kind: total, input: s, parameters: {frames: 4}}
  o: {kind: collect, input: f, parameters: {into: hours}}
";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    flow(&control);
    let change = |change: &str| control.change("f", change).ok().unwrap();
    let hour = Duration::from_hours(1);
    assert!(change("implementation: running").usual_limit() > 2 * hour);
    assert!(change("implementation: running").finishing_limit() > 18 * hour);
    swap(&control, "f", "implementation: running").unwrap();
    let error = swap(&control, "f", "parameters: {flaw: frames}").unwrap_err();
    assert!(matches!(&error, SwapError::NotSwapped(NotSwapped::RolledBack(_))), "{error}");
    flow(&control);
    assert_eq!(events(&control, EventKind::Swapped).len(), 1);
    assert_eq!(events(&control, EventKind::RolledBack).len(), 1);
    stop(&control, running);
    let times: Vec<u64> = rows("hours").iter().map(|row| row.0).collect();
    let expected: Vec<u64> = (0..times.len() as u64).map(|n| n * 8_192_000_000).collect();
    assert_eq!(times, expected);
}

#[test]
fn second_swap_waits_for_the_first() {
    let (control, running) = start("queued", 4);
    let slow = control.change("f", "parameters: {flaw: slow}").ok().unwrap();
    let other = control.change("f", "implementation: running").ok().unwrap();
    let limit = Duration::from_secs(3);
    let is_accompanied = || {
        let has_tee = |hosted: &mut Hosted| hosted.inputs[0].reader.has_tee();
        control.0.run().ask("f", LIMIT, has_tee).unwrap()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| control.swap(&slow, limit, false));
        while !is_accompanied() {
            assert!(!first.is_finished(), "the swap was not tried");
        }
        assert!(matches!(control.swap(&other, Duration::ZERO, false), Err(SwapError::Busy)));
        control.swap(&other, LIMIT, false).unwrap();
        assert!(first.join().unwrap().is_err());
    });
    stop(&control, running);
    let not_made = events(&control, EventKind::NotSwapped);
    let too_slow = "the new block is too slow: frames arrived faster than it consumed them";
    assert_eq!(not_made, [too_slow]);
}
