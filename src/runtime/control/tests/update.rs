//! Tests of updates of a whole flowgraph.

use super::kinds::totals;
use super::*;
use crate::control::{Step, Update, UpdateError};
use fxgraph_core::edge::WhenFull;
use serde_json::json;

/// Text of a flowgraph with two totals, `f` and `g`, and a level, whose sinks collect into names that begin with
/// `name`.
fn text(name: &str, level: i64, f: &str, g: &str, more: &str) -> String {
    format!(
        "flowgraph: g
doc: another
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{{f}, input: s}}
  o: {{kind: collect, input: f, parameters: {{into: {name}, socket: here}}}}
  l: {{kind: level, input: s, parameters: {{level: {level}, fails_at: 100000000}}}}
  p: {{kind: collect, input: l, parameters: {{into: {name}_level}}}}
  g: {{{g}, input: s}}
  q: {{kind: collect, input: g, parameters: {{into: {name}_aside}}}}
{more}"
    )
}

const TOTAL: &str = "kind: total, parameters: {frames: 1}";

fn begin(name: &str) -> (Control, Running) {
    let text = text(name, 1, TOTAL, TOTAL, "");
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    (control, running)
}

fn update(control: &Control, text: &str) -> Update {
    match control.update(text, &[]) {
        Ok(update) => update,
        Err(rejected) => panic!("{:?}", rejected.problems),
    }
}

fn steps(update: &Update) -> Vec<(&str, &Step)> {
    update.blocks.iter().map(|block| (block.block.as_str(), &block.step)).collect()
}

#[test]
fn apply_changes_a_flowgraph_at_one_timestamp() {
    let (control, running) = begin("whole");
    flow(&control);
    let same = update(&control, &text("whole", 1, TOTAL, TOTAL, ""));
    assert!(steps(&same).iter().all(|(_, step)| **step == Step::Same));
    assert_eq!(control.apply(&same, LIMIT, false).unwrap().effective_timestamp, None);
    let wanted = text("whole", 3, "kind: tenfold", TOTAL, "");
    let live = update(&control, &wanted);
    let seamless = Step::Swap(Way::Seamless);
    let changed: Vec<_> =
        steps(&live).into_iter().filter(|(_, step)| **step != Step::Same).collect();
    assert_eq!(changed, [("f", &seamless), ("l", &Step::LiveUpdate)]);
    assert_eq!(control.plan().blocks[1].kind, "total", "the check changes nothing");
    let at = control.apply(&live, LIMIT, false).unwrap().effective_timestamp.unwrap();
    flow(&control);
    assert_eq!(control.plan().config_hash, live.plan().config_hash, "as after a start");
    assert!(steps(&update(&control, &wanted)).iter().all(|(_, step)| **step == Step::Same));
    assert!(matches!(control.apply(&live, LIMIT, false), Err(UpdateError::Outdated)));
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    let levels = rows("whole_level");
    assert!(levels.iter().any(|row| row.0 >= at));
    for (time, _, _, level, _) in levels {
        assert_eq!(level, if time < at { 1 } else { 3 }, "at {time}");
    }
    let rows = rows("whole");
    assert_whole(&rows, &report, 1, |row| if row.0 < at { 1 } else { 10 });
}

/// Text of a flowgraph with four blocks on one source, which collect into `name` and a number.
fn four(name: &str, blocks: [&str; 4]) -> String {
    let mut text =
        "flowgraph: g\nblocks:\n  s: {kind: ticks, parameters: {period_microseconds: 1000}}\n"
            .to_owned();
    for (n, block) in blocks.iter().enumerate() {
        text += &format!("  f{n}: {{{block}, input: s}}\n");
        text +=
            &format!("  o{n}: {{kind: collect, input: f{n}, parameters: {{into: {name}_{n}}}}}\n");
    }
    text
}

#[test]
fn swaps_of_one_update_take_effect_at_one_timestamp() {
    let plan =
        load_text("g.yaml", &four("four", [TOTAL; 4]), &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    let tenfold = "kind: tenfold";
    let wanted = update(&control, &four("four", [tenfold; 4]));
    let at = control.apply(&wanted, LIMIT, false).unwrap().effective_timestamp.unwrap();
    flow(&control);
    // The fourth block cannot be built, or fails to start: the others are unchanged.
    let config = control.plan().config_hash.clone();
    for flaw in ["build", "start"] {
        let flawed = format!("kind: total, parameters: {{frames: 1, flaw: {flaw}}}");
        let wanted = update(&control, &four("four", [TOTAL, TOTAL, TOTAL, &flawed]));
        let made = control.apply(&wanted, LIMIT, false);
        assert!(
            matches!(&made, Err(UpdateError::Swap { block, interim: None, .. }) if block == "f3")
        );
        assert_eq!(control.plan().config_hash, config);
        flow(&control);
    }
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    for n in 0..4 {
        let rows = rows(&format!("four_{n}"));
        assert!(rows.first().unwrap().0 < at && at < rows.last().unwrap().0);
        for (time, _, _, value, config_id) in &rows {
            let (time, is_new) = (*time as i64, *time >= at);
            assert_eq!(
                *value,
                if is_new { 10 } else { 1 } * time * time,
                "f{n} at {time}, not {at}"
            );
            assert_eq!(*config_id != rows[0].4, is_new, "f{n} at {time}");
        }
        assert_eq!(rows.len() as u64, report.stats[0].frames_out, "each frame once");
    }
}

#[test]
fn scheduled_value_is_scheduled_again_after_an_update_that_replaced_it_has_failed() {
    let block = |level| format!("kind: level, parameters: {{level: {level}, fails_at: 9000000}}");
    let text = |level, last: &str| four("undone", [&block(level), TOTAL, TOTAL, last]);
    let load = |text: &str| load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(load(&text(1, TOTAL)), registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    let newest = || control.stats().iter().filter_map(|stats| stats.newest_timestamp).max();
    let at = newest().unwrap() + 4000;
    control.live_update("f0: {level: 5}", Some(at), LIMIT).unwrap();
    let wanted = update(&control, &text(2, "kind: total, parameters: {frames: 1, flaw: frames}"));
    let made = control.apply(&wanted, LIMIT, false);
    assert!(matches!(&made, Err(UpdateError::Swap { interim: Some(_), .. })), "{made:?}");
    let scheduled = control.in_force_and_scheduled().1;
    let values = scheduled.iter().map(|value| (value.value.clone(), value.timestamp));
    assert_eq!(values.collect::<Vec<_>>(), [(serde_json::json!(5), at)]);
    let undone = newest().unwrap();
    assert!(undone < at, "the machine is too slow for the test");
    while newest().unwrap() < at + 100 {
        assert!(!control.wait_timeout(Duration::from_millis(1)), "the run ended");
    }
    assert_eq!(stop(&control, running).failures, []);
    let ids = [1, 5].map(|level| load(&text(level, TOTAL)).config_id());
    let rows = rows("undone_0");
    assert!(rows.iter().any(|row| row.3 == 2), "the update was in effect for a time");
    for row in rows.iter().filter(|row| row.0 > undone + 10) {
        let expected = if row.0 < at { (1, ids[0]) } else { (5, ids[1]) };
        assert_eq!((row.3, row.4), expected, "at {}", row.0);
    }
}

#[test]
fn update_that_fails_after_its_timestamp_lists_the_affected_blocks() {
    let plan =
        load_text("g.yaml", &four("fails", [TOTAL; 4]), &[], &registry()).result.ok().unwrap();
    let before = plan.config_hash.clone();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    let flawed = "kind: total, parameters: {frames: 1, flaw: frames}";
    let tenfold = "kind: tenfold";
    let wanted = update(&control, &four("fails", [tenfold, tenfold, tenfold, flawed]));
    let made = control.apply(&wanted, LIMIT, false);
    let Err(UpdateError::Swap { block, interim: Some(interim), .. }) = &made else {
        panic!("{made:?}")
    };
    assert_eq!(
        (block.as_str(), &*interim.blocks),
        ("f3", &["f0", "f1", "f2"].map(str::to_owned)[..])
    );
    let at = interim.from.unwrap();
    assert_eq!(control.plan().config_hash, before);
    flow(&control);
    let report = stop(&control, running);
    for n in 0..4 {
        let rows = rows(&format!("fails_{n}"));
        assert_eq!(rows.len() as u64, report.stats[0].frames_out, "each frame once");
        let is_other = |row: &&Row| row.3 != (row.0 * row.0) as i64;
        assert!(rows.iter().filter(is_other).all(|row| n != 3 && row.0 >= at));
        assert_eq!(rows.last().unwrap().3, (rows.last().unwrap().0 as i64).pow(2));
    }
}

#[test]
fn slow_candidate_is_dropped_before_the_next_one_is_built() {
    // A number of frames that no other test uses.
    let total = |flaw: &str| format!("kind: total, parameters: {{frames: 71{flaw}}}");
    let (before, slow) = (total(""), total(", flaw: slow"));
    let plan =
        load_text("g.yaml", &four("retried", [&before, TOTAL, TOTAL, TOTAL]), &[], &registry());
    let (control, prepared) = Control::prepared(plan.result.ok().unwrap(), registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    let wanted = update(&control, &four("retried", [&slow, TOTAL, TOTAL, TOTAL]));
    loop {
        let built = totals(71).in_all;
        let made = control.apply(&wanted, Duration::from_millis(500), false);
        assert!(matches!(made, Err(UpdateError::Swap { .. })), "{made:?}");
        // With one build only, there was no second try.
        if totals(71).in_all > built + 1 {
            break;
        }
    }
    assert_eq!(totals(71).at_once, 2, "the running block and one candidate");
    stop(&control, running);
}

#[test]
fn update_changes_the_action_of_full_queues_and_swaps_keep_it() {
    // Each frame takes the block a hundred frame intervals.
    let text = |more: &str| {
        format!(
            "flowgraph: g
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{kind: total, input: s, queue: 2, parameters: {{frames: 2, flaw: slow}}{more}}}
  o: {{kind: collect, input: f, parameters: {{into: full_queue}}}}
  m: {{kind: collect, input: s, parameters: {{into: full_queue_main}}}}
"
        )
    };
    let plan = load_text("g.yaml", &text(""), &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    let queue = || control.stats()[1].queues[0];
    assert_eq!((queue().when_full, queue().dropped), (WhenFull::Wait, 0));
    let wanted = text(", when_full: drop_oldest");
    let dropping = update(&control, &wanted);
    let steps = steps(&dropping);
    assert_eq!(steps[1], ("f", &Step::Queue));
    assert!(steps.iter().filter(|step| step.0 != "f").all(|(_, step)| **step == Step::Same));
    let [difference] = &dropping.blocks[1].differences[..] else { panic!("{:?}", dropping.blocks) };
    assert_eq!((difference.key.as_str(), &difference.to), ("when_full", &json!("drop_oldest")));
    let made = control.apply(&dropping, LIMIT, false).unwrap();
    assert_eq!(made.effective_timestamp, None, "it takes effect at once");
    assert_eq!(queue().when_full, WhenFull::DropOldest);
    assert_eq!(control.plan().config_hash, dropping.plan().config_hash);
    assert_eq!(events(&control, EventKind::LiveUpdate), ["`when_full` is \"drop_oldest\""]);
    flow(&control);
    assert!(queue().dropped > 0);
    // The candidate gets the frames that the slow block gets.
    swap(&control, "f", "kind: tenfold").unwrap();
    assert_eq!(queue().when_full, WhenFull::DropOldest);
    flow(&control);
    // Together with a swap, and back again.
    let total = ", parameters: {frames: 2}";
    let other = text("").replace(", parameters: {frames: 2, flaw: slow}", total);
    let back = update(&control, &other);
    assert_eq!(back.blocks[1].step, Step::Swap(Way::Seamless));
    control.apply(&back, LIMIT, false).unwrap();
    assert_eq!(queue().when_full, WhenFull::Wait);
    assert_eq!(control.plan().config_hash, back.plan().config_hash);
    flow(&control);
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    let main: Vec<u64> = rows("full_queue_main").iter().map(|row| row.0).collect();
    assert_eq!(main, (0..report.stats[0].frames_out).collect::<Vec<_>>());
    let seen = rows("full_queue");
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(seen.len() as u64 + report.stats[1].queues[0].dropped, main.len() as u64);
}

#[test]
fn written_text_is_kept_while_it_describes_the_running_flowgraph() {
    let (control, running) = begin("written");
    let written = || control.plan().written_yaml().map(str::to_owned);
    let first = text("written", 1, TOTAL, TOTAL, "");
    assert_eq!(written().as_deref(), Some(&*first));
    let apply = |text: &str| control.apply(&update(&control, text), LIMIT, false).unwrap();
    for wanted in
        [format!("# because\n{first}"), text("written", 3, TOTAL, TOTAL, "# not to forget\n")]
    {
        apply(&wanted);
        assert_eq!(written(), Some(wanted));
    }
    let kept = written();
    control.live_update("l: {level: 4}", None, LIMIT).unwrap();
    assert_eq!(written(), None, "the text has another level");
    control.live_update("l: {level: 3}", None, LIMIT).unwrap();
    assert_eq!(written(), kept);
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn includes_are_searched_in_the_directory_of_the_running_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("more.yaml"), "parameters: {level: 1}\n").unwrap();
    let text = format!("include: [more.yaml]\n{}", text("beside", 1, TOTAL, TOTAL, ""));
    let text = text.replace("level: 1", "level: \"${level}\"");
    let file = directory.path().join("g.yaml");
    let plan = load_text(&file, &text, &[], &registry()).result.ok().unwrap();
    assert_eq!(plan.written_yaml(), Some(&*text));
    let set = [fxgraph_flowgraph::Setting::typed("level", "2")];
    let other = load_text(&file, &text, &set, &registry()).result.ok().unwrap();
    assert_eq!(other.written_yaml(), None, "the text alone has another level");
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    assert!(steps(&update(&control, &text)).iter().all(|(_, step)| **step == Step::Same));
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn failed_update_leaves_the_flowgraph_unchanged() {
    let (control, running) = begin("half");
    flow(&control);
    let before = control.plan();
    let flawed = "kind: total, parameters: {frames: 1, flaw: frames}";
    let wanted = text("half", 3, "kind: tenfold", flawed, "");
    let made = control.apply(&update(&control, &wanted), LIMIT, false);
    assert!(matches!(made, Err(UpdateError::Swap { block, .. }) if block == "g"));
    assert_eq!(control.plan().config_hash, before.config_hash);
    assert_eq!(events(&control, EventKind::Swapped).len(), 2, "swapped and swapped back");
    flow(&control);
    let new = "  n: {kind: collect, input: s, parameters: {into: nowhere, socket: there}}\n";
    let f = "kind: total, queue: 7, parameters: {frames: 1}";
    let larger = update(&control, &text("half", 3, f, TOTAL, new));
    assert_eq!(
        larger.obstacles(),
        ["`f`: its queue length differs", "`n`: it is new"],
        "all reasons at once"
    );
    assert!(matches!(control.apply(&larger, LIMIT, false), Err(UpdateError::Restart(_))));
    assert!(control.update("flowgraph: g\nblocks: {s: {kind: tocks}}", &[]).is_err());
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    let (rows, levels) = (rows("half"), rows("half_level"));
    assert_eq!(levels.last().unwrap().3, 1, "the level is back");
    let (last, time) = (rows.last().unwrap().3, rows.last().unwrap().0);
    assert_eq!(last, (time * time) as i64, "the block is back");
    assert_eq!(rows.len() as u64, report.stats[0].frames_out);
}

#[test]
fn next_run_continues_the_events() {
    let (control, running) = begin("first");
    flow(&control);
    let other = || update(&control, &text("second", 2, "kind: tenfold", TOTAL, "")).plan().clone();
    control.request_other(other()).unwrap();
    assert_eq!(control.request_other(other()), Err(NotStartable::Another), "one at a time");
    assert!(control.wait_timeout(Duration::from_mins(1)), "the run was not stopped");
    assert_eq!(running.wait().failures, []);
    let Some(Wanted::Other(plan)) = control.wait_wanted(Duration::ZERO) else { panic!("nothing") };
    let running = control.prepare(*plan).unwrap();
    assert_eq!(control.state(), RunState::Prepared);
    control.request_start().unwrap();
    assert!(matches!(control.wait_wanted(Duration::ZERO), Some(Wanted::Start)));
    let running = running.start(Options::default()).unwrap();
    flow(&control);
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    assert_eq!(rows("second")[3].3, 10 * 9);
    let names: Vec<_> = control.events_since(0).iter().map(|event| event.kind.name()).collect();
    let once = ["started", "stopping", "ended"];
    assert_eq!(names, [once, once].concat());
    assert_eq!(control.request_start(), Err(NotStartable::Over));
    control.hold();
    assert_eq!(control.request_start(), Ok(()));
    assert!(control.take_last_wanted().is_some());
    control.request_other(other()).unwrap();
    assert!(control.take_last_wanted().is_some(), "the request is kept");
}

#[test]
fn request_after_the_end_is_rejected() {
    let (control, running) = begin("over");
    assert_eq!(stop(&control, running).failures, []);
    assert!(control.take_last_wanted().is_none());
    let other = update(&control, &text("over", 2, TOTAL, TOTAL, "")).plan().clone();
    assert_eq!(control.request_other(other), Err(NotStartable::Over));
}
