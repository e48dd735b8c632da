//! The web page of a running flowgraph, in Debian's Chromium driven by Playwright.

use crate::support::repository::root;
use crate::support::{http, needs, python};
use http::Program;
use std::path::Path;
use std::process::Command;

/// F-engine of one antenna in real time; polarisation 1 is written to a full disk.
const FLOWGRAPH: &str = "flowgraph: bench
doc: One antenna in real time.
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 131072, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, input: source.pol0, parameters: {channels: 64, taps: 16, spectra_per_frame: 256}}
  fft: {kind: fft, input: f}
  gain: {kind: postproc, input: fft, parameters: {gains: 0.2}}
  end: {kind: null_sink, input: gain}
  disk: {kind: file_sink, input: source.pol1, on_fault: skip, parameters: {path: full.npy}}
";

/// Two antennas as replicas, with frequencies on the sky.
const REPLICAS: &str = "flowgraph: replicas
doc: Two antennas in real time.
blocks:
  source:
    kind: digitiser_simulator
    replicate: 2
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 131072, paced: true, signals: wgn(0.1)}
  f:
    kind: pfb
    replicate: 2
    input: source[${index}].pol0
    parameters: {channels: 64, taps: 4, spectra_per_frame: 256, centre_hz: 1284000000}
  fft: {kind: fft, replicate: 2, input: \"f[${index}]\"}
  gain: {kind: postproc, replicate: 2, input: \"fft[${index}]\", parameters: {gains: 0.2}}
  end: {kind: null_sink, replicate: 2, input: \"gain[${index}]\"}
  rest: {kind: null_sink, replicate: 2, input: \"source[${index}].pol1\"}
";

/// Runs the script `part` of `tests/page/` against `program`; shows its output if it fails.
fn browse(program: &Program, part: &str, directory: &Path) {
    let python = python::environment("tests-playwright", "tests/playwright.txt").unwrap();
    let scripts = root().join("tests/page");
    let output = Command::new(python)
        .arg(scripts.join(format!("{part}.py")))
        .arg(format!("http://{}", program.address))
        .current_dir(directory)
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}", said.join("\n"));
}

#[test]
fn page_shows_and_changes_a_flowgraph() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Every write fails, as on a full disk.
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    let program = Program::start(directory.path(), FLOWGRAPH, &["--recordings", "recordings"]);
    browse(&program, "observe", directory.path());
    let parameters =
        |block| program.get(&format!("/api/v1/blocks/{block}")).json()["parameters"].clone();
    assert_eq!(parameters("f")["taps"], 4);
    assert_eq!(parameters("gain")["gains"], 0.3);
    browse(&program, "stop", directory.path());
    assert!(program.end().status.success());
}

#[test]
fn page_starts_a_held_flowgraph() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    let program = Program::start(directory.path(), FLOWGRAPH, &["--hold"]);
    browse(&program, "hold", directory.path());
}

#[test]
fn page_with_live_control_offers_live_parameters_only() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    let shadowed = FLOWGRAPH.replace("kind: pfb,", "kind: pfb, shadow: {parameters: {taps: 8}},");
    let program = Program::start(directory.path(), &shadowed, &["--control", "live"]);
    browse(&program, "live", directory.path());
}

#[test]
fn page_asks_for_the_token() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    std::fs::write(directory.path().join("token"), "f2c1a97be0d94c55").unwrap();
    let program = Program::start(directory.path(), FLOWGRAPH, &["--token-file", "token"]);
    browse(&program, "ask_token", directory.path());
}

#[test]
fn page_has_no_barriers_to_accessibility() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    let program = Program::start(directory.path(), FLOWGRAPH, &["--recordings", "recordings"]);
    browse(&program, "accessible", directory.path());
}

#[test]
fn page_of_a_large_flowgraph_updates_what_is_visible() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("full.npy")).unwrap();
    let program = Program::start(directory.path(), FLOWGRAPH, &[]);
    browse(&program, "large", directory.path());
}

#[test]
fn page_changes_replicas_together_or_one_of_them() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), REPLICAS, &[]);
    browse(&program, "replicas", directory.path());
}

#[test]
fn swagger_fits_a_phone() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), REPLICAS, &[]);
    browse(&program, "swagger", directory.path());
}

#[test]
fn page_has_a_form_for_every_kind() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), REPLICAS, &["--hold"]);
    browse(&program, "forms", directory.path());
}
