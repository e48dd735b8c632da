//! Tests of the keys `queue` and `when_full`.

use super::kinds::registry;
use super::properties::plan;
use crate::{Plan, load_text};
use fxgraph_core::edge::WhenFull::{DropNewest, DropOldest, Wait};
use serde_json::json;

/// A source with 16 ns per frame, and blocks with these keys: a sink, and a filter with two inputs.
fn text(sink: &str, filter: &str) -> String {
    format!(
        "flowgraph: g
parameters: {{action: drop_newest, seconds: 1.6e-7}}
blocks:
  s: {{kind: source}}
  o: {{kind: sink, input: s.pol0{sink}}}
  f: {{kind: filter, inputs: [s.pol0, s.pol1], parameters: {{taps: 8, window: hann}}{filter}}}
  e: {{kind: sink, input: f}}
"
    )
}

fn messages(text: &str) -> Vec<(&'static str, String)> {
    let Err(problems) = load_text("g.yaml", text, &[], &registry()).result else { panic!("taken") };
    problems.into_iter().map(|problem| (problem.code, problem.message)).collect()
}

fn actions(plan: &Plan, block: &str) -> Vec<fxgraph_core::edge::WhenFull> {
    plan.blocks[plan.block(block).unwrap()].when_full.clone()
}

#[test]
fn action_of_full_queues_is_for_all_inputs_or_single_ones() {
    let usual = plan(&text("", ""), &[]);
    assert_eq!((actions(&usual, "o"), actions(&usual, "f")), (vec![Wait], vec![Wait; 2]));
    assert!(
        !usual.resolved_yaml().contains("when_full"),
        "the text of other flowgraphs is as before"
    );
    let names = usual.blocks[usual.block("f").unwrap()].input_names.clone();
    let filter = format!(", when_full: {{{}: drop_oldest}}", names[1]);
    let given = plan(&text(", when_full: \"${action}\"", &filter), &[]);
    assert_eq!(
        (actions(&given, "o"), actions(&given, "f")),
        (vec![DropNewest], vec![Wait, DropOldest])
    );
    let sink = &given.blocks[given.block("o").unwrap()];
    assert_eq!(sink.when_full_json(), Some(json!("drop_newest")));
    let again = plan(given.resolved_yaml(), &[]);
    assert_eq!(again.config_hash, given.config_hash);
    for block in ["o", "f", "e"] {
        assert_eq!(actions(&again, block), actions(&given, block));
    }
    let assembly = given.build().unwrap();
    for (part, block) in assembly.parts.iter().zip(&given.blocks) {
        let built: Vec<_> = part.inputs.iter().map(|edge| edge.when_full()).collect();
        assert_eq!(built, block.when_full);
    }
    assert_eq!(given.pool_frames(), usual.pool_frames(), "a queue that drops holds as many frames");
    // `e` waits for `f`, whose first input is not dropped.
    assert_eq!(given.side_branches(), [false, true, false, false]);
    let all = plan(&text("", ", when_full: drop_oldest"), &[]);
    assert_eq!(all.side_branches(), [false, false, true, true]);
}

#[test]
fn queue_in_seconds_has_frames_for_the_rate_of_each_input() {
    let of = |queue: &str| {
        let plan = plan(&text(&format!(", queue: {queue}"), ""), &[]);
        let sink = plan.block("o").unwrap();
        let depth = plan.build().unwrap().parts[sink].inputs[0].depth();
        assert_eq!(depth, plan.blocks[sink].queue_frames(0));
        // The frame being filled, the one at work, and queue, frame at work and held frames of the filter.
        assert_eq!(plan.pool_frames()[0][0], 1 + (depth + 1) + (4 + 1 + 2));
        assert_eq!(
            crate::tests::properties::plan(plan.resolved_yaml(), &[]).config_hash,
            plan.config_hash
        );
        depth
    };
    assert_eq!(of("{seconds: 1.6e-7}"), 10);
    assert_eq!(of("{seconds: 1.61e-7}"), 11);
    assert_eq!(of("{seconds: \"${2 * seconds}\"}"), 20);
    assert_eq!(of("{seconds: 1e-30}"), 1);
    assert_eq!(of("7"), 7);
}

#[test]
fn wrong_queues_are_rejected() {
    let integer = "expected an integer from 1 to 4096, or `{seconds: 2.5}`, found ";
    for queue in ["0", "4097", "{seconds: 0}", "{seconds: .inf}", "{frames: 3}", "2 s", "[1]"] {
        let found = messages(&text(&format!(", queue: {queue}"), ""));
        assert_eq!(found.len(), 1, "{queue}: {found:?}");
        assert!(found[0].0 == "E0108" && found[0].1.starts_with(integer), "{queue}: {found:?}");
    }
    let long = messages(&text(", queue: {seconds: 1}", ""));
    let message = "the queue of the input `input` must have at most 4096 frames, got 62500000";
    assert_eq!(long, [("E0102", message.to_owned())]);
    for action in ["drop", "{input: 3}", "[wait]", "true"] {
        let found = messages(&text(&format!(", when_full: {action}"), ""));
        assert_eq!(found.len(), 1, "{action}: {found:?}");
        let expected = "expected `wait`, `drop_oldest` or `drop_newest`";
        assert!(found[0].0 == "E0108" && found[0].1.starts_with(expected), "{action}: {found:?}");
    }
    let found = messages(&text(", when_full: {source: wait}", ""));
    assert_eq!(found, [("E0119", "`sink` has no input `source`".to_owned())]);
    let source = text("", "").replace("kind: source", "kind: source, when_full: drop_oldest");
    let message = "`source` must have inputs to have `when_full`";
    assert_eq!(messages(&source), [("E0119", message.to_owned())]);
}

#[test]
fn candidate_keeps_the_queues_of_its_slot() {
    let plan = plan(&text("", ", when_full: drop_oldest, queue: {seconds: 1.6e-7}"), &[]);
    let changed = plan.change("f", "parameters: {taps: 16}", &registry()).result.ok().unwrap();
    assert_eq!(actions(&changed, "f"), [DropOldest; 2]);
    assert_eq!(changed.blocks[changed.block("f").unwrap()].queue_frames(1), 10);
    let given = "{parameters: {taps: 16}, when_full: wait}";
    let problems = plan.change("f", given, &registry()).result.err().unwrap();
    assert_eq!(problems[0].message, "`when_full` is no part of a swap");
}
