//! Baseline vectors of real telescopes: of the places, times and phase centres that their files state, `uvh5_sink` makes
//! those that their own software wrote.

use super::{needs, run_flowgraph, script};
use serde_json::{Value, json};
use std::path::Path;

/// Writes visibilities of the array of `recording` at its times, and compares their baseline vectors, which may differ by
/// `metres`: other software leaves out corrections that are smaller than that.
fn compare(recording: &str, metres: f64) {
    let Ok(recordings) = std::env::var("FXGRAPH_RECORDINGS") else {
        println!("skipped: FXGRAPH_RECORDINGS does not name a directory of recordings");
        return;
    };
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let recording = Path::new(&recordings).join(recording);
    let recording = recording.to_str().unwrap();
    let array = script(directory, "arrays.py", &["describe", recording]);
    let array: Value = serde_json::from_str(&array).unwrap();
    let antennas = array["antennas"].as_array().unwrap();
    let baselines = antennas.len() * (antennas.len() + 1) / 2;
    let mut sink = json!({
        "path": "array.uvh5",
        "telescope": array["telescope"],
        "antennas": antennas,
        "ut1_utc_seconds": array["ut1_utc_seconds"],
    });
    if array["centre"].is_object() {
        sink["phase_centre"] = array["centre"].clone();
    }
    let source = json!({
        "dtype": "ci32",
        "axes": [
            {"name": "channel", "len": 1},
            {"name": "baseline", "len": baselines},
            {"name": "product", "len": 4},
        ],
        "validity_axes": [],
        "samples_per_frame": array["step_microseconds"],
        "adc_sample_rate_hz": 1e6,
        "sync_time_seconds": array["sync_time_seconds"],
        "frames": array["dumps"],
        "band": {"channels": 1, "centre_hz": 150e6, "bandwidth_hz": 1e5},
    });
    run_flowgraph(
        directory,
        &format!(
            "flowgraph: array\nblocks:\n  x: {{kind: null_source, parameters: {source}}}\n  \
             vis: {{kind: uvh5_sink, input: x, parameters: {sink}}}\n"
        ),
    );
    let metres = metres.to_string();
    print!("{}", script(directory, "arrays.py", &["compare", recording, "array.uvh5", &metres]));
}

#[test]
fn mwa_has_its_baseline_vectors() {
    compare("mwa_1133866760.uvfits", 0.05);
}

#[test]
fn hera_has_its_baseline_vectors() {
    compare("hera_downselected.uvh5", 1e-6);
}

#[test]
fn lwa_has_its_baseline_vectors() {
    compare("lwa_downselected.ms.tar.gz", 0.001);
}
