//! The web page of a running flowgraph, in Debian's Chromium driven by Playwright.

use crate::support::repository::root;
use crate::support::{http, needs, python};
use fxgraph_blocks::gnss::gnss_position::SATELLITE_LABELS;
use http::Program;
use serde_json::{Value, json};
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

/// Two receivers, one with an inverted spectrum: of each a spectrum, a channel, and a channel in this one. The frequency of
/// another channel of the upper one is in the header of a file; the lower one has two more channels that are replicas.
fn tuned() -> String {
    let receiver = |sideband: &str| {
        format!(
            "
  {sideband}:
    kind: sample_source
    parameters:
      from: {{fifo: {sideband}.fifo}}
      type: cf32
      normalise: true
      adc_sample_rate_hz: 240000
      centre_hz: 100000000
      sideband: {sideband}
  pfb_{sideband}: {{kind: pfb, input: {sideband}, parameters: {{channels: 256, taps: 4, spectra_per_frame: 64}}}}
  fft_{sideband}: {{kind: fft, input: pfb_{sideband}}}
  spectrum_{sideband}: {{kind: detect, input: fft_{sideband}, parameters: {{products: power, spectra: 64}}}}
  end_{sideband}: {{kind: null_sink, input: spectrum_{sideband}}}
  channel_{sideband}: {{kind: ddc, input: {sideband}, parameters: {{centre_hz: 0, decimation: 8, samples_per_frame: 4096}}}}
  inner_{sideband}: {{kind: ddc, input: channel_{sideband}, parameters: {{centre_hz: 0, decimation: 4, samples_per_frame: 1024}}}}
  inner_end_{sideband}: {{kind: null_sink, input: inner_{sideband}}}"
        )
    };
    let [upper, lower] = ["upper", "lower"].map(receiver);
    format!(
        "flowgraph: tuned
blocks:{upper}{lower}
  fixed: {{kind: ddc, input: upper, parameters: {{centre_hz: -60000, decimation: 8, samples_per_frame: 4096}}}}
  header: {{kind: sigmf_sink, input: fixed, parameters: {{path: header.sigmf-meta}}}}
  pair: {{kind: ddc, replicate: 2, input: lower, parameters: {{centre_hz: 40000, decimation: 8, samples_per_frame: 4096}}}}
  pair_end: {{kind: null_sink, replicate: 2, input: \"pair[${{index}}]\"}}
"
    )
}

/// Writes a recording of the satellites in `sky.bin`, 4 frames per second.
const RECORD: &str = "flowgraph: record
blocks:
  raw:
    kind: file_source
    parameters:
      path: sky.bin
      raw:
        dtype: f64
        axes: [{name: satellite, len: 5}, {name: value, len: 11}]
        samples_per_frame: 250000
        adc_sample_rate_hz: 1000000
  file: {kind: file_sink, input: raw, parameters: {path: sky.npy}}
";

/// Two satellites that the position uses, one that is not tracked, one without a known direction, and one close to the
/// horizon that is not used.
const SKY: [[f64; 11]; 5] = [
    [0.0, 5.0, 1.0, 301.5, 61.25, 47.0, 2.1e7, -0.4375, -1200.0, 1e6, 1.0],
    [0.0; 11],
    [0.0, 19.0, 0.0, f64::NAN, f64::NAN, 38.5, f64::NAN, f64::NAN, 800.0, 1e5, 0.0],
    [1.0, 11.0, 1.0, 90.0, 30.0, 42.0, 2.4e7, 1.25, 300.0, 1e6, 1.0],
    [1.0, 36.0, 0.0, 180.0, 2.5, 33.0, 2.7e7, 12.5, -2500.0, 1e6, 1.0],
];

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
fn page_tunes_by_a_click_in_both_sidebands() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut pipes = Command::new("mkfifo");
    pipes.args(["upper.fifo", "lower.fifo"]).current_dir(&directory);
    assert!(pipes.status().unwrap().success());
    let program = Program::start(directory.path(), &tuned(), &[]);
    browse(&program, "tune", directory.path());
}

#[test]
fn page_shows_satellites_in_the_sky() {
    if !needs::browser() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let rows = SKY.iter().flatten().flat_map(|value: &f64| value.to_le_bytes());
    let frame: Vec<u8> = rows.collect();
    std::fs::write(directory.path().join("sky.bin"), frame.repeat(400)).unwrap();
    std::fs::write(directory.path().join("record.yaml"), RECORD).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let output = command.args(["run", "record.yaml"]).current_dir(&directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // A raw file has no labels: those of `gnss_position` are written to the description of the recording.
    let description = directory.path().join("sky.npy.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&description).unwrap()).unwrap();
    json["axes"][0]["labels"] = json!(["G05", "G07", "G19", "E11", "E36"]);
    json["axes"][1]["labels"] = json!(SATELLITE_LABELS);
    std::fs::write(&description, json.to_string()).unwrap();
    let play = "{kind: file_source, parameters: {path: sky.npy, pace: real_time}}";
    let played =
        format!("flowgraph: sky\nblocks: {{sky: {play}, end: {{kind: null_sink, input: sky}}}}\n");
    let program = Program::start(directory.path(), &played, &[]);
    browse(&program, "sky", directory.path());
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
