//! Tests of `fxgraph compare`.

use super::http::{FILTERED, Program};
use super::{needs, python, rejected, stderr, stop, told};
use crate::support::repository::root;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const DUMPS: u64 = 6;

fn compare(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.arg("compare").args(arguments).current_dir(directory).output().unwrap()
}

/// Compares implementations of blocks in the first flowgraph of the ladder, at a small size.
fn first_light(directory: &Path, arguments: &[&str]) -> Output {
    let file = root().join("flowgraphs/01_first_light.yaml");
    let dumps = format!("dumps={DUMPS}");
    let small = ["--set", "channels=64", "--set", &dumps, "--set", "heaps_per_dump=3"];
    compare(directory, &[&[file.to_str().unwrap()], arguments, &small].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

#[test]
fn compare_processes_every_frame_with_both_implementations() {
    let directory = tempfile::tempdir().unwrap();
    let threads = "b={parameters: {threads: 2}}";
    let output = first_light(directory.path(), &["a=x", threads, "--max-error", "0", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["frames_compared"], DUMPS, "{report}");
    for nothing in ["frames_different", "frames_alone", "values_different"] {
        assert_eq!(report[nothing], 0, "{report}");
    }
    assert!(report["values_compared"].as_u64().unwrap() > 0);
    for side in ["a", "b"] {
        assert!(report[side]["seconds_per_frame"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report[side]["memory_bytes"].as_u64().unwrap() > 0, "{report}");
    }
    assert!(
        !directory.path().join("out").exists(),
        "the flowgraph's own files are not written here"
    );
}

/// Largest and rms difference of two arrays of complex numbers of 8 bits.
const DIFFERENCE: &str = "
import numpy as np
a, b = (np.load(f'first/{side}.npy').astype(float) @ [1, 1j] for side in 'ab')
apart = np.abs(a - b)
print(apart.size, np.count_nonzero(apart), apart.max(), np.sqrt(np.mean(apart ** 2)))
";

#[test]
fn compare_saves_the_first_differing_frames() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (block, gains) = ("a=f[0].postproc", "b={parameters: {gains: 0.9}}");
    let stop = ["--stop-at-first-difference", "--save", "first", "--json", "--max-error", "0.5"];
    let output = first_light(directory.path(), &[&[block, gains], &stop[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("more than 0.5 (`--max-error`)"), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!((&report["frames_compared"], &report["frames_different"]), (&1.into(), &1.into()));
    assert!(report["first_difference_timestamp"].is_u64());
    let numpy = Command::new(python::python())
        .args(["-c", DIFFERENCE])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8(numpy.stdout.clone()).unwrap();
    let said: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(said.len(), 4, "{}", stderr(&numpy));
    let names = ["values_compared", "values_different", "max_difference", "rms_difference"];
    for (name, expected) in names.iter().zip(said) {
        let told = report[name].as_f64().unwrap();
        assert!((told - expected).abs() <= 1e-9 * expected.abs(), "{name}: {told}, not {expected}");
    }
}

#[test]
fn compare_rejects_invalid_arguments_before_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let rejected = |arguments: &[&str], code: i32, word: &str| {
        let output = first_light(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    };
    rejected(&["a=y", "b={}"], 78, "there is no block `y`");
    rejected(&["a=f[0].fft", "b={parameters: {chanels: 32}}"], 78, "chanels");
    rejected(&["a=file", "b={}"], 78, "`file` must have inputs and outputs to be compared");
    rejected(&["a=f[0].postproc", "b={kind: transpose}"], 78, "error[E0");
    rejected(&["b=x", "a={}"], 1, "cannot be compared");
}

const RECORDED: &str = "flowgraph: recorded
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, signals: 'cw(0.5, 1000)', period_samples: 65536, samples_per_frame: 4096, frames: 5, paced: false}
  file: {kind: file_sink, input: source.pol0, parameters: {path: '${name}.npz'}}
  rest: {kind: null_sink, input: source.pol1}
";

#[test]
fn compare_matches_recordings_by_timestamp() {
    let directory = tempfile::tempdir().unwrap();
    let record = |name: &str, signals: &str| {
        let text = RECORDED.replace("cw(0.5, 1000)", signals).replace("${name}", name);
        std::fs::write(directory.path().join("recorded.yaml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
        let output = command.args(["run", "recorded.yaml"]).current_dir(directory.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    };
    record("a", "cw(0.5, 1000)");
    record("b", "cw(0.25, 1000)");
    let same = compare(directory.path(), &["a=a.npz", "b=a.npz", "--json", "--max-error", "0"]);
    assert!(same.status.success(), "{}", stderr(&same));
    assert_eq!(json(&same)["frames_compared"], 5);
    let other = compare(directory.path(), &["a=a.npz", "b=b.npz", "--json"]);
    assert!(other.status.success(), "{}", stderr(&other));
    let report = json(&other);
    // The tone is half as high: 0.25 of full scale, 512.
    let largest = report["max_difference"].as_f64().unwrap();
    assert!((largest - 128.0).abs() <= 2.0, "{report}");
    let rms = report["rms_difference"].as_f64().unwrap();
    assert!((rms - 128.0 / 2_f64.sqrt()).abs() < 1.0, "{report}");
    let missing = compare(directory.path(), &["a=a.npz", "b=c.npz"]);
    assert_eq!(missing.status.code(), Some(1), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("cannot read c.npz: there is no such file"));
}

/// Two arrays of the same shape, which differ in one value, and one in Fortran order.
const ARRAYS: &str = "
import numpy as np
a = np.arange(6.0).reshape(2, 3)
b = a.astype('f4')
b[1, 1] += 0.25
for name, array in {'a': a, 'b': b, 'turned': np.asfortranarray(a)}.items():
    np.save(f'{name}.npy', array)
";

#[test]
fn compare_checks_numpy_arrays_value_by_value() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut numpy = Command::new(python::python());
    assert!(numpy.args(["-c", ARRAYS]).current_dir(directory.path()).status().unwrap().success());
    let apart = |limit: &str| {
        compare(directory.path(), &["a=a.npy", "b=b.npy", "--json", "--max-error", limit])
    };
    let output = apart("0.25");
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!((&report["values_compared"], &report["values_different"]), (&6.into(), &1.into()));
    assert_eq!(report["max_difference"], 0.25);
    assert_eq!(report["first_difference_index"], serde_json::json!([1, 1]));
    let more = apart("0.2");
    assert_eq!(more.status.code(), Some(1));
    assert!(stderr(&more).contains("more than 0.2 (`--max-error`)"), "{}", stderr(&more));
    let said = compare(directory.path(), &["a=a.npy", "b=b.npy"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("a.npy: 2 x 3 values `<f8`") && !said.contains("frames"), "{said}");
    assert!(said.contains("first difference at [1, 1]"), "{said}");
    let turned = compare(directory.path(), &["a=a.npy", "b=turned.npy"]);
    assert!(
        stderr(&turned).contains("`turned.npy`: expected an array in C order"),
        "{}",
        stderr(&turned)
    );
    let saved = compare(directory.path(), &["a=a.npy", "b=b.npy", "--save", "first"]);
    assert!(stderr(&saved).contains("`--save` is for frames"), "{}", stderr(&saved));
}

#[test]
fn compare_with_a_running_block_removes_its_shadow() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), FILTERED, &[]);
    let has_shadow = || program.get("/api/v1/shadows").json() != serde_json::json!([]);
    let alike = ["compare", "a=f", "b={parameters: {threads: 2}}", "--duration", "2s"];
    let report: Value = serde_json::from_str(&told(
        &program,
        &[&alike[..], &["--json", "--max-error", "0"]].concat(),
    ))
    .unwrap();
    assert!(report["frames_compared"].as_u64().unwrap() > 0, "{report}");
    assert_eq!((&report["frames_different"], has_shadow()), (&0.into(), false), "{report}");
    assert!(report["b"]["seconds_per_frame"].as_f64().unwrap() > 0.0, "{report}");

    let saved = directory.path().join("first");
    let saved = saved.to_str().unwrap();
    let differs = ["compare", "a=f", "b={parameters: {taps: 8}}", "--save", saved];
    let said = told(&program, &[&differs[..], &["--stop-at-first-difference"]].concat());
    assert!(said.contains("first difference in the frame of timestamp"), "{said}");
    assert!(said.contains("ended early: a frame differs"), "{said}");
    assert!(!has_shadow());
    let array = |side: &str| std::fs::read(Path::new(saved).join(side)).unwrap();
    let (a, b) = (array("a.npy"), array("b.npy"));
    assert!(a.starts_with(b"\x93NUMPY") && a.len() == b.len() && a != b);

    let seed = "b={parameters: {seed: 5}}";
    let wrong = rejected(&program, &["compare", "a=source", seed, "--duration", "1s"]);
    assert!(wrong.contains("`source`") && !has_shadow(), "{wrong}");
    let nobody = rejected(&program, &["compare", "a=g", "b={}"]);
    assert!(nobody.contains("there is no block `g`"), "{nobody}");
    stop(program);
}
