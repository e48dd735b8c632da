//! A whole flowgraph in place of the one that runs.

use super::*;
use crate::control::{Step, Update, UpdateError};

/// A flowgraph with two branches of totals, which collect into `name` and nowhere, and one with a level.
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
        Err(refused) => panic!("{:?}", refused.problems),
    }
}

fn steps(update: &Update) -> Vec<(&str, &Step)> {
    update.blocks.iter().map(|block| (block.block.as_str(), &block.step)).collect()
}

#[test]
fn a_flowgraph_becomes_another_one_in_one_change() {
    let (control, running) = begin("whole");
    flow(&control);
    let same = update(&control, &text("whole", 1, TOTAL, TOTAL, ""));
    assert!(steps(&same).iter().all(|(_, step)| **step == Step::Same));
    assert_eq!(control.apply(&same, LIMIT, false).unwrap().retuned, None);
    let wanted = text("whole", 3, "kind: tenfold", TOTAL, "");
    let live = update(&control, &wanted);
    let seamless = Step::Swap(Way::Seamless);
    let changed: Vec<_> =
        steps(&live).into_iter().filter(|(_, step)| **step != Step::Same).collect();
    assert_eq!(changed, [("f", &seamless), ("l", &Step::Retune)]);
    assert_eq!(control.plan().blocks[1].kind, "total", "nothing is changed by asking");
    let at = control.apply(&live, LIMIT, false).unwrap().retuned.unwrap().effective_timestamp;
    flow(&control);
    assert_eq!(control.plan().config_hash, live.plan().config_hash, "as if started so");
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
    let swapped = rows.iter().position(|row| row.0 > 0 && row.3 != (row.0 * row.0) as i64).unwrap();
    assert_whole(&rows, &report, 1, |row| if row.0 < rows[swapped].0 { 1 } else { 10 });
}

#[test]
fn the_text_is_kept_as_it_was_written_while_it_says_what_runs() {
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
    control.retune("l: {level: 4}", None, LIMIT).unwrap();
    assert_eq!(written(), None, "the text says another level");
    control.retune("l: {level: 3}", None, LIMIT).unwrap();
    assert_eq!(written(), kept);
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn includes_are_looked_for_beside_the_file_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("more.yaml"), "parameters: {level: 1}\n").unwrap();
    let text = format!("include: [more.yaml]\n{}", text("beside", 1, TOTAL, TOTAL, ""));
    let text = text.replace("level: 1", "level: \"${level}\"");
    let file = folder.path().join("g.yaml");
    let plan = load_text(&file, &text, &[], &registry()).result.ok().unwrap();
    assert_eq!(plan.written_yaml(), Some(&*text));
    let set = [crate::flowgraph::Setting::typed("level", "2")];
    let other = load_text(&file, &text, &set, &registry()).result.ok().unwrap();
    assert_eq!(other.written_yaml(), None, "the text alone says another level");
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    assert!(steps(&update(&control, &text)).iter().all(|(_, step)| **step == Step::Same));
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn an_update_that_fails_leaves_everything_as_it_was() {
    let (control, running) = begin("half");
    flow(&control);
    let before = control.plan();
    let flawed = "kind: total, parameters: {frames: 1, flaw: frames}";
    let wanted = text("half", 3, "kind: tenfold", flawed, "");
    let made = control.apply(&update(&control, &wanted), LIMIT, false);
    assert!(matches!(made, Err(UpdateError::Swap { block, .. }) if block == "g"));
    assert_eq!(control.plan().config_hash, before.config_hash);
    assert_eq!(events(&control, EventKind::Swapped).len(), 2, "there and back");
    flow(&control);
    let new = "  n: {kind: collect, input: s, parameters: {into: nowhere, socket: there}}\n";
    let f = "kind: total, queue: 7, parameters: {frames: 1}";
    let larger = update(&control, &text("half", 3, f, TOTAL, new));
    assert_eq!(
        larger.obstacles(),
        ["`f`: its queue has another length", "`n`: it is new"],
        "all reasons at once"
    );
    assert!(matches!(control.apply(&larger, LIMIT, false), Err(UpdateError::Restart(_))));
    assert!(control.update("flowgraph: g\nblocks: {s: {kind: tocks}}", &[]).is_err());
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    let (rows, levels) = (rows("half"), rows("half_level"));
    assert!(levels.iter().all(|row| row.3 == 1), "the level never changed");
    let (last, time) = (rows.last().unwrap().3, rows.last().unwrap().0);
    assert_eq!(last, (time * time) as i64, "the block is back");
    assert_eq!(rows.len() as u64, report.stats[0].frames_out);
}

#[test]
fn another_run_follows_and_its_events_go_on() {
    let (control, running) = begin("first");
    flow(&control);
    control.request_other(
        update(&control, &text("second", 2, "kind: tenfold", TOTAL, "")).plan().clone(),
    );
    assert!(control.wait_timeout(Duration::from_mins(1)), "it was not stopped");
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
}
