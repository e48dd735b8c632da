//! Counters of missing data: what is missing counts once, whether frames flag it or do not come at all.

use super::disturbed::{Streams, env, run, run_enough};
use super::examples::{can_run, directory, text};
use fxgraph::DeviceName;
use fxgraph::flowgraph::{Plan, load_in};
use std::collections::BTreeMap;
use std::path::Path;

/// Counters that count in frames that come only, each with the reason.
const OF_FRAMES: &[(&str, &str)] =
    &[("dumps_missing", "a dump of flagged heaps is output, with counts of 0")];

/// Counts of missing data of a block over frames of its inputs.
fn counts(
    plan: &Plan,
    inputs: &Streams,
    directory: &Path,
) -> Result<BTreeMap<&'static str, u64>, String> {
    let env = env(directory);
    let configured = &*plan.blocks[plan.block("block").unwrap()].configured;
    run(configured, inputs, 0, &env)?;
    let all = env.counters.list().into_iter();
    let missing = all.filter(|named| named.is_loss && named.name.ends_with("_missing"));
    let counted = missing.filter(|named| OF_FRAMES.iter().all(|(name, _)| *name != named.name));
    Ok(counted.map(|named| (named.name, named.counter.get())).collect())
}

/// Compares the counts of a block for flagged frames and without these frames; returns those of the flagged frames.
fn test(plan: &Plan, directory: &Path) -> Result<BTreeMap<&'static str, u64>, String> {
    let configured = &*plan.blocks[plan.block("block").unwrap()].configured;
    let (inputs, _) =
        run_enough(plan, directory, |inputs| run(configured, inputs, 0, &env(directory)))?;
    // A third of the stream, which is many frames of the output.
    let lost = |frames: &[_]| frames.len() / 3..frames.len() * 2 / 3;
    let (mut flagged, mut dropped) = (inputs.clone(), inputs);
    for frames in &mut flagged {
        let lost = lost(frames);
        for frame in &mut frames[lost] {
            frame.validity.fill(0);
            frame.payload.fill(0);
        }
    }
    for frames in &mut dropped {
        let lost = lost(frames);
        frames.drain(lost);
    }
    let (of_flags, of_drops) =
        (counts(plan, &flagged, directory)?, counts(plan, &dropped, directory)?);
    if of_flags == of_drops {
        return Ok(of_flags);
    }
    Err(format!("{of_flags:?} in flagged frames, {of_drops:?} without them"))
}

#[test]
fn missing_data_count_the_same_whether_their_frames_are_flagged_or_do_not_come() {
    let (registry, directory) = (crate::kinds(), directory());
    let (mut found, mut counters) = (Vec::new(), BTreeMap::new());
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let text = text(&example.flowgraph, directory.path());
        let name = Path::new("example.yaml");
        let plan = load_in(directory.path(), name, &text, &[], &registry).result.ok().unwrap();
        let block = &plan.blocks[plan.block("block").unwrap()];
        if block.ports.inputs.is_empty() || block.ports.outputs.is_empty() {
            continue;
        }
        match test(&plan, directory.path()) {
            Ok(counts) => drop(counters.insert(example.kind, counts)),
            Err(why) => found.push(format!("{example}: {why}")),
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (kind, counter) in [
        ("pfb", "spectra_missing"),
        ("f_engine", "heaps_missing"),
        ("ddc", "heaps_missing"),
        ("postproc", "heaps_missing"),
        ("resampler", "heaps_missing"),
        ("synthesiser", "heaps_missing"),
    ] {
        assert!(counters[kind][counter] > 0, "{kind}: {:?}", counters[kind]);
    }
}
