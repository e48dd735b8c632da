//! Tests of configurations: while values are scheduled, frames, recordings and the plan state the values in force.

use super::kinds::{Row, rows};
use super::{Control, LIMIT, Running, load_text, registry, swap};
use crate::{Options, RunState};
use fxgraph_flowgraph::{Plan, ScheduledValue};
use fxgraph_recording::{RecorderOptions, SideFile, Trigger};
use serde_json::json;
use std::fs;
use std::time::Duration;

/// Timestamp that no test reaches.
const NEVER: u64 = 100_000_000;
/// Samples, of 300 us each, from the newest one to a scheduled change.
const AHEAD: u64 = 8000;
/// Length of the queues between the source and the two blocks, in frames of one sample.
const QUEUE: u64 = 4;

/// Text of a flowgraph of two blocks with a level. The sinks collect the frames of the source and of both blocks into
/// `name` with the letters of these.
fn text(name: &str, f: i64, g: i64, fails_at: u64) -> String {
    format!(
        "flowgraph: g
blocks:
  s: {{kind: ticks, parameters: {{period_microseconds: 300}}}}
  f: {{kind: level, input: s, queue: {QUEUE}, parameters: {{level: {f}, fails_at: {NEVER}}}}}
  g: {{kind: level, input: s, queue: {QUEUE}, parameters: {{level: {g}, fails_at: {fails_at}}}}}
  os: {{kind: collect, input: s, parameters: {{into: {name}_s}}}}
  of: {{kind: collect, input: f, parameters: {{into: {name}_f}}}}
  og: {{kind: collect, input: g, parameters: {{into: {name}_g}}}}
"
    )
}

fn plan(text: &str) -> Plan {
    load_text("g.yaml", text, &[], &registry()).result.ok().unwrap()
}

/// A running flowgraph with levels 1 and 2.
struct Bench {
    name: &'static str,
    control: Control,
    running: Running,
}

impl Bench {
    fn start(name: &'static str) -> Self {
        let plan = plan(&text(name, 1, 2, NEVER));
        let options = Options { config_id: plan.config_id(), workers: 2 };
        let (control, prepared) = Control::prepared(plan, registry()).unwrap();
        let running = prepared.start(options).unwrap();
        let bench = Self { name, control, running };
        bench.wait(20);
        bench
    }

    /// Number of the configuration with these levels.
    fn id(&self, f: i64, g: i64) -> u64 {
        plan(&text(self.name, f, g, NEVER)).config_id()
    }

    /// Newest timestamp of any block.
    fn newest(&self) -> u64 {
        self.control.stats().iter().filter_map(|stats| stats.newest_timestamp).max().unwrap()
    }

    /// Waits until all sinks have the frames before timestamp `until`.
    fn wait(&self, until: u64) {
        let is_behind = |name: &str| {
            let stats = self.control.stats();
            let sink = stats.iter().find(|stats| stats.name == name).unwrap();
            sink.newest_timestamp.unwrap_or_default() < until
        };
        while ["os", "of", "og"].into_iter().any(is_behind) {
            assert_eq!(self.control.state(), RunState::Running);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Schedules `level` of `f`.
    fn schedule(&self, level: i64, at: u64) -> u64 {
        let made =
            self.control.live_update(&format!("f: {{level: {level}}}"), Some(at), LIMIT).unwrap();
        assert_eq!((made.effective_timestamp, made.is_late), (at, false));
        made.config_id
    }

    /// Number of the configuration, and levels of both blocks, that the control states now.
    fn stated(&self) -> (u64, i64, i64) {
        let plan = self.control.plan_in_force();
        let text: serde_json::Value = yaml(plan.resolved_yaml());
        let level = |name: &str| {
            let index = plan.block(name).unwrap();
            let level = plan.blocks[index].parameters["level"].as_i64().unwrap();
            assert_eq!(text["blocks"][name]["parameters"]["level"], level);
            level
        };
        (plan.config_id(), level("f"), level("g"))
    }

    /// Runs to timestamp `until`; returns the frames of the source and of both blocks.
    fn end(self, until: u64) -> [Vec<Row>; 3] {
        self.wait(until);
        assert_eq!(super::stop(&self.control, self.running).failures, []);
        ["s", "f", "g"].map(|block| rows(&format!("{}_{block}", self.name)))
    }
}

fn yaml(text: &str) -> serde_json::Value {
    fxgraph_flowgraph::read_value(text).ok().unwrap().to_json()
}

/// Indices of the outputs of both blocks.
const F: usize = 1;
const G: usize = 2;

/// A configuration in the frames of all outputs.
struct Stated {
    /// Timestamp from which on the changed block has it, and before which no output has it.
    from: u64,
    /// Timestamp from which on all outputs have it.
    by: u64,
    id: u64,
    levels: [i64; 2],
}

impl Stated {
    /// From `from` on, in all outputs.
    fn exactly(from: u64, id: u64, levels: [i64; 2]) -> Self {
        Self { from, by: from, id, levels }
    }

    /// From `from` on, the end of the samples that the changed block had begun at the decision. By then the source may
    /// have pushed further frames with the configuration before: at most the one that the changed block has taken and
    /// those in the queue between them. The other block is never ahead of the source.
    fn at_once(from: u64, id: u64, levels: [i64; 2]) -> Self {
        Self { from, by: from + QUEUE + 1, id, levels }
    }
}

/// Checks that all frames have the configuration, the latest one of `all`, in effect at their timestamp, and those of
/// both blocks the level. The configuration of the output `changed` begins exactly at its timestamp.
fn assert_frames(frames: &[Vec<Row>; 3], changed: usize, all: &[Stated]) {
    for (output, rows) in frames.iter().enumerate() {
        assert!(rows.last().is_some_and(|row| row.0 > all.last().unwrap().by));
        let mut last = 0;
        for (time, _, _, level, id) in rows {
            let newest = all.partition_point(|stated| stated.from <= *time) - 1;
            let oldest = match all.partition_point(|stated| stated.by <= *time) - 1 {
                _ if output == changed => newest,
                oldest => oldest.max(last),
            };
            last = all.iter().position(|stated| stated.id == *id).unwrap();
            assert!(
                (oldest..=newest).contains(&last),
                "output {output} at {time}: configuration {last} instead of {oldest} to {newest}"
            );
            if output != 0 {
                assert_eq!(*level, all[newest].levels[output - 1], "output {output} at {time}");
            }
        }
    }
}

#[test]
fn another_update_before_a_scheduled_value_states_the_values_in_force() {
    let bench = Bench::start("scheduled");
    let at = bench.newest() + AHEAD;
    assert_eq!(bench.schedule(5, at), bench.id(5, 2));
    assert_eq!(bench.stated(), (bench.id(1, 2), 1, 2));
    let other = bench.control.live_update("g: {level: 7}", None, LIMIT).unwrap();
    assert!(other.effective_timestamp < at, "the machine is too slow for the test");
    assert_eq!(other.config_id, bench.id(1, 7));
    assert_eq!(other.seconds_ahead, Some(0.0));
    assert_eq!(bench.stated(), (bench.id(1, 7), 1, 7));
    let value = ScheduledValue {
        block: "f".to_owned(),
        parameter: "level",
        value: json!(5),
        timestamp: at,
    };
    assert_eq!(bench.control.in_force_and_scheduled().1, [value]);
    assert_eq!(other.steady_state_timestamp, at);
    assert_eq!(bench.control.steady_state_timestamp(), at);
    bench.wait(at + 10);
    assert_eq!(bench.stated(), (bench.id(5, 7), 5, 7));
    assert_eq!(bench.control.in_force_and_scheduled().1, []);
    let all = [
        Stated::exactly(0, bench.id(1, 2), [1, 2]),
        Stated::at_once(other.effective_timestamp, bench.id(1, 7), [1, 7]),
        Stated::exactly(at, bench.id(5, 7), [5, 7]),
    ];
    assert_frames(&bench.end(at + 50), G, &all);
}

#[test]
fn updates_scheduled_in_any_order_state_the_values_in_force() {
    let bench = Bench::start("any_order");
    let newest = bench.newest();
    let [first, second, third] = [2000, 2500, 3000].map(|ahead| newest + ahead);
    bench.schedule(5, second);
    let made = bench.control.live_update("g: {level: 7}", Some(third), LIMIT).unwrap();
    assert_eq!(made.config_id, bench.id(5, 7));
    assert!(made.seconds_ahead.is_some_and(|ahead| ahead > 0.0 && ahead <= 3000e-6), "{made:?}");
    // An earlier update contains the configurations of the later ones.
    let made = bench.control.live_update("g: {level: 6}", Some(first), LIMIT).unwrap();
    // This one replaces the value for the third timestamp.
    assert_eq!((made.config_id, made.steady_state_timestamp), (bench.id(1, 6), second));
    let all = [
        Stated::exactly(0, bench.id(1, 2), [1, 2]),
        Stated::exactly(first, bench.id(1, 6), [1, 6]),
        Stated::exactly(second, bench.id(5, 6), [5, 6]),
    ];
    assert_frames(&bench.end(third + 50), G, &all);
}

#[test]
fn replaced_value_is_not_stated_nor_in_the_steady_state_timestamp() {
    let bench = Bench::start("replaced");
    let at = bench.newest() + AHEAD;
    bench.schedule(5, at);
    let made = bench.control.live_update("f: {level: 3}", None, LIMIT).unwrap();
    let from = made.effective_timestamp;
    assert!(from < at, "the machine is too slow for the test");
    assert_eq!((made.config_id, made.steady_state_timestamp), (bench.id(3, 2), from));
    assert_eq!(bench.control.steady_state_timestamp(), from);
    assert_eq!(bench.control.in_force_and_scheduled().1, []);
    bench.wait(from + 10);
    let last = bench.control.live_update("g: {level: 7}", Some(at + 100), LIMIT).unwrap();
    assert_eq!(last.steady_state_timestamp, at + 100);
    bench.control.live_update("g: {level: 2}", None, LIMIT).unwrap();
    let steady = bench.control.steady_state_timestamp();
    assert!((from + 1..at).contains(&steady), "{steady}");
    let all =
        [Stated::exactly(0, bench.id(1, 2), [1, 2]), Stated::at_once(from, bench.id(3, 2), [3, 2])];
    assert_frames(&bench.end(at + 150), F, &all);
}

#[test]
fn swap_before_a_scheduled_value_states_the_values_in_force() {
    let bench = Bench::start("before_swap");
    let at = bench.newest() + 2 * AHEAD;
    bench.schedule(5, at);
    swap(&bench.control, "g", "parameters: {level: 3}").unwrap();
    let swapped = bench.newest();
    assert_eq!(bench.stated(), (bench.id(1, 3), 1, 3));
    assert!(swapped < at, "the machine is too slow for the test");
    let [before, after, last] = [(1, 2), (1, 3), (5, 3)].map(|(f, g)| bench.id(f, g));
    let frames = bench.end(at + 50);
    let from = frames[G].iter().find(|row| row.3 == 3).unwrap().0;
    assert!(from < swapped, "{from} {swapped}");
    let all = [
        Stated::exactly(0, before, [1, 2]),
        // The other outputs follow with their next frames after the swap; the source may be pushing one that is not in
        // its statistics yet.
        Stated { from, by: swapped + 1, id: after, levels: [1, 3] },
        Stated::exactly(at, last, [5, 3]),
    ];
    assert_frames(&frames, G, &all);
}

#[test]
fn swap_that_replaces_a_scheduled_value_does_not_state_it() {
    let bench = Bench::start("without");
    let at = bench.newest() + 2 * AHEAD;
    bench.schedule(5, at);
    swap(&bench.control, "f", "parameters: {level: 3}").unwrap();
    let id = bench.id(3, 2);
    assert_eq!(bench.stated(), (id, 3, 2));
    assert_eq!(bench.control.in_force_and_scheduled().1, []);
    assert!(bench.newest() < at, "the machine is too slow for the test");
    for rows in bench.end(at + 50) {
        assert!(rows.iter().filter(|row| row.0 + 100 > at).all(|row| row.4 == id));
    }
}

#[test]
fn flowgraph_as_in_force_with_another_block_keeps_scheduled_values() {
    let bench = Bench::start("whole");
    let at = bench.newest() + 2 * AHEAD;
    bench.schedule(5, at);
    let new = text("whole", 1, 3, NEVER + 1);
    let update = bench.control.update(&new, &[]).ok().unwrap();
    let differs = update.blocks.iter().filter(|block| !block.differences.is_empty());
    assert_eq!(differs.map(|block| block.block.as_str()).collect::<Vec<_>>(), ["g"]);
    let from = bench.control.apply(&update, LIMIT, false).unwrap().effective_timestamp.unwrap();
    assert!(from < at, "the machine is too slow for the test");
    let id = |f| plan(&text("whole", f, 3, NEVER + 1)).config_id();
    assert_eq!(bench.stated(), (id(1), 1, 3));
    assert_eq!(bench.control.in_force_and_scheduled().1.len(), 1);
    let all = [
        Stated::exactly(0, bench.id(1, 2), [1, 2]),
        Stated::at_once(from, id(1), [1, 3]),
        Stated::exactly(at, id(5), [5, 3]),
    ];
    assert_frames(&bench.end(at + 50), G, &all);
}

#[test]
fn recordings_state_the_values_in_force_at_their_first_frame() {
    let directory = tempfile::tempdir().unwrap();
    let bench = Bench::start("recorded_values");
    let control = bench.control.clone();
    control.allow_recordings(directory.path(), 1 << 20, 0).unwrap();
    let at = bench.newest() + 2 * AHEAD;
    bench.schedule(5, at);
    control.live_update("g: {level: 7}", None, LIMIT).unwrap();
    let options = |path: &str| RecorderOptions {
        path: path.into(),
        before_seconds: 5e-6,
        after_seconds: Some(3e-6),
        max_bytes: None,
        max_total_bytes: None,
        min_free_bytes: None,
        trigger: Trigger::Request,
        budget: None,
    };
    let names = ["before.npy", "after.npy"].map(|path| control.record("f", options(path), LIMIT));
    let [before, after] = names.map(|status| status.unwrap().name);
    control.trigger_recorder(&before, Some(at)).unwrap();
    control.trigger_recorder(&after, Some(at + 5)).unwrap();
    assert!(bench.newest() < at, "the machine is too slow for the test");
    let ids = [bench.id(1, 7), bench.id(5, 7)];
    bench.end(at + 50);
    control.finish_recordings();
    for (path, id, level, first) in [("before", ids[0], 1, at - 5), ("after", ids[1], 5, at)] {
        let side = fs::read_to_string(directory.path().join(format!("{path}.npy.json"))).unwrap();
        let side = SideFile::read(&side).unwrap();
        assert_eq!(side.first_timestamp, Some(first));
        assert_eq!(side.config_hash[..16], format!("{id:016x}"));
        let text = yaml(&side.flowgraph);
        assert_eq!(text["blocks"]["f"]["parameters"]["level"], level);
        assert_eq!(text["blocks"]["g"]["parameters"]["level"], 7);
        assert_eq!(plan(&side.flowgraph).config_hash, side.config_hash);
    }
}
