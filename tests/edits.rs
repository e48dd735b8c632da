//! Edits of the files that blocks run, taken over while frames flow: `fxgraph watch` and `fxgraph run --watch`.

use crate::support::{http, needs, python};
use http::Program;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(2);
/// Samples of a frame.
const LEN: usize = 1024;

const KERNEL: &str = "/* fxgraph
parameters:
  gain: {type: f32, default: 1, live: true}
input: {dtype: f32}
launch: {grid: [\"ceil(input_elements / 256)\"], block: [256]}
*/
__global__ void gain(Fx fx) {
    const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < FX_INPUT_ELEMENTS) fx.output[n] = fx.gain * fx.input[n];
}
";

/// The reference that multiplies by `factor`.
fn reference(factor: u32) -> String {
    format!(
        "import numpy as np\n\n\ndef gain(frame, out, fx):\n    \
         np.multiply(frame.data, np.float32({factor} * fx.gain), out=out.data)\n"
    )
}

/// A flowgraph with the kernel in the blocks `names`, whose input and outputs are recorded.
fn flowgraph(names: &[&str]) -> String {
    let python = python::python();
    let python = python.display();
    let mut text = format!(
        "flowgraph: edits
blocks:
  source:
    kind: null_source
    parameters: {{dtype: f32, axes: [{{name: sample, len: {LEN}}}], samples_per_frame: {LEN}, pattern: random}}
  # At a rate at which clients can follow.
  samples:
    kind: python
    input: source
    parameters:
      python: '{python}'
      class: Pace
      code: |
        import time
        from dataclasses import dataclass
        from fxgraph.block import Block

        @dataclass
        class Pace(Block):
            def work(self, frame, out):
                time.sleep(0.004)
                out.data[...] = frame.data
  in: {{kind: file_sink, input: samples, parameters: {{path: in.npy}}}}
"
    );
    for name in names {
        text += &format!(
            "  {name}: {{kind: kernel, input: samples, device: cpu, parameters: {{file: gain.cu, python: '{python}'}}}}
  out_{name}: {{kind: file_sink, input: {name}, parameters: {{path: {name}.npy}}}}
"
        );
    }
    text
}

/// Rows of an array in a file that may still grow.
fn rows<const SIZE: usize>(path: &Path) -> Vec<[u8; SIZE]> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let Some(start) =
        bytes.get(8..10).map(|length| 10 + u16::from_le_bytes([length[0], length[1]]))
    else {
        return Vec::new();
    };
    let rows = bytes.get(usize::from(start)..).unwrap_or_default().chunks_exact(SIZE);
    rows.map(|row| row.try_into().unwrap()).collect()
}

/// Factor by which each recorded frame of `name` differs from the recorded input of the same time. Fails if a frame is
/// missing, doubled, or no multiple of the input.
fn factors(directory: &Path, name: &str) -> Vec<u32> {
    let path = |name: &str| directory.join(name);
    let timestamps = |name: &str| -> Vec<u64> {
        let rows = rows::<8>(&path(&format!("{name}.timestamp.npy")));
        rows.into_iter().map(u64::from_le_bytes).collect()
    };
    let (times, input_times) = (timestamps(name), timestamps("in"));
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == LEN as u64), "{times:?}");
    assert!(times.iter().zip(&input_times).all(|(output, input)| output == input), "{times:?}");
    let values = |name: &str| {
        let values = rows::<4>(&path(&format!("{name}.npy"))).into_iter().map(f32::from_le_bytes);
        values.collect::<Vec<_>>()
    };
    let (outputs, inputs) = (values(name), values("in"));
    let frames = outputs.chunks_exact(LEN).zip(inputs.chunks_exact(LEN));
    let factor = |(output, input): (&[f32], &[f32])| {
        let at = input.iter().position(|value| *value != 0.0).unwrap();
        let factor = (output[at] / input[at]).round();
        assert!(input.iter().map(|value| factor * value).eq(output.iter().copied()));
        factor as u32
    };
    frames.map(factor).collect()
}

/// Waits until the newest recorded frames of `name` have `factor`.
fn wait_for_factor(directory: &Path, name: &str, factor: u32) {
    let began = Instant::now();
    while factors(directory, name).last() != Some(&factor) {
        assert!(began.elapsed() < LIMIT, "{factor} does not run");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A directory with the kernel and its reference.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("gain.cu"), KERNEL).unwrap();
    std::fs::write(directory.path().join("gain.py"), reference(1)).unwrap();
    directory
}

/// `fxgraph watch`, which writes lines of JSON.
struct Watch {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(program: &Program, directory: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fxgraph"))
            .args(["watch", "amplify", "--json"])
            .args(arguments)
            .args(["--connect", &format!("http://{}", program.address)])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut watch = Self { child, lines };
        let begins = watch.next("watching");
        assert_eq!(begins["files"], serde_json::json!(["gain.cu", "gain.py"]));
        assert_eq!(watch.next("runs")["version"], 1);
        watch
    }

    /// Reads lines until the step `step`, and returns that line.
    fn next(&mut self, step: &str) -> Value {
        let mut before = Vec::new();
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("no `{step}`: {before:?}"));
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["step"] == step {
                return line;
            }
            before.push(line);
        }
    }

    fn answer(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Ends the watch as Ctrl-C does.
    fn end(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The watch has ended, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stop(program: Program) {
    program.signal("-TERM");
    let output = program.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn saves_in_quick_succession_are_taken_over_without_a_missing_frame() {
    if !needs::python() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let program = Program::running(directory, &flowgraph(&["amplify"]), &[]);
    let mut watch = Watch::start(&program, directory, &[]);
    let (file, draft) = (directory.join("gain.py"), directory.join("draft"));
    for factor in 2..=18 {
        let text = reference(factor);
        match factor % 3 {
            // As editors save: in place in several steps, by another file, and in place of a removed file.
            0 => {
                let mut file = std::fs::File::create(&file).unwrap();
                let (one, other) = text.split_at(40);
                file.write_all(one.as_bytes()).unwrap();
                file.write_all(other.as_bytes()).unwrap();
            }
            1 => {
                std::fs::write(&draft, text).unwrap();
                std::fs::rename(&draft, &file).unwrap();
            }
            _ => {
                std::fs::remove_file(&file).unwrap();
                std::fs::write(&file, text).unwrap();
            }
        }
    }
    let compared = watch.next("compared");
    assert!(compared["shadow"]["frames_compared"].as_u64().unwrap() >= 8, "{compared}");
    assert!(compared["shadow"]["max_difference"].as_f64().unwrap() > 0.0, "{compared}");
    watch.next("swapped");
    wait_for_factor(directory, "amplify", 18);

    // Errors of the reference and of the declaration, with their lines.
    std::fs::write(&file, "import numpy as np\n\n\ndef gain(frame, out, fx:\n").unwrap();
    let rejected = watch.next("rejected");
    assert!(rejected["errors"][0].as_str().unwrap().contains("(gain.py, line 4)"), "{rejected}");
    std::fs::write(directory.join("gain.cu"), KERNEL.replace("[256]", "[4096]")).unwrap();
    let rejected = watch.next("rejected");
    let error = "gain.cu:5: `4096` must be an integer from 1 to 1024";
    assert!(rejected["errors"][0].as_str().unwrap().contains(error), "{rejected}");
    std::fs::write(&file, reference(100)).unwrap();
    std::fs::write(directory.join("gain.cu"), KERNEL).unwrap();
    watch.next("swapped");
    wait_for_factor(directory, "amplify", 100);

    watch.end();
    stop(program);
    let factors = factors(directory, "amplify");
    assert!(factors.is_sorted(), "{factors:?}");
    let factors: BTreeSet<u32> = factors.into_iter().collect();
    assert!(factors.iter().all(|factor| *factor <= 18 || *factor == 100), "{factors:?}");
    assert!(factors.contains(&1), "{factors:?}");
    assert_eq!(rows::<8>(&directory.join("in.timestamp.npy")).len(), {
        rows::<8>(&directory.join("amplify.timestamp.npy")).len()
    });
}

#[test]
fn version_that_fails_is_left_and_one_that_the_user_declines_is_not_swapped() {
    if !needs::python() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let program = Program::running(directory, &flowgraph(&["amplify"]), &[]);
    let file = directory.join("gain.py");
    let failing = reference(9) + "    raise ValueError('no')\n";
    let mut watch = Watch::start(&program, directory, &["--ask"]);
    std::fs::write(&file, &failing).unwrap();
    let rejected = watch.next("rejected");
    let error = rejected["errors"][0].as_str().unwrap();
    assert!(error.starts_with("the shadow failed: ") && error.contains("no"), "{rejected}");
    std::fs::write(&file, reference(2)).unwrap();
    watch.next("compared");
    watch.answer("n\n");
    assert_eq!(watch.next("kept")["version"], 3);
    std::fs::write(&file, reference(3)).unwrap();
    watch.next("compared");
    // A newer version takes the place of one that was not answered.
    std::fs::write(&file, reference(4)).unwrap();
    watch.next("superseded");
    watch.next("compared");
    watch.answer("\n");
    assert_eq!(watch.next("swapped")["version"], 5);
    watch.end();

    let mut watch = Watch::start(&program, directory, &["--shadow", "0"]);
    std::fs::write(&file, &failing).unwrap();
    let failed = watch.next("not swapped");
    assert!(failed["errors"][0].as_str().unwrap().contains("no"), "{failed}");
    // A shadow of another user ends no watch.
    std::fs::write(&file, reference(5)).unwrap();
    watch.next("swapped");
    wait_for_factor(directory, "amplify", 5);
    stop(program);
    let output = watch.child.stderr.take().map(|said| std::io::read_to_string(said).unwrap());
    let said = output.unwrap_or_default();
    assert!(said.contains("the program at ") && said.contains(" has ended"), "{said}");
    assert!(watch.child.wait().unwrap().success());
    let factors = factors(directory, "amplify");
    assert_eq!(factors.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 4, 5]));
}

#[test]
fn watched_run_swaps_all_blocks_with_an_edited_file_at_one_timestamp() {
    if !needs::python() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let mut program = Program::running(directory, &flowgraph(&["a", "b"]), &["--watch"]);
    let file = directory.join("gain.py");
    wait_for_factor(directory, "a", 1);
    // The flowgraph file is not applied with an edit of the code: its value is another one.
    let set = http::request(
        program.address,
        "PATCH",
        "/api/v1/blocks",
        &[("Content-Type", "application/json")],
        br#"{"a": {"values": {"gain": 10}}}"#,
    );
    assert_eq!(set.status, 200, "{set:?}");
    wait_for_factor(directory, "a", 10);
    std::fs::write(&file, reference(2)).unwrap();
    let said = program.until("`gain.py`: changed 2 blocks from timestamp ");
    assert!(!said.contains("warning"), "{said}");
    std::fs::write(&file, "import numpy as np\n\ndef gain(frame, out, fx:\n").unwrap();
    let said = program.until("(gain.py, line 3)");
    assert!(said.contains("the edit was not taken over, and the version before runs on"), "{said}");
    // Editors may remove a file before they write it.
    std::fs::remove_file(&file).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    std::fs::write(&file, reference(3)).unwrap();
    let said = program.until("changed 2 blocks from timestamp ");
    assert!(!said.contains("cannot read"), "{said}");
    wait_for_factor(directory, "b", 3);
    stop(program);
    let (a, b) = (factors(directory, "a"), factors(directory, "b"));
    assert!(a.is_sorted() && b.is_sorted(), "{a:?} {b:?}");
    assert_eq!(a.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 10, 20, 30]));
    assert_eq!(b.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
    let from = |factors: &[u32], factor| factors.iter().position(|known| *known == factor);
    assert_eq!([20, 30].map(|factor| from(&a, factor)), [2, 3].map(|factor| from(&b, factor)));
}

#[test]
fn version_is_tried_in_a_process_of_its_own_before_it_meets_the_data() {
    if !needs::python() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    let program = Program::running(directory, &flowgraph(&["amplify"]), &[]);
    let file = directory.join("gain.py");
    let mut watch = Watch::start(&program, directory, &["--trial", "always", "--shadow", "0"]);
    // A crash of the process is none of the flowgraph.
    let crash = "import os, signal\n\n\ndef gain(frame, out, fx):\n    os.kill(os.getpid(), signal.SIGKILL)\n";
    std::fs::write(&file, crash).unwrap();
    let rejected = watch.next("rejected");
    assert!(rejected["errors"][0].as_str().unwrap().contains("ended"), "{rejected}");
    std::fs::write(&file, reference(2)).unwrap();
    let tried = watch.next("tried");
    assert_eq!(tried["reference"]["frames_compared"], 4, "{tried}");
    assert_eq!(tried["reference"]["frames_different"], 0, "{tried}");
    watch.next("swapped");
    wait_for_factor(directory, "amplify", 2);

    // Another client ends the shadow of a watch, which goes on.
    watch.end();
    let mut watch = Watch::start(&program, directory, &["--shadow", "1000000"]);
    std::fs::write(&file, reference(3)).unwrap();
    watch.next("checked");
    let began = Instant::now();
    let shadow = "/api/v1/blocks/amplify/shadow";
    while http::request(program.address, "DELETE", shadow, &[], &[]).status != 200 {
        assert!(began.elapsed() < LIMIT, "no shadow");
        std::thread::sleep(Duration::from_millis(50));
    }
    let rejected = watch.next("rejected");
    let error = rejected["errors"][0].as_str().unwrap();
    assert!(error.starts_with("another client has ended the shadow"), "{rejected}");
    watch.end();
    stop(program);
    let factors = factors(directory, "amplify");
    assert_eq!(factors.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
}

#[test]
fn watched_run_sees_an_edit_between_its_load_and_its_start() {
    if !needs::python() {
        return;
    }
    let directory = directory();
    let directory = directory.path();
    // The reference, which is imported during the load, is the editor.
    let edit = format!("open({:?}, 'w').write({:?})\n", directory.join("gain.py"), reference(2));
    std::fs::write(directory.join("gain.py"), edit + &reference(1)).unwrap();
    let mut program = Program::running(directory, &flowgraph(&["amplify"]), &["--watch"]);
    program.until("changed 1 block from timestamp ");
    wait_for_factor(directory, "amplify", 2);
    stop(program);
    assert!(factors(directory, "amplify").is_sorted());
}
