//! Tones whose samples are known, missing data, and rejected parameters.

use super::{HEAP_SAMPLES, Resampler};
use crate::tests::chain::{self, Out, Plain, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Band, Clock, Dtype, KindSpec, PortType, ValidityType};
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::TAU;

const RATE_HZ: f64 = 428e3;

/// Input of `rows` rows; a frame has `len` samples, `step` ADC samples apart, and 4 units of validity.
fn port(dtype: Dtype, rows: usize, len: usize, step: u64, band: Option<Band>) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("beam", rows), Axis::new("sample", len)],
        clock: Clock::new(RATE_HZ, len as u64 * step),
        band,
        validity: ValidityType { axes: vec![Axis::new("heap", 4)], full: 2 },
    }
}

/// Frames from `first` on; row r has a tone at `hz[r]`, with the phase of its ADC time.
fn frames(port: &PortType, first: u64, count: usize, hz: &[f64]) -> Vec<Plain> {
    let len = port.axis_len("sample").unwrap();
    let step = port.samples_per("sample").unwrap();
    let frame = |n: usize| {
        let timestamp = first + n as u64 * port.clock.samples_per_frame;
        let mut payload = Vec::new();
        for hz in hz {
            for m in 0..len {
                let t = (timestamp + m as u64 * step) as f64;
                let y = Complex64::from_polar(1.0, TAU * (hz * t / RATE_HZ).fract());
                payload.extend((y.re as f32).to_ne_bytes());
                if port.dtype == Dtype::Cf32 {
                    payload.extend((y.im as f32).to_ne_bytes());
                }
            }
        }
        Plain { timestamp, validity: vec![2; 4], annotations: Annotations::default(), payload }
    };
    (0..count).map(frame).collect()
}

fn resample(parameters: Value, input: &PortType, frames: Vec<Plain>) -> Out {
    chain::drive(&kind::<Resampler>(parameters), std::slice::from_ref(input), vec![frames])
}

/// ADC time, validity and value of the samples of a row; real samples have no imaginary part.
fn samples(out: &Out, row: usize, rate_hz: f64) -> Vec<(f64, u32, Complex64)> {
    let len = out.port.axis_len("sample").unwrap();
    let of_frame = |frame: &Plain| {
        let numbers: Vec<f32> = frame.values();
        let values: Vec<Complex64> = if out.port.dtype == Dtype::Cf32 {
            let pairs = frame.values::<Complex32>();
            pairs.iter().map(|y| Complex64::new(f64::from(y.re), f64::from(y.im))).collect()
        } else {
            numbers.iter().map(|y| Complex64::new(f64::from(*y), 0.0)).collect()
        };
        let one = |n: usize| {
            let t = frame.timestamp as f64 + n as f64 * RATE_HZ / rate_hz;
            (t, frame.validity[n / HEAP_SAMPLES], values[row * len + n])
        };
        (0..len).map(one).collect::<Vec<_>>()
    };
    out.frames.iter().flat_map(of_frame).collect()
}

/// Amplitude of a tone with amplitude `a` in real samples: noise keeps its level.
fn close(y: Complex64, expected: Complex64, amplitude: f64, at: f64) {
    assert!(
        (y - expected * amplitude).norm() < 0.02 * amplitude,
        "{at}: {y} {expected} {amplitude}"
    );
}

#[test]
fn tones_have_the_phase_of_their_times() {
    // Dtype, ADC samples per sample, bandwidth, centre, real output, first timestamp.
    for (dtype, step, bandwidth_hz, centre_hz, is_real, first) in [
        (Dtype::F32, 1, 64e3, 100e3, false, 0),
        (Dtype::F32, 1, 64e3, 100e3, true, 428_000 * 7),
        (Dtype::F32, 1, 32e3, 17e3, true, 12_345),
        (Dtype::Cf32, 4, 64e3, 10e3, false, 4096),
        (Dtype::Cf32, 4, 64e3, -20e3, true, 428_000 * 1_000_000),
        (Dtype::Cf32, 4, 107e3, 0.0, false, 4),
    ] {
        let rate_hz = if is_real { 2.0 * bandwidth_hz } else { bandwidth_hz };
        let input = port(dtype, 2, 1024, step, None);
        let offsets = [-0.3 * bandwidth_hz, 0.37 * bandwidth_hz];
        let sent = frames(&input, first, 60 / step as usize, &offsets.map(|hz| centre_hz + hz));
        let parameters = json!({
            "bandwidth_hz": bandwidth_hz, "centre_hz": centre_hz, "output": if is_real { "real" } else { "complex" },
            "samples_per_frame": 1024,
        });
        let out = resample(parameters, &input, sent);
        assert_eq!(out.count("heaps_missing"), 0);
        for (row, offset) in offsets.into_iter().enumerate() {
            let zero_hz = centre_hz - if is_real { bandwidth_hz / 2.0 } else { 0.0 };
            // A real tone has half of its amplitude at the positive frequency. The density of noise is kept.
            let of_input = if dtype == Dtype::F32 { 0.5 } else { 1.0 };
            let density = (RATE_HZ / step as f64 / bandwidth_hz).sqrt();
            let amplitude = of_input * density * if is_real { 2.0_f64.sqrt() } else { 1.0 };
            let mut valid = 0;
            for (t, validity, y) in samples(&out, row, rate_hz) {
                if validity == 0 {
                    continue;
                }
                assert_eq!(validity, 2);
                let turns = (centre_hz + offset - zero_hz) * t / RATE_HZ;
                let wave = Complex64::from_polar(1.0, TAU * turns.fract());
                close(y, if is_real { Complex64::new(wave.re, 0.0) } else { wave }, amplitude, t);
                valid += 1;
            }
            let most = 60.0 * 1024.0 / RATE_HZ * rate_hz;
            assert!(f64::from(valid) > most - 1500.0 * rate_hz / 128e3, "{valid} of {most}");
        }
    }
}

#[test]
fn output_frames_start_at_multiples_of_their_length() {
    let input = port(Dtype::F32, 1, 1024, 1, None);
    let out = resample(
        json!({"bandwidth_hz": 64e3, "output": "real", "samples_per_frame": 512}),
        &input,
        frames(&input, 10_000_000, 20, &[1e5]),
    );
    // 512 samples at 128 kHz take 1712 samples at 428 kHz.
    assert_eq!(out.port.clock.samples_per_frame, 1712);
    let times: Vec<u64> = out.frames.iter().map(|frame| frame.timestamp).collect();
    assert!(times.len() > 10 && times.iter().all(|t| t.is_multiple_of(1712)), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 1712));
    assert!(times[0] < 10_000_000 && times[0] > 10_000_000 - 2 * 1712, "{}", times[0]);
}

#[test]
fn output_is_independent_of_frame_sizes() {
    let mut reference: Option<Vec<(u64, Complex32)>> = None;
    for (len, samples_per_frame) in [(1024, 512), (256, 2048), (8192, 256)] {
        let input = port(Dtype::F32, 2, len, 1, None);
        let out = resample(
            json!({"bandwidth_hz": 64e3, "centre_hz": 9e4, "row": 1, "samples_per_frame": samples_per_frame}),
            &input,
            frames(&input, 32_768, 32_768 / len, &[2e4, 1e5]),
        );
        assert_eq!(out.port.axes.len(), 1);
        let mut values = Vec::new();
        for frame in &out.frames {
            for (n, y) in frame.values::<Complex32>().into_iter().enumerate() {
                if frame.validity[n / HEAP_SAMPLES] > 0 {
                    values.push((frame.timestamp * 16 + n as u64 * 107, y));
                }
            }
        }
        assert!(values.len() > 4000);
        assert_eq!(reference.get_or_insert_with(|| values.clone()), &values, "{len}");
    }
}

#[test]
fn missing_samples_invalidate_exactly_the_heaps_that_depend_on_them() {
    let input = port(Dtype::F32, 1, 1024, 1, None);
    let mut sent = frames(&input, 0, 120, &[1e5]);
    sent[30].validity = vec![2, 1, 0, 2];
    // One frame, then most of the stream, does not come; one comes twice, and one is not in step.
    sent.drain(60..100);
    sent.remove(45);
    sent.insert(41, Plain { ..sent[40].clone() });
    let out = resample(json!({"bandwidth_hz": 64e3, "samples_per_frame": 512}), &input, sent);
    // The default filter: (80 - 7.95) / (14.36 x 8 kHz / 428 kHz) taps, rounded up to a multiple of 16.
    let half = 272.0 / 2.0;
    let (mut invalid, mut partial) = (0, 0);
    for frame in &out.frames {
        for (heap, validity) in frame.validity.iter().enumerate() {
            let ratio = 428.0 / 64.0;
            let from = frame.timestamp as f64 + (heap * HEAP_SAMPLES) as f64 * ratio;
            let to = from + (HEAP_SAMPLES - 1) as f64 * ratio;
            // The samples floor(from) - half + 1 .. floor(to) + half.
            let touches = |a: f64, b: f64| from.floor() - half + 1.0 < b && to.floor() + half >= a;
            let unit = |n: f64| 30.0 * 1024.0 + 256.0 * n;
            let is_lost = touches(unit(2.0), unit(3.0))
                || touches(45.0 * 1024.0, 46.0 * 1024.0)
                || touches(60.0 * 1024.0, 100.0 * 1024.0)
                || touches(-1e9, 0.0)
                || touches(120.0 * 1024.0, 1e9);
            let expected = if is_lost {
                0
            } else if touches(unit(1.0), unit(2.0)) {
                1
            } else {
                2
            };
            assert_eq!(*validity, expected, "{from}");
            invalid += u32::from(expected == 0);
            partial += u32::from(expected == 1);
        }
    }
    // A unit of 256 samples is shorter than a sum, so no heap has only the partial one.
    assert!(invalid >= 4 && partial == 0, "{invalid} {partial}");
    assert_eq!(out.count("frames_misplaced"), 1);
    assert!(out.count("heaps_missing") > 3);
    // Frames without valid samples are not sent.
    let sent = out.frames.iter().filter(|frame| frame.validity.iter().all(|count| *count == 0));
    assert_eq!(sent.count(), 0);
}

#[test]
fn stream_continues_after_a_long_gap() {
    let input = port(Dtype::Cf32, 1, 1024, 4, None);
    let mut sent = frames(&input, 4096, 10, &[1e4]);
    sent.extend(frames(&input, 4096 * (1 << 40), 10, &[1e4]));
    let mut late = frames(&input, 4096 * (1 << 40) + 4096 * 10 + 1, 1, &[1e4]);
    late.extend(frames(&input, 1 << 63, 1, &[1e4]));
    sent.extend(late);
    let out = resample(json!({"bandwidth_hz": 64e3, "samples_per_frame": 256}), &input, sent);
    assert!(out.frames.len() > 40 && out.frames.len() < 60, "{}", out.frames.len());
    assert_eq!(out.count("frames_misplaced"), 2);
}

#[test]
fn stream_continues_after_a_long_gap_at_any_place_in_a_frame() {
    let valid = |out: &Out| {
        let of_frame = |frame: &Plain| {
            let values = frame.values::<Complex32>().into_iter().enumerate();
            let valid = values.filter(|(n, _)| frame.validity[n / HEAP_SAMPLES] > 0);
            valid.map(|(n, y)| (frame.timestamp + n as u64 * 8, y)).collect::<Vec<_>>()
        };
        out.frames.iter().flat_map(of_frame).collect::<Vec<_>>()
    };
    // Half of the rate: output frames of 512 samples take as long as input frames of 1024.
    for len in [1024, 4096] {
        let input = port(Dtype::Cf32, 1, len, 4, None);
        for shift in [0, 1, 3, 77, 500, 1023] {
            let first = 4096 * (1 << 40) + 4 * shift;
            let before = frames(&input, 4096 + 4 * shift, 3, &[1e4]);
            let after = || frames(&input, first, 16384 / len, &[1e4]);
            let parameters = json!({"bandwidth_hz": 53.5e3, "samples_per_frame": 512});
            let alone = valid(&resample(parameters.clone(), &input, after()));
            let out = resample(parameters, &input, before.into_iter().chain(after()).collect());
            let mut values = valid(&out);
            values.retain(|(time, _)| *time >= first);
            assert!(alone.len() > 7168, "{}", alone.len());
            assert_eq!(values, alone, "{len} {shift}");
        }
    }
}

#[test]
fn band_of_the_output_is_on_the_sky() {
    let sky = |bandwidth_hz: f64| Band::signed(1, 0, 1e9, bandwidth_hz);
    for (sign, dtype) in
        [(1.0, Dtype::Cf32), (-1.0, Dtype::Cf32), (1.0, Dtype::F32), (-1.0, Dtype::F32)]
    {
        let width = if dtype == Dtype::Cf32 { 428e3 } else { 214e3 };
        let input = port(dtype, 1, 1024, 1, Some(sky(sign * width)));
        // The tone is 5 kHz above the centre of the new band, in an inverted band below it.
        let middle = if dtype == Dtype::Cf32 { 0.0 } else { RATE_HZ / 4.0 };
        let tone_hz = middle + sign * 30e3 + 5e3;
        let parameters =
            json!({"bandwidth_hz": 64e3, "centre_hz": 1e9 + 30e3, "samples_per_frame": 512});
        let out = resample(parameters, &input, frames(&input, 0, 20, &[tone_hz]));
        let band = out.port.band.unwrap();
        assert_eq!((band.centre_hz, band.signed_bandwidth_hz()), (1e9 + 30e3, sign * 64e3));
        let valid: Vec<_> =
            samples(&out, 0, 64e3).into_iter().filter(|sample| sample.1 > 0).collect();
        for pair in valid.windows(2) {
            let turns = (pair[1].2 / pair[0].2).arg() / TAU;
            assert!((turns - 5.0 / 64.0).abs() < 1e-3, "{turns}");
        }
    }
}

#[test]
fn every_problem_has_a_help() {
    let rejections = |parameters: Value, input: &PortType| {
        let kind = kind::<Resampler>(parameters);
        let rejections = kind.outputs(std::slice::from_ref(input)).unwrap_err();
        assert!(rejections.iter().all(|rejection| rejection.help.is_some()));
        rejections
            .into_iter()
            .map(|r| format!("{} / {}", r.message, r.help.unwrap()))
            .collect::<Vec<_>>()
    };
    let input = port(Dtype::F32, 2, 1024, 1, None);
    assert_eq!(
        rejections(json!({"bandwidth_hz": 64e3, "samples_per_frame": 1000}), &input),
        [
            "`samples_per_frame` must be a multiple of 256: of 256, and of the 16 samples that take 107 ADC samples, \
             got 1000 / set for example `samples_per_frame: 1024`"
        ]
    );
    assert_eq!(
        rejections(
            json!({"bandwidth_hz": 64e3, "centre_hz": 1e4, "pass_bandwidth_hz": 64e3}),
            &input
        ),
        [
            "a band of 64000 Hz around 10000 Hz is not within the 214000 Hz around 107000 Hz of the input / set \
             `centre_hz` between 32000 and 182000",
            "`pass_bandwidth_hz` must be from 1 % to 99 % of the band, got 64000 of 64000 Hz / omit it for the \
             default of seven eighths"
        ]
    );
    assert_eq!(rejections(json!({"bandwidth_hz": 3e5}), &input).len(), 1);
    assert_eq!(rejections(json!({"bandwidth_hz": 64e3 + 0.001_234_567}), &input).len(), 1);
    assert_eq!(rejections(json!({"bandwidth_hz": 10.0}), &input).len(), 1);
    let mut odd = input.clone();
    odd.clock.samples_per_frame = 1500;
    odd.validity.axes[0].len = 3;
    assert_eq!(rejections(json!({"bandwidth_hz": 64e3, "row": 2}), &odd).len(), 3);
}
