//! Gauges of all kinds: each is a state on purpose, or becomes unknown without new data.

use super::disturbed::env;
use super::examples::{can_run, directory, text};
use fxgraph::DeviceName;
use fxgraph::edge::Harness;
use fxgraph::flowgraph::load_in;
use std::collections::BTreeSet;
use std::path::Path;

/// Gauges that hold without new data, each with the reason.
const STATES: &[(&str, &str)] = &[
    ("digitiser_clipped_samples", "a total"),
    ("filter_group_delay_seconds", "of the filter"),
    ("first_fix_seconds", "of an event"),
    ("gain_amplitude", "of the gains in force"),
    ("gain_phase_degrees", "of the gains in force"),
    ("input_rms", "of the quantiser"),
    ("last_received_timestamp_samples", "where the stream ended"),
    ("last_sent_timestamp_samples", "where the stream ended"),
    ("last_time_jump_seconds", "of an event"),
    ("reconstruction_error_db", "of the filter"),
    ("sample_offset_seconds", "of the file"),
    ("sync_time_seconds", "of the sender"),
    ("sync_time_uncertainty_seconds", "of the sender"),
];

#[test]
fn gauges_of_all_kinds_become_unknown_without_data_unless_they_are_states() {
    let (registry, directory) = (crate::kinds(), directory());
    let (mut states, mut measurements) = (BTreeSet::new(), BTreeSet::new());
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let text = text(&example.flowgraph, directory.path());
        let name = Path::new("example.yaml");
        let plan = load_in(directory.path(), name, &text, &[], &registry).result.ok().unwrap();
        let env = env(directory.path());
        let block = &plan.blocks[plan.block("block").unwrap()];
        // The block registers its gauges, a source of a network at its start. No frame comes.
        let built = block.configured.build(&env).unwrap();
        let mut harness = Harness::new(built, &block.ports, 4).unwrap();
        if block.ports.inputs.is_empty() {
            Harness::block_on(harness.start()).unwrap();
        }
        env.counters.gauges().iter().for_each(|named| named.gauge.set(1.0));
        env.counters.end_measurements();
        for named in env.counters.gauges() {
            let side = if named.gauge.get().is_some() { &mut states } else { &mut measurements };
            side.insert(named.name);
        }
    }
    let expected: BTreeSet<&str> = STATES.iter().map(|(name, _)| *name).collect();
    assert_eq!(states, expected);
    let both: Vec<_> = states.intersection(&measurements).collect();
    assert!(both.is_empty(), "{both:?}");
    assert!(measurements.len() >= 12, "{measurements:?}");
}
