//! Signals with known correlations.
#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::flowgraph::{Plan, load_text};
use fxgraph::{Clock, Next, Ports};
use fxgraph_dsp::gnss::System;
use num_complex::{Complex32, Complex64};

const RATE_HZ: f64 = 5e6;

fn input(dtype: Dtype, antennas: usize, samples: usize) -> PortType {
    let mut axes = vec![Axis::new("sample", samples)];
    if antennas > 1 {
        axes.insert(0, Axis::new("antenna", antennas));
    }
    PortType {
        dtype,
        axes,
        clock: Clock::new(RATE_HZ, samples as u64),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

fn parameters(text: &str) -> GnssCorrelator {
    serde_json::from_str(text).unwrap()
}

/// Returns the sums of two frames of the signal of `sky`, at two antennas; the second antenna receives the
/// signal a quarter of a turn later.
fn correlate(kind: &GnssCorrelator, sky: &Satellite) -> Vec<Vec<Complex32>> {
    let samples = 10_000;
    let port = input(Dtype::Cf32, 2, samples);
    let ports = Ports { inputs: vec![port.clone()], outputs: kind.outputs(&[port]).unwrap() };
    let block = kind.build(&ports.inputs, &Env::detached("correlate")).unwrap();
    let mut harness = Harness::new(block, &ports, 4).unwrap();
    let chips = fxgraph_dsp::gnss::codes::chips(sky.system, sky.prn).unwrap();
    for frame in 0..2 {
        harness.send(0, |to| {
            to.fill_validity(1);
            to.header_mut().timestamp = (frame * samples) as u64;
            let row = to.as_mut_slice::<Complex32>().unwrap();
            for n in 0..samples {
                let seconds = (frame * samples + n) as f64 / RATE_HZ;
                let turns = sky.carrier_turns + sky.doppler_hz * seconds;
                let phase = sky.code_phase_chips + sky.code_rate_hz() * seconds;
                let chip = f32::from(chips[phase as usize % chips.len()]);
                let wave = Complex32::cis((turns.fract() * std::f64::consts::TAU) as f32) * chip;
                row[n] = wave;
                row[samples + n] = wave * -Complex32::I;
            }
        });
    }
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    std::iter::from_fn(|| harness.receive(0).map(|f| f.as_slice::<Complex32>().unwrap().to_vec()))
        .collect()
}

#[test]
fn correlation_is_large_only_with_the_right_phases() {
    let kind = parameters(
        r#"{"satellites": [
            {"system": "gps_l1_ca", "prn": 9, "doppler_hz": 2100, "code_phase_chips": 300.25, "carrier_turns": 0.125},
            {"system": "gps_l1_ca", "prn": 10, "doppler_hz": 2100, "code_phase_chips": 300.25}],
            "taps_chips": [0.5, 0, -0.5, 20], "epochs_per_frame": 2}"#,
    );
    let frames = correlate(&kind, &kind.satellites[0]);
    assert_eq!(frames.len(), 2);
    for epoch in frames.iter().flat_map(|frame| frame.chunks(16)) {
        let [early, prompt, late, far] = [0, 1, 2, 3].map(|tap| epoch[tap] / 5000.0);
        assert!((prompt - 1.0).norm() < 1e-3, "{prompt}");
        for side in [early, late] {
            assert!((side.re - 0.5).abs() < 0.02 && side.im.abs() < 0.02, "{side}");
        }
        assert!(far.norm() < 0.08);
        assert!((epoch[5] / 5000.0 + Complex32::I).norm() < 1e-3, "the second antenna");
        assert!(epoch[9].norm() / 5000.0 < 0.08, "the other satellite");
    }
}

/// Returns the sum of products with a satellite's signal, in double precision. The first sample is `start_seconds` after
/// the time of the phases.
fn product(
    samples: &[[i16; 2]],
    (start_seconds, rate_hz): (f64, f64),
    of: &Satellite,
    intermediate_hz: f64,
) -> Complex64 {
    let replica = Replica::of(of).unwrap();
    let (entries, per_chip) = (replica.entries(), replica.per_chip() as f64);
    let products = samples.iter().enumerate().map(|(n, [re, im])| {
        let seconds = start_seconds + n as f64 / rate_hz;
        let turns = of.carrier_turns + (intermediate_hz + of.doppler_hz) * seconds;
        let entry = (of.code_phase_chips + of.code_rate_hz() * seconds) * per_chip;
        let code = f64::from(entries[entry as usize % entries.len()]) * replica.scale();
        let carrier = Complex64::cis(-std::f64::consts::TAU * turns.fract());
        Complex64::new(f64::from(*re), f64::from(*im)) * carrier * code
    });
    products.sum()
}

#[test]
fn slow_and_fast_carriers_are_correlated_in_one_block() {
    let rate_hz = 25e6;
    let mut random = fxgraph_dsp::random::Random::new(4);
    let samples: Vec<[i16; 2]> =
        (0..10_000).map(|_| random.normal_pair().map(|v| (500.0 * v) as i16)).collect();
    for (intermediate_hz, slow_hz, fast_hz) in [(0.0, 2100.0, 210e3), (4e5, -3300.0, -2e5)] {
        for threads in [1, 2] {
            let kind = parameters(&format!(
                r#"{{"satellites": [
                    {{"system": "gps_l1_ca", "prn": 9, "doppler_hz": {slow_hz}, "code_phase_chips": 300.25}},
                    {{"system": "gps_l1_ca", "prn": 10, "doppler_hz": {fast_hz}, "carrier_turns": 0.3}},
                    {{"system": "galileo_e1b", "prn": 3, "doppler_hz": 100, "code_phase_chips": 4000}},
                    {{"system": "gps_l1_ca", "prn": 11, "doppler_hz": 700, "carrier_turns": 0.1}}],
                "taps_chips": [0], "epochs_per_frame": 2, "intermediate_hz": {intermediate_hz}, "threads": {threads}}}"#
            ));
            let mut port = input(Dtype::Ci16, 1, samples.len());
            port.clock.adc_sample_rate_hz = rate_hz;
            let ports =
                Ports { inputs: vec![port.clone()], outputs: kind.outputs(&[port]).unwrap() };
            let block = kind.build(&ports.inputs, &Env::detached("correlate")).unwrap();
            let mut harness = Harness::new(block, &ports, 1).unwrap();
            harness.send(0, |to| {
                to.fill_validity(1);
                to.as_mut_slice::<[i16; 2]>().unwrap().copy_from_slice(&samples);
            });
            Harness::block_on(harness.run()).unwrap();
            let frame = harness.receive(0).unwrap();
            let mut found = frame.as_slice::<Complex32>().unwrap().iter();
            for (epoch, samples) in samples.chunks(5000).enumerate() {
                for satellite in &kind.satellites {
                    let place = ((5000 * epoch) as f64 / rate_hz, rate_hz);
                    let expected = product(samples, place, satellite, intermediate_hz);
                    let found = found.next().unwrap();
                    let found = Complex64::new(f64::from(found.re), f64::from(found.im));
                    // Sums of 5000 values of 500 in each part are about 50 000.
                    assert!((found - expected).norm() < 0.1, "{epoch} {found} {expected}");
                }
            }
        }
    }
}

#[test]
fn real_samples_at_an_intermediate_frequency_and_any_number_of_ticks_are_correlated() {
    let (rate_hz, intermediate_hz, at_timestamp) = (25e6, 6.4e6, 77_u64);
    let mut random = fxgraph_dsp::random::Random::new(9);
    let samples: Vec<i16> = (0..10_000).map(|_| (500.0 * random.normal_pair()[0]) as i16).collect();
    let complex: Vec<[i16; 2]> = samples.iter().map(|x| [*x, 0]).collect();
    // One tick per sample, three as of a `ddc`, and 5 for 2 samples as of a `resampler`; the last two begin between the
    // ticks of whole samples since timestamp 0.
    for (frame_ticks, start) in [(10_000_u32, 20_000), (30_000, 1_000_003), (25_000, 1_000_003_u64)]
    {
        let kind = parameters(&format!(
            r#"{{"satellites": [
                {{"system": "gps_l1_ca", "prn": 9, "doppler_hz": 2100, "code_phase_chips": 300.25, "at_timestamp": {at_timestamp}}},
                {{"system": "gps_l1_ca", "prn": 10, "doppler_hz": -210e3, "carrier_turns": 0.3, "at_timestamp": {at_timestamp}}},
                {{"system": "galileo_e1b", "prn": 3, "doppler_hz": 100, "code_phase_chips": 4000, "at_timestamp": {at_timestamp}}}],
            "taps_chips": [0], "epochs_per_frame": 2, "intermediate_hz": {intermediate_hz}}}"#
        ));
        let mut port = input(Dtype::I16, 1, samples.len());
        let tick_rate_hz = rate_hz * f64::from(frame_ticks) / 1e4;
        port.clock = Clock::new(tick_rate_hz, u64::from(frame_ticks));
        let ports = Ports { inputs: vec![port.clone()], outputs: kind.outputs(&[port]).unwrap() };
        let block = kind.build(&ports.inputs, &Env::detached("correlate")).unwrap();
        let mut harness = Harness::new(block, &ports, 1).unwrap();
        harness.send(0, |to| {
            to.fill_validity(1);
            to.header_mut().timestamp = start;
            to.as_mut_slice::<i16>().unwrap().copy_from_slice(&samples);
        });
        Harness::block_on(harness.run()).unwrap();
        let frame = harness.receive(0).unwrap();
        let mut found = frame.as_slice::<Complex32>().unwrap().iter();
        for (epoch, samples) in complex.chunks(5000).enumerate() {
            for satellite in &kind.satellites {
                let since = (start - at_timestamp) as f64 / tick_rate_hz;
                let place = (since + (5000 * epoch) as f64 / rate_hz, rate_hz);
                let expected = product(samples, place, satellite, intermediate_hz);
                let found = found.next().unwrap();
                let found = Complex64::new(f64::from(found.re), f64::from(found.im));
                assert!((found - expected).norm() < 0.1, "{frame_ticks}: {found} {expected}");
            }
        }
    }
}

#[test]
fn gnss_correlator_rejects_invalid_parameters() {
    let rejected = |text: &str| {
        let port = input(Dtype::Ci16, 1, 10_000);
        let rejections = parameters(text).outputs(&[port]).unwrap_err();
        rejections.iter().map(|r| r.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let satellite = |text: &str| rejected(&format!(r#"{{"satellites": [{{{text}}}]}}"#));
    assert_eq!(
        satellite(r#""system": "gps_l1_ca", "prn": 38"#),
        "`prn` of gps_l1_ca must be between 1 and 37, got 38"
    );
    assert!(satellite(r#""system": "galileo_e1b", "prn": 0"#).contains("1 and 50, got 0"));
    assert!(
        satellite(r#""system": "galileo_e1b", "prn": 1, "doppler_hz": 3e6"#)
            .contains("outside the band")
    );
    assert!(rejected(r#"{"satellites": []}"#).contains("1 to 1024 entries, got 0"));
    let good = r#""satellites": [{"system": "gps_l1_ca", "prn": 1}]"#;
    assert!(rejected(&format!("{{{good}, \"epochs_per_frame\": 3}}")).contains("got 3"));
    assert!(
        rejected(&format!("{{{good}, \"taps_chips\": [1e9]}}")).contains("`taps_chips` must be")
    );
    let mut slow = input(Dtype::Ci16, 1, 10_000);
    slow.clock.adc_sample_rate_hz = 1.6e6;
    let slow = parameters(&format!("{{{good}}}")).outputs(&[slow]).unwrap_err();
    let message = "the sample rate must be at least 1.637 MS/s for gps_l1_ca, got 1.600 MS/s";
    assert_eq!(slow[0].message, message);
    let other = input(Dtype::I32, 1, 10_000);
    assert_eq!(parameters(&format!("{{{good}}}")).outputs(&[other]).unwrap_err().len(), 1);
}

#[test]
fn largest_doppler_shift_is_accepted_and_a_larger_one_rejected() {
    let mut port = input(Dtype::Ci16, 1, 10_000);
    port.clock.adc_sample_rate_hz = 4.092e6;
    let kind = |doppler_hz: f64| {
        parameters(&format!(
            r#"{{"satellites": [{{"system": "galileo_e1b", "prn": 1, "doppler_hz": {doppler_hz}, "code_phase_chips": 4091}}],
            "taps_chips": [0.5], "intermediate_hz": {}}}"#,
            -doppler_hz
        ))
    };
    let rejections = kind(1e9).outputs(std::slice::from_ref(&port)).unwrap_err();
    let message = "`doppler_hz` of E01 must be between -1e7 and 1e7, got 1e9";
    assert_eq!(rejections[0].message, message);
    let kind = kind(1e7);
    let outputs = kind.outputs(std::slice::from_ref(&port)).unwrap();
    let ports = Ports { inputs: vec![port], outputs };
    let block = kind.build(&ports.inputs, &Env::detached("correlate")).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    harness.send(0, |to| to.fill_validity(1));
    Harness::block_on(harness.run()).unwrap();
    assert!(harness.receive(0).is_some());
}

#[test]
fn live_update_of_phases_applies_from_its_timestamp() {
    let right = parameters(
        r#"{"satellites": [{"system": "gps_l1_ca", "prn": 9, "code_phase_chips": 300.25}], "epochs_per_frame": 2}"#,
    );
    let wrong = parameters(
        r#"{"satellites": [{"system": "gps_l1_ca", "prn": 9, "code_phase_chips": 700}], "epochs_per_frame": 2}"#,
    );
    let sky = Satellite { system: System::GpsL1Ca, ..right.satellites[0].clone() };
    let [is, is_not] = [&right, &wrong].map(|kind| correlate(kind, &sky)[0][1].norm());
    assert!(is > 4900.0 && is_not < 500.0, "{is} {is_not}");
    let inputs = [input(Dtype::Cf32, 2, 10_000)];
    let live_value = |new: &GnssCorrelator, running: &GnssCorrelator| {
        let [new, running] =
            [new, running].map(|kind| Configured::new(kind.clone(), &inputs).unwrap());
        LiveKind::live_value(&new, GnssCorrelatorLive::Satellites, &running).map(drop)
    };
    assert!(live_value(&right, &wrong).is_ok());
    let two = GnssCorrelator { satellites: vec![sky.clone(), sky], ..right.clone() };
    assert!(live_value(&two, &right).is_err());
}

#[test]
fn output_labels_follow_a_live_update_of_satellites() {
    let text = "flowgraph: named
blocks:
  source:
    kind: null_source
    parameters: {dtype: ci16, axes: [{name: sample, len: 10000}], samples_per_frame: 10000, adc_sample_rate_hz: 5000000}
  c:
    kind: gnss_correlator
    input: source
    parameters: {satellites: [{system: gps_l1_ca, prn: 7}, {system: galileo_e1b, prn: 11}]}
  sink: {kind: null_sink, input: c}
";
    let registry = crate::kinds();
    let plan = load_text("named.yaml", text, &[], &registry).result.unwrap();
    let names = |plan: &Plan| {
        let block = &plan.blocks[plan.block("c").unwrap()];
        block.ports.outputs[0].axes[1].labels.clone()
    };
    assert_eq!(names(&plan), ["G07", "E11"]);
    let request = r#"{"c": {"satellites": [{"system": "gps_l1_ca", "prn": 8}, {"system": "galileo_e1b", "prn": 11}]}}"#;
    assert_eq!(names(&plan.with_change(&registry, request, 0).ok().unwrap()), ["G08", "E11"]);
}
