//! A change of the time base: no block uses data of two bases together, and files state the time of their base.

use super::chain::{Plain, connected};
use super::disturbed::{Streams, compare, env, run, run_enough, run_in_bases};
use super::examples::{can_run, directory, text};
use fxgraph::event::{Event, Events};
use fxgraph::flowgraph::{Plan, load_in};
use fxgraph::frame::Annotations;
use fxgraph::{DeviceName, Dtype, PortType, Time, TimeBase};
use fxgraph_dsp::random::Random;
use std::path::Path;
use std::sync::Arc;

/// First timestamp of the second base: the sender counts from 0 again.
const FROM: u64 = 1 << 48;
/// Sync time of the second base, 2027-01-16T11:46:40 UTC.
const SYNC: u32 = 1_800_100_000;
/// Frames of each base that sinks get.
const FRAMES: u64 = 24;
/// Frames of the first base before those that sinks get.
const BEFORE: u64 = 40;

/// Plans of the examples of blocks with inputs, by kind.
fn plans(directory: &Path) -> Vec<(&'static str, Plan)> {
    let registry = crate::kinds();
    let plan = |flowgraph: &str| {
        let text = text(flowgraph, directory);
        load_in(directory, Path::new("example.yaml"), &text, &[], &registry).result.unwrap()
    };
    let examples = registry.examples(DeviceName::Cpu).into_iter().filter(can_run);
    let plans = examples.map(|example| (example.kind, plan(&example.flowgraph)));
    plans.filter(|(_, plan)| !ports(plan).0.is_empty()).collect()
}

/// Inputs and outputs of the block of an example.
fn ports(plan: &Plan) -> (&[PortType], &[PortType]) {
    let ports = plan.blocks[plan.block("block").unwrap()].configured.ports();
    (&ports.inputs, &ports.outputs)
}

/// Base of the frames with this timestamp.
fn base_at(timestamp: u64) -> TimeBase {
    let sync_time = Some(Time::unix(SYNC));
    let second = TimeBase { from: FROM, sync_time, uncertainty_seconds: 0.27 };
    if timestamp < FROM { TimeBase::default() } else { second }
}

/// Number of complete units in `frames` of `port`.
fn complete_units(port: &PortType, frames: &[Plain]) -> usize {
    let counts = frames.iter().flat_map(|frame| &frame.validity);
    counts.filter(|count| **count == port.validity.full).count()
}

/// Kind without a complete unit: the noise of its inputs is no satellite, so that there is no position.
const OF_SATELLITES: &str = "gnss_position";

/// Tests the block of an example: in both bases its complete units are those of a run over the frames of this base only.
fn test(kind: &str, plan: &Plan, directory: &Path) -> Result<(), String> {
    let configured = &*plan.blocks[plan.block("block").unwrap()].configured;
    let run = |inputs: &Streams| run_in_bases(configured, inputs, 0, &env(directory), base_at);
    let (whole, _) = run_enough(plan, directory, run)?;
    let times: Vec<u64> = whole[0].iter().map(|frame| frame.timestamp).collect();
    let [_, _, _, from, .., end] = times[..] else { return Err("too few frames".to_owned()) };
    // Sums and averages over an even number of frames are not complete at the end of the first base, nor at the start of
    // the second one.
    let part = |keep: &dyn Fn(u64) -> bool, ahead: u64| -> Streams {
        let ahead_of =
            |frame: &Plain| Plain { timestamp: frame.timestamp + ahead, ..frame.clone() };
        let kept = |frames: &Vec<Plain>| -> Vec<Plain> {
            frames.iter().filter(|frame| keep(frame.timestamp)).map(ahead_of).collect()
        };
        whole.iter().map(kept).collect()
    };
    let (first, second) = (part(&|time| time < end, 0), part(&|time| time >= from, FROM));
    let pairs = first.iter().zip(&second);
    let both: Streams = pairs.map(|(a, b)| [&a[..], &b[..]].concat()).collect();
    let alone = [run(&first)?, run(&second)?];
    let got = run(&both)?;
    for (output, (port, got)) in ports(plan).1.iter().zip(&got).enumerate() {
        let change = got.partition_point(|frame| frame.timestamp < FROM);
        let of_bases = [&got[..change], &got[change..]];
        for (base, (alone, got)) in alone.iter().zip(of_bases).enumerate() {
            let place = format!("output {output} in base {base}");
            compare(port, &alone[output], got, 0).map_err(|why| format!("{place}: {why}"))?;
            let [expected, found] =
                [&alone[output][..], got].map(|frames| complete_units(port, frames));
            // The last units before the change may be incomplete.
            if found == 0 && kind != OF_SATELLITES || 2 * found < expected {
                return Err(format!(
                    "{place}: {found} complete units, {expected} without the change"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn no_kind_mixes_data_of_two_time_bases() {
    let directory = directory();
    let tested = plans(directory.path()).into_iter().filter(|(_, plan)| !ports(plan).1.is_empty());
    let failed = tested.filter_map(|(kind, plan)| {
        let why = test(kind, &plan, directory.path()).err()?;
        Some(format!("{kind}: {why}"))
    });
    let failed: Vec<String> = failed.collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Frames of `port` in both bases, whose content depends on their timestamps only.
fn given(port: &PortType) -> [Vec<Plain>; 2] {
    let step = port.clock.samples_per_frame;
    let frame = |timestamp: u64| {
        let mut payload = vec![0; port.frame_bytes()];
        fill(port.dtype, timestamp, &mut payload);
        let validity = vec![port.validity.full; port.validity.units()];
        Plain { timestamp, validity, annotations: Annotations::default(), payload }
    };
    // The second base begins at frame 3 of its sender.
    [
        (BEFORE..BEFORE + FRAMES).map(|n| frame(n * step)).collect(),
        (3..3 + FRAMES).map(|n| frame(FROM + n * step)).collect(),
    ]
}

fn fill(dtype: Dtype, timestamp: u64, payload: &mut [u8]) {
    let mut random = Random::new(timestamp);
    let mut noise = || random.normal_pair()[0] * 20.0;
    match dtype {
        Dtype::F32 | Dtype::Cf32 => {
            payload
                .chunks_exact_mut(4)
                .for_each(|to| to.copy_from_slice(&(noise() as f32).to_le_bytes()));
        }
        Dtype::I32 | Dtype::Ci32 => {
            payload
                .chunks_exact_mut(4)
                .for_each(|to| to.copy_from_slice(&(noise() as i32).to_le_bytes()));
        }
        _ => payload.iter_mut().for_each(|byte| *byte = (noise() as i8).cast_unsigned()),
    }
}

/// The sinks that write files: parameters, the file of the second base, and what it must contain: its time, computed by
/// hand from `SYNC`. The frames begin less than a second after it.
fn sinks() -> Vec<(&'static str, serde_json::Value, &'static str, Vec<u8>)> {
    let telescope = serde_json::json!({
        "name": "t", "latitude_degrees": -30.7, "longitude_degrees": 21.4, "height_metres": 1038.0
    });
    // Day 20834 of Unix time, MJD 61421, and 42400 s.
    let mjd: f64 = 61421.0 + 42400.0 / 86400.0;
    let mjd = mjd.to_le_bytes().to_vec();
    // Epoch 54 began at 2027-01-01, 1338400 s before. The word of the seconds has two flags above 30 bits.
    let vdif = 1_338_400_u32.to_le_bytes().to_vec();
    vec![
        (
            "dada_sink",
            serde_json::json!({"path": "a.dada"}),
            "a_2.dada",
            b"2027-01-16-11:46:40".to_vec(),
        ),
        (
            "guppi_sink",
            serde_json::json!({"path": "a.raw"}),
            "a_2.raw",
            b"STT_SMJD=                42400".to_vec(),
        ),
        ("vdif_sink", serde_json::json!({"path": "a.vdif", "station": "Fx"}), "a_2.vdif", vdif),
        (
            "sigmf_sink",
            serde_json::json!({"path": "a.sigmf-meta"}),
            "a_2.sigmf-meta",
            b"2027-01-16T11:46:40".to_vec(),
        ),
        ("filterbank_sink", serde_json::json!({"path": "a.fil"}), "a_2.fil", mjd),
        (
            "file_sink",
            serde_json::json!({"path": "a.npy"}),
            "a_2.npy.json",
            b"1800100000.0".to_vec(),
        ),
        (
            "uvh5_sink",
            serde_json::json!({"path": "a.uvh5", "telescope": telescope, "antennas_enu_metres": [[0, 0, 0], [10, 0, 0]]}),
            "a_2.uvh5",
            Vec::new(),
        ),
    ]
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn sinks_begin_a_file_with_the_time_of_the_new_base() {
    let files = directory();
    let all = plans(files.path());
    for (kind, parameters, second, time) in sinks() {
        let (_, example) = all.iter().find(|(name, _)| *name == kind).unwrap();
        let mut input = ports(example).0[0].clone();
        input.clock.sync_time = Time::unix(1_750_000_000);
        let run_sink = |input: &PortType, frames: Vec<Plain>, is_one_base: bool| {
            let block = connected(kind, "cpu", &parameters, std::slice::from_ref(input));
            let directory = tempfile::tempdir().unwrap();
            let (block, env) = (block.ok().unwrap(), env(directory.path()));
            let events = Arc::new(Events::default());
            env.events.redirect(Some((Arc::clone(&events), kind.to_owned())));
            let made = if is_one_base {
                run(&*block, &vec![frames], 0, &env)
            } else {
                run_in_bases(&*block, &vec![frames], 0, &env, base_at)
            };
            made.unwrap();
            let stated = |event: &Event| event.text.contains("uncertain by 0.27 s");
            let stated = events.since(0).iter().filter(|event| stated(event)).count();
            assert_eq!(stated, usize::from(!is_one_base), "{kind}: {:?}", events.since(0));
            directory
        };
        let given = given(&input);
        let both = run_sink(&input, given.concat(), false);
        // The same files as those of a flowgraph that has the sync time of the base from its start.
        input.clock = input.clock.in_base(&base_at(FROM));
        let [_, given] = given;
        let alone = run_sink(&input, given, true);
        let first = second.replace("_2", "");
        let read = |directory: &Path, name: &str| std::fs::read(directory.join(name)).unwrap();
        let (made, expected) = (read(both.path(), second), read(alone.path(), &first));
        let has_time = |bytes: &[u8]| {
            if kind != "filterbank_sink" {
                return contains(bytes, &time);
            }
            let at = bytes.windows(6).position(|window| window == b"tstart").unwrap() + 6;
            let number = |bytes: &[u8]| f64::from_le_bytes(bytes[..8].try_into().unwrap());
            // The start is within a second.
            (number(&bytes[at..]) - number(&time)).abs() < 1.0 / 86400.0
        };
        assert!(has_time(&made), "{kind}: the time is another one");
        assert!(!has_time(&read(both.path(), &first)) || time.is_empty(), "{kind}");
        let own_names = String::from_utf8_lossy(&made).replace("a_2.", "a.");
        assert!(made == expected || own_names == String::from_utf8_lossy(&expected), "{kind}");
    }
}
