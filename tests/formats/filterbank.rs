//! Filterbank files against blimpy and your.

use super::{fxgraph, needs, run_flowgraph, script};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Detected spectra of random voltages, in sums of two.
fn stokes(frames: &str, missing_every: &str, sinks: &str) -> String {
    format!(
        "flowgraph: stokes
blocks:
  source:
    kind: null_source
    parameters:
      dtype: cf32
      axes: [{{name: pol, len: 2}}, {{name: spectrum, len: 64}}, {{name: channel, len: 32}}]
      validity_axes: [{{name: pol, len: 2}}, {{name: spectrum, len: 64}}]
      samples_per_frame: 4096
      adc_sample_rate_hz: 64.0e+6
      sync_time_seconds: 1700000000.25
      first_timestamp: 8000000
      pattern: random
      band: {{channels: 32, centre_hz: 1.4e+9, bandwidth_hz: -3.2e+7}}
      {frames}
      {missing_every}
  detect: {{kind: detect, input: source, parameters: {{spectra: 2}}}}
{sinks}"
    )
}

#[test]
fn stokes_parameters_are_read_by_blimpy_and_your() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sinks = "  stokes:
    kind: filterbank_sink
    input: detect
    parameters:
      {path: stokes.fil, source_name: B0531+21, telescope_id: 64, right_ascension: '05:34:31.97', declination: '-22:00:52.1'}
  stokes8:
    kind: filterbank_sink
    input: detect
    parameters: {path: stokes8.fil, bits: 8, scale: 60, offset: 100}
  recording: {kind: file_sink, input: detect, parameters: {path: stokes.npz}}
";
    // Every fifth spectrum of a polarisation is missing: all spectra of some sums, and parts of others.
    run_flowgraph(directory.path(), &stokes("frames: 9", "missing_every: 5", sinks));
    script(directory.path(), "filterbank.py", &["check"]);
}

#[test]
fn beams_of_the_frb_beamformer_are_read_by_blimpy_and_your() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let yaml = "flowgraph: beams
blocks:
  source:
    kind: null_source
    parameters:
      dtype: ci4
      axes: [{name: spectrum, len: 16}, {name: channel, len: 2}, {name: pol, len: 2}, {name: east_west, len: 1}, {name: north_south, len: 8}]
      samples_per_frame: 64
      adc_sample_rate_hz: 1.0e+6
      frames: 5
      pattern: random
      band: {channels: 2, centre_hz: 6.0e+8, bandwidth_hz: 2.0e+6}
  beams:
    kind: frb_beamformer
    device: cpu
    input: source
    parameters: {upchannelise: 4, north_south: {points: 8}, integrate: {channels: 2, spectra: 2}}
  files: {kind: filterbank_sink, input: beams, parameters: {path: 'beam_{beam}.fil'}}
  recording: {kind: file_sink, input: beams, parameters: {path: beams.npz}}
";
    run_flowgraph(directory.path(), yaml);
    script(directory.path(), "filterbank.py", &["beams"]);
}

#[test]
fn powers_and_stokes_parameters_of_tied_array_beams_are_those_of_the_voltages() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let places = "[[0, 0, 0], [40, 10, 0], [-35, 22, 1], [8, -60, 0.5], [17, 31, -2]]";
    let towards = r#""towards": {"azimuth_degrees": 37, "elevation_degrees": 62}"#;
    let beams = format!(
        r#"[
        {{"pol": 0, "weights": [0.2, -0.1, 0.3, 0.15, 0.25], "phases_radians": [0, 1, -2, 0.5, 3], "delays_seconds": [0, 1.0e-8, -2.5e-8, 4.0e-8, 7.0e-9]}},
        {{"pol": 1, "gain": 0.15, "phases_radians": 0.7}},
        {{"pol": 0, "gain": 0.2, {towards}}},
        {{"pol": 1, "gain": 0.3, {towards}}}]"#
    );
    let yaml = format!(
        "flowgraph: tied
blocks:
  array:
    kind: null_source
    parameters:
      dtype: ci8
      axes: [{{name: heap, len: 2}}, {{name: antenna, len: 5}}, {{name: channel, len: 8}}, {{name: spectrum, len: 32}}, {{name: pol, len: 2}}]
      validity_axes: [{{name: heap, len: 2}}, {{name: antenna, len: 5}}]
      samples_per_frame: 1024
      adc_sample_rate_hz: 16.0e+6
      sync_time_seconds: 1700000000
      frames: 6
      missing_every: 4
      pattern: random
      band: {{channels: 8, centre_hz: 1.4e+9, bandwidth_hz: 8.0e+6}}
  beams:
    kind: beamformer
    input: array
    parameters: {{dither: none, antennas_enu_metres: {places}, beams: {beams}}}
  power: {{kind: detect, input: beams, parameters: {{products: power, spectra: 4}}}}
  stokes: {{kind: detect, input: beams, parameters: {{products: stokes, spectra: 4}}}}
  power_files: {{kind: filterbank_sink, input: power, parameters: {{path: 'power_{{beam}}.fil'}}}}
  stokes_files: {{kind: filterbank_sink, input: stokes, parameters: {{path: 'stokes_{{beam}}.fil'}}}}
  recording: {{kind: file_sink, input: array, parameters: {{path: voltages.npz}}}}
"
    );
    run_flowgraph(directory.path(), &yaml);
    let said = script(directory.path(), "filterbank.py", &["tied", places, &beams]);
    print!("{said}");
    assert!(said.contains("4 beams and 2 pairs agree"), "{said}");
}

#[test]
fn files_of_your_and_blimpy_are_played() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    script(directory.path(), "filterbank.py", &["write"]);
    let mut yaml = "flowgraph: play\nblocks:\n".to_owned();
    for name in ["your1", "your2", "your4", "your8", "your16", "your32", "ifs", "blimpy"] {
        yaml += &format!(
            "  {name}: {{kind: filterbank_source, parameters: {{path: {name}.fil, spectra_per_frame: 10}}}}\n  \
             {name}_out: {{kind: file_sink, input: {name}, parameters: {{path: {name}.npz}}}}\n"
        );
    }
    run_flowgraph(directory.path(), &yaml);
    script(directory.path(), "filterbank.py", &["compare"]);
}

/// Runs a flowgraph in `directory` until `file` has `bytes` bytes, and kills the program.
pub fn run_and_kill(directory: &Path, yaml: &str, file: &str, bytes: u64) {
    fs::write(directory.join("endless.yaml"), yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", "--quiet", "endless.yaml"]).current_dir(directory);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(directory.join(file)).map_or(0, |there| there.len()) < bytes {
        assert!(child.try_wait().unwrap().is_none(), "the program has ended");
        assert!(start.elapsed() < Duration::from_mins(1), "{file} does not grow");
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn file_of_a_killed_program_is_read_up_to_its_last_spectrum() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sinks = "  stokes: {kind: filterbank_sink, input: detect, parameters: {path: stokes.fil}}
  recording: {kind: file_sink, input: detect, parameters: {path: stokes.npy}}
";
    run_and_kill(directory.path(), &stokes("", "", sinks), "stokes.fil", 1 << 20);
    script(directory.path(), "filterbank.py", &["killed"]);
    let yaml = "flowgraph: play
blocks:
  source: {kind: filterbank_source, parameters: {path: stokes.fil, spectra_per_frame: 1, frames: 1000}}
  sink: {kind: null_sink, input: source}
";
    run_flowgraph(directory.path(), yaml);
}

#[test]
fn full_disk_ends_the_run_and_names_the_file() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("b.fil")).unwrap();
    let sinks = "  a: {kind: filterbank_sink, input: detect, parameters: {path: a.fil}}
  b: {kind: filterbank_sink, input: detect, parameters: {path: b.fil}}
";
    fs::write(directory.path().join("two.yaml"), stokes("frames: 5", "", sinks)).unwrap();
    let output = fxgraph(directory.path(), &["run", "two.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("b.fil") && errors.contains("No space left"), "{errors}");
    assert!(fs::metadata(directory.path().join("a.fil")).unwrap().len() > 1000);
}
