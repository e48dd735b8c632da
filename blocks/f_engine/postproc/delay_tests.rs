//! Delay correction by the whole F-engine: the remaining phase between two polarisations.

use super::tests::{Heap, f_engine, heaps};
use crate::tests::chain::{Digitised, RATE_HZ};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::{PI, TAU};

/// Rms of the phases of `z` in degrees.
fn rms_degrees(z: &[Complex64]) -> f64 {
    let squares: f64 = z.iter().map(|z| z.arg().to_degrees().powi(2)).sum();
    (squares / z.len() as f64).sqrt()
}

/// Number of channels, and length of the signals.
const DELAY_CHANNELS: usize = 64;
const DELAY_SAMPLES: usize = 1 << 17;

/// Tones in the middle of every other channel, from a source whose signal arrives `late` samples late, as a
/// function of time.
fn late_tones(late: impl Fn(f64) -> f64) -> Digitised {
    let tones: Vec<(f64, f64)> = (2..DELAY_CHANNELS)
        .step_by(2)
        .map(|k| (k as f64 / (2 * DELAY_CHANNELS) as f64, 0.37 * (k * k) as f64))
        .collect();
    let value = |t: f64| -> f64 {
        tones.iter().map(|(turns, phase)| (TAU * turns * t + phase).cos()).sum()
    };
    let times = (0..DELAY_SAMPLES).map(|t| t as f64);
    let samples = times.map(|t| (60.0 * value(t - late(t))).round() as i16).collect();
    Digitised { bits: 12, ..Digitised::new(samples) }
}

/// Delay model that compensates the delay of [`late_tones`] and keeps the phase at the centre of the band, a
/// quarter of the sample rate: it stops the fringe.
fn undo(late: f64, rate: f64) -> Value {
    json!({"delay_samples": -late, "rate": -rate, "phase_radians": PI / 2.0 * late,
        "phase_rate_radians_per_second": PI / 2.0 * rate * RATE_HZ})
}

/// Products of both polarisations of a heap in the channels with a tone.
fn products(heap: &Heap) -> Vec<Complex64> {
    let mut products = vec![Complex64::default(); DELAY_CHANNELS];
    for (i, both) in heap.2.chunks_exact(2).enumerate() {
        let z = |v: [i8; 2]| Complex64::new(f64::from(v[0]), f64::from(v[1]));
        products[i / 64] += z(both[1]) * z(both[0]).conj();
    }
    products.into_iter().skip(2).step_by(2).collect()
}

#[test]
fn delay_correction_gives_zero_phase() {
    for (late, rate) in [(0.0, 0.0), (0.3, 0.0), (-12.45, 0.0), (33.5, 2.5e-9), (7.9, -2.5e-9)] {
        let pols = [late_tones(|_| 0.0), late_tones(|t| late + rate * t)];
        let (_, out) = f_engine(
            json!({"channels": DELAY_CHANNELS, "delays": [[], [undo(late, rate)]],
                "spectra_per_frame": 16}),
            json!({"spectra_per_heap": 64, "gains": 0.06}),
            &pols,
        );
        let mut sums = vec![Complex64::default(); DELAY_CHANNELS / 2 - 1];
        for heap in heaps(&out).iter().filter(|heap| heap.1) {
            sums.iter_mut().zip(products(heap)).for_each(|(sum, product)| *sum += product);
        }
        let error = rms_degrees(&sums);
        assert!(error < 1.0, "late {late}, rate {rate}: {error} degrees");
    }
}

#[test]
fn phase_is_continuous_at_step_of_coarse_delay() {
    for (late, rate) in [(12.4998, 2.5e-9), (-6.4998, -2.5e-9), (3.5002, -2.5e-9)] {
        // After 80 000 samples the delay is half-way between two samples, where the coarse delay steps.
        let pols = [late_tones(|_| 0.0), late_tones(|t| late + rate * t)];
        let (channelised, out) = f_engine(
            json!({"channels": DELAY_CHANNELS, "delays": [[], [undo(late, rate)]],
                "spectra_per_frame": 16}),
            json!({"spectra_per_heap": 64, "gains": 0.06}),
            &pols,
        );
        let fine: Vec<f64> = channelised
            .frames
            .iter()
            .flat_map(|frame| frame.annotations.get("fine_delay_samples")[16..].to_vec())
            .collect();
        let steps = fine.windows(2).filter(|pair| (pair[0] - pair[1]).abs() > 0.9).count();
        assert_eq!(steps, 1, "the coarse delay steps once");
        let heaps: Vec<Heap> = heaps(&out).into_iter().filter(|heap| heap.1).collect();
        assert!(heaps.len() > 12);
        for heap in &heaps {
            let error = rms_degrees(&products(heap));
            assert!(error < 1.0, "late {late}, heap at {}: {error} degrees", heap.0);
        }
        // The heaps before and after the step have the same phase.
        let around: Vec<Vec<Complex64>> = [8 * 8192, 10 * 8192]
            .map(|time| products(heaps.iter().find(|h| h.0 == time).unwrap()))
            .into();
        let change: Vec<Complex64> =
            around[0].iter().zip(&around[1]).map(|(before, after)| after * before.conj()).collect();
        assert!(rms_degrees(&change) < 1.0);
    }
}

#[test]
fn picosecond_delays_are_resolved_at_both_ends_of_the_range() {
    let (channels, len) = (64, 1 << 19);
    let tones = |t: f64| -> f64 {
        let tone = |k: f64| (TAU * k / 128.0 * t + 0.37 * k * k).cos();
        (1..32).map(|k| tone(2.0 * f64::from(k))).sum()
    };
    // Tones in the middle of channels repeat after 64 samples.
    let one: Vec<i16> = (0..64).map(|t| (40.0 * tones(f64::from(t))).round() as i16).collect();
    let samples: Vec<i16> = one.iter().cycle().take(len).copied().collect();
    let pol = Digitised { bits: 12, ..Digitised::new(samples) };
    for base in [79.52e-6, -79.52e-6] {
        for picoseconds in [2.5, -2.5, 5.0] {
            let delays = [base, base + picoseconds * 1e-12];
            let delays = delays.map(|delay| json!([{"delay_seconds": delay}]));
            let (_, out) = f_engine(
                json!({"channels": channels, "delays": delays, "spectra_per_frame": 64}),
                json!({"spectra_per_heap": 64, "gains": 0.06}),
                &[pol.clone(), pol.clone()],
            );
            let mut products = vec![Complex64::default(); channels];
            for (_, _, heap) in heaps(&out).iter().filter(|heap| heap.1) {
                for (i, both) in heap.chunks_exact(2).enumerate() {
                    let z = |v: [i8; 2]| Complex64::new(f64::from(v[0]), f64::from(v[1]));
                    products[i / 64] += z(both[1]) * z(both[0]).conj();
                }
            }
            // The slope of the phase over the channels.
            let (mut slope, mut weight) = (0.0, 0.0);
            for (k, product) in products.iter().enumerate().skip(2).step_by(2) {
                let from_centre = k as f64 - channels as f64 / 2.0;
                slope += product.arg() * from_centre;
                weight += from_centre * from_centre;
            }
            let samples = -slope / weight * channels as f64 / PI;
            let found = samples / RATE_HZ * 1e12;
            assert!((found - picoseconds).abs() < 0.5, "{base}: {found} for {picoseconds} ps");
        }
    }
}
