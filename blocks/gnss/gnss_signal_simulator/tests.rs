//! Comparison with the formula, sample by sample, and statistics of the noise.
#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Env, Ports};
use fxgraph_dsp::gnss::System;
use num_complex::{Complex32, Complex64};

fn run(text: &str) -> Vec<Vec<u8>> {
    let kind: GnssSignalSimulator = serde_json::from_str(text).unwrap();
    let ports = Ports { inputs: vec![], outputs: kind.outputs(&[]).unwrap() };
    let block = kind.build(&ports.inputs, &Env::detached("sky")).unwrap();
    let mut harness = Harness::new(block, &ports, 8).unwrap();
    Harness::block_on(harness.run()).unwrap();
    std::iter::from_fn(|| harness.receive(0).map(|f| f.as_slice::<u8>().unwrap().to_vec()))
        .collect()
}

fn floats(frames: &[Vec<u8>]) -> Vec<Complex32> {
    frames.iter().flat_map(|frame| bytemuck::cast_slice::<u8, Complex32>(frame).to_vec()).collect()
}

/// A signal with negligible noise; C/N0 gives the amplitude relative to the noise.
const SIGNAL: &str = r#"{"satellites": [{"system": "gps_l1_ca", "prn": 5, "doppler_hz": -1540, "code_phase_chips": 1000.3,
    "carrier_turns": 0.2, "cn0_db_hz": 190, "data": false, "antenna_turns": [0, 0.25]}],
    "dtype": "cf32", "noise_rms": 1e-6, "antennas": 2, "samples_per_frame": 3000, "frames": 2, "intermediate_hz": 4e5}"#;

#[test]
fn signal_equals_the_formula() {
    let found = floats(&run(SIGNAL));
    let chips = fxgraph_dsp::gnss::codes::chips(System::GpsL1Ca, 5).unwrap();
    let amplitude = 1e-6 * f64::sqrt(2.0 * 1e19 / 5e6);
    for n in 0..6000_usize {
        let seconds = n as f64 / 5e6;
        let chip = chips[(1000.3 + 1.022_999e6 * seconds) as usize % 1023];
        let turns = 0.2 + (4e5 - 1540.0) * seconds;
        let expected = Complex64::cis(std::f64::consts::TAU * turns) * amplitude * f64::from(chip);
        let (frame, sample) = (n / 3000, n % 3000);
        for (antenna, turn) in [(0, Complex64::ONE), (1, Complex64::I)] {
            let found = found[frame * 6000 + antenna * 3000 + sample];
            let found = Complex64::new(f64::from(found.re), f64::from(found.im));
            assert!((found - expected * turn).norm() < 1e-5 * amplitude, "{n}: {found} {expected}");
        }
    }
}

#[test]
fn phases_apply_at_their_timestamp() {
    let of_timestamp_0 = floats(&run(SIGNAL)[..1]);
    let stated = SIGNAL.replace("\"prn\": 5", "\"prn\": 5, \"at_timestamp\": 3000");
    let frames = run(&stated);
    let off = |frame: usize| {
        let pairs = floats(&frames[frame..=frame]).into_iter().zip(&of_timestamp_0);
        pairs.map(|(found, expected)| (found - expected).norm()).fold(0.0, f32::max)
    };
    // The signal has an amplitude of 2, the noise of 1e-6.
    assert!(off(1) < 1e-4 && off(0) > 1.0, "{} {}", off(1), off(0));
}

#[test]
fn noise_has_its_power_and_c_n0_is_the_ratio() {
    let power = |cn0: &str, dtype: &str| {
        let text = format!(
            r#"{{"satellites": [{{"system": "galileo_e1b", "prn": 5, "cn0_db_hz": {cn0}}}], "dtype": "{dtype}", "frames": 4}}"#
        );
        let frames = run(&text);
        let values: Vec<f64> = match dtype {
            "ci8" => frames.concat().iter().map(|v| f64::from(v.cast_signed())).collect(),
            "ci16" => frames
                .iter()
                .flat_map(|f| bytemuck::cast_slice::<u8, i16>(f))
                .map(|v| f64::from(*v))
                .collect(),
            _ => floats(&frames).iter().flat_map(|v| [f64::from(v.re), f64::from(v.im)]).collect(),
        };
        values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64 * 2.0
    };
    for dtype in ["ci8", "ci16", "cf32"] {
        assert!((power("-300", dtype) / 800.0 - 1.0).abs() < 0.01);
    }
    // As strong as the noise in the whole band.
    let cn0 = 10.0 * 5e6_f64.log10();
    assert!((power(&cn0.to_string(), "cf32") / 1600.0 - 1.0).abs() < 0.02);
}

#[test]
fn samples_do_not_depend_on_the_frame_length_and_seeds_differ() {
    let text = |samples: usize, frames: usize, seed: u64| {
        format!(
            r#"{{"satellites": [{{"system": "galileo_e1b", "prn": 5}}], "dtype": "ci8", "samples_per_frame": {samples},
            "frames": {frames}, "seed": {seed}}}"#
        )
    };
    let one = run(&text(60_000, 1, 3)).concat();
    assert_eq!(one, run(&text(12_000, 5, 3)).concat());
    assert_ne!(one, run(&text(60_000, 1, 4)).concat());
}

#[test]
fn clipped_sample_counts_once() {
    let text = r#"{"satellites": [{"system": "gps_l1_ca", "prn": 5}], "dtype": "ci8", "noise_rms": 1e6,
        "samples_per_frame": 1000, "frames": 2}"#;
    let kind: GnssSignalSimulator = serde_json::from_str(text).unwrap();
    let out = crate::tests::chain::drive(&kind, &[], vec![]);
    let clipped = out.count("samples_clipped");
    // Both parts of nearly all samples are far beyond 127.
    assert!((1990..=2000).contains(&clipped), "{clipped}");
}

#[test]
fn data_invert_the_code_only_at_the_start_of_a_period() {
    let signal = |system: &str, data: bool| {
        let text = format!(
            r#"{{"satellites": [{{"system": "{system}", "prn": 2, "cn0_db_hz": 190, "data": {data}, "code_phase_chips": 100}}],
            "dtype": "cf32", "noise_rms": 1e-6, "samples_per_frame": 400000, "frames": 8}}"#
        );
        floats(&run(&text))
    };
    for (system, symbol, chips) in [("gps_l1_ca", 100_000, 1023), ("galileo_e1b", 20_000, 4092)] {
        let (plain, turned) = (signal(system, false), signal(system, true));
        let signs: Vec<bool> = plain.iter().zip(&turned).map(|(a, b)| a.re * b.re < 0.0).collect();
        let late = 100 * symbol / if chips == 1023 { 20 * chips } else { chips };
        let changes: Vec<usize> = (1..signs.len()).filter(|n| signs[*n] != signs[n - 1]).collect();
        assert!(changes.len() > 4, "{system}: {changes:?}");
        for change in changes {
            let after = (change + late) % symbol;
            assert!(after <= 1 || after >= symbol - 1, "{system}: {change}");
        }
    }
}

#[test]
fn gnss_signal_simulator_rejects_invalid_parameters() {
    let rejected = |from: &str, to: &str| {
        assert!(SIGNAL.contains(from));
        let kind: GnssSignalSimulator = serde_json::from_str(&SIGNAL.replace(from, to)).unwrap();
        let rejections = kind.outputs(&[]).unwrap_err();
        rejections.iter().map(|r| r.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(rejected("\"prn\": 5", "\"prn\": 40").contains("1 and 37, got 40"));
    assert!(rejected("4e5", "4e6").contains("outside the band"));
    assert!(rejected("[0, 0.25]", "[0, 0, 0]").contains("`antenna_turns` of G05"));
    assert!(rejected("cf32", "ci4").contains("got `ci4`"));
    assert!(rejected("\"antennas\": 2", "\"antennas\": 0").contains("1 and 1024, got 0"));
    assert!(rejected("1e-6", "-1").contains("`noise_rms` must be between 0 and 1e9, got -1"));
    assert!(
        rejected("190", "301").contains("`cn0_db_hz` of G05 must be between -300 and 300, got 301")
    );
    assert!(rejected("-1540", "1e300").contains("got 1e300"));
}
