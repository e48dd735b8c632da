//! Raw samples to and from other programs: by pipes and sockets, with GNU Radio and gnss-sdr where they are installed.

use crate::support::needs;
use crate::support::repository::root;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A free port of the loopback interface.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `fxgraph run` of a flowgraph with the text `yaml`, in `directory`.
fn start(directory: &Path, name: &str, yaml: &str) -> Child {
    fs::write(directory.join(name), yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", name]).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Output and text of a process that succeeds.
fn finish(child: Child) -> (Vec<u8>, String) {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    (output.stdout, text)
}

/// Payload of a NumPy file.
fn payload(path: &Path) -> Vec<u8> {
    let file = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[header..].to_vec()
}

/// Random samples, which are written to `x.npy` as well as to the destination `to`.
fn samples(dtype: &str, frames: u32, to: &str) -> String {
    format!(
        "flowgraph: samples
blocks:
  source:
    kind: null_source
    parameters:
      dtype: {dtype}
      axes: [{{name: sample, len: 4000}}]
      samples_per_frame: 4000
      adc_sample_rate_hz: 1000000
      frames: {frames}
      pattern: random
  file: {{kind: file_sink, input: source, parameters: {{path: x.npy}}}}
  sink: {{kind: sample_sink, input: source, parameters: {{to: {to}}}}}
"
    )
}

#[test]
fn stdout_has_the_samples_and_stderr_the_results() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (stdout, text) = finish(start(directory, "x.yaml", &samples("ci16", 50, "stdout")));
    assert!(stdout == payload(&directory.join("x.npy")), "{} bytes, {text}", stdout.len());
    assert_eq!(stdout.len(), 50 * 16_000);
    assert!(text.contains("sample_sink") && text.contains("ci16 at 1000000 samples/s"), "{text}");
}

#[test]
fn reader_of_stdout_that_goes_ends_the_flowgraph() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = samples("cf32", 1_000_000_000, "stdout");
    let alone = yaml.lines().filter(|line| !line.contains("file_sink"));
    let mut child = start(directory.path(), "x.yaml", &alone.collect::<Vec<_>>().join("\n"));
    let mut some = vec![0; 100_000];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let (_, text) = finish(child);
    assert!(text.contains("readers_left"), "{text}");
}

#[test]
fn other_commands_keep_stdout_for_their_results() {
    let directory = tempfile::tempdir().unwrap();
    let tests = "tests: [{name: any, expect: [{tap: source, frames: 2}]}]\n";
    fs::write(directory.path().join("x.yaml"), samples("ci8", 2, "stdout") + tests).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let output = command.args(["test", "x.yaml"]).current_dir(directory.path()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("start the flowgraph with `fxgraph run`"), "{text}");
}

#[test]
fn source_of_another_process_gets_the_samples_of_each_type() {
    for (dtype, transport) in
        [("ci8", "tcp"), ("ci16", "zmq"), ("cf32", "fifo"), ("i16", "tcp"), ("f32", "zmq")]
    {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let port = free_port();
        let (to, from) = match transport {
            "tcp" => {
                (format!("{{tcp: '127.0.0.1:{port}'}}"), format!("{{listen: '127.0.0.1:{port}'}}"))
            }
            "zmq" => (
                format!("{{zmq: {{bind: 'tcp://127.0.0.1:{port}', socket: push}}}}"),
                format!("{{zmq: {{connect: 'tcp://127.0.0.1:{port}', socket: pull}}}}"),
            ),
            _ => ("{fifo: pipe}".to_owned(), "{fifo: pipe}".to_owned()),
        };
        let mut sender = start(directory, "x.yaml", &samples(dtype, 30, &to));
        while transport == "fifo" && !directory.join("pipe").exists() {
            assert!(sender.try_wait().unwrap().is_none());
        }
        let receiver = format!(
            "flowgraph: receiver
blocks:
  source:
    kind: sample_source
    parameters:
      from: {from}
      type: {dtype}
      adc_sample_rate_hz: 1000000
      samples_per_frame: 4000
      samples_per_heap: 4000
      frames: 30
  file: {{kind: file_sink, input: source, parameters: {{path: y.npy}}}}
"
        );
        let (_, text) = finish(start(directory, "y.yaml", &receiver));
        finish(sender);
        let (sent, got) = (payload(&directory.join("x.npy")), payload(&directory.join("y.npy")));
        assert!(
            sent == got,
            "{dtype} by {transport}: {} of {} bytes, {text}",
            got.len(),
            sent.len()
        );
    }
}

/// The script for GNU Radio with the Python of Debian.
fn gnu_radio(directory: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(needs::DEBIAN_PYTHON);
    command.arg(root().join("tests/radio/gnu_radio.py")).args(arguments).current_dir(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn gnu_radio_reads_the_samples_of_zeromq() {
    if !needs::gnu_radio() {
        return;
    }
    for (socket, reader) in [("push", "pull"), ("pub", "sub")] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let address = format!("tcp://127.0.0.1:{}", free_port());
        // A publisher that waits drops no frame, also before its first subscriber. GNU Radio's Head ends with a sample
        // after the last one.
        let yaml =
            samples("cf32", 110, &format!("{{zmq: {{bind: '{address}', socket: {socket}}}}}"));
        let yaml = yaml.replace("socket: pub}}", "socket: pub}}, when_full: wait");
        let mut sender = start(directory, "x.yaml", &yaml);
        let reader = gnu_radio(directory, &[reader, &address, "y.cf32", "400000"]);
        finish(reader);
        sender.kill().unwrap();
        sender.wait().unwrap();
        let got = fs::read(directory.join("y.cf32")).unwrap();
        let sent = payload(&directory.join("x.npy"));
        assert!(got.len() == 3_200_000 && sent.starts_with(&got), "{socket}: {} bytes", got.len());
    }
}

#[test]
fn samples_of_gnu_radio_pass_source_and_sink_without_a_gap() {
    if !needs::gnu_radio() || !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // Samples that occur once in a period.
    let period: Vec<u8> = (0..1_000_000)
        .flat_map(|n| [n as f32, -1.0 - n as f32])
        .flat_map(f32::to_le_bytes)
        .collect();
    fs::write(directory.join("period.cf32"), period).unwrap();
    let address = format!("tcp://127.0.0.1:{}", free_port());
    let yaml = format!(
        "flowgraph: through
blocks:
  source:
    kind: sample_source
    parameters:
      from: {{zmq: {{connect: '{address}', socket: sub}}}}
      type: cf32
      adc_sample_rate_hz: 1000000
      samples_per_frame: 20000
      samples_per_heap: 20000
      frames: 100
  sink: {{kind: sample_sink, input: source, parameters: {{to: stdout}}}}
"
    );
    let mut through = start(directory, "x.yaml", &yaml);
    let samples = through.stdout.take().unwrap();
    let python = crate::support::python::environment("tests-python", "tests/requirements.txt");
    let mut check = Command::new(python.unwrap());
    check.arg(root().join("tests/radio/consecutive.py")).arg("period.cf32");
    check.current_dir(directory).stdin(samples).stdout(Stdio::piped()).stderr(Stdio::piped());
    let check = check.spawn().unwrap();
    let sender = gnu_radio(directory, &["send", &address, "period.cf32", "1000000", "20"]);
    let (printed, _) = finish(check);
    finish(through);
    assert_eq!(String::from_utf8_lossy(&printed).trim(), "2000000 0 0");
    let mut sender = sender;
    sender.kill().unwrap();
    sender.wait().unwrap();
}

/// Whether gr-osmosdr got the samples that a `sample_sink` sends. When it is delayed it drops samples, and waits for more.
fn gr_osmosdr_got_the_samples() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = format!("127.0.0.1:{}", free_port());
    let yaml =
        samples("ci8", 100, &format!("{{rtl_tcp: {{listen: '{address}'}}}}, when_full: wait"));
    let mut sender = start(directory, "x.yaml", &yaml);
    let mut reader =
        gnu_radio(directory, &["rtl_tcp", &address, "y.cf32", "200000", "1000000", "100e6"]);
    let limit = Instant::now() + Duration::from_mins(1);
    while reader.try_wait().unwrap().is_none() && Instant::now() < limit {
        sleep(Duration::from_millis(20));
    }
    let has_all = reader.try_wait().unwrap().is_some();
    reader.kill().unwrap();
    sender.kill().unwrap();
    sender.wait().unwrap();
    let text = reader.wait_with_output().unwrap().stderr;
    let got = fs::read(directory.join("y.cf32")).unwrap_or_default();
    assert!(!has_all || got.len() == 1_600_000, "{}", String::from_utf8_lossy(&text));
    let got = got.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let sent = payload(&directory.join("x.npy"));
    // gr-osmosdr takes 127.4 for the middle of the codes.
    let expected = sent.iter().map(|code| (f32::from(code ^ 0x80) - 127.4) / 128.0);
    has_all && got.zip(expected).all(|(a, b)| (a - b).abs() < 1e-3)
}

#[test]
fn gr_osmosdr_plays_the_samples_of_rtl_tcp() {
    if needs::gnu_radio() {
        assert!(
            (0..3).any(|_| gr_osmosdr_got_the_samples()),
            "gr-osmosdr dropped samples three times"
        );
    }
}
