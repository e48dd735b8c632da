//! GPS at 2.000 MS/s, less than the main lobe of the C/A code: satellites are found and tracked, at the C/N0 that
//! the warning states.
//!
//! The samples do not come from the simulator, which samples chips without a filter. They are computed from the Fourier
//! series of the code, without its harmonics outside the band, as an ideal filter before the ADC leaves them.
#![allow(clippy::unwrap_used)]

use super::gnss_acquisition::{self, Acquired, GnssAcquisition};
use super::gnss_tracker::{self, GnssTracker};
use crate::tests::chain::{Plain, connected, drive, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Clock, Dtype, PortType, ValidityType};
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use rustfft::FftPlanner;
use serde_json::json;
use std::f64::consts::{PI, TAU};

const RATE_HZ: f64 = 2e6;
const FRAME: usize = 40_000;
const FRAMES: usize = 150;
const CHIPS: usize = 1023;
const CHIP_RATE_HZ: f64 = 1.023e6;
const CARRIER_HZ: f64 = 1575.42e6;
/// Points of the table of a filtered code for each chip.
const POINTS: usize = 64;

/// PRN, stages of the second register whose sum delays it, first ten chips in octal (IS-GPS-200, table 3-I), Doppler
/// shift in Hz, code phase in chips at timestamp 0, C/N0 in dB Hz.
type Satellite = (usize, [usize; 2], u32, f64, f64, f64);
const SATELLITES: [Satellite; 4] = [
    (1, [2, 6], 0o1440, 2310.0, 311.4, 46.0),
    (2, [3, 7], 0o1620, -3120.0, 12.7, 47.0),
    (3, [4, 8], 0o1710, 740.0, 888.2, 48.0),
    (4, [5, 9], 0o1744, -1455.0, 602.9, 47.5),
];

/// Chips of a C/A code as 0 and 1, from its two shift registers.
fn chips(stages: [usize; 2]) -> Vec<u8> {
    let (mut first, mut second) = ([1_u8; 10], [1_u8; 10]);
    let sum = |register: &[u8; 10], stages: &[usize]| {
        stages.iter().fold(0, |sum, stage| sum ^ register[stage - 1])
    };
    let shift = |register: &mut [u8; 10], new| {
        register.copy_within(..9, 1);
        register[0] = new;
    };
    let chip = |_| {
        let chip = first[9] ^ sum(&second, &stages);
        let new = [sum(&first, &[3, 10]), sum(&second, &[2, 3, 6, 8, 9, 10])];
        shift(&mut first, new[0]);
        shift(&mut second, new[1]);
        chip
    };
    (0..CHIPS).map(chip).collect()
}

/// A period of the code at [`POINTS`] points for each chip: its harmonics that a Doppler shift leaves within half of the
/// rate about the carrier.
fn filtered(chips: &[u8], doppler_hz: f64) -> Vec<Complex64> {
    let len = CHIPS * POINTS;
    let mut planner = FftPlanner::new();
    let mut spectrum: Vec<Complex64> =
        chips.iter().map(|chip| Complex64::from(1.0 - 2.0 * f64::from(*chip))).collect();
    planner.plan_fft_forward(CHIPS).process(&mut spectrum);
    let mut table = vec![Complex64::ZERO; len];
    for k in -1500_i32..1500 {
        let from_carrier = doppler_hz + f64::from(k) * CHIP_RATE_HZ / CHIPS as f64;
        if from_carrier.abs() >= RATE_HZ / 2.0 {
            continue;
        }
        // Integral over a chip, whose middle is half a chip behind its start.
        let x = PI * f64::from(k) / CHIPS as f64;
        let of_chip = if k == 0 { 1.0 } else { x.sin() / x };
        let of_code = spectrum[k.rem_euclid(CHIPS as i32) as usize] / CHIPS as f64;
        table[k.rem_euclid(len as i32) as usize] = of_code * Complex64::cis(-x) * of_chip;
    }
    planner.plan_fft_inverse(len).process(&mut table);
    table
}

/// Samples of these frames: noise with a variance of 2, and the satellites.
fn samples(satellites: &[Satellite], frames: usize) -> Vec<Complex32> {
    let mut random = Random::new(17 + satellites[0].0 as u64);
    let mut samples: Vec<Complex64> = (0..FRAME * frames)
        .map(|_| random.normal_pair())
        .map(|[re, im]| Complex64::new(re, im))
        .collect();
    for &(prn, stages, first, doppler_hz, phase, cn0_db_hz) in satellites {
        let chips = chips(stages);
        let octal = chips[..10].iter().fold(0, |word, chip| word << 1 | u32::from(*chip));
        assert_eq!(octal, first, "PRN {prn}");
        let table = filtered(&chips, doppler_hz);
        let amplitude = (2.0 * 10_f64.powf(cn0_db_hz / 10.0) / RATE_HZ).sqrt();
        let symbols: Vec<f64> =
            (0..frames + 2).map(|_| if random.bits() & 1 == 1 { -1.0 } else { 1.0 }).collect();
        let step = CHIP_RATE_HZ * (1.0 + doppler_hz / CARRIER_HZ) / RATE_HZ;
        for (n, sample) in samples.iter_mut().enumerate() {
            let code = phase + step * n as f64;
            let symbol = symbols[(code / CHIPS as f64) as usize / 20];
            let value = table[(code.rem_euclid(CHIPS as f64) * POINTS as f64) as usize];
            let turns = (doppler_hz / RATE_HZ * n as f64).fract();
            *sample += amplitude * symbol * value * Complex64::cis(TAU * turns);
        }
    }
    samples.iter().map(|z| Complex32::new(z.re as f32, z.im as f32)).collect()
}

#[test]
fn gps_at_2_mega_samples_is_found_and_tracked_with_the_stated_loss() {
    let port = PortType {
        dtype: Dtype::Cf32,
        axes: vec![Axis::new("sample", FRAME)],
        clock: Clock::new(RATE_HZ, FRAME as u64),
        band: None,
        validity: ValidityType::flags(vec![]),
    };
    let frame = |(n, samples): (usize, &[Complex32])| Plain {
        timestamp: (n * FRAME) as u64,
        validity: vec![1],
        annotations: Annotations::default(),
        payload: bytemuck::cast_slice(samples).to_vec(),
    };
    let frames = |satellites: &[Satellite], frames| -> Vec<Plain> {
        samples(satellites, frames).chunks_exact(FRAME).enumerate().map(frame).collect()
    };
    let searched: Vec<_> = (1..=8).map(|prn| json!({"system": "gps_l1_ca", "prn": prn})).collect();
    let acquisition = json!({"satellites": searched, "every_frames": FRAMES});
    let block = connected("gnss_acquisition", "cpu", &acquisition, std::slice::from_ref(&port));
    let warnings = block.ok().unwrap().warnings();
    let [warning] = &warnings[..] else { panic!("{} warnings", warnings.len()) };
    let words: Vec<&str> = warning.message.split_whitespace().collect();
    let unit = words.iter().position(|word| *word == "dB").unwrap();
    let stated_db: f64 = words[unit - 1].parse().unwrap();

    let kind_of = kind::<GnssAcquisition>(acquisition);
    let found = drive(&kind_of, std::slice::from_ref(&port), vec![frames(&SATELLITES, 1)]);
    let rows: Vec<[f64; gnss_acquisition::VALUES]> = found.frames[0].values();
    for (row, prn) in rows.iter().zip(1..) {
        let acquired = Acquired::found(*row);
        let present = SATELLITES.iter().find(|satellite| satellite.0 == prn);
        assert_eq!(acquired.is_some(), present.is_some(), "PRN {prn}: {row:?}");
        let (Some(acquired), Some((.., doppler_hz, phase, _))) = (acquired, present) else {
            continue;
        };
        assert!((acquired.doppler_hz - doppler_hz).abs() < 150.0, "{acquired:?}");
        assert!((acquired.code_phase_chips - phase).abs() < 0.2, "{acquired:?}");
    }

    let inputs = [port, found.port];
    let mut losses = Vec::new();
    // Each one by itself, because the others add to its noise.
    for (number, satellite) in SATELLITES.into_iter().enumerate() {
        let (.., doppler_hz, phase, cn0_db_hz) = satellite;
        // Later frames were not searched.
        let unsearched = (1..FRAMES).map(|n| Plain {
            timestamp: (n * FRAME) as u64,
            payload: vec![0; found.frames[0].payload.len()],
            ..found.frames[0].clone()
        });
        let acquired = found.frames[..1].iter().cloned().chain(unsearched).collect();
        let frames = vec![frames(&[satellite], FRAMES), acquired];
        let tracked = drive(&kind::<GnssTracker>(json!({})), &inputs, frames);
        // C/N0 is a mean over half a second: values a second apart are independent.
        for second in 1..=FRAMES * FRAME / RATE_HZ as usize {
            let frame = &tracked.frames[second * RATE_HZ as usize / FRAME - 1];
            let row = frame.values::<[f64; gnss_tracker::VALUES]>()[number];
            assert!((row[2] - 1.0).abs() < 1e-9, "locked: {row:?}");
            assert!((row[4] - doppler_hz).abs() < 5.0, "{row:?}");
            let code = phase + CHIP_RATE_HZ * (1.0 + doppler_hz / CARRIER_HZ) * second as f64;
            let apart = (row[5] - code + 511.5).rem_euclid(1023.0) - 511.5;
            assert!(apart.abs() < 0.05, "{apart} chips: {row:?}");
            losses.push(cn0_db_hz - row[3]);
        }
    }
    let count = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / count;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let uncertainty = (variance / count).sqrt();
    // The statement is rounded to 0.1 dB.
    assert!(uncertainty < 0.15, "{losses:?}");
    assert!(
        (mean - stated_db).abs() < 3.0 * uncertainty + 0.05,
        "{mean:.2} +- {uncertainty:.2} dB instead of {stated_db}: {losses:?}"
    );
}
