//! GUPPI raw against baseband and blimpy.

use super::{needs, run_flowgraph, script};

const WRITTEN: &str = "flowgraph: written
blocks:
  source:
    kind: null_source
    parameters:
      dtype: ci8
      axes: [{name: heap, len: 2}, {name: channel, len: 16}, {name: spectrum, len: 32}, {name: pol, len: 2}]
      validity_axes: [{name: heap, len: 2}]
      samples_per_frame: 2048
      adc_sample_rate_hz: 3.2e+6
      sync_time_seconds: 1790000000
      # 1.25 s.
      first_timestamp: 4000000
      band: {channels: 64, first_channel: 16, centre_hz: 1.42e+9, bandwidth_hz: -1.6e+6}
      frames: 12
      missing_every: MISSING
      pattern: random
  raw:
    kind: guppi_sink
    input: source
    parameters: {path: written.raw, telescope: MeerKAT, source: 3C 48, heaps_per_block: HEAPS}
  samples: {kind: file_sink, input: source, parameters: {path: written.npy}}
";

#[test]
fn baseband_and_blimpy_read_files_of_guppi_sink() {
    if !needs::formats() {
        return;
    }
    // With and without padding of the headers, with missing heaps.
    for (heaps, missing) in [("4", "1000000"), ("3", "1000000"), ("2", "7")] {
        let directory = tempfile::tempdir().unwrap();
        let yaml = WRITTEN.replace("HEAPS", heaps).replace("MISSING", missing);
        run_flowgraph(directory.path(), &yaml);
        let said = script(directory.path(), "guppi.py", &["compare", heaps]);
        assert!(said.contains("equal"), "{said}");
    }
}

const PLAYED: &str = "flowgraph: played
blocks:
  source: {kind: guppi_source, parameters: {path: baseband.raw, spectra_per_heap: 50}}
  samples: {kind: file_sink, input: source, parameters: {path: played.npy}}
";

#[test]
fn guppi_source_plays_files_of_baseband() {
    if !needs::formats() {
        return;
    }
    for arguments in [["2", "16", "0"], ["1", "6", "0"], ["2", "4", "1"]] {
        let directory = tempfile::tempdir().unwrap();
        script(directory.path(), "guppi.py", &[&["write"], &arguments[..]].concat());
        run_flowgraph(directory.path(), PLAYED);
        let said = script(directory.path(), "guppi.py", &["played"]);
        assert!(said.contains("equal"), "{said}");
    }
}
