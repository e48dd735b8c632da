#![allow(clippy::unwrap_used)]

use super::*;
use crate::x_engine::correlator::tests::{count, env, noise, port, voltages};
use fxgraph::edge::Harness;
use fxgraph::{Counters, Frame, Next, Ports};
use std::f64::consts::{PI, TAU};
use std::sync::Arc;

const SHAPE: Stacked = Stacked {
    heaps: 2,
    antennas: 5,
    channels: 4,
    pols: 2,
    spectra: 37,
    samples_per_spectrum: 32,
    k_major: false,
    dtype: Dtype::Ci8,
    units: Units::Heap,
};
const BAND: Band = Band::signed(16, 5, 1.284e9, 856e6);

fn beam(pol: usize) -> Beam {
    Beam {
        pol,
        weights: one(),
        towards: None,
        delays_seconds: PerAntenna::default(),
        phases_radians: PerAntenna::default(),
        gain: 1.0,
    }
}

fn plain(beams: Vec<Beam>) -> Beamformer {
    Beamformer {
        beams,
        antennas_enu_metres: vec![],
        dither: Dither::None,
        dither_seed: 0,
        threads: 1,
    }
}

/// Passes one frame through the block.
/// Timestamp of a frame that is measured: the first of 64.
fn timestamp(shape: &Stacked) -> u64 {
    7 * 64 * shape.heaps as u64 * shape.samples_per_heap()
}

fn run(
    kind: &Beamformer,
    shape: &Stacked,
    payload: &[u8],
    valid: &[u32],
) -> (Arc<Frame>, Counters) {
    let input = PortType { band: Some(BAND), ..port(shape) };
    let output = kind.outputs(std::slice::from_ref(&input)).unwrap();
    let ports = Ports { inputs: vec![input], outputs: output };
    let counters = Counters::default();
    let block = kind.build(&ports.inputs, &env(&counters)).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let sent = harness.send(0, |frame| {
        frame.header_mut().timestamp = timestamp(shape);
        frame.header_mut().validity.copy_from_slice(valid);
        frame.as_mut_slice().unwrap().copy_from_slice(payload);
    });
    assert!(sent);
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    (harness.receive(0).unwrap(), counters)
}

/// Sum before rounding, in double precision, from the equation.
fn exact(
    beam: &Beam,
    shape: &Stacked,
    voltages: &[[i64; 2]],
    valid: &[u32],
    (heap, channel, spectrum): (usize, usize, usize),
) -> Complex64 {
    let from_centre = (BAND.first_channel + channel) as f64 - BAND.channels as f64 / 2.0;
    let hz = from_centre * BAND.bandwidth_hz / BAND.channels as f64;
    let antennas = (0..shape.antennas).filter(|a| valid[heap * shape.antennas + a] != 0);
    let sum: Complex64 = antennas
        .map(|a| {
            let row = (heap * shape.antennas + a) * shape.channels + channel;
            let [re, im] = voltages[(row * shape.spectra + spectrum) * 2 + beam.pol];
            let angle = beam.phases_radians.of(a) - TAU * beam.delays_seconds.of(a) * hz;
            beam.weights.of(a)
                * Complex64::new(re as f64, im as f64)
                * Complex64::new(0.0, angle).exp()
        })
        .sum();
    sum * beam.gain
}

#[test]
fn beams_are_within_one_step_of_double_precision_for_every_layout() {
    let each = |f: fn(f64) -> f64| PerAntenna::Each((0..5).map(|a| f(f64::from(a))).collect());
    let full = Beam {
        pol: 1,
        weights: each(|a| 0.3 * a - 0.5),
        towards: None,
        delays_seconds: each(|a| (a - 2.0) * 40e-6 + 1e-9),
        phases_radians: each(|a| 5.0 * a),
        gain: 0.25,
    };
    // With these gains no sum is half-way between two integers.
    let others = [(0, 0.213_71), (1, 0.291_37)].map(|(pol, gain)| Beam { gain, ..beam(pol) });
    let kind = plain([full].into_iter().chain(others).collect());
    // Antenna 1 lacks heap 0, antennas 0 and 4 lack heap 1.
    let valid = [1, 0, 1, 1, 1, 0, 1, 1, 1, 0];
    for (k_major, dtype) in
        [(false, Dtype::Ci8), (false, Dtype::Ci4), (true, Dtype::Ci8), (true, Dtype::Ci4)]
    {
        for threads in [1, 3] {
            let shape = Stacked { k_major, dtype, ..SHAPE };
            let kind = Beamformer { threads, ..kind.clone() };
            let payload = noise(shape.frame_bytes(), 11);
            let (frame, counters) = run(&kind, &shape, &payload, &valid);
            assert_eq!(frame.header().validity, [4, 3]);
            assert_eq!(frame.header().timestamp, timestamp(&shape));
            assert_eq!(count(&counters, "heaps_incomplete"), 2);
            let voltages = voltages(&shape, &payload);
            let (mut off, mut clamped, mut power) = (0, vec![0.0; 6], vec![0.0; 6]);
            for (index, value) in frame.as_slice::<[i8; 2]>().unwrap().iter().enumerate() {
                let spectrum = index % shape.spectra;
                let channel = index / shape.spectra % shape.channels;
                let unit = index / shape.spectra / shape.channels;
                let (heap, m) = (unit / 3, unit % 3);
                let place = (heap, channel, spectrum);
                let sum = exact(&kind.beams[m], &shape, &voltages, &valid, place);
                let parts = [sum.re, sum.im];
                // Heap 1 of the frame is not measured.
                if spectrum < 4 && heap == 0 {
                    let numbers = 2 * shape.channels * shape.spectra.min(4);
                    let square: f64 = value.iter().map(|part| f64::from(*part).powi(2)).sum();
                    power[unit] += square / numbers as f64;
                }
                clamped[unit] += f64::from(u8::from(parts.iter().any(|v| v.abs() > 127.0)));
                for (value, part) in value.iter().zip(parts) {
                    let rounded = part.clamp(-127.0, 127.0).round_ties_even();
                    assert!((f64::from(*value) - rounded).abs() <= 1.0, "{value} is not {part}");
                    off += u32::from(i32::from(*value) != rounded as i32);
                }
            }
            assert!(off <= 4, "{off} values are not the rounded ones");
            assert_eq!(frame.header().annotations.get("saturated"), clamped);
            let measured = frame.header().annotations.get("output_power");
            assert_eq!(measured.len(), 6);
            let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 * b.max(1.0);
            assert!(measured.iter().zip(&power).all(is_close), "{measured:?} {power:?}");
        }
    }
}

#[test]
fn single_antenna_with_unit_weight_is_unchanged() {
    let mut weights = vec![0.0; 5];
    weights[3] = 1.0;
    let beams = [0, 1].map(|pol| Beam { weights: PerAntenna::Each(weights.clone()), ..beam(pol) });
    let payload: Vec<u8> =
        noise(SHAPE.frame_bytes(), 5).iter().map(|&b| if b == 0x80 { 0 } else { b }).collect();
    let (frame, counters) = run(&plain(beams.to_vec()), &SHAPE, &payload, &[1; 10]);
    let voltages = voltages(&SHAPE, &payload);
    for (index, value) in frame.as_slice::<[i8; 2]>().unwrap().iter().enumerate() {
        let (spectrum, rest) = (index % SHAPE.spectra, index / SHAPE.spectra);
        let (channel, unit) = (rest % SHAPE.channels, rest / SHAPE.channels);
        let row = (unit / 2 * SHAPE.antennas + 3) * SHAPE.channels + channel;
        let expected = voltages[(row * SHAPE.spectra + spectrum) * 2 + unit % 2];
        assert_eq!(value.map(i64::from), expected);
    }
    assert_eq!(count(&counters, "values_saturated"), 0);
}

#[test]
fn plane_wave_is_summed_coherently_with_compensated_delays() {
    // Delays of the wave at each antenna; its phase is -2 pi f tau.
    let late: Vec<f64> = (0..5).map(|a| f64::from(a) * 3.1e-9 - 4e-9).collect();
    let amplitude = 20.0;
    let mut payload = vec![0; SHAPE.frame_bytes()];
    for (index, value) in payload.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let channel = index / SHAPE.spectra % SHAPE.channels;
        let antenna = index / SHAPE.spectra / SHAPE.channels % SHAPE.antennas;
        let from_centre = (BAND.first_channel + channel) as f64 - BAND.channels as f64 / 2.0;
        let hz = BAND.centre_hz + from_centre * BAND.bandwidth_hz / BAND.channels as f64;
        let wave = Complex64::from_polar(amplitude, 0.4 - TAU * hz * late[antenna]);
        let part = |v: f64| (v.round() as i8).cast_unsigned();
        *value = [part(wave.re), part(wave.im), 0, 0];
    }
    let undone = Beam {
        delays_seconds: PerAntenna::Each(late.iter().map(|t| -t).collect()),
        phases_radians: PerAntenna::Each(late.iter().map(|t| TAU * BAND.centre_hz * t).collect()),
        ..beam(0)
    };
    let (frame, _) = run(&plain(vec![undone, beam(0)]), &SHAPE, &payload, &[1; 10]);
    let row = SHAPE.channels * SHAPE.spectra;
    let values = frame.as_slice::<[i8; 2]>().unwrap();
    let power = |values: &[[i8; 2]]| {
        let sum: f64 = values.as_flattened().iter().map(|&v| f64::from(v).powi(2)).sum();
        sum / row as f64
    };
    let coherent = (5.0 * amplitude).powi(2);
    assert!((power(&values[..row]) / coherent - 1.0).abs() < 0.03);
    assert!(power(&values[row..2 * row]) < 0.5 * coherent);
    for &[re, im] in &values[..row] {
        let angle = f64::from(im).atan2(f64::from(re));
        assert!((angle - 0.4).abs() < PI / 100.0);
    }
}

#[test]
fn values_beyond_range_are_clamped_and_counted_once() {
    // Both parts of polarisation 0 and one part of polarisation 1 are clamped; 127 itself is not.
    let mut payload = vec![0; SHAPE.frame_bytes()];
    payload.as_chunks_mut::<4>().0.fill([100, 0x9c, 80, 127]);
    let one = PerAntenna::Each(vec![1.0, 1.0, 0.0, 0.0, 0.0]);
    let only = PerAntenna::Each(vec![1.0, 0.0, 0.0, 0.0, 0.0]);
    let beams = vec![
        Beam { weights: one.clone(), ..beam(0) },
        Beam { weights: one, ..beam(1) },
        Beam { weights: only, ..beam(1) },
    ];
    let (frame, counters) = run(&plain(beams), &SHAPE, &payload, &[1; 10]);
    let row = SHAPE.channels * SHAPE.spectra;
    let values = frame.as_slice::<[i8; 2]>().unwrap();
    assert!(values[..row].iter().all(|&v| v == [127, -127]));
    assert!(values[row..2 * row].iter().all(|&v| v == [127, 127]));
    assert!(values[2 * row..3 * row].iter().all(|&v| v == [80, 127]));
    let per_heap = [row as f64, row as f64, 0.0];
    let saturated = frame.header().annotations.get("saturated");
    assert_eq!(saturated, [per_heap, per_heap].concat());
    assert_eq!(count(&counters, "values_saturated"), 4 * row as u64);
}

#[test]
fn heap_missing_in_all_antennas_is_zero() {
    let payload = noise(SHAPE.frame_bytes(), 2);
    let valid = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1];
    let kind = Beamformer { dither: Dither::Uniform, ..plain(vec![beam(0)]) };
    let (frame, _) = run(&kind, &SHAPE, &payload, &valid);
    let heap = SHAPE.channels * SHAPE.spectra;
    assert_eq!(frame.header().validity, [0, 5]);
    assert!(frame.as_slice::<[i8; 2]>().unwrap()[..heap].iter().all(|&v| v == [0, 0]));
    assert!(frame.as_slice::<[i8; 2]>().unwrap()[heap..].iter().any(|&v| v != [0, 0]));
}

#[test]
fn dither_is_unbiased_and_independent_of_threads() {
    let shape = Stacked { spectra: 4000, ..SHAPE };
    let mut payload = vec![0; shape.frame_bytes()];
    payload.as_chunks_mut::<4>().0.fill([3, 1, 0, 0]);
    // 5 x 3 x 0.15 = 2.25 and 0.75.
    let kind = Beamformer {
        dither: Dither::Uniform,
        dither_seed: 9,
        ..plain(vec![Beam { gain: 0.15, ..beam(0) }])
    };
    let (frame, _) = run(&kind, &shape, &payload, &[1; 10]);
    let values = frame.as_slice::<[i8; 2]>().unwrap();
    for (part, expected) in [(0, 2.25), (1, 0.75)] {
        let sum: f64 = values.iter().map(|v| f64::from(v[part])).sum();
        assert!((sum / values.len() as f64 - expected).abs() < 0.02);
    }
    let other = Beamformer { threads: 3, ..kind.clone() };
    assert_eq!(run(&other, &shape, &payload, &[1; 10]).0.as_slice::<[i8; 2]>().unwrap(), values);
    let other = Beamformer { dither_seed: 10, ..kind };
    assert_ne!(run(&other, &shape, &payload, &[1; 10]).0.as_slice::<[i8; 2]>().unwrap(), values);
}

#[test]
fn beamformer_rejects_all_bad_beams_at_once() {
    let input = port(&SHAPE);
    let each = |n: usize| PerAntenna::Each(vec![1e-9; n]);
    let kind = plain(vec![
        Beam { weights: each(4), ..beam(2) },
        Beam { gain: f64::NAN, phases_radians: PerAntenna::All(f64::INFINITY), ..beam(0) },
        // The input of this test has no band.
        Beam { delays_seconds: each(5), ..beam(1) },
    ]);
    let rejections = kind.outputs(std::slice::from_ref(&input)).unwrap_err();
    assert_eq!(rejections.len(), 5, "{rejections:?}");
    assert!(rejections.iter().any(|r| r.message.contains("one for each antenna, got 4")));
    assert_eq!(plain(vec![]).outputs(&[input]).unwrap_err().len(), 1);
}

#[test]
fn weights_accept_number_or_list() {
    let text = r#"{"beams": [{"pol": 1, "weights": 2}, {"pol": 0, "weights": [1, 0.5]}]}"#;
    let kind: Beamformer = serde_json::from_str(text).unwrap();
    assert_eq!(kind.beams[0].weights, PerAntenna::All(2.0));
    assert_eq!(kind.beams[1].weights, PerAntenna::Each(vec![1.0, 0.5]));
    let wrong = serde_json::from_str::<PerAntenna>(r#""all""#).unwrap_err().to_string();
    assert!(wrong.contains("a number, or a list with one number for each antenna"));
}

#[test]
fn beam_towards_direction_has_delays_and_phases_of_wave_from_it() {
    let direction = Direction { azimuth_degrees: 123.0, elevation_degrees: 34.0 };
    let places = [[0.0; 3], [900.0, 5.0, 1.0], [-20.0, 40.0, 0.0], [3.0, -70.0, 2.0], [1.0; 3]];
    let late: Vec<f64> = places.iter().map(|place| direction.delay_seconds(*place)).collect();
    let written = Beam {
        delays_seconds: PerAntenna::Each(late.iter().map(|t| -t).collect()),
        phases_radians: PerAntenna::Each(late.iter().map(|t| TAU * BAND.centre_hz * t).collect()),
        ..beam(0)
    };
    let pointed = Beam { towards: Some(direction), ..beam(0) };
    let kind = |beams| Beamformer { antennas_enu_metres: places.to_vec(), ..plain(beams) };
    let weights = |beam| kind(vec![beam]).weights(&SHAPE, Some(&BAND));
    for (a, b) in weights(written).iter().zip(weights(pointed.clone())) {
        assert!((a - b).norm() < 1e-5, "{a} {b}");
    }
    let input = PortType { band: Some(BAND), ..port(&SHAPE) };
    assert!(kind(vec![pointed.clone()]).outputs(std::slice::from_ref(&input)).is_ok());
    assert_eq!(
        plain(vec![pointed]).outputs(&[input]).unwrap_err().len(),
        1,
        "no antenna has a position"
    );
}

#[test]
fn flagged_channels_lower_only_the_counts_of_their_beams() {
    let shape = Stacked { units: Units::Channel, spectra: 8, ..SHAPE };
    let mut input = port(&shape);
    let axes = input.axes.clone();
    input.validity.axes.extend([axes[2].clone(), Axis::new("pol", 2)]);
    let kind = plain(vec![beam(1), beam(0), beam(1)]);
    let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
    let names: Vec<_> = outputs[0].validity.axes.iter().map(|axis| axis.name).collect();
    assert_eq!((names, outputs[0].validity.full), (vec!["heap", "beam", "channel"], 5));
    let ports = Ports { inputs: vec![input], outputs };
    let counters = Counters::default();
    let block = kind.build(&ports.inputs, &env(&counters)).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    // Channel 2, polarisation 1 of antennas 0 and 3 in heap 0; all of antenna 4 in heap 1.
    let mut valid = vec![1_u32; shape.validity_units()];
    let unit = |heap: usize, antenna: usize, channel: usize, pol: usize| {
        ((heap * 5 + antenna) * 4 + channel) * 2 + pol
    };
    [0, 3].into_iter().for_each(|antenna| valid[unit(0, antenna, 2, 1)] = 0);
    valid[unit(1, 4, 0, 0)..].fill(0);
    let mut payload = noise(shape.frame_bytes(), 3);
    harness.send(0, |frame| {
        frame.header_mut().validity.copy_from_slice(&valid);
        frame.as_mut_slice().unwrap().copy_from_slice(&payload);
    });
    Harness::block_on(harness.run()).unwrap();
    let frame = harness.receive(0).unwrap();
    let heap_0 = [5, 5, 3, 5, 5, 5, 5, 5, 5, 5, 3, 5];
    let expected: Vec<u32> = heap_0.into_iter().chain([4; 12]).collect();
    assert_eq!(frame.header().validity, expected);
    assert_eq!(count(&counters, "heaps_incomplete"), 1);
    // Antenna 4 is left out of heap 1, as with one flag for each heap.
    let by_heap = Stacked { units: Units::Heap, ..shape };
    payload[..shape.frame_bytes() / 2].fill(0);
    let (other, _) = run(&kind, &by_heap, &payload, &[1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
    let half = 3 * 4 * 8;
    let values = |frame: &Frame| frame.as_slice::<[i8; 2]>().unwrap()[half..].to_vec();
    assert_eq!(values(&frame), values(&other));
}
