use super::accumulate::MISSING;
use super::definition::correlate_integers;
use super::tests::{count, env, noise, port};
use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Counters, Frame, Ports};
use fxgraph_dsp::random::Random;
use std::sync::Arc;

const SHAPE: Stacked = Stacked {
    heaps: 4,
    antennas: 5,
    channels: 3,
    pols: 2,
    spectra: 16,
    samples_per_spectrum: 8,
    k_major: false,
    dtype: Dtype::Ci8,
    units: Units::Channel,
};
/// Units of a heap.
const UNITS: usize = 5 * 3 * 2;

/// Port with a flag for each channel and polarisation.
fn flagged_port(shape: &Stacked) -> PortType {
    let mut port = port(shape);
    let axes = port.axes.clone();
    let heap = port.validity.axes.clone();
    port.validity.axes = heap.into_iter().chain([axes[2].clone(), Axis::new("pol", 2)]).collect();
    port
}

/// Sets the samples of missing units to 0; `valid` `[heap][antenna][channel][pol]`.
fn clear(shape: &Stacked, payload: &mut [u8], valid: &[u32]) {
    let bytes = shape.value_bytes();
    for (unit, _) in valid.iter().enumerate().filter(|(_, valid)| **valid == 0) {
        for spectrum in 0..shape.spectra {
            let at = (unit / 2 * 2 * shape.spectra + shape.index(spectrum, unit % 2)) * bytes;
            payload[at..at + bytes].fill(0);
        }
    }
}

/// Runs frames of `(validity, payload)` through a correlator with dumps of `heaps` heaps.
fn dumps(
    input: PortType,
    heaps: u64,
    frames: &[(Vec<u32>, Vec<u8>)],
) -> (Vec<Arc<Frame>>, Counters) {
    let kind = Correlator { spectra_per_dump: Some(heaps * 16), threads: 2, ..Default::default() };
    let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
    let step = input.clock.samples_per_frame;
    let ports = Ports { inputs: vec![input], outputs };
    let counters = Counters::default();
    let block = kind.build(&ports.inputs, &env(&counters)).unwrap();
    let mut harness = Harness::new(block, &ports, 8).unwrap();
    for (n, (valid, payload)) in frames.iter().enumerate() {
        harness.send(0, |frame| {
            frame.header_mut().timestamp = n as u64 * step;
            frame.header_mut().validity.copy_from_slice(valid);
            frame.as_mut_slice().unwrap().copy_from_slice(payload);
        });
    }
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    (std::iter::from_fn(|| harness.receive(0)).collect(), counters)
}

#[test]
fn counts_of_each_visibility_are_those_of_plain_loops() {
    let mut random = Random::new(4);
    for (k_major, dtype) in [(false, Dtype::Ci8), (true, Dtype::Ci8), (true, Dtype::Ci4)] {
        let shape = Stacked { k_major, dtype, ..SHAPE };
        let frames: Vec<_> = (0..3)
            .map(|n| {
                let mut valid: Vec<u32> =
                    (0..4 * UNITS).map(|_| u32::from(random.uniform() > 0.3)).collect();
                // Channel 1, antenna 2, polarisation 0 is always flagged; heap 1 of antenna 4 is missing.
                for heap in 0..4 {
                    valid[heap * UNITS + (2 * 3 + 1) * 2] = 0;
                }
                valid[UNITS + 4 * 6..2 * UNITS].fill(0);
                let mut payload = noise(shape.frame_bytes(), n);
                clear(&shape, &mut payload, &valid);
                (valid, payload)
            })
            .collect();
        // Dumps end within frames.
        let (dumps, counters) = dumps(flagged_port(&shape), 6, &frames);
        assert_eq!(dumps.len(), 2);
        for (n, dump) in dumps.iter().enumerate() {
            let mut sums = vec![[0; 2]; 4 * shape.baselines() * shape.channels];
            let mut counts = vec![0; sums.len()];
            for heap in 6 * n..6 * (n + 1) {
                let (valid, payload) = &frames[heap / 4];
                correlate_integers(&shape, payload, heap % 4, |_| true, &mut sums);
                let is_there = |antenna: usize, channel: usize, pol: usize| {
                    valid[heap % 4 * UNITS + (antenna * 3 + channel) * 2 + pol]
                };
                for channel in 0..shape.channels {
                    for a2 in 0..shape.antennas {
                        for a1 in 0..=a2 {
                            for (p1, p2) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                                let at =
                                    channel * 4 * shape.baselines() + shape.product(a1, p1, a2, p2);
                                counts[at] += is_there(a1, channel, p1) * is_there(a2, channel, p2);
                            }
                        }
                    }
                }
            }
            assert!(dump.header().validity == counts, "{k_major} {dtype} {n}");
            assert!(counts.contains(&0) && counts.contains(&4));
            let found = dump.as_slice::<[i32; 2]>().unwrap();
            for ((found, sum), count) in found.iter().zip(&sums).zip(&counts) {
                let expected = if *count == 0 { MISSING } else { sum.map(|part| part as i32) };
                assert_eq!(*found, expected);
            }
        }
        // Both dumps lack a heap of antenna 4.
        assert_eq!(count(&counters, "dumps_incomplete"), 2);
    }
}

#[test]
fn visibilities_without_flags_equal_those_of_heap_units() {
    let mut payload = noise(SHAPE.frame_bytes(), 9);
    let mut present = vec![1; 4 * 5];
    present[7] = 0;
    let valid: Vec<u32> = present.iter().flat_map(|valid| [*valid; 6]).collect();
    clear(&SHAPE, &mut payload, &valid);
    let by_heap = Stacked { units: Units::Heap, ..SHAPE };
    let (expected, _) = dumps(port(&by_heap), 4, &[(present, payload.clone())]);
    let (found, counters) = dumps(flagged_port(&SHAPE), 4, &[(valid, payload)]);
    assert_eq!(found[0].as_slice::<i32>(), expected[0].as_slice::<i32>());
    let counts = expected[0].header().validity.iter().flat_map(|count| [*count; 4]);
    assert!(
        found[0]
            .header()
            .validity
            .iter()
            .copied()
            .eq(counts.clone().chain(counts.clone()).chain(counts))
    );
    assert_eq!(count(&counters, "dumps_incomplete"), 1);
}

#[test]
fn half_precision_has_counts_of_each_visibility() {
    let shape = Stacked { dtype: Dtype::Cf16, heaps: 1, ..SHAPE };
    let mut payload: Vec<u8> = half::f16::ONE.to_le_bytes().repeat(shape.frame_bytes() / 2);
    let mut valid = vec![1; UNITS];
    // Channel 2 of antenna 0, polarisation 1.
    valid[2 * 2 + 1] = 0;
    clear(&shape, &mut payload, &valid);
    let (found, _) = dumps(flagged_port(&shape), 1, &[(valid, payload)]);
    let values = found[0].as_slice::<[f32; 2]>().unwrap();
    let of_channel = 4 * shape.baselines();
    for (n, (value, count)) in values.iter().zip(&found[0].header().validity).enumerate() {
        let (channel, of_antenna_0) = (n / of_channel, n % of_channel);
        let is_of_input = (0..5)
            .any(|a2| (0..2).any(|p2| of_antenna_0 == shape.product(0, 1, a2, p2)))
            || of_antenna_0 == shape.product(0, 0, 0, 1);
        let is_missing = channel == 2 && is_of_input;
        let expected = if is_missing { MISSING.map(|part| part as f32) } else { [32.0, 0.0] };
        assert_eq!((*value, *count), (expected, u32::from(!is_missing)), "{n}");
    }
}

#[test]
fn output_counts_visibilities_only_for_flags_of_channels() {
    let kind = Correlator { spectra_per_dump: Some(16), ..Default::default() };
    let axes = |port: PortType| {
        let output = &kind.outputs(&[port]).unwrap()[0];
        output.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect::<Vec<_>>()
    };
    let by_heap = Stacked { units: Units::Heap, ..SHAPE };
    assert_eq!(axes(port(&by_heap)), [("baseline", 15)]);
    assert_eq!(axes(flagged_port(&SHAPE)), [("channel", 3), ("baseline", 15), ("product", 4)]);
}
