//! VDIF against baseband.

use super::{needs, run_flowgraph, script};
use std::path::Path;

/// Input of the writers: the same samples as a NumPy array, and as VDIF.
const WRITTEN: &str = "flowgraph: written
blocks:
  source:
    kind: null_source
    parameters:
      dtype: DTYPE
      axes: [{name: pol, len: 2}, {name: sample, len: 4000}]
      validity_axes: [{name: pol, len: 2}, {name: sample, len: 4}]
      samples_per_frame: 8000
      adc_sample_rate_hz: 8.0e+6
      sync_time_seconds: 1790000000
      # 3996 samples before a second.
      first_timestamp: 7992008
      frames: 20
      missing_every: MISSING
      pattern: random
  vdif: {kind: vdif_sink, input: source, parameters: {path: written.vdif, station: Fx, PARAMETERS}}
  samples: {kind: file_sink, input: source, parameters: {path: written.npy}}
";

fn write_and_compare(dtype: &str, missing: u32, parameters: &str) {
    let directory = tempfile::tempdir().unwrap();
    let yaml = WRITTEN.replace("DTYPE", dtype).replace("PARAMETERS", parameters);
    run_flowgraph(directory.path(), &yaml.replace("MISSING", &missing.to_string()));
    let said = script(directory.path(), "vdif.py", &["compare", parameters]);
    assert!(said.contains("equal"), "{said}");
}

#[test]
fn baseband_reads_files_of_vdif_sink_of_every_width() {
    if !needs::formats() {
        return;
    }
    for (dtype, bits) in
        [("f32", 1), ("f32", 2), ("cf32", 2), ("f32", 4), ("cf32", 4), ("cf32", 8), ("ci8", 8)]
    {
        write_and_compare(dtype, 1_000_000, &format!("bits: {bits}, payload_bytes: 4000"));
    }
}

#[test]
fn baseband_reads_missing_samples_as_invalid_frames() {
    if !needs::formats() {
        return;
    }
    write_and_compare("cf32", 7, "bits: 8, payload_bytes: 1000");
}

#[test]
fn baseband_reads_legacy_headers_and_channels_of_one_thread() {
    if !needs::formats() {
        return;
    }
    write_and_compare("f32", 1_000_000, "bits: 4, payload_bytes: 1000, header: legacy");
    write_and_compare("cf32", 1_000_000, "bits: 8, payload_bytes: 4000, channels: true");
    write_and_compare("f32", 1_000_000, "bits: 2, payload_bytes: 1000, header: edv0");
}

const PLAYED: &str = "flowgraph: played
blocks:
  source: {kind: vdif_source, parameters: {path: baseband.vdif, PARAMETERS}}
  samples: {kind: file_sink, input: source, parameters: {path: played.npy}}
";

/// Plays a file that baseband wrote with these arguments, and compares the samples.
fn play_and_compare(directory: &Path, arguments: [&str; 5], parameters: &str) {
    script(directory, "vdif.py", &[&["write"], &arguments[..]].concat());
    run_flowgraph(directory, &PLAYED.replace("PARAMETERS", parameters));
    let said = script(directory, "vdif.py", &["played"]);
    assert!(said.contains("equal"), "{said}");
    for name in ["played.npy", "played.npy.json"] {
        std::fs::remove_file(directory.join(name)).unwrap();
    }
}

#[test]
fn vdif_source_plays_files_of_baseband() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // EDV, bits, real or complex, threads, channels.
    for arguments in [
        ["1", "2", "real", "2", "1"],
        ["3", "2", "real", "1", "1"],
        ["1", "1", "real", "1", "4"],
        ["1", "4", "complex", "2", "2"],
        ["1", "8", "complex", "1", "1"],
    ] {
        play_and_compare(directory.path(), arguments, "vdif_frames: 3");
    }
    for edv in ["0", "legacy"] {
        let arguments = [edv, "2", "complex", "2", "1"];
        play_and_compare(directory.path(), arguments, "sample_rate_hz: 32.0e+6, vdif_frames: 4");
    }
}
