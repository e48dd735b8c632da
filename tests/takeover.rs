//! A part of a running array replaced by a new version, without a missing frame.

use crate::support::http;
use http::{Program, request};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const FRAMES: usize = 500;

/// A digitiser of `digitiser_frames` frames, an F-engine and a recorder, each on a host of its own; with the loopback
/// interface.
fn array(group: u8, digitiser_frames: usize) -> String {
    format!(
        "flowgraph: array
hosts: {{d_host: {{interface: lo}}, f_host: {{interface: lo}}, x_host: {{interface: lo}}}}
network: {{multicast: 239.211.{group}.0/24, port: 7199}}
blocks:
  digitiser:
    kind: digitiser_simulator
    host: d_host
    parameters:
      {{adc_sample_rate_hz: 1712000, signals: wgn(0.1), frames: {digitiser_frames}, samples_per_frame: 32768,
        period_samples: 9830400, paced: true}}
  other: {{kind: null_sink, host: d_host, input: digitiser.pol1}}
  pfb: {{kind: pfb, host: f_host, input: digitiser.pol0, parameters: {{channels: 64}}}}
  fft: {{kind: fft, host: f_host, input: pfb}}
  f: {{kind: postproc, host: f_host, input: fft, parameters: {{gains: 0.5}}}}
  kept: {{kind: file_sink, host: x_host, input: f, parameters: {{path: kept.npy}}}}
"
    )
}

fn fxgraph(arguments: &[&str], directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fxgraph"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Data of a `.npy` file.
fn data(directory: &Path, name: &str) -> Vec<u8> {
    let bytes = fs::read(directory.join(name)).unwrap();
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].to_vec()
}

/// Timestamp, validity and data of a frame.
type Frame = (u64, Vec<u8>, Vec<u8>);

/// The frames of `kept.npy`.
fn frames(directory: &Path) -> Vec<Frame> {
    let timestamps = data(directory, "kept.timestamp.npy");
    let timestamps: Vec<u64> =
        timestamps.chunks(8).map(|row| u64::from_le_bytes(row.try_into().unwrap())).collect();
    let rows = |name: &str| -> Vec<Vec<u8>> {
        let all = data(directory, name);
        all.chunks(all.len() / timestamps.len()).map(<[u8]>::to_vec).collect()
    };
    let rows = rows("kept.validity.npy").into_iter().zip(rows("kept.npy"));
    timestamps.iter().zip(rows).map(|(at, (validity, data))| (*at, validity, data)).collect()
}

/// The parts of an array that run in processes of their own, in real time: one array at a time.
struct Array {
    directory: tempfile::TempDir,
    d: Program,
    f: Program,
    x: Program,
    _alone: MutexGuard<'static, ()>,
}

impl Array {
    fn start(group: u8) -> Self {
        Self::of(group, FRAMES)
    }

    /// Starts an array that processes `digitiser_frames` frames.
    fn of(group: u8, digitiser_frames: usize) -> Self {
        static ARRAYS: Mutex<()> = Mutex::new(());
        let alone = ARRAYS.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("array.yaml");
        fs::write(&file, array(group, digitiser_frames)).unwrap();
        let deployed =
            fxgraph(&["deploy", "array.yaml", "--engine", "systemd", "-o", "."], directory.path());
        assert!(deployed.status.success(), "{}", text(&deployed.stderr));
        let part = |name: &str, arguments: &[&str]| {
            let home = directory.path().join(name);
            fs::create_dir(&home).unwrap();
            let yaml = fs::read_to_string(directory.path().join(format!("parts/{name}_0.yaml")));
            Program::start(&home, &yaml.unwrap(), arguments)
        };
        let x = part("x_host", &[]);
        x.wait("running");
        let f = part("f_host", &[]);
        f.wait("running");
        let d = part("d_host", &[]);
        Self { directory, d, f, x, _alone: alone }
    }

    /// Starts a second F-engine that waits for its start; `change` edits its flowgraph.
    fn second(&self, change: impl Fn(String) -> String) -> Program {
        self.next("second", change)
    }

    fn next(&self, name: &str, change: impl Fn(String) -> String) -> Program {
        let home = self.directory.path().join(name);
        fs::create_dir(&home).unwrap();
        let yaml = fs::read_to_string(self.directory.path().join("parts/f_host_0.yaml")).unwrap();
        Program::start(&home, &change(yaml), &["--hold"])
    }

    /// Waits until the F-engine sends.
    fn wait_for_frames(&self) {
        let sent =
            || self.f.get("/api/v1/blocks/send.f.output").json()["totals"]["frames_in"].as_u64();
        while sent() < Some(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn take_over(&self, second: &Program, more: &[&str]) -> Output {
        let (from, to) = (self.f.address.to_string(), second.address.to_string());
        let arguments = ["takeover", "--connect", &from, "--to", &to, "--lead", "500ms"];
        fxgraph(&[&arguments, more].concat(), self.directory.path())
    }

    /// Stops the process of the F-engine for `time`. Then it sends what it has not sent, at 1.1 times the rate.
    fn stop_f_engine(&self, time: Duration) {
        let process = self.f.child.id().to_string();
        let signal = |name: &str| {
            assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
        };
        signal("-STOP");
        std::thread::sleep(time);
        signal("-CONT");
    }

    /// Frames that the array recorded; it has to end by itself.
    fn recorded(self) -> (Vec<Frame>, tempfile::TempDir) {
        assert!(self.d.end().status.success());
        let ended = self.x.end();
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        (frames(&self.directory.path().join("x_host")), self.directory)
    }
}

fn gains(program: &Program) -> serde_json::Value {
    program.get("/api/v1/blocks/f").json()["parameters"]["gains"].clone()
}

#[test]
fn takeover_loses_no_frame_and_keeps_live_parameters() {
    let array = Array::start(1);
    let url = array.f.address.to_string();
    array.wait_for_frames();
    let set = ["set", "f.gains=0.25", "--json", "--connect", &url];
    let set = fxgraph(&set, array.directory.path());
    assert!(set.status.success(), "{}", text(&set.stderr));
    let set: serde_json::Value = serde_json::from_slice(&set.stdout).unwrap();
    let effective = set["effective_timestamp"].as_u64().unwrap();
    assert!(effective > 0);

    let second = array.second(|yaml| yaml);
    let taken = array.take_over(&second, &[]);
    let (said, result) = (text(&taken.stderr), text(&taken.stdout));
    assert!(taken.status.success(), "{said}");
    assert!(said.contains("keeps f.gains"), "{said}");
    let at: u64 = result.trim_start_matches("taken over from timestamp ").trim().parse().unwrap();
    assert_eq!(gains(&second), 0.25);

    let (recorded, directory) = array.recorded();
    // The new version has the configuration of the file but for the gains.
    assert!(second.get("/api/v1/flowgraph").json()["resolved_yaml"].to_string().contains("0.25"));
    second.post("/api/v1/flowgraph/abort");

    // The same in one process.
    let one = directory.path().join("one");
    fs::create_dir(&one).unwrap();
    let at_once = fs::read_to_string(directory.path().join("array.yaml")).unwrap();
    fs::write(one.join("array.yaml"), at_once.replace("paced: true", "paced: false")).unwrap();
    let ran = fxgraph(&["run", "array.yaml"], &one);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let expected = frames(&one);
    fs::write(
        one.join("array.yaml"),
        at_once.replace("paced: true", "paced: false").replace("gains: 0.5", "gains: 0.25"),
    )
    .unwrap();
    fs::remove_file(one.join("kept.npy")).unwrap();
    assert!(fxgraph(&["run", "array.yaml"], &one).status.success());
    let quieter = frames(&one);

    let samples = expected[1].0 - expected[0].0;
    let is_missing = |(_, validity, _): &&Frame| validity.iter().all(|b| *b == 0);
    assert_eq!(recorded.iter().filter(is_missing).count(), 0, "no frame is missing\n{said}");
    assert!(recorded.windows(2).all(|pair| pair[1].0 == pair[0].0 + samples), "no gap\n{said}");
    assert_eq!(recorded.len(), expected.len(), "every frame of the digitiser came through");
    let mut compared = (0, 0);
    for (frame, (before, after)) in recorded.iter().zip(expected.iter().zip(&quieter)) {
        if frame.0 + samples <= effective {
            assert!(frame == before, "frame at {}", frame.0);
            compared.0 += 1;
        } else if frame.0 >= effective {
            assert!(frame == after, "frame at {}, taken over from {at}", frame.0);
            compared.1 += usize::from(frame.0 >= at);
        }
    }
    assert!(compared.0 > 0 && compared.1 > 20, "{compared:?}");
}

#[test]
fn second_flowgraph_that_receives_nothing_leaves_the_first_one_as_it_is() {
    let array = Array::start(2);
    // It listens to a group that nobody sends to.
    let second = array.second(|yaml| yaml.replacen("239.211.2.0:7199", "239.211.2.77:7199", 1));
    let taken = array.take_over(&second, &["--limit", "1s"]);
    assert!(!taken.status.success());
    let said = text(&taken.stderr);
    assert!(said.contains("did not catch up within 1 s; the first flowgraph goes on"), "{said}");
    second.wait("ended");
    assert_nothing_is_missing(array, FRAMES);
    second.post("/api/v1/flowgraph/abort");
}

/// Asserts that the array recorded all of `digitiser_frames` frames.
fn assert_nothing_is_missing(array: Array, digitiser_frames: usize) {
    let (recorded, _directory) = array.recorded();
    assert!(recorded.iter().all(|(_, validity, _)| validity.iter().any(|byte| *byte != 0)));
    assert_eq!(recorded.len(), digitiser_frames * 32768 / (128 * 256) - 1);
}

#[test]
fn of_two_takeovers_at_once_one_wins_and_the_other_is_told() {
    let array = Array::of(7, 2 * FRAMES);
    let rivals = ["second", "third"].map(|name| array.next(name, |yaml| yaml));
    array.wait_for_frames();
    let taken = std::thread::scope(|scope| {
        let takeovers = rivals.each_ref().map(|rival| scope.spawn(|| array.take_over(rival, &[])));
        takeovers.map(|takeover| takeover.join().unwrap())
    });
    let won = taken.each_ref().map(|output| output.status.success());
    let said = taken.each_ref().map(|output| text(&output.stderr));
    assert!(won[0] != won[1], "{said:#?}");
    let loser = usize::from(won[0]);
    assert!(said[loser].contains("or is taken over by another flowgraph"), "{}", said[loser]);
    rivals[loser].wait("ended");
    let sent = rivals[loser].get("/api/v1/blocks/send.f.output").json();
    assert_eq!(sent["parameters"]["enabled"], false);
    assert_nothing_is_missing(array, 2 * FRAMES);
    for rival in rivals {
        rival.post("/api/v1/flowgraph/abort");
    }
}

/// If it were taken over, its last frames would come after newer ones.
#[test]
fn first_flowgraph_that_lags_is_not_taken_over() {
    let array = Array::start(4);
    let second = array.second(|yaml| yaml);
    array.wait_for_frames();
    array.stop_f_engine(Duration::from_secs(1));
    let taken = array.take_over(&second, &["--limit", "2s"]);
    let said = text(&taken.stderr);
    assert!(!taken.status.success());
    assert!(said.contains("s behind the second one after 2 s"), "{said}");
    second.wait("ended");
    assert_nothing_is_missing(array, FRAMES);
    second.post("/api/v1/flowgraph/abort");
}

#[test]
fn first_flowgraph_that_lags_is_taken_over_when_it_has_caught_up() {
    let array = Array::of(5, 2 * FRAMES);
    let second = array.second(|yaml| yaml);
    array.wait_for_frames();
    array.stop_f_engine(Duration::from_millis(600));
    let taken = array.take_over(&second, &[]);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
    assert_nothing_is_missing(array, 2 * FRAMES);
    second.post("/api/v1/flowgraph/abort");
}

/// The second flowgraph stops just before it sends: the first one takes its streams back, and what nobody sent is
/// flagged.
#[test]
fn second_flowgraph_that_stands_still_gives_the_streams_back() {
    let array = Array::of(3, 3 * FRAMES);
    let second = array.second(|yaml| yaml);
    let process = second.child.id().to_string();
    let address = second.address;
    let freeze = std::thread::spawn(move || {
        // As soon as the takeover is scheduled, which is in half a second.
        let is_enabled = || {
            let block = request(address, "GET", "/api/v1/blocks/send.f.output", &[], b"").json();
            block["parameters"]["enabled"] != false
                && block["totals"]["frames_in"].as_u64() > Some(0)
        };
        let began = std::time::Instant::now();
        while !is_enabled() {
            assert!(began.elapsed().as_secs() < 30, "it is never enabled");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(Command::new("kill").args(["-STOP", &process]).status().unwrap().success());
    });
    let taken = array.take_over(&second, &["--limit", "8s"]);
    let said = text(&taken.stderr);
    freeze.join().unwrap_or_else(|_| panic!("{said}"));
    assert!(!taken.status.success());
    assert!(said.contains("the first flowgraph sends again from timestamp"), "{said}");
    drop(second);
    let (recorded, _directory) = array.recorded();
    let missing: Vec<usize> = (0..recorded.len())
        .filter(|index| recorded[*index].1.iter().all(|byte| *byte == 0))
        .collect();
    // A gap longer than the `max_gap_seconds` of the receiver is not filled.
    let samples = 128 * 256;
    let gaps = recorded.windows(2).filter(|pair| pair[1].0 != pair[0].0 + samples).count();
    assert!(gaps == 1 || (gaps == 0 && !missing.is_empty()), "{gaps} gaps: {said}");
    assert!(missing.windows(2).all(|pair| pair[1] == pair[0] + 1), "{missing:?}");
    assert!(recorded.windows(2).all(|pair| pair[1].0 > pair[0].0));
    assert!(missing.last() < Some(&(recorded.len() - 1)), "data come again");
}
