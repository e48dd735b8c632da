//! Files written by the program, read with NumPy.

use crate::support::repository::root;
use crate::support::{needs, python};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn fxgraph(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(arguments).current_dir(directory);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn numpy(script: &str, file: &Path) -> String {
    let output = Command::new(python::python()).args(["-c", script]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const SHAPE: &str = "import sys, numpy; print(*numpy.load(sys.argv[1], mmap_mode='r').shape)";

#[test]
fn recordings_of_the_array_have_the_expected_content_in_numpy() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = root().join("flowgraphs/04_array.yaml");
    let flowgraph = flowgraph.to_str().unwrap();
    let arguments = ["run", "--quiet", flowgraph, "--set", "dumps=2", "--set", "channels=128"];
    let output = fxgraph(&arguments, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mut check = Command::new(python::python());
    check.arg(root().join("tests/peers/recordings.py"));
    let output = check.arg(directory.path().join("out")).args(["128", "2"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn numpy_reads_every_width_of_complex_floats() {
    if !needs::python() {
        return;
    }
    let script = "import sys, numpy; d = numpy.load(sys.argv[1]); \
        z = d.astype('f8') @ [1, 1j] if d.dtype == 'f2' else d; \
        print(d.dtype, d.shape, abs((abs(z) ** 2).mean() - 2 / 3) < 0.05)";
    let directory = tempfile::tempdir().unwrap();
    for (dtype, seen) in [
        ("cf16", "float16 (2, 3, 700, 2) True"),
        ("cf32", "complex64 (2, 3, 700) True"),
        ("cf64", "complex128 (2, 3, 700) True"),
    ] {
        let flowgraph = format!(
            "flowgraph: floats\nblocks:\n  source: {{kind: null_source, parameters: {{dtype: {dtype}, \
             axes: [{{name: pol, len: 3}}, {{name: sample, len: 700}}], samples_per_frame: 700, \
             frames: 2, pattern: random}}}}\n  \
             sink: {{kind: file_sink, input: source, parameters: {{path: {dtype}.npy}}}}\n"
        );
        std::fs::write(directory.path().join("floats.yaml"), flowgraph).unwrap();
        let output = fxgraph(&["run", "floats.yaml"], directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(numpy(script, &directory.path().join(format!("{dtype}.npy"))), seen);
    }
}

const HALF_PRECISION: &str = "flowgraph: half_precision
blocks:
  source:
    kind: null_source
    parameters:
      dtype: cf16
      axes: [{name: heap, len: 2}, {name: antenna, len: 5}, {name: channel, len: 3}, {name: spectrum, len: 37}, {name: pol, len: 2}]
      validity_axes: [{name: heap, len: 2}, {name: antenna, len: 5}]
      samples_per_frame: 592
      frames: 4
      pattern: random
  x: {kind: correlator, input: source, parameters: {spectra_per_dump: 111}}
  voltages: {kind: file_sink, input: source, parameters: {path: voltages.npy}}
  visibilities: {kind: file_sink, input: x, parameters: {path: visibilities.npy}}
";

/// Prints the shape of the dumps, and whether each product agrees with the recorded voltages.
const VISIBILITIES: &str = "
import sys, numpy
voltages = numpy.load(sys.argv[1]).astype('f8') @ [1, 1j]
voltages = voltages.reshape(-1, 5, 3, 37, 2)
dumps = numpy.load(sys.argv[1].replace('voltages', 'visibilities'))
worst = 0
for n, dump in enumerate(dumps):
    e = voltages[3 * n:3 * n + 3]
    for a2 in range(5):
        for a1 in range(a2 + 1):
            for product, (p1, p2) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
                expected = (e[:, a1, :, :, p1] * e[:, a2, :, :, p2].conj()).sum(axis=(0, 2))
                error = abs(dump[:, a2 * (a2 + 1) // 2 + a1, product] - expected)
                worst = max(worst, error.max())
print(dumps.dtype, dumps.shape, worst < 1e-5)
";

#[test]
fn visibilities_of_half_precision_voltages_agree_with_numpy() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("half_precision.yaml"), HALF_PRECISION).unwrap();
    let output = fxgraph(&["run", "half_precision.yaml"], directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let seen = numpy(VISIBILITIES, &directory.path().join("voltages.npy"));
    assert_eq!(seen, "complex64 (3, 3, 15, 4) True");
}

const NARROWBAND: &str = "flowgraph: narrowband
blocks:
  source:
    kind: null_source
    parameters:
      dtype: i16
      axes: [{name: sample, len: 16384}]
      samples_per_frame: 16384
      # After a day.
      first_timestamp: 147916800000000
      frames: 4
      pattern: random
      adc_sample_rate_hz: 1712000000
  ddc: {kind: ddc, input: source, parameters: {centre_hz: 434567891, decimation: 8, samples_per_frame: 1024}}
  samples: {kind: file_sink, input: source, parameters: {path: samples.npz}}
  narrowband: {kind: file_sink, input: ddc, parameters: {path: narrowband.npz}}
";

#[test]
fn narrowband_samples_after_a_day_agree_with_numpy_and_scipy() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("narrowband.yaml"), NARROWBAND).unwrap();
    let output = fxgraph(&["run", "narrowband.yaml"], directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mut check = Command::new(python::python());
    check.arg(root().join("tests/peers/narrowband.py")).arg(directory.path());
    let output = check.args(["434567891", "1712000000", "8", "128"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

const TWO_SINKS: &str = "flowgraph: two_sinks
parameters: {frames: 50}
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64, frames: '${frames}'}
  a: {kind: file_sink, input: source, parameters: {path: a.npy}}
  b: {kind: file_sink, input: source, parameters: {path: b.npy}}
";

#[test]
fn full_disk_ends_the_run_and_other_files_stay_readable() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("two.yaml"), TWO_SINKS).unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("b.npy")).unwrap();
    let output = fxgraph(&["run", "two.yaml"], directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("b.npy") && errors.contains("No space left"), "{errors}");
    let shape = numpy(SHAPE, &directory.path().join("a.npy"));
    assert!(shape.ends_with(" 64"), "{shape}");
}

#[test]
fn recording_is_readable_while_it_grows_and_after_a_kill() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("two.yaml"), TWO_SINKS).unwrap();
    let arguments = ["run", "--quiet", "two.yaml", "--set", "frames=100000000"];
    let mut child = fxgraph(&arguments, directory.path()).spawn().unwrap();
    let path = directory.path().join("a.npy");
    let frames = || numpy(SHAPE, &path).split(' ').next().unwrap().parse::<u64>().unwrap();
    let start = Instant::now();
    while !path.exists() || frames() == 0 {
        assert!(start.elapsed() < Duration::from_mins(1), "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(frames() > 0);
}

#[test]
fn frames_that_cannot_be_written_leave_no_rows_in_any_array() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = "flowgraph: full\nblocks:\n  source: {kind: null_source, parameters: {dtype: u8, axes: [{name: sample, \
        len: 4096}], samples_per_frame: 4096, frames: 40}}\n  sink: {kind: file_sink, input: source, on_fault: skip, \
        parameters: {path: a.npy}}\n";
    std::fs::write(directory.path().join("full.yaml"), flowgraph).unwrap();
    // Files of at most 64 KiB: 15 frames. The signal of the limit is ignored, so that writing fails.
    let mut shell = Command::new("bash");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" run --quiet full.yaml"]);
    let output =
        shell.arg(env!("CARGO_BIN_EXE_fxgraph")).current_dir(directory.path()).output().unwrap();
    assert!(said(&output).contains("a.npy"), "{}", said(&output));
    let rows = "import sys, numpy; print(len(numpy.load(sys.argv[1])))";
    for array in ["a.npy", "a.timestamp.npy", "a.validity.npy", "a.checksum.npy"] {
        assert_eq!(numpy(rows, &directory.path().join(array)), "15", "{array}");
    }
}
