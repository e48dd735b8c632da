#![allow(clippy::unwrap_used)]

use super::accumulate::MISSING;
use super::definition::{correlate_half_precision, correlate_integers};
use super::floats::FloatAccumulator;
use super::tests::{env, noise, port};
use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Counters, Next, Ports};
use fxgraph_dsp::random::Random;
use half::f16;

const SHAPE: Stacked = Stacked {
    heaps: 2,
    antennas: 3,
    channels: 2,
    pols: 2,
    spectra: 16,
    samples_per_spectrum: 8,
    k_major: false,
    dtype: Dtype::Cf16,
    units: Units::Heap,
};

fn shapes() -> impl Iterator<Item = Stacked> {
    [1, 3, 4, 5, 9, 17].into_iter().flat_map(|antennas| {
        [false, true].map(|k_major| {
            // Spectra of whole blocks, of a partial block, and an odd number.
            let spectra = [37, 128, 300][(antennas + usize::from(k_major)) % 3];
            Stacked { antennas, k_major, spectra, channels: 3, ..SHAPE }
        })
    })
}

/// Finite values of every magnitude in half precision.
fn half_precision(shape: &Stacked, seed: u64) -> Vec<f16> {
    let mut random = Random::new(seed);
    let values = shape.frame_bytes() / 2;
    let value = |_| {
        let magnitude = 2f64.powf(35.9 * random.uniform() - 20.0);
        f16::from_f64(magnitude * if random.uniform() < 0.5 { -1.0 } else { 1.0 })
    };
    (0..values).map(value).collect()
}

fn sums(shape: &Stacked, payload: &[f16], valid: &[u32]) -> Vec<[f64; 2]> {
    let mut sums = vec![[0.0; 2]; 4 * shape.baselines() * shape.channels];
    for heap in 0..shape.heaps {
        let present = |a| valid[heap * shape.antennas + a] != 0;
        correlate_half_precision(shape, bytemuck::cast_slice(payload), heap, present, &mut sums);
    }
    sums
}

#[test]
fn every_simd_level_is_bit_identical_to_plain_loops() {
    for shape in shapes() {
        let payload = half_precision(&shape, 7);
        // Some antennas lack some heaps; antenna 1 lacks both.
        let valid: Vec<u32> = (0..shape.heaps * shape.antennas)
            .map(|i| u32::from(i % 5 != 3 && i % shape.antennas != 1))
            .collect();
        let expected: Vec<[f32; 2]> = sums(&shape, &payload, &valid)
            .iter()
            .map(|parts| parts.map(|part| part as f32))
            .collect();
        let counts = vec![1; shape.baselines()];
        for instructions in simd::InstructionSet::available() {
            for threads in [1, 2, 5] {
                let mut fast = FloatAccumulator::new(shape, instructions, threads).unwrap();
                let mut output = vec![[f32::NAN; 2]; expected.len()];
                // Twice, to check that a dump resets the sums.
                for _ in 0..2 {
                    for heap in 0..shape.heaps {
                        fast.add(bytemuck::cast_slice(&payload), heap..heap + 1, &valid);
                    }
                    fast.dump(&counts, &mut output);
                    assert!(output == expected, "{instructions:?} {shape:?}");
                }
            }
        }
    }
}

#[test]
fn scaled_integers_in_half_precision_give_scaled_visibilities() {
    for shape in shapes() {
        let integers = Stacked { dtype: Dtype::Ci8, ..shape };
        let bytes = noise(integers.frame_bytes(), 3);
        let value = |byte: &u8| f16::from_f32(f32::from(byte.cast_signed()) / 64.0);
        let payload: Vec<f16> = bytes.iter().map(value).collect();
        let all = vec![1; shape.heaps * shape.antennas];
        let found = sums(&shape, &payload, &all);
        let mut expected = vec![[0; 2]; found.len()];
        for heap in 0..shape.heaps {
            correlate_integers(&integers, &bytes, heap, |_| true, &mut expected);
        }
        let expected: Vec<[f64; 2]> =
            expected.iter().map(|parts| parts.map(|part| part as f64 / 4096.0)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn extreme_half_precision_values_are_multiplied_exactly() {
    let shape = Stacked { heaps: 1, antennas: 1, channels: 1, spectra: 1, ..SHAPE };
    let largest = 65_504.0f64;
    let smallest = 2f64.powi(-24);
    let payload: Vec<f16> =
        [largest, -smallest, smallest, 3.0 * smallest].map(f16::from_f64).into();
    let mut fast = FloatAccumulator::new(shape, simd::InstructionSet::best(), 1).unwrap();
    let mut output = [[0.0; 2]; 4];
    fast.add(bytemuck::cast_slice(&payload), 0..1, &[1]);
    fast.dump(&[1], &mut output);
    // x = (L, -s), y = (s, 3 s).
    let cross = [largest * smallest - 3.0 * smallest * smallest, -3.0 * largest * smallest];
    let cross = [cross[0], cross[1] - smallest * smallest];
    let power = [largest * largest + smallest * smallest, 10.0 * smallest * smallest];
    // (0, 0), (1, 0), (0, 1), (1, 1): y x* is the conjugate of x y*.
    let expected = [[power[0], 0.0], [cross[0], -cross[1]], cross, [power[1], 0.0]];
    assert_eq!(output, expected.map(|parts| parts.map(|part| part as f32)));
}

#[test]
fn half_precision_dumps_have_counts_and_mark_missing_baselines() {
    let kind = Correlator { spectra_per_dump: Some(2 * 16), ..Default::default() };
    let input = port(&SHAPE);
    let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
    assert_eq!(outputs[0].dtype, Dtype::Cf32);
    let ports = Ports { inputs: vec![input], outputs };
    let configured = Configured::new(kind.clone(), &ports.inputs).unwrap();
    assert!(Correlator::resources(&configured).host_bytes > 0);
    let counters = Counters::default();
    let block = kind.build(&ports.inputs, &env(&counters)).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let payload = half_precision(&SHAPE, 5);
    let valid = [1, 0, 1, 0, 0, 1];
    assert!(harness.send(0, |frame| {
        frame.header_mut().validity.copy_from_slice(&valid);
        frame.as_mut_slice().unwrap().copy_from_slice(&payload);
    }));
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    let frame = harness.receive(0).unwrap();
    assert_eq!(frame.header().validity, [1, 0, 0, 1, 0, 2]);
    let expected = sums(&SHAPE, &payload, &valid);
    for (index, value) in frame.as_slice::<[f32; 2]>().unwrap().iter().enumerate() {
        let expected = match frame.header().validity[index / 4 % SHAPE.baselines()] {
            0 => MISSING.map(|part| part as f32),
            _ => expected[index].map(|part| part as f32),
        };
        assert!(value.iter().eq(&expected), "{index}: {value:?} instead of {expected:?}");
    }
    assert_eq!(SHAPE.product(0, 0, 2, 0), 12);
}
