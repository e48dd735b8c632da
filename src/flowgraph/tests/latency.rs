//! Frame sizes that the plan chooses from `latency_seconds`.

#![allow(clippy::float_cmp)] // Exact values of the plan.

use super::kinds::registry;
use crate::{FrameReason, Plan, Setting, load_text};

fn planned(keys: &str, block: &str) -> Plan {
    let text = format!(
        "flowgraph: g\n{keys}blocks:\n  a: {{kind: live, {block}}}\n  o: {{kind: sink, input: a}}\n"
    );
    let loaded = load_text("latency.yaml", &text, &[], &registry());
    loaded.result.unwrap_or_else(|problems| panic!("{:?}", problems[0]))
}

/// Samples of a frame of `a`, and the reason.
fn frame(plan: &Plan) -> (u64, FrameReason) {
    let frame = plan.blocks[0].frame.as_ref().unwrap();
    assert_eq!(plan.blocks[0].ports.outputs[0].clock.samples_per_frame, frame.samples);
    assert_eq!(plan.blocks[0].parameters["samples"], frame.samples);
    (frame.samples, frame.reason)
}

#[test]
fn plan_chooses_frames_from_default_latency() {
    // 2.5 ms at 10^9 samples/s are 2.5 million samples.
    assert_eq!(frame(&planned("", "parameters: {}")), (1 << 21, FrameReason::Latency));
    assert_eq!(frame(&planned("", "queue: 4")), (1 << 21, FrameReason::Latency));
}

#[test]
fn plan_chooses_frames_from_latency_of_flowgraph_and_of_block() {
    // A quarter of 1 ms are 250000 samples, a quarter of 100 us 25000.
    let file = "parameters: {ms: 1}\nlatency_seconds: \"${ms / 1000}\"\n";
    assert_eq!(frame(&planned(file, "queue: 4")), (1 << 17, FrameReason::Latency));
    let plan = planned(file, "latency_seconds: 0.0001");
    assert_eq!(frame(&plan), (1 << 14, FrameReason::Latency));
    assert_eq!(plan.blocks[0].frame.as_ref().unwrap().latency_seconds, 1e-4);
}

#[test]
fn given_frames_win_over_latency() {
    let plan = planned("latency_seconds: 0.5\n", "parameters: {samples: 12288}");
    assert_eq!(frame(&plan), (12288, FrameReason::Given));
    assert_eq!(plan.blocks[0].frame.as_ref().unwrap().seconds, 12288e-9);
    assert!(plan.warnings.is_empty());
}

#[test]
fn resolved_flowgraph_has_chosen_frames() {
    let plan = planned("latency_seconds: 0.001\n", "parameters: {heap: 1000}");
    // Powers of two of a heap: 128 heaps last 128 us, 256 heaps would last 256 us.
    assert_eq!(frame(&plan), (128_000, FrameReason::Latency));
    let again = load_text("resolved.yaml", plan.resolved_yaml(), &[], &registry()).result;
    let again = again.unwrap_or_else(|problems| panic!("{:?}", problems[0]));
    assert_eq!(again.config_hash, plan.config_hash);
    assert_eq!(frame(&again), (128_000, FrameReason::Given));
}

#[test]
fn default_latency_never_warns() {
    let plan = planned("", "parameters: {rate: 1000}");
    assert_eq!(frame(&plan), (4096, FrameReason::Smallest));
    assert!(plan.warnings.is_empty());
}

#[test]
fn wrong_latency_is_an_error() {
    for (value, code) in [("0", "E0201"), ("-1", "E0201"), (".inf", "E0201"), ("fast", "E0108")] {
        let text = format!(
            "flowgraph: g\nlatency_seconds: {value}\nblocks: {{a: {{kind: live}}, o: {{kind: sink, input: a}}}}\n"
        );
        let loaded = load_text("latency.yaml", &text, &[] as &[Setting], &registry());
        let problems = loaded.result.err().unwrap();
        assert_eq!(problems[0].code, code, "{value}: {}", problems[0].message);
        assert!(problems[0].span.is_some());
    }
}
