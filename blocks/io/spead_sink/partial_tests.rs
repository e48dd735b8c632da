#![allow(clippy::unwrap_used)]

use super::heaps::Heaps;
use super::*;
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use crate::io::spead::item;
use crate::x_engine::beamformer::Beamformer;
use crate::x_engine::correlator::Correlator;
use crate::x_engine::correlator::tests::{count, env, noise, port};
use fxgraph::edge::Harness;
use fxgraph::{Counters, Frame, Next, Ports};
use serde_json::{Value, json};
use std::sync::Arc;

/// A frame is one heap of all antennas, a dump [`HEAPS`] of them.
const SHAPE: Stacked = Stacked {
    heaps: 1,
    antennas: 3,
    channels: 4,
    pols: 2,
    spectra: 16,
    samples_per_spectrum: 8,
    k_major: false,
    dtype: Dtype::Ci8,
    units: Units::Heap,
};
const HEAPS: u64 = 8;
const BASELINES: usize = 6;
const FLAG: [i32; 2] = [i32::MIN, 1];
/// Baselines of antenna 1: with 0, with itself, with 2.
const OF_ANTENNA_1: [usize; 3] = [1, 2, 4];

/// Returns the antennas that have heap number `heap`; without any there is no frame.
type Kept = fn(u64) -> [bool; 3];

fn kept_all(_: u64) -> [bool; 3] {
    [true; 3]
}

/// Returns the frames that `kind` makes of the heaps `heaps`, of which those in `kept` are present.
fn made<K: KindSpec>(
    kind: &K,
    shape: Stacked,
    heaps: std::ops::Range<u64>,
    kept: Kept,
) -> (PortType, Vec<Arc<Frame>>) {
    let input = port(&shape);
    let ports = Ports { inputs: vec![input.clone()], outputs: kind.outputs(&[input]).unwrap() };
    let block = kind.build(&ports.inputs, &env(&Counters::default())).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let mut frames = Vec::new();
    let mut drain = |harness: &mut Harness| {
        loop {
            let next = Harness::block_on(harness.run()).unwrap();
            let Some(frame) = harness.receive(0) else { return next };
            // A copy: the pool has few frames.
            let pool = fxgraph::frame::Pool::new(
                &fxgraph::frame::HostAllocator,
                1,
                frame.as_slice::<u8>().unwrap().len(),
                frame.header().validity.len(),
            );
            let mut copy = pool.unwrap().take().unwrap();
            copy.header_mut().copy_from(frame.header());
            copy.as_mut_slice::<u8>().unwrap().copy_from_slice(frame.as_slice().unwrap());
            frames.push(copy.freeze());
        }
    };
    for heap in heaps.filter(|heap| kept(*heap).contains(&true)) {
        let sent = harness.send(0, |frame| {
            frame.header_mut().timestamp = heap * shape.samples_per_heap();
            frame.header_mut().validity.copy_from_slice(&kept(heap).map(u32::from));
            frame.as_mut_slice().unwrap().copy_from_slice(&noise(shape.frame_bytes(), heap));
        });
        assert!(sent);
        drain(&mut harness);
    }
    harness.end(0);
    assert_eq!(drain(&mut harness), Next::Finished);
    (ports.outputs[0].clone(), frames)
}

fn dumps(shape: Stacked, heaps: std::ops::Range<u64>, kept: Kept) -> (PortType, Vec<Arc<Frame>>) {
    let spectra = HEAPS * shape.spectra as u64;
    let kind = Correlator { spectra_per_dump: Some(spectra), ..Default::default() };
    made(&kind, shape, heaps, kept)
}

fn sink(mut parameters: Value, input: &PortType) -> Heaps {
    parameters["destinations"] = json!(["127.0.0.1:9"]);
    let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
    parameters.heaps(input).unwrap()
}

/// Returns the number of the dump, and visibilities `[channel][baseline][product]`, of each heap sent.
fn sent(
    policy: &Value,
    (input, frames): &(PortType, Vec<Arc<Frame>>),
) -> Vec<(u64, Vec<[i32; 2]>)> {
    let mut parameters = json!({"stream": "x_engine"});
    parameters.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    let heaps = sink(parameters, input);
    let each = frames.iter().filter_map(|frame| {
        let heap = heaps.heap(frame, 0)?;
        let mut payload =
            frame.as_slice::<u8>().unwrap()[heap.start..][..heaps.heap_bytes].to_vec();
        if heap.is_rewritten {
            payload.fill(0x5a);
            heaps.rewrite(frame, 0, &mut payload).unwrap();
        }
        let values = payload.as_chunks::<8>().0.iter().map(|bytes| bytemuck::cast(*bytes));
        let number = frame.header().timestamp / input.clock.samples_per_frame;
        Some((number, values.collect()))
    });
    each.collect()
}

fn numbers<T>(sent: &[(u64, T)]) -> Vec<u64> {
    sent.iter().map(|dump| dump.0).collect()
}

/// Wideband, and narrowband that is eight times narrower.
fn shapes() -> [Stacked; 2] {
    [SHAPE, Stacked { samples_per_spectrum: 8 * SHAPE.samples_per_spectrum, ..SHAPE }]
}

const FLAGGED: Kept = |heap| [true, heap != 11, true];

#[test]
fn missing_heap_of_one_antenna_flags_only_its_baselines() {
    for shape in shapes() {
        let whole = sent(&json!({}), &dumps(shape, 0..3 * HEAPS, kept_all));
        let got = sent(&json!({}), &dumps(shape, 0..3 * HEAPS, FLAGGED));
        assert_eq!(numbers(&got), [0, 1, 2]);
        for (dump, (got, whole)) in got.iter().zip(&whole).enumerate() {
            for (index, (got, whole)) in got.1.iter().zip(&whole.1).enumerate() {
                let is_flagged = dump == 1 && OF_ANTENNA_1.contains(&(index / 4 % BASELINES));
                let expected = if is_flagged { FLAG } else { *whole };
                assert_eq!(*got, expected, "dump {dump}, product {index}");
            }
        }
    }
}

#[test]
fn missing_heaps_of_all_antennas_suppress_the_dump() {
    let kept: Kept = |heap| [heap != 12; 3];
    for shape in shapes() {
        let made = dumps(shape, 0..3 * HEAPS, kept);
        assert_eq!(made.1.len(), 3, "the dump is there for files, with its counts");
        assert_eq!(made.1[1].header().validity, [7; BASELINES]);
        assert_eq!(numbers(&sent(&json!({}), &made)), [0, 2]);
        assert_eq!(numbers(&sent(&json!({"partial_dumps": "send"}), &made)), [0, 1, 2]);
    }
}

#[test]
fn stream_within_dumps_sends_only_complete_dumps() {
    // All antennas begin within dump 0, antenna 2 within dump 1; the stream ends with the first heap of dump 4.
    let kept: Kept = |heap| [true, true, heap >= HEAPS + 3];
    for shape in shapes() {
        let got = sent(&json!({}), &dumps(shape, 3..4 * HEAPS + 1, kept));
        assert_eq!(numbers(&got), [1, 2, 3]);
        for (dump, values) in &got {
            let flagged = values.iter().enumerate().filter(|(_, value)| **value == FLAG);
            let baselines: Vec<_> = flagged.map(|(index, _)| index / 4).take(12).collect();
            // The baselines of antenna 2, in the first channel.
            let expected =
                if *dump == 1 { vec![3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5] } else { vec![] };
            assert_eq!(baselines, expected);
        }
    }
}

#[test]
fn correlator_rebuilt_within_a_dump_sends_no_partial_dump() {
    let (input, mut frames) = dumps(SHAPE, 0..HEAPS + 3, kept_all);
    // The rebuilt correlator: its input begins within dump 1.
    frames.extend(dumps(SHAPE, HEAPS + 3..3 * HEAPS, kept_all).1);
    assert_eq!(numbers(&sent(&json!({}), &(input, frames))), [0, 2]);
}

#[test]
fn scale_normalises_sums_to_the_full_dump() {
    // Antenna 1 lacks one heap of dump 0, and all but three of dump 1.
    let kept: Kept = |heap| [true, !matches!(heap, 5 | 8..=12), true];
    let made = dumps(SHAPE, 0..2 * HEAPS, kept);
    let whole = sent(&json!({"partial_dumps": "send"}), &made);
    let policy = json!({"partial_dumps": "scale", "minimum_fraction": 0.5});
    let got = sent(&policy, &made);
    assert_eq!(numbers(&got), [0, 1]);
    for (dump, (got, whole)) in got.iter().zip(&whole).enumerate() {
        for (index, (got, sum)) in got.1.iter().zip(&whole.1).enumerate() {
            let expected = match (dump, OF_ANTENNA_1.contains(&(index / 4 % BASELINES))) {
                (_, false) => *sum,
                (0, true) => sum.map(|s| (f64::from(s) * 8.0 / 7.0).round_ties_even() as i32),
                _ => FLAG,
            };
            assert_eq!(*got, expected, "dump {dump}, product {index}");
        }
    }
}

#[test]
fn beams_carry_the_number_of_antennas_and_need_at_least_one() {
    let kept: Kept = |heap| [heap != 3, heap != 3 && heap != 1, heap != 3];
    let kind: Beamformer = serde_json::from_value(json!({"beams": [{"pol": 0}]})).unwrap();
    for shape in shapes() {
        let (input, frames) = made(&kind, shape, 0..6, kept);
        let policies = [
            (json!({"stream": "b_engine"}), vec![3, 2, 3, 3, 3]),
            (json!({"stream": "b_engine", "partial_dumps": "send"}), vec![3, 2, 3, 3, 3]),
            (
                json!({"stream": "b_engine", "partial_dumps": "scale", "minimum_fraction": 0.7}),
                vec![3, 3, 3, 3],
            ),
        ];
        for (policy, expected) in policies {
            let heaps = sink(policy, &input);
            let sent = frames.iter().filter_map(|frame| heaps.heap(frame, 0));
            let antennas = sent.map(|heap| {
                let mut items = heap.items().iter();
                items.find(|pointer| pointer.id == item::BEAM_ANTENNAS).unwrap().value
            });
            assert_eq!(antennas.collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn partial_heaps_and_flagged_baselines_are_counted() {
    let (input, frames) = dumps(SHAPE, 0..3 * HEAPS, FLAGGED);
    let parameters = json!({
        "stream": "x_engine", "destinations": ["127.0.0.1:9"], "interface": "127.0.0.1", "rate": 0,
    });
    let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
    let ports = Ports { inputs: vec![input], outputs: vec![] };
    let counters = Counters::default();
    let block = parameters.build(&ports.inputs, &env(&counters)).unwrap();
    let mut harness = Harness::new(block, &ports, 3).unwrap();
    Harness::block_on(harness.start()).unwrap();
    for frame in frames {
        assert!(harness.share(0, frame));
    }
    harness.end(0);
    while Harness::block_on(harness.run()).unwrap() != Next::Finished {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let counts = ["heaps_sent", "heaps_partial", "baselines_flagged", "heaps_not_sent"];
    assert_eq!(counts.map(|name| count(&counters, name)), [3, 1, 3, 0]);
}

#[test]
fn spead_sink_rejects_minimum_fraction_out_of_range_or_without_scale() {
    let input = dumps(SHAPE, 0..1, kept_all).0;
    for wrong in [
        json!({"minimum_fraction": 0.5}),
        json!({"partial_dumps": "send", "minimum_fraction": 0.5}),
        json!({"partial_dumps": "scale", "minimum_fraction": 0.0}),
        json!({"partial_dumps": "scale", "minimum_fraction": 1.5}),
    ] {
        let mut parameters = json!({"stream": "x_engine", "destinations": ["127.0.0.1:9"]});
        parameters.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
        let rejections = KindSpec::outputs(&parameters, std::slice::from_ref(&input)).unwrap_err();
        assert_eq!(rejections.len(), 1, "{wrong}");
        assert_eq!(rejections[0].at, At::Parameter("minimum_fraction"));
    }
}

#[test]
fn descriptors_of_visibilities_list_their_pairs_of_inputs() {
    let (input, _) = dumps(SHAPE, 0..1, kept_all);
    let (pointers, payload) = sink(json!({"stream": "x_engine"}), &input).descriptors();
    let order = pointers.iter().find(|pointer| pointer.id == item::BLS_ORDERING).unwrap();
    let table = payload[order.value as usize..].as_chunks::<4>().0;
    let pairs: Vec<[u16; 2]> = table.iter().map(|bytes| bytemuck::cast(*bytes)).collect();
    assert_eq!(pairs.len(), 4 * BASELINES);
    for (number, [a, b]) in pairs.into_iter().map(|pair| pair.map(usize::from)).enumerate() {
        assert_eq!(SHAPE.product(a / 2, a % 2, b / 2, b % 2), number);
    }
}

/// Returns a port and a frame of visibilities of 4 channels, 1 baseline and 4 products, each with its count.
fn counted(
    counts: &[u32],
    full: u32,
    axes: &[(&'static str, usize)],
    dtype: Dtype,
) -> (PortType, Arc<Frame>) {
    let axes: Vec<_> = axes.iter().map(|(name, len)| fxgraph::Axis::new(name, *len)).collect();
    let of_validity = if dtype == Dtype::Ci32 { axes.len() } else { axes.len() - 1 };
    let port = PortType {
        dtype,
        clock: port(&SHAPE).clock,
        band: None,
        validity: fxgraph::ValidityType { axes: axes[..of_validity].to_vec(), full },
        axes,
    };
    let (allocator, units) = (&fxgraph::frame::HostAllocator, port.validity.units());
    let pool = fxgraph::frame::Pool::new(allocator, 1, port.frame_bytes(), units).unwrap();
    let mut frame = pool.take().unwrap();
    frame.header_mut().validity.copy_from_slice(counts);
    match dtype {
        Dtype::Ci32 => frame.as_mut_slice::<i32>().unwrap().fill(60),
        _ => frame.as_mut_slice::<i8>().unwrap().fill(60),
    }
    (port, frame.freeze())
}

#[test]
fn visibilities_with_counts_of_their_own_are_scaled_or_flagged_one_by_one() {
    let axes = [("channel", 4), ("baseline", 1), ("product", 4)];
    let counts = [8, 8, 8, 8, 8, 6, 6, 8, 3, 0, 4, 8, 0, 0, 0, 0];
    let (input, frame) = counted(&counts, 8, &axes, Dtype::Ci32);
    let policies = [
        (json!({"partial_dumps": "scale"}), [0, 0, 0, 0, 0, 80, 80, 0, -1, -1, 120, 0]),
        (json!({"partial_dumps": "flag"}), [0, 0, 0, 0, 0, -1, -1, 0, -1, -1, -1, 0]),
    ];
    for (mut parameters, changed) in policies {
        parameters["stream"] = json!("x_engine");
        // A heap for each two channels.
        parameters["destinations"] = json!(["127.0.0.1+1:9"]);
        let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
        let heaps = parameters.heaps(&input).unwrap();
        let mut values = Vec::new();
        let mut flagged = Vec::new();
        for index in 0..2 {
            let heap = heaps.heap(&frame, index).unwrap();
            assert!(heap.is_partial && heap.is_rewritten);
            let mut to = vec![0x5a; heaps.heap_bytes];
            flagged.push(heaps.rewrite(&frame, index, &mut to).unwrap());
            values.extend(
                to.as_chunks::<8>().0.iter().map(|bytes| bytemuck::cast::<_, [i32; 2]>(*bytes)),
            );
        }
        let expected = changed.iter().chain(&[-1; 4]).map(|value| match value {
            0 => [60, 60],
            -1 => FLAG,
            value => [*value; 2],
        });
        assert!(values.iter().copied().eq(expected), "{values:?}");
        let of =
            |range: std::ops::Range<usize>| changed[range].iter().filter(|v| **v == -1).count();
        assert_eq!(flagged, [of(0..8), of(8..12) + 4]);
    }
}

#[test]
fn counts_of_visibilities_need_a_chosen_policy() {
    let axes = [("channel", 1), ("baseline", 1), ("product", 4)];
    let (input, _) = counted(&[8; 4], 8, &axes, Dtype::Ci32);
    let parameters = json!({"stream": "x_engine", "destinations": ["127.0.0.1:9"]});
    let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
    let rejection = &parameters.heaps(&input).unwrap_err()[0];
    assert!(rejection.message.contains("`partial_dumps` must be set"));
    assert!(rejection.help.as_ref().unwrap().contains("scale"));
}

#[test]
fn beams_with_counts_of_channels_are_scaled_channel_by_channel() {
    let axes = [("heap", 2), ("beam", 1), ("channel", 4), ("spectrum", 3)];
    let (input, frame) = counted(&[4, 3, 1, 4, 0, 0, 0, 0], 4, &axes, Dtype::Ci8);
    let heaps = sink(json!({"stream": "b_engine", "partial_dumps": "scale"}), &input);
    let heap = heaps.heap(&frame, 0).unwrap();
    let antennas = heap.items().iter().find(|item| item.id == item::BEAM_ANTENNAS).unwrap();
    assert_eq!(antennas.value, 4);
    let mut to = vec![0x5a; heaps.heap_bytes];
    heaps.rewrite(&frame, 0, &mut to).unwrap();
    assert_eq!(to, [[60; 6], [80; 6], [0; 6], [60; 6]].concat());
    assert!(heaps.heap(&frame, 1).is_none());
}
