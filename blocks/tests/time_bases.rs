//! A change of the time base: no block uses data of two bases together, and files state the time of their base.

use super::examples::{can_run, directory, text};
use fxgraph::edge::Harness;
use fxgraph::flowgraph::load_in;
use fxgraph::{AnyConfigured, DeviceName, Dtype, Env, Next, PortType, Time, TimeBase};
use fxgraph_dsp::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// First timestamp of the second base: the sender counts from 0 again.
const FROM: u64 = 1 << 48;
/// Frames of each base.
const FRAMES: u64 = 24;
/// Frames of the first base before the test begins.
const BEFORE: u64 = 40;

/// The blocks of all examples with inputs.
fn blocks(directory: &Path) -> Vec<(&'static str, Arc<dyn AnyConfigured>)> {
    let registry = crate::kinds();
    let mut blocks = Vec::new();
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let text = text(&example.flowgraph, directory);
        let loaded = load_in(directory, Path::new("example.yaml"), &text, &[], &registry);
        let plan = loaded.result.unwrap();
        let block = Arc::clone(&plan.blocks[plan.block("block").unwrap()].configured);
        let has_large = block.ports().inputs.iter().any(|input| input.frame_bytes() > 1 << 22);
        if !block.ports().inputs.is_empty() && !has_large {
            blocks.push((example.kind, block));
        }
    }
    blocks
}

/// A frame: its number, and its base.
#[derive(Clone, Copy)]
struct Given {
    timestamp: u64,
    base: TimeBase,
}

/// Timestamps of frames of `port` in both bases: the second one begins at frame 3 of its sender.
fn given(port: &PortType, base: TimeBase) -> [Vec<Given>; 2] {
    let step = port.clock.samples_per_frame;
    let first =
        (BEFORE..BEFORE + FRAMES).map(|n| Given { timestamp: n * step, base: TimeBase::default() });
    // The next multiple of the step, as a source counts frames from the start of the base.
    let second = (3..3 + FRAMES).map(|n| Given { timestamp: FROM + n * step, base });
    [first.collect(), second.collect()]
}

/// Content of a frame, which depends on its timestamp only.
fn fill(port: &PortType, timestamp: u64, input: usize, payload: &mut [u8]) {
    let mut random = Random::new(timestamp ^ (input as u64) << 60);
    let mut noise = || random.normal_pair()[0] * 20.0;
    match port.dtype {
        Dtype::F32 | Dtype::Cf32 => {
            payload
                .chunks_exact_mut(4)
                .for_each(|to| to.copy_from_slice(&(noise() as f32).to_le_bytes()));
        }
        Dtype::F64 | Dtype::Cf64 => {
            payload.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&noise().to_le_bytes()));
        }
        Dtype::F16 | Dtype::Cf16 => payload.fill(0x3c),
        Dtype::I32 | Dtype::Ci32 => {
            payload
                .chunks_exact_mut(4)
                .for_each(|to| to.copy_from_slice(&(noise() as i32).to_le_bytes()));
        }
        _ => payload.iter_mut().for_each(|byte| *byte = (noise() as i8).cast_unsigned()),
    }
}

/// A frame of an output.
#[derive(Debug, PartialEq)]
struct Made {
    base: TimeBase,
    validity: Vec<u32>,
    payload: Vec<u8>,
}

/// Outputs of a block, by number of the output and timestamp.
type Outputs = BTreeMap<(usize, u64), Made>;

/// Runs the block over these frames at all of its inputs; `None` if it fails.
fn run(block: &Arc<dyn AnyConfigured>, given: &[Given], directory: &Path) -> Option<Outputs> {
    let env = Env { output_directory: directory.to_owned(), ..Env::detached("block") };
    let ports = block.ports();
    let mut harness = Harness::new(block.build(&env).ok()?, ports, 4).unwrap();
    let mut made = BTreeMap::new();
    Harness::block_on(harness.start()).ok()?;
    let mut next = vec![0; ports.inputs.len()];
    for _ in 0..100_000 {
        for (input, port) in ports.inputs.iter().enumerate() {
            while let Some(frame) = given.get(next[input]) {
                let is_sent = harness.send(input, |to| {
                    let header = to.header_mut();
                    (header.timestamp, header.base) = (frame.timestamp, frame.base);
                    header.validity.fill(port.validity.full);
                    fill(port, frame.timestamp, input, to.as_mut_slice::<u8>().unwrap());
                });
                if !is_sent {
                    break;
                }
                next[input] += 1;
            }
            if next[input] == given.len() {
                harness.end(input);
            }
        }
        let state = Harness::block_on(harness.step()).ok()?;
        for output in 0..ports.outputs.len() {
            while let Some(frame) = harness.receive(output) {
                let header = frame.header();
                let (base, validity) = (header.base, header.validity.clone());
                let payload = frame.as_slice::<u8>().unwrap().to_vec();
                made.insert((output, header.timestamp), Made { base, validity, payload });
            }
        }
        if state == Next::Finished {
            Harness::block_on(harness.finish()).ok()?;
            return Some(made);
        }
        match state {
            Next::After(time) => std::thread::sleep(time.min(Duration::from_millis(5))),
            // A sink may write on a thread.
            Next::Wait => std::thread::sleep(Duration::from_micros(50)),
            _ => {}
        }
    }
    None
}

#[test]
fn no_kind_mixes_data_of_two_time_bases() {
    let files = directory();
    let mut compared = BTreeMap::new();
    for (kind, block) in blocks(files.path()) {
        let ports = block.ports();
        let base = TimeBase { from: FROM, sync_time: Some(Time::unix(1_700_000_000)) };
        let [first, second] = given(&ports.inputs[0], base);
        let both: Vec<Given> = [first.clone(), second.clone()].concat();
        let of = |given: &[Given]| {
            let directory = tempfile::tempdir().unwrap();
            run(&block, given, directory.path())
        };
        let (Some(both), Some(first), Some(second)) = (of(&both), of(&first), of(&second)) else {
            continue;
        };
        let alone: Outputs = first.into_iter().chain(second).collect();
        for ((output, timestamp), made) in &both {
            let expected_base = if *timestamp >= FROM { base } else { TimeBase::default() };
            assert_eq!(made.base, expected_base, "{kind} {output} {timestamp}");
            let full = ports.outputs[*output].validity.full;
            // A partial unit is flagged; its values may be of fewer samples.
            if made.validity.iter().all(|count| *count == full) {
                let expected = alone.get(&(*output, *timestamp));
                let is_same = expected.is_some_and(|expected| expected.payload == made.payload);
                assert!(is_same, "{kind}: output {output} at {timestamp} has data of both bases");
                *compared.entry(kind).or_insert(0) += 1;
            }
        }
    }
    let expected =
        ["pfb", "f_engine", "fft", "postproc", "antenna_stack", "correlator", "average", "detect"];
    for kind in expected {
        assert!(compared.get(kind).is_some_and(|count| *count > 1), "{kind}: {compared:?}");
    }
}

/// Sync time of the second base, 2027-01-16T11:46:40 UTC.
const SYNC: u32 = 1_800_100_000;

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
    let all = blocks(files.path());
    for (kind, parameters, second, time) in sinks() {
        let example = all.iter().find(|(name, _)| *name == kind).unwrap();
        let mut inputs = example.1.ports().inputs.clone();
        inputs.iter_mut().for_each(|input| input.clock.sync_time = Time::unix(1_750_000_000));
        let clock = inputs[0].clock;
        let base = TimeBase { from: FROM, sync_time: Some(Time::unix(SYNC)) };
        let connected =
            |inputs: &[PortType]| super::chain::connected(kind, "cpu", &parameters, inputs);
        let given = given(&inputs[0], base);
        let both = tempfile::tempdir().unwrap();
        run(&connected(&inputs).ok().unwrap(), &given.concat(), both.path()).unwrap();
        // The same files as those of a flowgraph that has the sync time of the base from its start.
        inputs.iter_mut().for_each(|input| input.clock = clock.in_base(&base));
        let alone = tempfile::tempdir().unwrap();
        let renamed = given[1].iter().map(|given| Given { base: TimeBase::default(), ..*given });
        run(&connected(&inputs).ok().unwrap(), &renamed.collect::<Vec<_>>(), alone.path()).unwrap();
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
