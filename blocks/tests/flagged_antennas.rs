//! An antenna that is flagged live: validity of all products changes at one timestamp.

use super::chain::{Out, Plain, connected, drive_block, noise};
use fxgraph::changes::When;
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Band, Clock, Dtype, Env, PortType, ValidityType};
use serde_json::{Value, json};
use std::slice::from_ref;

const ANTENNAS: usize = 4;
const FLAGGED: usize = 2;
const HEAPS: usize = 2;
const FRAMES: usize = 8;
/// ADC samples of a heap of 32 spectra with 8 samples.
const HEAP: u64 = 256;
/// Effective timestamp of the flag: the second heap of frame 4.
const AT: u64 = 9 * HEAP;

fn port() -> PortType {
    let axes = [("heap", HEAPS), ("channel", 4), ("spectrum", 32), ("pol", 2)];
    PortType {
        dtype: Dtype::Ci8,
        axes: axes.map(|(name, len)| Axis::new(name, len)).to_vec(),
        clock: Clock::new(1e6, HEAPS as u64 * HEAP),
        band: Some(Band::signed(4, 0, 1e9, 5e5)),
        validity: ValidityType::flags(vec![Axis::new("heap", HEAPS)]),
    }
}

/// Frames of an antenna: a signal that all antennas have, and noise of its own.
fn frames(antenna: usize) -> Vec<Plain> {
    let len = port().frame_bytes();
    let [signal, own] =
        [(1, 12.0), (2 + antenna as u64, 5.0)].map(|(seed, std)| noise(seed, FRAMES * len, std, 7));
    let bytes: Vec<u8> = signal.iter().zip(own).map(|(a, b)| (a + b) as u8).collect();
    let frame = |(n, payload): (usize, &[u8])| Plain {
        timestamp: n as u64 * HEAPS as u64 * HEAP,
        validity: vec![1; HEAPS],
        annotations: Annotations::default(),
        payload: payload.to_vec(),
    };
    bytes.chunks_exact(len).enumerate().map(frame).collect()
}

fn run(kind: &str, parameters: &Value, input: &Out) -> Out {
    let block = connected(kind, "cpu", parameters, from_ref(&input.port)).ok().unwrap();
    let env = Env::detached("block");
    let built = block.build(&env).ok().unwrap();
    let out = drive_block(built, block.ports(), &env, vec![input.frames.clone()]);
    assert_eq!(out.frames.len(), FRAMES, "{kind}");
    out
}

#[test]
fn antenna_flagged_live_leaves_all_products_at_the_effective_timestamp() {
    let inputs = vec![port(); ANTENNAS];
    let stack = connected("antenna_stack", "cpu", &json!({}), &inputs).ok().unwrap();
    let env = Env::detached("block");
    let mut block = stack.build(&env).ok().unwrap();
    let mask: Vec<bool> = (0..ANTENNAS).map(|antenna| antenna == FLAGGED).collect();
    let change = When::at(AT).change(vec![("flagged_antennas", Box::new(mask))]);
    block.update(change).unwrap();
    let sent = (0..ANTENNAS).map(frames).collect();
    let array = drive_block(block, stack.ports(), &env, sent);
    // 7 heaps of one antenna.
    assert_eq!(array.count("antenna_heaps_flagged"), 7);

    // A beam counts the antennas of each heap.
    let beam = run("beamformer", &json!({"beams": [{"pol": 0}]}), &array);
    let counts: Vec<u32> = beam.frames.iter().flat_map(|frame| frame.validity.clone()).collect();
    assert_eq!(counts, [[4_u32; 9].as_slice(), [3; 7].as_slice()].concat());

    // A dump is a frame, and counts the heaps of each baseline.
    let dumps = run("correlator", &json!({"spectra_per_dump": 64}), &array);
    for (n, dump) in dumps.frames.iter().enumerate() {
        assert_eq!(dump.timestamp, n as u64 * HEAPS as u64 * HEAP);
        let of_flagged = [2, 2, 2, 2, 1, 0, 0, 0][n];
        let pairs = (0..ANTENNAS).flat_map(|two| (0..=two).map(move |one| [one, two]));
        let expected = pairs.map(|pair| if pair.contains(&FLAGGED) { of_flagged } else { 2 });
        assert_eq!(dump.validity, expected.collect::<Vec<_>>(), "dump {n}");
    }

    // A solution of each dump, without the antenna once it has no data.
    let gains = run("gain_solver", &json!({"targets": ["f[*]"]}), &dumps);
    for (n, solution) in gains.frames.iter().enumerate() {
        let has_data = u32::from(n < 5);
        assert_eq!(solution.validity, [1, 1, 1, 1, has_data, has_data, 1, 1], "solution {n}");
    }
}
