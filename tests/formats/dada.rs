//! DADA against baseband.

use super::{needs, run_flowgraph, script};

const WRITTEN: &str = "flowgraph: written
blocks:
  source:
    kind: null_source
    parameters:
      dtype: DTYPE
      AXES
      adc_sample_rate_hz: 4.0e+6
      sync_time_seconds: 1790000000
      # 1.25 s.
      first_timestamp: 5000000
      frames: 20
      pattern: random
  dada: {kind: dada_sink, input: source, parameters: {path: written.dada, source: 3C 48, PARAMETERS}}
  samples: {kind: file_sink, input: source, parameters: {path: written.npy}}
";

const SAMPLES: &str = "axes: [{name: pol, len: 2}, {name: sample, len: 1000}]
      validity_axes: [{name: pol, len: 2}]
      missing_every: 7
      samples_per_frame: 2000
      band: {channels: 1, centre_hz: 1.42e+9, bandwidth_hz: -2.0e+6}";

const HEAPS: &str = "axes: [{name: heap, len: 2}, {name: channel, len: 8}, {name: spectrum, len: 50}, {name: pol, len: 2}]
      validity_axes: [{name: heap, len: 2}]
      samples_per_frame: 2000
      band: {channels: 8, centre_hz: 1.42e+9, bandwidth_hz: 2.0e+6}";

#[test]
fn baseband_reads_files_of_dada_sink() {
    if !needs::formats() {
        return;
    }
    for (dtype, axes, parameters) in [
        ("ci8", SAMPLES, "telescope: MeerKAT"),
        ("ci8", HEAPS, "telescope: MeerKAT"),
        ("ci8", SAMPLES, "telescope: MeerKAT, file_bytes: 30000"),
        ("cf32", SAMPLES, "telescope: MeerKAT"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let yaml = WRITTEN.replace("DTYPE", dtype).replace("AXES", axes);
        run_flowgraph(directory.path(), &yaml.replace("PARAMETERS", parameters));
        let said = script(directory.path(), "dada.py", &["compare"]);
        assert!(said.contains("equal"), "{said}");
    }
}

const PLAYED: &str = "flowgraph: played
blocks:
  source: {kind: dada_source, parameters: {path: baseband.dada, samples_per_frame: 100}}
  samples: {kind: file_sink, input: source, parameters: {path: played.npy}}
";

#[test]
fn dada_source_plays_files_of_baseband() {
    if !needs::formats() {
        return;
    }
    for arguments in [["complex", "2", "1"], ["real", "2", "1"], ["complex", "1", "8"]] {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "dada.py", &[&["write"], &arguments[..]].concat());
        run_flowgraph(directory.path(), PLAYED);
        let said = script(directory.path(), "dada.py", &["played"]);
        assert!(said.contains("equal"), "{said}");
    }
}
