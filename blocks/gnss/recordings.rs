//! Real recordings, from the directory `FXGRAPH_RECORDINGS`: satellites are found and tracked as an independent search
//! finds them.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use super::gnss_acquisition::{self, Acquired, GnssAcquisition};
use super::gnss_tracker::{self, GnssTracker};
use crate::io::file_source::FileSource;
use fxgraph::edge::Harness;
use fxgraph::{Env, Frame, KindSpec, PortType, Ports};
use serde_json::{Value, json};
use std::sync::Arc;

type Found = Vec<[f64; gnss_acquisition::VALUES]>;
type Tracked = Vec<[f64; gnss_tracker::VALUES]>;

/// Returns the directory of the recordings; explains why the test is skipped if there is none.
fn directory() -> Option<String> {
    let directory = std::env::var("FXGRAPH_RECORDINGS").ok();
    if directory.is_none() {
        println!("skipped: FXGRAPH_RECORDINGS does not name a directory of recordings");
    }
    directory
}

/// Returns a block of `kind` for these inputs.
fn harness(kind: &impl KindSpec, inputs: &[PortType], room: usize) -> (Harness, PortType) {
    let outputs = kind.outputs(inputs).unwrap_or_else(|rejections| panic!("{rejections:?}"));
    let output = outputs[0].clone();
    let ports = Ports { inputs: inputs.to_vec(), outputs };
    let block = kind.build(&ports.inputs, &Env::detached("block")).unwrap();
    (Harness::new(block, &ports, room).unwrap(), output)
}

/// Plays a raw file; searches its first frame for `satellites` and tracks them; returns what was found, and the rows of
/// the last frame.
fn receive(path: &str, raw: Value, frames: usize, satellites: &Value) -> (Found, Tracked) {
    let file: FileSource = serde_json::from_value(json!({"path": path, "raw": raw})).unwrap();
    let (mut source, samples) = harness(&file, &[], frames + 1);
    Harness::block_on(async {
        source.start().await.unwrap();
        source.run().await.unwrap();
    });
    let acquire = json!({"satellites": satellites, "every_frames": 1000, "threads": 1});
    let acquire: GnssAcquisition = serde_json::from_value(acquire).unwrap();
    let (mut acquire, acquired) = harness(&acquire, std::slice::from_ref(&samples), frames + 1);
    let track: GnssTracker = serde_json::from_value(json!({})).unwrap();
    let (mut track, _) = harness(&track, &[samples, acquired], frames + 1);
    for frame in std::iter::from_fn(|| source.receive(0)).take(frames) {
        acquire.share(0, Arc::<Frame>::clone(&frame));
        track.share(0, frame);
    }
    acquire.end(0);
    Harness::block_on(acquire.run()).unwrap();
    let mut found = Vec::new();
    while let Some(frame) = acquire.receive(0) {
        if found.is_empty() {
            found = frame.as_slice().unwrap().to_vec();
        }
        track.share(1, frame);
    }
    track.end(0);
    track.end(1);
    Harness::block_on(track.run()).unwrap();
    let last = std::iter::from_fn(|| track.receive(0)).last().unwrap();
    (found, last.as_slice().unwrap().to_vec())
}

fn gps(prns: impl IntoIterator<Item = usize>) -> Value {
    prns.into_iter().map(|prn| json!({"system": "gps_l1_ca", "prn": prn})).collect()
}

fn names(found: &Found) -> Vec<usize> {
    let found = found.iter().filter_map(|row| Acquired::found(*row));
    found.map(|acquired| acquired.prn).collect()
}

const BAND_4MSPS: &str = r#"{"channels": 1, "centre_hz": 1575.42e6, "bandwidth_hz": -4e6}"#;

/// A raw file of 4 MS/s with an inverted spectrum, in frames of 20 ms.
fn raw_4msps() -> Value {
    let band: Value = serde_json::from_str(BAND_4MSPS).unwrap();
    json!({
        "dtype": "ci8", "axes": [{"name": "sample", "len": 80_000}], "samples_per_frame": 80_000,
        "adc_sample_rate_hz": 4e6, "band": band,
    })
}

#[test]
fn gps_satellites_of_the_4msps_recording_are_found_and_locked() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l1_4msps_iq.i8");
    let (found, tracked) = receive(&path, raw_4msps(), 25, &gps(1..=32));
    println!("found {:?}", names(&found));
    for row in tracked.iter().filter(|row| row[1] > 0.0) {
        println!(
            "G{:02}: locked {}, C/N0 {:.1}, Doppler shift {:.1} Hz",
            row[1], row[2], row[3], row[4]
        );
    }
    let is_there = |prn: &usize| [4, 16, 18, 25, 26, 29, 31, 32].contains(prn);
    assert!(names(&found).iter().all(is_there) && names(&found).len() >= 7);
    // Satellites by C/N0, from an independent search.
    let expected = [48.0, 46.7, 45.2, 44.1, 40.9, 38.3, 36.0];
    let mut locked: Vec<f64> =
        tracked.iter().filter(|row| row[2] > 0.5).map(|row| row[3]).collect();
    locked.sort_by(|a, b| b.total_cmp(a));
    assert!(locked.len() >= expected.len(), "{locked:?}");
    for (locked, expected) in locked.iter().zip(expected) {
        assert!((locked - expected).abs() < 0.5, "{locked} {expected}");
    }
}

#[test]
fn qzss_satellites_of_the_4msps_recording_are_found_and_locked() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l1_4msps_iq.i8");
    let satellites: Value =
        (193..=202).map(|prn| json!({"system": "qzss_l1_ca", "prn": prn})).collect();
    let (found, tracked) = receive(&path, raw_4msps(), 25, &satellites);
    assert_eq!(names(&found), [193, 194, 195, 199]);
    for row in tracked.iter().filter(|row| row[1] > 0.0) {
        println!(
            "J{}: locked {}, C/N0 {:.1}, Doppler shift {:.1} Hz",
            row[1], row[2], row[3], row[4]
        );
    }
    assert!(tracked.iter().filter(|row| row[2] > 0.5).count() >= 3, "{tracked:?}");
}

#[test]
fn galileo_satellites_of_the_4msps_recording_are_found() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l1_4msps_iq.i8");
    let satellites: Value = [7, 15, 20, 21, 27, 30, 2, 12]
        .into_iter()
        .map(|prn| json!({"system": "galileo_e1b", "prn": prn}))
        .collect();
    let (found, tracked) = receive(&path, raw_4msps(), 25, &satellites);
    for row in tracked.iter().filter(|row| row[1] > 0.0) {
        println!(
            "E{:02}: locked {}, C/N0 {:.1}, Doppler shift {:.1} Hz",
            row[1], row[2], row[3], row[4]
        );
    }
    assert_eq!(names(&found), [7, 15, 20, 21, 27, 30]);
    assert!(tracked.iter().filter(|row| row[2] > 0.5).count() >= 4);
}

/// Checks C/N0 of the first satellites. That of 240 sums of 1 ms is uncertain by 0.4 to 0.6 dB above 36 dB Hz, and by 1.0 dB
/// at 32 dB Hz.
fn assert_near(expected: &[(usize, f64)], tracked: &Tracked) {
    let rows = expected.iter().zip(tracked);
    let apart: Vec<_> =
        rows.map(|((prn, cn0_db_hz), row)| (*prn, *cn0_db_hz, row[3] - cn0_db_hz)).collect();
    println!("satellite, C/N0, measured minus that: {apart:.1?}");
    let mean = apart.iter().map(|(_, _, apart)| apart).sum::<f64>() / apart.len() as f64;
    let is_near = |(_, cn0_db_hz, apart): &(usize, f64, f64)| {
        apart.abs() < if *cn0_db_hz > 36.0 { 1.0 } else { 2.0 }
    };
    assert!(mean.abs() < 0.5 && apart.iter().all(is_near), "{apart:?}");
}

/// Satellites of GPS L2C in the recording of 0.5 s, with C/N0 in dB Hz, found by `recordings.py`.
const L2C: [(usize, f64); 8] =
    [(3, 32.0), (4, 36.1), (18, 41.6), (25, 37.2), (26, 48.6), (29, 42.2), (31, 46.9), (32, 34.4)];

#[test]
fn l2c_satellites_of_the_recording_are_found_and_tracked() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l2_4msps_iq.i8");
    // Frames of 60 ms: two periods of the code are added.
    let raw = json!({
        "dtype": "ci8", "axes": [{"name": "sample", "len": 240_000}], "samples_per_frame": 240_000,
        "adc_sample_rate_hz": 4e6,
        "band": {"channels": 1, "centre_hz": 1227.6e6, "bandwidth_hz": -4e6},
    });
    // Two that the search does not find.
    let searched = L2C.iter().map(|(prn, _)| *prn).chain([9, 10]);
    let satellites: Value =
        searched.map(|prn| json!({"system": "gps_l2c_m", "prn": prn})).collect();
    let (found, tracked) = receive(&path, raw, 8, &satellites);
    println!("found {:?}", names(&found));
    for row in tracked.iter().filter(|row| row[1] > 0.0) {
        println!(
            "G{:02} L2CM: locked {}, C/N0 {:.1}, Doppler shift {:.1} Hz",
            row[1], row[2], row[3], row[4]
        );
    }
    assert_eq!(names(&found), L2C.map(|(prn, _)| prn));
    assert_near(&L2C, &tracked);
    assert!(tracked.iter().filter(|row| row[2] > 0.5).count() >= 7);
}

/// Satellites of Galileo E1-C in the recording of L1, with C/N0 in dB Hz, found by `recordings.py`.
const E1C: [(usize, f64); 6] =
    [(7, 41.0), (15, 39.3), (20, 35.0), (21, 35.8), (27, 46.4), (30, 42.8)];

#[test]
fn pilots_of_the_4msps_recording_are_found_and_tracked() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l1_4msps_iq.i8");
    let mut raw = raw_4msps();
    // Frames of 40 ms, because the code of L1C has 10 ms.
    raw["axes"][0]["len"] = json!(160_000);
    raw["samples_per_frame"] = json!(160_000);
    // Galileo 2 is not there, GPS 4 and 18 are the ones that transmit L1C.
    let galileo = E1C.iter().map(|(prn, _)| *prn).chain([2]);
    let galileo = galileo.map(|prn| json!({"system": "galileo_e1c", "prn": prn}));
    let gps = [4, 18].map(|prn| json!({"system": "gps_l1c_p", "prn": prn}));
    let (found, tracked) = receive(&path, raw, 12, &galileo.chain(gps).collect());
    assert_eq!(names(&found), [7, 15, 20, 21, 27, 30, 4, 18]);
    assert!(tracked.iter().filter(|row| row[2] > 0.5).count() >= 7, "{tracked:?}");
    assert_near(&E1C, &tracked);
}

#[test]
fn satellites_of_the_real_recording_are_found() {
    let Some(directory) = directory() else { return };
    let path = format!("{directory}/gnss_l1_12msps_real.i8");
    let raw = json!({
        "dtype": "i8", "axes": [{"name": "sample", "len": 240_000}], "samples_per_frame": 240_000,
        "adc_sample_rate_hz": 12e6,
        // The carrier is at 3.0 MHz in the band from 0 to 6 MHz.
        "band": {"channels": 1, "centre_hz": 1575.42e6, "bandwidth_hz": 6e6},
    });
    let (found, _) = receive(&path, raw, 5, &gps(1..=32));
    for row in found.iter().filter_map(|row| Acquired::found(*row)) {
        println!("G{:02}: {:.2}, Doppler shift {:.0} Hz", row.prn, row.statistic, row.doppler_hz);
    }
    let count = names(&found).len();
    assert!((8..=11).contains(&count), "{:?}", names(&found));
}
