//! Recordings of a process that was killed: readers of other programs, and the sources, read them up to the last
//! commit.

use super::{needs, run_flowgraph, script};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Real-time streams into files of each format.
const RECORDED: &str = "flowgraph: recorded
blocks:
  source:
    kind: digitiser_simulator
    parameters:
      signals: wgn(0.1)
      adc_sample_rate_hz: 1.0e+6
      sync_time_seconds: 1790000000
      samples_per_frame: 16384
      samples_per_heap: 4096
      paced: true
  vdif: {kind: vdif_sink, input: source.pol0, parameters: {path: killed.vdif}}
  ddc: {kind: ddc, input: source.pol0, parameters: {centre_hz: 250.0e+3, decimation: 4, samples_per_frame: 4096}}
  bytes: {kind: convert, input: ddc, parameters: {dtype: ci8}}
  dada: {kind: dada_sink, input: bytes, parameters: {path: killed.dada}}
  f: {kind: f_engine, inputs: [source.pol0, source.pol1], parameters: {channels: 64, spectra_per_heap: 64}}
  guppi: {kind: guppi_sink, input: f, parameters: {path: killed.raw}}
";

const PLAYED: &str = "flowgraph: played
blocks:
  vdif: {kind: vdif_source, parameters: {path: killed.vdif}}
  guppi: {kind: guppi_source, parameters: {path: killed.raw}}
  dada: {kind: dada_source, parameters: {path: killed.dada, samples_per_frame: 4096}}
  vdif_out: {kind: file_sink, input: vdif, parameters: {path: vdif.npy}}
  guppi_out: {kind: file_sink, input: guppi, parameters: {path: guppi.npy}}
  dada_out: {kind: file_sink, input: dada, parameters: {path: dada.npy}}
";

const NAMES: [&str; 3] = ["killed.vdif", "killed.dada", "killed.raw"];

fn length(directory: &Path, name: &str) -> u64 {
    std::fs::metadata(directory.join(name)).map_or(0, |metadata| metadata.len())
}

#[test]
fn files_of_a_killed_process_are_read_up_to_the_last_commit() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("recorded.yaml"), RECORDED).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", "--quiet", "recorded.yaml"]).current_dir(directory);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    // About a second of each stream.
    while NAMES.iter().any(|name| length(directory, name) < 200_000) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        assert!(began.elapsed() < Duration::from_mins(2), "no data in the files");
        std::thread::sleep(Duration::from_millis(10));
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    let said = script(directory, "killed.py", &[]);
    assert!(said.contains("read"), "{said}");
    run_flowgraph(directory, PLAYED);
    let said = script(directory, "killed.py", &["played"]);
    assert!(said.contains("played"), "{said}");
}
