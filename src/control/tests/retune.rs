//! Retuned and tapped blocks that fail or are swapped.

use super::super::{TapOptions, Tapped};
use super::*;

#[test]
fn a_block_that_was_retuned_is_built_anew_with_its_new_values() {
    let text = "flowgraph: g
blocks:
  s: {kind: ticks, parameters: {period_microseconds: 300}}
  f: {kind: level, input: s, on_fault: restart, parameters: {level: 1, fails_at: 8000}}
  o: {kind: collect, input: f, parameters: {into: retuned}}
";
    let plan = load_text("g.yaml", text, &[], &registry()).result.ok().unwrap();
    let options = Options { config_id: plan.config_id(), workers: 2 };
    let before = plan.config_id();
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(options).unwrap();
    let done = control.retune("f: {level: 5}", None, LIMIT).unwrap();
    let at = done.effective_timestamp;
    assert!(at < 8000);
    while control.stats()[2].frames_in < 8200 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = stop(&control, running);
    assert_eq!((report.failures.len(), report.stats[1].restarts), (0, 1));
    let rows = rows("retuned");
    assert!(!rows.iter().any(|row| row.0 == 8000));
    for (time, _, _, level, config_id) in rows {
        assert_eq!(level, if time < at { 1 } else { 5 }, "at {time}");
        assert_eq!(config_id, if time < at { before } else { done.config_id }, "at {time}");
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
