//! SigMF recordings against the package `sigmf`.

use super::filterbank::run_and_kill;
use super::{needs, run_flowgraph, script};

#[test]
fn recordings_are_valid_and_read_by_sigmf() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut yaml = "flowgraph: samples\nblocks:\n".to_owned();
    for dtype in ["ci8", "ci16", "cf32", "f32", "i16"] {
        let samples = if dtype.starts_with('c') { 2048 } else { 1024 };
        yaml += &format!(
            "  {dtype}:
    kind: null_source
    parameters:
      dtype: {dtype}
      axes: [{{name: sample, len: 1024}}]
      validity_axes: [{{name: heap, len: 4}}]
      samples_per_frame: {samples}
      adc_sample_rate_hz: 2.0e+6
      sync_time_seconds: 1700000000.25
      first_timestamp: 1000000
      frames: 11
      missing_every: 15
      pattern: random
      band: {{channels: 1, centre_hz: 1.5e+9, bandwidth_hz: 1.0e+6}}
  {dtype}_out: {{kind: sigmf_sink, input: {dtype}, parameters: {{path: {dtype}.sigmf-meta, author: a test}}}}
  {dtype}_recording: {{kind: file_sink, input: {dtype}, parameters: {{path: {dtype}.npz}}}}
"
        );
    }
    run_flowgraph(directory.path(), &yaml);
    script(directory.path(), "sigmf_files.py", &["check"]);
}

#[test]
fn polarisations_are_channels_of_sigmf() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let yaml = "flowgraph: pols
blocks:
  source:
    kind: null_source
    parameters:
      dtype: cf32
      axes: [{name: pol, len: 2}, {name: sample, len: 300}]
      samples_per_frame: 600
      adc_sample_rate_hz: 1.0e+6
      frames: 3
      pattern: random
  out: {kind: sigmf_sink, input: source, parameters: {path: pols.sigmf-meta}}
  recording: {kind: file_sink, input: source, parameters: {path: pols.npz}}
";
    run_flowgraph(directory.path(), yaml);
    script(directory.path(), "sigmf_files.py", &["pols"]);
}

#[test]
fn recordings_of_sigmf_are_played() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    script(directory.path(), "sigmf_files.py", &["write"]);
    let mut yaml = "flowgraph: play\nblocks:\n".to_owned();
    for name in ["cu8", "ci16_le", "ci16_be", "cf32_le", "rf32_le", "ri8"] {
        yaml += &format!(
            "  {name}: {{kind: sigmf_source, parameters: {{path: {name}.sigmf-meta, samples_per_frame: 512}}}}\n  \
             {name}_out: {{kind: file_sink, input: {name}, parameters: {{path: {name}.npz}}}}\n"
        );
    }
    run_flowgraph(directory.path(), &yaml);
    script(directory.path(), "sigmf_files.py", &["compare"]);
}

#[test]
fn recording_of_a_killed_program_is_valid_and_read() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let yaml = "flowgraph: endless
blocks:
  source:
    kind: null_source
    parameters: {dtype: ci8, axes: [{name: sample, len: 4096}], samples_per_frame: 8192, pattern: random}
  out: {kind: sigmf_sink, input: source, parameters: {path: x.sigmf-meta}}
  recording: {kind: file_sink, input: source, parameters: {path: x.npy}}
";
    run_and_kill(directory.path(), yaml, "x.sigmf-data", 1 << 20);
    script(directory.path(), "sigmf_files.py", &["killed"]);
    let yaml = "flowgraph: play
blocks:
  source: {kind: sigmf_source, parameters: {path: x.sigmf-meta, frames: 10}}
  sink: {kind: null_sink, input: source}
";
    run_flowgraph(directory.path(), yaml);
}
