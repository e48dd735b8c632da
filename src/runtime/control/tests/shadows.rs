//! Tests of shadows.

use super::*;
use crate::control::ShadowReport;
use fxgraph_core::difference::StreamDifference;
use std::time::Instant;

fn shadow(control: &Control, change: &str, ends_at_difference: bool) {
    let change = control.change("f", change).ok().unwrap();
    control.shadow(&change, ends_at_difference).unwrap();
}

/// Waits until the comparison of the only shadow is `enough`, and returns its report.
fn wait(control: &Control, enough: impl Fn(&Compared) -> bool) -> ShadowReport {
    let began = Instant::now();
    loop {
        let [report] = &control.shadows()[..] else { panic!("not one shadow") };
        if enough(&report.compared) {
            return report.clone();
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{:?}", report.compared);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn shadow_with_the_same_result_shows_no_difference() {
    let (control, running) = start("same", 4);
    flow(&control);
    shadow(&control, "implementation: running", false);
    let seen = wait(&control, |compared| compared.difference.frames >= 100);
    assert_eq!((seen.implementation, seen.kind), ("running", "total"));
    let seen_of = seen.compared.difference;
    assert_eq!((seen_of.frames_different, seen_of.values.values_different), (0, 0));
    assert!(seen_of.values.max == 0.0 && seen_of.values.rms() == 0.0);
    assert!(seen.compared.block_time.is_some() && seen.compared.shadow_time.is_some());
    // The first frames of the shadow are not valid, those of the block are.
    assert!(seen_of.frames_alone >= 3, "{:?}", seen.compared);
    let last = control.end_shadow("f").unwrap().unwrap();
    assert!(last.compared.difference.frames >= seen_of.frames);
    assert_eq!(last.compared.ended, None);
    assert!(control.shadows().is_empty() && control.end_shadow("f").unwrap().is_none());
    // The block can be swapped again.
    swap(&control, "f", "implementation: running").unwrap();
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    assert_whole(&rows("same"), &report, 4, |_| 1);
}

#[test]
fn shadow_with_another_result_shows_the_difference_and_the_first_frame() {
    let (control, running) = start("other", 1);
    shadow(&control, "kind: tenfold", true);
    let Compared { difference: StreamDifference { frames, values, .. }, first, .. } =
        wait(&control, |compared| compared.difference.frames_different > 0).compared;
    // The frame at timestamp 0 is zero in both.
    let pair = first.unwrap();
    let time = pair.timestamp as i64;
    assert_eq!(pair.block, (time * time).to_ne_bytes());
    assert_eq!(pair.shadow, (10 * time * time).to_ne_bytes());
    let difference = (9 * time * time) as f64;
    assert!((values.max - difference).abs() < 1e-9);
    assert!((values.rms() - difference / (frames as f64).sqrt()).abs() < 1e-6);
    assert_eq!((values.values, values.values_different), (frames, 1));
    // No frame is compared after the first difference.
    std::thread::sleep(Duration::from_millis(50));
    let after = &control.shadows()[0].compared;
    assert_eq!(
        (after.difference.frames, after.ended.as_deref()),
        (frames, Some("a frame differs"))
    );
    let text = format!(
        "the frame with timestamp {time} differs in 1 of 1 values, by up to {}",
        9 * time * time
    );
    assert_eq!(events(&control, EventKind::ShadowDiffers), [text]);
    let report = stop(&control, running);
    assert_whole(&rows("other"), &report, 1, |_| 1);
}

#[test]
fn slow_or_failed_shadow_does_not_affect_the_flowgraph() {
    let (control, running) = start("slow", 4);
    shadow(&control, "parameters: {flaw: slow}", false);
    let busy = control.change("f", "implementation: running").ok().unwrap();
    let limit = busy.usual_limit();
    for rejected in [control.shadow(&busy, false), control.swap(&busy, limit, true)] {
        assert!(matches!(rejected, Err(SwapError::Shadowed(block)) if block == "f"));
    }
    let seen = wait(&control, |compared| compared.frames_dropped > 0);
    assert_eq!(seen.compared.difference.frames_different, 0);
    control.end_shadow("f").unwrap().unwrap();
    let failing = control.change("f", "parameters: {flaw: start}").ok().unwrap();
    let error = control.shadow(&failing, false).unwrap_err();
    assert_eq!(error.to_string(), "the new block could not be started: no such core");
    let sink = control.change("o", "parameters: {socket: there}").ok().unwrap();
    assert!(matches!(control.shadow(&sink, false), Err(SwapError::NoShadow(_))));
    // A shadow ends with the flowgraph.
    shadow(&control, "implementation: running", false);
    let report = stop(&control, running);
    assert_eq!(report.failures, []);
    assert_whole(&rows("slow"), &report, 4, |_| 1);
    wait(&control, |compared| compared.ended.is_some());
}

/// A block whose output is its live level, with the shadow `change`.
fn levels(into: &str, change: &str) -> (Control, Running) {
    let text = format!(
        "flowgraph: g\nblocks:\n  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}\n  \
         f: {{kind: level, input: s, parameters: {{level: 1, fails_at: 100000000}}}}\n  \
         o: {{kind: collect, input: f, parameters: {{into: {into}}}}}\n"
    );
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let (control, prepared) = Control::prepared(plan, registry()).unwrap();
    let running = prepared.start(Options::default()).unwrap();
    flow(&control);
    shadow(&control, change, false);
    (control, running)
}

/// Sets the level 100 frames ahead; returns the timestamp.
fn set_level(control: &Control, level: i64) -> u64 {
    let newest = control.stats()[0].newest_timestamp.unwrap();
    let request = format!("f: {{level: {level}}}");
    control.live_update(&request, Some(newest + 100), LIMIT).unwrap().effective_timestamp
}

#[test]
fn shadow_follows_the_live_updates_of_its_block() {
    let (control, running) = levels("led", "parameters: {fails_too: [99999999]}");
    let frames = |count| move |compared: &Compared| compared.difference.frames >= count;
    for level in [5, 7] {
        set_level(&control, level);
        let before = control.shadows()[0].compared.difference.frames;
        let seen = wait(&control, frames(before + 300));
        assert_eq!(seen.compared.difference.frames_different, 0, "{:?}", seen.compared.first);
        assert_eq!(seen.parameters["level"], level);
    }
    control.end_shadow("f").unwrap();
    assert_eq!(stop(&control, running).failures, []);
}

#[test]
fn shadow_keeps_the_live_parameter_that_it_sets_itself() {
    let (control, running) = levels("own", "parameters: {level: 3}");
    let at = set_level(&control, 3);
    let same = |compared: &Compared| {
        compared.difference.frames_different > 0
            && compared.difference.frames > compared.difference.frames_different + 100
    };
    let seen = wait(&control, same);
    assert!(seen.compared.first.unwrap().timestamp < at, "they differ before the update only");
    set_level(&control, 4);
    let before = seen.compared.difference.frames_different;
    let seen = wait(&control, |compared| compared.difference.frames_different > before + 10);
    assert_eq!(seen.parameters["level"], 3);
    assert_eq!(stop(&control, running).failures, []);
}
