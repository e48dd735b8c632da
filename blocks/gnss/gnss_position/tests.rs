//! Positions of a simulated sky.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use super::*;
use crate::gnss::gnss_acquisition::GnssAcquisition;
use crate::gnss::gnss_signal_simulator::GnssSignalSimulator;
use crate::gnss::gnss_tracker::GnssTracker;
use fxgraph::edge::Harness;
use fxgraph::{Env, Frame, Ports, Time};
use fxgraph_navigation::ephemeris::time_of_week;
use fxgraph_navigation::nominal::constellation;
use fxgraph_navigation::orbit::{minus, norm};
use fxgraph_navigation::rinex::navigation_file;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const RATE_HZ: f64 = 2.1e6;
const SAMPLES: usize = 42_000;
const NEAR: [f64; 3] = [48.15, 11.58, 560.0];

fn start() -> Time {
    time_of_week(2190, 518_430.25).unwrap()
}

/// Writes the ephemerides of the sky to a file.
fn write_navigation(file: &Path) {
    let navigation = Navigation { ephemerides: constellation(start()), ..Navigation::default() };
    std::fs::write(file, navigation_file("test", &navigation)).unwrap();
}

fn harness(
    kind: &impl KindSpec,
    inputs: &[PortType],
    room: usize,
) -> (Harness, Vec<PortType>, Env) {
    let outputs = kind.outputs(inputs).unwrap_or_else(|rejections| panic!("{rejections:?}"));
    let ports = Ports { inputs: inputs.to_vec(), outputs };
    let env = Env::detached("block");
    let block = kind.build(&ports.inputs, &env).unwrap();
    (Harness::new(block, &ports, room).unwrap(), ports.outputs, env)
}

/// Positions of a receiver, and what it printed.
struct Run {
    values: Vec<[f64; VALUES]>,
    flags: Vec<u32>,
    satellites: Vec<Vec<[f64; SATELLITE_VALUES]>>,
    env: Env,
}

/// Parameters of the simulated sky over [`NEAR`].
fn sky(cn0_db_hz: f64) -> Value {
    let [latitude, longitude, height] = NEAR;
    json!({
        "sky": {"latitude_degrees": latitude, "longitude_degrees": longitude,
            "height_metres": height, "elevation_mask_degrees": 12, "cn0_db_hz": cn0_db_hz, "atmosphere": true},
        "sync_time_seconds": start().to_unix_f64(), "adc_sample_rate_hz": RATE_HZ, "samples_per_frame": SAMPLES,
        "seed": 3, "dtype": "ci8", "noise_rms": 12,
    })
}

/// Simulates the sky and receives it; `position` are parameters of the block.
fn receive(sky: &Value, seconds: f64, position: Value) -> Run {
    receive_with(sky, seconds, position, |_| Arrives::Whole)
}

/// Fate of a frame of the tracker.
enum Arrives {
    Whole,
    /// With validity 0.
    Flagged,
    Never,
}

/// The same; `arrives` tells the fate of a frame.
fn receive_with(
    sky: &Value,
    seconds: f64,
    position: Value,
    arrives: impl Fn(usize) -> Arrives,
) -> Run {
    let frames = (seconds * RATE_HZ / SAMPLES as f64).round() as usize;
    let sky: GnssSignalSimulator = serde_json::from_value(sky.clone()).unwrap();
    let (mut sky, samples, _) = harness(&sky, &[], 2);
    let satellites: Value =
        (1..=30).map(|prn| json!({"system": "gps_l1_ca", "prn": prn})).collect();
    let acquire = json!({"satellites": satellites, "every_frames": 1000, "threads": 1});
    let acquire: GnssAcquisition = serde_json::from_value(acquire).unwrap();
    let (mut acquire, acquired, _) = harness(&acquire, &samples, 2);
    let track: GnssTracker = serde_json::from_value(json!({"prompts": true})).unwrap();
    let inputs = [samples[0].clone(), acquired[0].clone()];
    let (mut track, tracked, _) = harness(&track, &inputs, 2);
    let position: GnssPosition = serde_json::from_value(position).unwrap();
    let (mut position, _, env) = harness(&position, &tracked, 2);
    let mut run = Run { values: vec![], flags: vec![], satellites: vec![], env };
    Harness::block_on(async {
        position.start().await.unwrap();
        for n in 0..frames {
            sky.step().await.unwrap();
            let frame = sky.receive(0).unwrap();
            acquire.share(0, Arc::<Frame>::clone(&frame));
            acquire.run().await.unwrap();
            track.share(0, frame);
            track.share(1, acquire.receive(0).unwrap());
            track.run().await.unwrap();
            let pair = [track.receive(0).unwrap(), track.receive(1).unwrap()];
            let arrives = arrives(n);
            if matches!(arrives, Arrives::Never) {
                continue;
            }
            for (port, frame) in pair.into_iter().enumerate() {
                if matches!(arrives, Arrives::Whole) {
                    position.share(port, frame);
                    continue;
                }
                position.send(port, |copy| {
                    copy.header_mut().continue_from(frame.header());
                    copy.fill_validity(0);
                    let values: &[f64] = frame.as_slice().unwrap();
                    copy.as_mut_slice::<f64>().unwrap().copy_from_slice(values);
                });
            }
            position.run().await.unwrap();
            if let (Some(output), Some(rows)) = (position.receive(0), position.receive(1)) {
                run.values.extend_from_slice(output.as_slice().unwrap());
                run.flags.push(output.header().validity[0]);
                run.satellites.push(rows.as_slice().unwrap().to_vec());
            }
        }
        position.end(0);
        position.end(1);
        position.run().await.unwrap();
    });
    run
}

fn place() -> [f64; 3] {
    let [latitude_degrees, longitude_degrees, height_metres] = NEAR;
    Near { latitude_degrees, longitude_degrees, height_metres }.itrf_metres()
}

fn error_metres(values: &[f64; VALUES]) -> f64 {
    norm(minus([values[1], values[2], values[3]], place()))
}

#[test]
fn code_phases_and_a_file_of_ephemerides_give_a_position_in_seconds() {
    let directory = tempfile::tempdir().unwrap();
    write_navigation(&directory.path().join("sky.rnx"));
    let position = json!({
        "navigation": directory.path().join("sky.rnx"), "interval_seconds": 0.5,
        "near": {"latitude_degrees": 48.5, "longitude_degrees": 11.0}, "time_uncertainty_seconds": 1e-6,
        "observation_file": directory.path().join("receiver.obs"),
    });
    let run = receive(&sky(47.0), 3.0, position);
    assert_eq!(run.values.len(), 6);
    let last = run.values[5];
    println!("{last:?}\n{}", run.env.summary.get());
    assert_eq!((run.flags[5], last[0]), (1, 1.0));
    assert!(error_metres(&last) < 10.0, "{} m", error_metres(&last));
    let used: Vec<_> = run.satellites[5].iter().filter(|row| row[2] > 0.5).collect();
    assert_eq!(used.len(), last[23] as usize);
    assert!(used.iter().all(|row| row[4] > 12.0 && row[7].abs() < 20.0), "{used:?}");
    assert!(run.env.summary.get().contains("first fix  after"));
    // Each position sets the clock, which moves the pseudoranges and not the phases.
    let slips = slips(&std::fs::read_to_string(directory.path().join("receiver.obs")).unwrap());
    let positions = run.flags.iter().filter(|flag| **flag == 1).count();
    assert!(slips.len() == positions && positions > 1, "{slips:?}");
    assert!(slips.iter().flatten().all(|slipped| *slipped), "{slips:?}");
}

/// Whether the phase of each satellite is marked as slipped, for each epoch of an observation file.
fn slips(file: &str) -> Vec<Vec<bool>> {
    let (_, epochs) = file.split_once("END OF HEADER").unwrap();
    let lines =
        |epoch: &str| epoch.lines().skip(1).map(|line| line.as_bytes()[33] & 1 == 1).collect();
    epochs.split("\n>").skip(1).map(lines).collect()
}

/// Runs RTKLIB on our RINEX files; returns the mean error of its positions.
fn rtklib_error_metres(directory: &Path) -> Option<f64> {
    let file = |name: &str| directory.join(name);
    let options = "pos1-posmode =single\npos1-elmask =5\npos1-ionoopt =off\npos1-tropopt =saas\nout-solformat =xyz\n";
    std::fs::write(file("rtklib.conf"), options).unwrap();
    let output = Command::new("rnx2rtkp")
        .arg("-k")
        .arg(file("rtklib.conf"))
        .arg("-o")
        .args([file("solution.pos"), file("receiver.obs"), file("receiver.nav")])
        .output()
        .ok()?;
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(file("solution.pos")).unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    let positions: Vec<[f64; 3]> = text
        .lines()
        .filter(|line| !line.starts_with('%'))
        .map(|line| line.split_whitespace().skip(2).map(number).collect::<Vec<_>>())
        .map(|fields| [fields[0], fields[1], fields[2]])
        .collect();
    assert!(positions.len() >= 10, "{text}");
    let mean = std::array::from_fn(|n| {
        positions.iter().map(|p| p[n]).sum::<f64>() / positions.len() as f64
    });
    Some(norm(minus(mean, place())))
}

#[test]
fn files_are_in_the_directory_of_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let track: GnssTracker = serde_json::from_value(json!({"prompts": true})).unwrap();
    let samples: GnssSignalSimulator = serde_json::from_value(sky(47.0)).unwrap();
    let samples = samples.outputs(&[]).unwrap().remove(0);
    let satellites = json!([{"system": "gps_l1_ca", "prn": 1}]);
    let acquire: GnssAcquisition =
        serde_json::from_value(json!({"satellites": satellites})).unwrap();
    let acquired = acquire.outputs(std::slice::from_ref(&samples)).unwrap().remove(0);
    let inputs = track.outputs(&[samples, acquired]).unwrap();
    let files = json!({"observation_file": "out/a.obs", "navigation_file": "out/a.nav"});
    let position: GnssPosition = serde_json::from_value(files).unwrap();
    let env = Env { output_directory: directory.path().to_owned(), ..Env::detached("block") };
    let mut block = position.build(&inputs, &env).unwrap();
    block.start().unwrap();
    assert!(directory.path().join("out/a.obs").exists());
}

#[test]
fn messages_give_a_position_within_40_seconds_that_rtklib_finds_in_our_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let position = json!({
        "observation_file": file("receiver.obs"), "navigation_file": file("receiver.nav"), "ionosphere": false,
    });
    let frame_at = |seconds: f64| (seconds * RATE_HZ) as usize / SAMPLES;
    let [missing, flagged] = [50.5, 52.5].map(frame_at);
    let arrives = |n| match n {
        n if n == missing => Arrives::Never,
        n if n == flagged => Arrives::Flagged,
        _ => Arrives::Whole,
    };
    let run = receive_with(&sky(48.0), 55.0, position, arrives);
    let first = run.flags.iter().position(|flag| *flag == 1).unwrap();
    println!("first position after {} s\n{}", first + 1, run.env.summary.get());
    assert!(first < 40, "{first}");
    let slips = slips(&std::fs::read_to_string(file("receiver.obs")).unwrap());
    let has_slips = |epoch: &[bool]| epoch.iter().any(|slipped| *slipped);
    let epochs: Vec<_> = (0..slips.len()).filter(|n| has_slips(&slips[*n])).collect();
    // The sky turns slowly: all satellites are there at the first position, again after the missing frame, and after the one
    // whose samples are flagged as missing.
    assert_eq!(epochs, [0, 50 - first, 52 - first], "{slips:?}");
    let after = [50, 52].map(|second| &slips[second - first]);
    assert!(after.into_iter().flatten().all(|slipped| *slipped), "{slips:?}");
    let worst = run.values[first + 5..].iter().map(error_metres).fold(0.0, f64::max);
    println!("largest error {worst:.2} m");
    assert!(worst < 3.0, "{worst} m");
    let last = run.values.last().unwrap();
    assert_eq!((last[0], last[25]), (3.0, 1.0));
    assert!((last[7].hypot(last[8])).hypot(last[9]) < 0.5, "{last:?}");
    let Some(error) = rtklib_error_metres(directory.path()) else {
        println!("skipped: no `rnx2rtkp`, of Debian's `rtklib`");
        return;
    };
    println!("RTKLIB: {error:.2} m");
    assert!(error < 3.0, "{error} m");
}

#[test]
fn sky_of_the_broadcast_file_gives_the_position() {
    let Ok(recordings) = std::env::var("FXGRAPH_RECORDINGS") else {
        println!("skipped: FXGRAPH_RECORDINGS does not name a directory of recordings");
        return;
    };
    let mut sky = sky(47.0);
    sky["sky"]["navigation"] = json!(format!("{recordings}/brdc0010.22n"));
    // The model of the ionosphere is in the message once in 12.5 minutes.
    sky["sky"]["atmosphere"] = json!(false);
    // Half an hour after the reference time of the ephemerides, 3 s before they are sent again.
    sky["sync_time_seconds"] = json!(start().to_unix_f64() + 1797.0);
    let position = json!({"ionosphere": false, "troposphere": false});
    let run = receive(&sky, 40.0, position);
    let first = run.flags.iter().position(|flag| *flag == 1).unwrap();
    println!("first position after {} s\n{}", first + 1, run.env.summary.get());
    assert!(first < 25, "{first}");
    let worst = run.values[first + 5..].iter().map(error_metres).fold(0.0, f64::max);
    println!("largest error {worst:.2} m");
    assert!(worst < 3.0, "{worst} m");
}
