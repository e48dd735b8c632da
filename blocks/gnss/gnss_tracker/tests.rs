//! Loops converge to the signal from wrong initial values.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gnss::gnss_acquisition::Acquired;
use crate::gnss::gnss_signal_simulator::GnssSignalSimulator;
use crate::tests::chain::{Plain, drive, kind};
use fxgraph::edge::Harness;
use fxgraph::frame::Annotations;
use fxgraph::{Env, Ports};
use fxgraph_dsp::gnss::System;
use serde_json::{Value, json};

const RATE_HZ: f64 = 5e6;
const SAMPLES: usize = 100_000;

/// Samples of a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Signal,
    /// Valid samples without a signal, as from a digitiser without an antenna.
    Zeros,
    /// No samples: the frame is flagged.
    Flagged,
}

/// Results of the tracker.
struct Tracked {
    /// Rows of each frame.
    rows: Vec<Vec<[f64; VALUES]>>,
    /// Gauges of the first satellite after each frame: lock, C/N0 and Doppler shift.
    gauges: Vec<[Option<f64>; 3]>,
    /// Satellites dropped.
    dropped: u64,
    table: String,
}

impl Tracked {
    /// Seconds in the row of the first satellite in the table: locked and tracked.
    fn seconds(&self) -> [f64; 2] {
        let row = self.table.lines().nth(2).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        [words[3], words[4]].map(|word| word.parse().unwrap())
    }

    /// Number of frames after which the gauge said that the first satellite is locked.
    fn shown_as_locked(&self) -> usize {
        self.gauges.iter().filter(|gauges| gauges[0] == Some(1.0)).count()
    }
}

/// Returns the rows of each frame of the simulated signal, started from `found`; frames in `lost` have no
/// samples.
fn track(sky: Value, found: &[Acquired], lost: &[usize], frames: usize) -> Vec<Vec<[f64; VALUES]>> {
    let given = |n| if lost.contains(&n) { Given::Flagged } else { Given::Signal };
    follow(sky, found, given, frames).rows
}

/// Tracks the simulated signal in the frames that have it, started from `found`.
fn follow(
    sky: Value,
    found: &[Acquired],
    given: impl Fn(usize) -> Given,
    frames: usize,
) -> Tracked {
    let sky: GnssSignalSimulator = serde_json::from_value(sky).unwrap();
    let sky_ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
    let mut source =
        Harness::new(sky.build(&sky_ports.inputs, &Env::detached("sky")).unwrap(), &sky_ports, 2)
            .unwrap();
    let kind: GnssTracker = serde_json::from_value(json!({})).unwrap();
    let acquired = PortType {
        dtype: Dtype::F64,
        axes: vec![
            Axis::new("satellite", found.len()),
            Axis::new("value", gnss_acquisition::VALUES),
        ],
        ..sky_ports.outputs[0].clone()
    };
    let inputs = vec![sky_ports.outputs[0].clone(), acquired];
    let ports = Ports { outputs: kind.outputs(&inputs).unwrap(), inputs };
    let env = Env::detached("track");
    let mut tracker = Harness::new(kind.build(&ports.inputs, &env).unwrap(), &ports, 2).unwrap();
    let gauge = |name: &str| {
        let all = env.counters.gauges();
        let is_it = |label: &Option<(&str, String)>| {
            label.as_ref().is_some_and(|label| (label.0, label.1.as_str()) == ("satellite", "0"))
        };
        let named = all.iter().find(|named| named.name == name && is_it(&named.label));
        named.unwrap().gauge.get()
    };
    let last_signal = (0..frames).rfind(|n| given(*n) == Given::Signal);
    let (mut rows, mut gauges) = (Vec::new(), Vec::new());
    for n in 0..frames {
        let timestamp = (n * SAMPLES) as u64;
        let simulated = (Some(n) <= last_signal).then(|| {
            Harness::block_on(source.step()).unwrap();
            source.receive(0).unwrap()
        });
        match (given(n), simulated) {
            (Given::Signal, frame) => {
                let frame = frame.unwrap();
                assert_eq!(frame.header().timestamp, timestamp);
                tracker.share(0, frame);
            }
            (Given::Zeros, _) => {
                tracker.send(0, |frame| {
                    frame.fill_validity(1);
                    frame.header_mut().timestamp = timestamp;
                    frame.as_mut_slice::<u8>().unwrap().fill(0);
                });
            }
            (Given::Flagged, _) => {
                tracker.send(0, |frame| frame.header_mut().timestamp = timestamp);
            }
        }
        tracker.send(1, |frame| {
            frame.fill_validity(1);
            frame.header_mut().timestamp = timestamp;
            let values = frame.as_mut_slice::<[f64; gnss_acquisition::VALUES]>().unwrap();
            for (value, found) in values.iter_mut().zip(found) {
                let statistic = if n == 0 { 2.0 } else { 0.0 };
                *value = Acquired { statistic, ..*found }.values();
            }
        });
        Harness::block_on(tracker.run()).unwrap();
        rows.push(tracker.receive(0).unwrap().as_slice::<[f64; VALUES]>().unwrap().to_vec());
        gauges.push(["satellite_locked", "cn0_db_hz", "doppler_hz"].map(gauge));
    }
    tracker.end(0);
    tracker.end(1);
    Harness::block_on(tracker.run()).unwrap();
    let dropped = env.counters.list();
    let dropped = dropped.iter().find(|named| named.name == "satellites_lost").unwrap();
    Tracked { rows, gauges, dropped: dropped.counter.get(), table: env.summary.get() }
}

/// One strong satellite, and how it was found.
fn strong() -> (Value, [Acquired; 1]) {
    let sky = json!({
        "satellites": [{"system": "gps_l1_ca", "prn": 3, "doppler_hz": 700, "code_phase_chips": 9.5, "cn0_db_hz": 48}],
        "samples_per_frame": SAMPLES, "seed": 4,
    });
    (sky, [acquired(System::GpsL1Ca, 3, 705.0, 9.5)])
}

fn acquired(system: System, prn: usize, doppler_hz: f64, code_phase_chips: f64) -> Acquired {
    Acquired { system, prn, statistic: 2.0, threshold: 1.0, doppler_hz, code_phase_chips }
}

/// Returns the distance of two phases in a cycle of `length`.
fn apart(a: f64, b: f64, length: f64) -> f64 {
    (a - b + length / 2.0).rem_euclid(length) - length / 2.0
}

#[test]
fn loops_converge_within_2000_periods() {
    let cases = [
        (System::GpsL1Ca, 12, 1500.0, 400.6, 45.0, 0.25, 40.0, 2000, RATE_HZ),
        (System::GalileoE1b, 30, -2750.0, 3000.1, 45.0, 0.1, 10.0, 2000, RATE_HZ),
        // Periods of 10 and 20 ms, secondary codes, and chips with an empty half.
        (System::GalileoE1c, 30, -2750.0, 3000.1, 45.0, 0.05, 10.0, 500, RATE_HZ),
        (System::GpsL1cP, 4, 3100.0, 9000.1, 45.0, 0.05, 10.0, 200, RATE_HZ),
        (System::GpsL2cM, 17, -1800.0, 20.1, 45.0, 0.1, 6.0, 100, RATE_HZ),
        (System::BeidouB1cD, 34, 500.0, 10_229.9, 45.0, 0.05, 10.0, 200, RATE_HZ),
        (System::GpsL5Q, 9, -2100.0, 5000.0, 47.0, 0.2, 40.0, 1000, 20e6),
    ];
    for (system, prn, doppler_hz, phase, cn0, off_chips, off_hz, periods, rate_hz) in cases {
        let frames = (f64::from(periods) * system.period_seconds() * rate_hz) as usize / SAMPLES;
        let sky = json!({
            "satellites": [{"system": system.name(), "prn": prn, "doppler_hz": doppler_hz, "code_phase_chips": phase,
                "cn0_db_hz": cn0, "carrier_turns": 0.3}],
            "samples_per_frame": SAMPLES, "adc_sample_rate_hz": rate_hz, "seed": 4,
        });
        let found = acquired(system, prn, doppler_hz + off_hz, phase + off_chips);
        let rows = track(sky, &[found], &[], frames);
        let settled = &rows[frames / 2..];
        let mut worst = [0.0_f64; 3];
        for (n, row) in settled.iter().enumerate() {
            let row = row[0];
            assert_eq!(row[..3], [system.number() as f64, prn as f64, 1.0]);
            let seconds = ((frames / 2 + n + 1) * SAMPLES) as f64 / rate_hz;
            let code = phase + system.code_rate_hz(doppler_hz) * seconds;
            let errors = [
                apart(row[5], code, system.chips() as f64),
                row[4] - doppler_hz,
                // The sign of the data is not known.
                apart(row[6], 0.3 + doppler_hz * seconds, 0.5),
            ];
            for (worst, error) in worst.iter_mut().zip(errors) {
                *worst = worst.max(error.abs());
            }
        }
        let [chips, hz, turns] = worst;
        let last = rows[frames - 1][0];
        assert!(chips < 0.05 && hz < 5.0 && turns < 0.08, "{system:?}: {worst:?}");
        assert!((last[3] - cn0).abs() < 1.5, "{system:?}: {} dB Hz", last[3]);
        assert!((last[9] - f64::from(periods)).abs() <= 2.0, "{}", last[9]);
    }
}

#[test]
fn absent_satellite_is_dropped_and_missing_frames_are_bridged() {
    let sky = json!({
        "satellites": [{"system": "gps_l1_ca", "prn": 3, "doppler_hz": 700, "code_phase_chips": 9.5, "cn0_db_hz": 48}],
        "samples_per_frame": SAMPLES, "seed": 4,
    });
    let found = [acquired(System::GpsL1Ca, 3, 705.0, 9.5), acquired(System::GpsL1Ca, 4, 0.0, 0.0)];
    let rows = track(sky, &found, &[40, 41], 60);
    assert!((rows[10][1][1] - 4.0).abs() < 1e-9);
    assert!(rows[59][1].iter().all(|value| *value == 0.0));
    let row = rows[59][0];
    assert!(row[2] > 0.5);
    let expected = 9.5 + System::GpsL1Ca.code_rate_hz(700.0) * 60.0 * SAMPLES as f64 / RATE_HZ;
    assert!(apart(row[5], expected, 1023.0).abs() < 0.05);
}

#[test]
fn zeros_after_a_lock_drop_the_satellite() {
    // 0.8 s of signal, then 2 s without an antenna.
    let (sky, found) = strong();
    let given = |n| if n < 40 { Given::Signal } else { Given::Zeros };
    let tracked = follow(sky, &found, given, 140);
    assert!(tracked.rows[39][0][2] > 0.5);
    let [locked, cn0_db_hz, doppler_hz] = tracked.gauges[39];
    assert_eq!(locked, Some(1.0));
    assert!((cn0_db_hz.unwrap() - 48.0).abs() < 2.0, "{cn0_db_hz:?}");
    assert!((doppler_hz.unwrap() - 700.0).abs() < 5.0, "{doppler_hz:?}");
    // A second later.
    assert!(tracked.rows[90][0].iter().all(|value| *value == 0.0), "{:?}", tracked.rows[90][0]);
    assert!(tracked.gauges[90..].iter().all(|gauges| *gauges == [Some(0.0), None, None]));
    assert_eq!(tracked.dropped, 1);
    assert!(tracked.table.starts_with("0 of 1 satellites locked"), "{}", tracked.table);
    let [locked, followed] = tracked.seconds();
    assert!(locked > 0.3 && locked < 0.8 + 0.5, "{}", tracked.table);
    assert!(followed > locked && followed < 0.8 + 1.0, "{}", tracked.table);
    assert!((locked - 0.02 * tracked.shown_as_locked() as f64).abs() < 1e-9, "{}", tracked.table);
}

#[test]
fn flagged_frames_do_not_count_as_locked_and_drop_the_satellite_after_5_seconds() {
    let (sky, found) = strong();
    let given = |n| if n < 40 { Given::Signal } else { Given::Flagged };
    let tracked = follow(sky, &found, given, 300);
    let before = tracked.gauges[39];
    assert_eq!(before[0], Some(1.0));
    assert!(tracked.gauges[40..290].iter().all(|gauges| *gauges == before));
    assert!(tracked.gauges[290..].iter().all(|gauges| *gauges == [Some(0.0), None, None]));
    assert!(tracked.rows[299][0].iter().all(|value| *value == 0.0));
    assert_eq!(tracked.dropped, 1);
    assert!(tracked.table.starts_with("0 of 1 satellites locked"), "{}", tracked.table);
    let [locked, followed] = tracked.seconds();
    let of_signal = tracked.rows[..40].iter().filter(|rows| rows[0][2] > 0.5).count();
    assert!(of_signal > 20, "{of_signal} frames");
    assert!((locked - 0.02 * of_signal as f64).abs() < 1e-9, "{}", tracked.table);
    assert!((followed - 0.02 * 290.0).abs() < 1e-9, "{}", tracked.table);
}

#[test]
fn gap_of_2_seconds_keeps_the_lock() {
    let (sky, found) = strong();
    let given = |n| if (40..140).contains(&n) { Given::Flagged } else { Given::Signal };
    let tracked = follow(sky, &found, given, 180);
    assert!(tracked.gauges[40..].iter().all(|gauges| gauges[0] == Some(1.0)));
    assert_eq!(tracked.dropped, 0);
    let row = tracked.rows[179][0];
    let expected = 9.5 + System::GpsL1Ca.code_rate_hz(700.0) * 180.0 * SAMPLES as f64 / RATE_HZ;
    assert!(row[2] > 0.5 && apart(row[5], expected, 1023.0).abs() < 0.05, "{row:?}");
    let [locked, followed] = tracked.seconds();
    let shown = 0.02 * (tracked.shown_as_locked() - 100) as f64;
    assert!((locked - shown).abs() < 1e-9 && followed > 3.59, "{}", tracked.table);
}

#[test]
fn tracking_continues_without_acquisition_and_ends_when_time_goes_back() {
    let sky: GnssSignalSimulator =
        serde_json::from_value(json!({"satellites": [{"system": "gps_l1_ca", "prn": 3}]})).unwrap();
    let samples = sky.outputs(&[]).unwrap().remove(0);
    let acquired_port = PortType {
        dtype: Dtype::F64,
        axes: vec![Axis::new("satellite", 1), Axis::new("value", gnss_acquisition::VALUES)],
        ..samples.clone()
    };
    let found = acquired(System::GpsL1Ca, 3, 0.0, 0.0);
    let frame = |n: u64, payload: Vec<u8>| Plain {
        timestamp: n * SAMPLES as u64,
        validity: vec![1],
        annotations: Annotations::default(),
        payload,
    };
    let searched = |n: u64| {
        let statistic = if n == 2 { 2.0 } else { 0.0 };
        frame(n, bytemuck::cast_slice(&Acquired { statistic, ..found }.values()).to_vec())
    };
    // The acquisition skipped frame 1; after frame 3 the timestamp goes back.
    let frames = vec![
        [0, 1, 2, 3, 1].map(|n| frame(n, vec![0; samples.frame_bytes()])).to_vec(),
        [0, 2, 3, 1].map(searched).to_vec(),
    ];
    let out = drive(&kind::<GnssTracker>(json!({})), &[samples, acquired_port], frames);
    let satellites: Vec<f64> =
        out.frames.iter().map(|frame| frame.values::<[f64; VALUES]>()[0][1]).collect();
    assert_eq!(satellites, [0.0, 0.0, 3.0, 3.0, 0.0]);
    assert_eq!(["satellites_begun", "satellites_lost"].map(|name| out.count(name)), [1, 1]);
}

#[test]
fn gnss_tracker_rejects_invalid_inputs_and_parameters() {
    let sky: GnssSignalSimulator =
        serde_json::from_value(json!({"satellites": [{"system": "gps_l1_ca", "prn": 3}]})).unwrap();
    let samples = sky.outputs(&[]).unwrap().remove(0);
    let kind: GnssTracker = serde_json::from_value(
        json!({"code_bandwidth_hz": 0, "carrier_bandwidth_hz": 1e3, "intermediate_hz": 3e6}),
    )
    .unwrap();
    let rejections = kind.outputs(&[samples.clone(), samples]).unwrap_err();
    assert_eq!(rejections.len(), 5, "{rejections:?}");
}
