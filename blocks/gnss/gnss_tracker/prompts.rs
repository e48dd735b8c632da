//! Prompt sums of each code period in the output `prompts`.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gnss::gnss_acquisition::{Acquired, GnssAcquisition};
use crate::gnss::gnss_signal_simulator::GnssSignalSimulator;
use crate::tests::chain::kind;
use fxgraph::edge::Harness;
use fxgraph::time::sky::Place;
use fxgraph::{Env, Ports, Time};
use fxgraph_dsp::gnss::System;
use fxgraph_navigation::message::{Channel, Decoded, Signal};
use fxgraph_navigation::rinex::read_navigation;
use serde_json::json;

const RATE_HZ: f64 = 5e6;
const SAMPLES: usize = 100_000;
const DOPPLER_HZ: f64 = 700.0;
const CODE_PHASE_CHIPS: f64 = 9.5;
/// Frames, and those without samples.
const FRAMES: usize = 70;
const MISSING: std::ops::Range<usize> = 40..43;

/// Rows and prompt sums of each frame of a simulated satellite.
fn track() -> Vec<([f64; VALUES], Vec<[f64; PROMPT_VALUES]>)> {
    let sky: GnssSignalSimulator = serde_json::from_value(json!({
        "satellites": [{"system": "gps_l1_ca", "prn": 3, "doppler_hz": DOPPLER_HZ,
            "code_phase_chips": CODE_PHASE_CHIPS, "cn0_db_hz": 48}],
        "samples_per_frame": SAMPLES, "seed": 4,
    }))
    .unwrap();
    let sky_ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
    let source = sky.build(&[], &Env::detached("sky")).unwrap();
    let mut source = Harness::new(source, &sky_ports, 2).unwrap();
    let acquired = PortType {
        dtype: Dtype::F64,
        axes: vec![Axis::new("satellite", 1), Axis::new("value", gnss_acquisition::VALUES)],
        ..sky_ports.outputs[0].clone()
    };
    let inputs = vec![sky_ports.outputs[0].clone(), acquired];
    let kind: GnssTracker = serde_json::from_value(json!({"prompts": true})).unwrap();
    let ports = Ports { outputs: kind.outputs(&inputs).unwrap(), inputs };
    let built = kind.build(&ports.inputs, &Env::detached("track")).unwrap();
    let mut tracker = Harness::new(built, &ports, 2).unwrap();
    let found = Acquired {
        system: System::GpsL1Ca,
        prn: 3,
        statistic: 2.0,
        threshold: 1.0,
        doppler_hz: DOPPLER_HZ + 40.0,
        code_phase_chips: CODE_PHASE_CHIPS,
    };
    let mut all = Vec::new();
    for n in 0..FRAMES {
        let timestamp = (n * SAMPLES) as u64;
        Harness::block_on(source.step()).unwrap();
        let frame = source.receive(0).unwrap();
        if MISSING.contains(&n) {
            tracker.send(0, |frame| frame.header_mut().timestamp = timestamp);
        } else {
            tracker.share(0, frame);
        }
        tracker.send(1, |frame| {
            frame.fill_validity(1);
            frame.header_mut().timestamp = timestamp;
            let values = frame.as_mut_slice::<[f64; gnss_acquisition::VALUES]>().unwrap();
            let statistic = if n == 0 { 2.0 } else { 0.0 };
            values[0] = Acquired { statistic, ..found }.values();
        });
        Harness::block_on(tracker.run()).unwrap();
        let rows = tracker.receive(0).unwrap();
        let prompts = tracker.receive(1).unwrap();
        assert_eq!(prompts.header().timestamp, timestamp);
        assert_eq!(prompts.header().validity, rows.header().validity);
        let row = rows.as_slice::<[f64; VALUES]>().unwrap()[0];
        all.push((row, prompts.as_slice::<[f64; PROMPT_VALUES]>().unwrap().to_vec()));
    }
    all
}

#[test]
fn prompt_sums_have_the_number_and_the_end_of_their_period_also_after_a_gap() {
    let mut last = None;
    for (n, (row, slots)) in track().into_iter().enumerate() {
        let used = slots.iter().take_while(|slot| !slot[0].is_nan()).count();
        assert!(slots[used..].iter().flatten().all(|value| value.is_nan()) && used < slots.len());
        if MISSING.contains(&n) {
            assert_eq!(used, 0);
            continue;
        }
        // The first period of the run, and of those after the gap, is not whole.
        assert!((19..=21).contains(&used), "{used} periods");
        for [track, period, end, re, im] in &slots[..used] {
            assert!((track - 1.0).abs() < 1e-9);
            let is_next = last.is_none_or(|last: f64| (period - last - 1.0).abs() < 1e-9);
            let is_after_gap = n == MISSING.end && last.is_some_and(|last| period - last > 59.0);
            assert!(is_next || is_after_gap, "{period} after {last:?}");
            last = Some(*period);
            let chips = period * 1023.0 - CODE_PHASE_CHIPS;
            let expected = chips / System::GpsL1Ca.code_rate_hz(DOPPLER_HZ) * RATE_HZ;
            let error = (n * SAMPLES) as f64 + end - expected;
            // 0.1 chips; the code loop starts 0 chips away.
            assert!(error.abs() < 0.5, "{error} samples");
            // After the pull-in the data are on the real axis.
            assert!(n < 20 || re.abs() > im.abs(), "{re} {im}");
        }
        let newest = slots[used - 1];
        assert!((row[11] - newest[1] - 1.0).abs() < 1e-9, "{row:?}");
        assert_eq!([row[7], row[8]].map(f64::to_bits), [newest[3], newest[4]].map(f64::to_bits));
    }
}

#[test]
fn carrier_phase_and_code_phase_since_the_start_of_the_track_are_continuous() {
    let rows: Vec<[f64; VALUES]> = track().into_iter().map(|(row, _)| row).collect();
    let frame_seconds = SAMPLES as f64 / RATE_HZ;
    for (n, pair) in rows.windows(2).enumerate().skip(30) {
        let turned = pair[1][12] - pair[0][12];
        assert!((turned - DOPPLER_HZ * frame_seconds).abs() < 0.2, "{turned} turns in frame {n}");
        let chips = |row: &[f64; VALUES]| row[11] * 1023.0 + row[5];
        let expected = System::GpsL1Ca.code_rate_hz(DOPPLER_HZ) * frame_seconds;
        assert!((chips(&pair[1]) - chips(&pair[0]) - expected).abs() < 0.1, "frame {n}");
    }
}

#[test]
fn tracker_has_the_output_only_if_it_is_asked_for() {
    let sky: GnssSignalSimulator =
        serde_json::from_value(json!({"satellites": [{"system": "gps_l1_ca", "prn": 3}]})).unwrap();
    let samples = sky.outputs(&[]).unwrap().remove(0);
    let acquired = PortType {
        dtype: Dtype::F64,
        axes: vec![Axis::new("satellite", 4), Axis::new("value", gnss_acquisition::VALUES)],
        ..samples.clone()
    };
    let outputs = |prompts: bool| {
        let kind: GnssTracker = serde_json::from_value(json!({"prompts": prompts})).unwrap();
        kind.outputs(&[samples.clone(), acquired.clone()]).unwrap()
    };
    assert_eq!(outputs(false).len(), 1);
    let lengths: Vec<usize> = outputs(true)[1].axes.iter().map(|axis| axis.len).collect();
    // 20 ms, and one period more for the phase and one for the Doppler shift.
    assert_eq!(lengths, [4, 22, PROMPT_VALUES]);
}

/// A satellite of 2022-01-01 (CDDIS, `brdc0010.22n`).
const NAVIGATION: &str =
    "     2              NAVIGATION DATA                         RINEX VERSION / TYPE
                                                            END OF HEADER
 1 22  1  1  0  0  0.0 0.469126738608D-03-0.100044417195D-10 0.000000000000D+00
    0.390000000000D+02-0.141125000000D+03 0.398838041777D-08-0.624294238235D+00
   -0.736303627491D-05 0.112181392033D-01 0.469572842121D-05 0.515367499542D+04
    0.518400000000D+06-0.316649675369D-07-0.103661124009D+01 0.195577740669D-06
    0.986418769490D+00 0.299750000000D+03 0.884087601569D+00-0.813355308085D-08
   -0.377872882780D-09 0.100000000000D+01 0.219000000000D+04 0.000000000000D+00
    0.200000000000D+01 0.000000000000D+00 0.512227416039D-08 0.390000000000D+02
    0.511218000000D+06 0.400000000000D+01 0.000000000000D+00 0.000000000000D+00
";

#[test]
fn message_and_time_of_a_simulated_orbit_are_decoded_from_prompt_sums() {
    const SLOW_HZ: f64 = 2e6;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), NAVIGATION).unwrap();
    let sent = read_navigation(NAVIGATION).unwrap().ephemerides[0];
    // One second before subframe 1, below the satellite; UTC is 18 s behind GPS time.
    let start = Time::from_gps(2190 * 604_800 + 518_399, 0).unwrap();
    let at = sent.state(start).unwrap();
    let place = Place { height_metres: 0.0, ..Place::from_itrf_metres(at.position) };
    let sky: GnssSignalSimulator = kind(json!({
        "sky": {"navigation": file.path(), "latitude_degrees": place.latitude.to_degrees(),
            "longitude_degrees": place.longitude.to_degrees(), "cn0_db_hz": 45},
        "satellites": [], "adc_sample_rate_hz": SLOW_HZ, "samples_per_frame": 40_000,
        "sync_time_seconds": "2021-12-31T23:59:41Z", "dtype": "ci8",
    }));
    let sky_ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
    let source = sky.build(&[], &Env::detached("sky")).unwrap();
    let mut source = Harness::new(source, &sky_ports, 2).unwrap();
    let search: GnssAcquisition = kind(json!({
        "satellites": [{"system": "gps_l1_ca", "prn": 1}], "max_doppler_hz": 3000, "threads": 1,
        "every_frames": 100_000,
    }));
    let samples = sky_ports.outputs;
    let search_ports =
        Ports { outputs: search.outputs(&samples).unwrap(), inputs: samples.clone() };
    let built = search.build(&samples, &Env::detached("search")).unwrap();
    let mut search = Harness::new(built, &search_ports, 2).unwrap();
    let inputs = vec![samples[0].clone(), search_ports.outputs[0].clone()];
    let tracker: GnssTracker = kind(json!({"prompts": true}));
    let ports = Ports { outputs: tracker.outputs(&inputs).unwrap(), inputs };
    let built = tracker.build(&ports.inputs, &Env::detached("track")).unwrap();
    let mut tracker = Harness::new(built, &ports, 2).unwrap();

    let mut channel = Channel::new(Signal::GpsL1Ca, sent.satellite, 2300);
    let mut decoded = None;
    let mut newest = None;
    for n in 0..20 * 50 {
        Harness::block_on(source.step()).unwrap();
        let frame = source.receive(0).unwrap();
        search.share(0, frame.clone());
        Harness::block_on(search.run()).unwrap();
        tracker.share(0, frame);
        tracker.share(1, search.receive(0).unwrap());
        Harness::block_on(tracker.run()).unwrap();
        drop(tracker.receive(0).unwrap());
        let prompts = tracker.receive(1).unwrap();
        for [_, period, end, re, im] in prompts.as_slice::<[f64; PROMPT_VALUES]>().unwrap() {
            if !period.is_nan() {
                channel.add(*period as u64, [*re, *im]);
                newest = Some((*period as u64, f64::from(n) * 0.02 + end / SLOW_HZ));
            }
        }
        while let Some(found) = channel.take() {
            if let Decoded::Ephemeris(found) = found {
                decoded = Some(*found);
            }
        }
    }
    let found = decoded.unwrap();
    assert_eq!((found.satellite, found.week, found.iode), (sent.satellite, sent.week, sent.iode));
    assert!((found.mean_anomaly - sent.mean_anomaly).abs() < 1e-9);
    assert!((found.af0 - sent.af0).abs() < 3e-10 && (found.sqrt_a - sent.sqrt_a).abs() < 2e-6);
    // The period after the newest one starts where that ends.
    let (period, seconds) = newest.unwrap();
    let received = start.plus_seconds(seconds).unwrap();
    let delay = received.seconds_since(channel.transmission(period + 1).unwrap());
    let expected = sent.arrival(received, place.itrf_metres()).unwrap().delay;
    // 0.1 chips.
    assert!((delay - expected).abs() < 1e-7, "{delay} instead of {expected}");
}
