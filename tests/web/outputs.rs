//! Frames of an output for clients: snapshots, streams and views.

use super::http::{Program, connect};
use super::{ENDLESS, needs, patch, python, stop};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);

/// The messages of a stream of server-sent events.
fn follow(program: &Program, path: &str) -> impl Iterator<Item = Value> + use<> {
    let lines = BufReader::new(ask(program, path)).lines().map(Result::unwrap);
    lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
}

/// Opens a connection and requests a stream.
fn ask(program: &Program, path: &str) -> TcpStream {
    let mut stream = connect(program.address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream
}

const RECORDED: &str = "flowgraph: recorded
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, input: source.pol0, parameters: {channels: 16, spectra_per_frame: 64}}
  end: {kind: null_sink, input: source.pol1}
  file: {kind: file_sink, input: f, parameters: {path: out.npy}}
";

/// Requests frames in every format, and waits until they are in the recording.
const COMPARE: &str = "
import base64, io, json, sys, time, urllib.request, numpy
def compare(array, sequence, timestamp):
    frame = numpy.load(io.BytesIO(array))
    end = time.monotonic() + 60
    while len(rows := numpy.load('out.npy', mmap_mode='r')) <= sequence:
        assert time.monotonic() < end
        time.sleep(0.05)
    print(frame.dtype, frame.shape, (frame == rows[sequence]).all(), frame.std() > 0, timestamp == 2048 * sequence)
url, accept = sys.argv[1], {'Accept': 'text/html, application/octet-stream;q=0.5'}
for request in [urllib.request.Request(url + '?format=npy'), urllib.request.Request(url, headers=accept)]:
    with urllib.request.urlopen(request) as answer:
        compare(answer.read(), *(int(answer.headers[f'fxgraph-{k}']) for k in ['sequence', 'timestamp']))
with urllib.request.urlopen(url.replace('snapshot', 'stream?every_seconds=0.05&every=2')) as stream:
    told = (json.loads(line[6:]) for line in stream if line.startswith(b'data: '))
    frames = [next(told) for _ in range(3)]
for frame in frames:
    compare(base64.b64decode(frame['npy']), frame['sequence'], frame['timestamp'])
print(all((b['sequence'] - a['sequence']) % 2 == 0 for a, b in zip(frames, frames[1:])))
";

#[test]
fn snapshots_equal_the_recorded_frames() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), RECORDED, &[]);
    let path = "/api/v1/blocks/f/outputs/output/snapshot";
    let header = program.get(path).json();
    assert_eq!(header["output"], "f.output");
    assert_eq!(header["timestamp"], 2048 * header["sequence"].as_u64().unwrap());
    // The filter of 16 taps delays the signal by (16 - 1) / 2 spectra of 32 samples.
    let seconds = (header["timestamp"].as_f64().unwrap() + 240.0) / 1e6;
    assert!((header["unix_time_seconds"].as_f64().unwrap() - seconds).abs() < 1e-9);
    let validity = serde_json::json!(
        {"units": 64, "whole": 64, "partial": 0, "missing": 0, "counts": null}
    );
    assert_eq!(header["validity"], validity);
    assert_eq!(header["config_id"], program.get("/api/v1/flowgraph").json()["config_id"]);
    assert_eq!(header["carries"]["axes"][2], serde_json::json!({"name": "sample", "len": 32}));
    let compared = Command::new(python::python())
        .args(["-c", COMPARE, &format!("http://{}{path}", program.address)])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    let expected = "float32 (1, 64, 32) True True True\n".repeat(2 + 3) + "True\n";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&compared.stderr));

    let large = program.get(&format!("{path}?max_bytes=8191"));
    assert_eq!(
        large.problem(422),
        "a frame of `f.output` has 8192 bytes, more than `max_bytes`, 8191"
    );
    assert_eq!(program.get(&format!("{path}?max_bytes=8192")).status, 200);
    program.get(&format!("{path}?max_bytes=all")).problem(400);
    let stream = path.replace("snapshot", "stream");
    program.get(&format!("{stream}?max_bytes=8191")).problem(422);
    program.get(&format!("{stream}?every=0")).problem(400);
    program.get(&format!("{stream}?every_seconds=0.01")).problem(400);
    program.get(&format!("{path}?format=png")).problem(400);
    let wrong = program.get("/api/v1/blocks/f/outputs/outptu/snapshot");
    assert_eq!(wrong.problem(404), "`f` has no output `outptu`");
    assert_eq!(wrong.json()["help"][0], "did you mean `output`?");
    program.get("/api/v1/blocks/g/outputs/output/snapshot").problem(404);
    let result = stop(program);
    assert_eq!(result["blocks"][1]["frames_out"], result["blocks"][3]["frames_in"]);
}

/// Half-scale tone in bin 100 of 512.
const TONE: &str = "flowgraph: tone
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 8192, paced: true, signals: 'cw(0.5, 97656.25); nodither(0)'}
  a: {kind: null_sink, input: source.pol0}
  p: {kind: pfb, inputs: [source.pol0, source.pol1], parameters: {channels: 64, spectra_per_frame: 64}}
  f: {kind: fft, input: p}
  b: {kind: null_sink, input: f}
";

/// Position and value of the maximum of the first series of a message.
fn peak(message: &Value) -> (usize, f64) {
    let values = message["series"][0]["values"].as_array().unwrap().iter().map(Value::as_f64);
    let known = values.enumerate().filter_map(|(place, value)| Some((place, value?)));
    known.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
}

#[test]
fn view_shows_a_live_update() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TONE, &[]);
    let path = "/api/v1/blocks/source/outputs/pol0/views";
    let views = program.get(path).json();
    let names: Vec<&Value> =
        views["views"].as_array().unwrap().iter().map(|view| &view["name"]).collect();
    assert_eq!(names, ["spectrum", "histogram", "samples"]);
    let once = program.get(&format!("{path}/spectrum?points=512&once=true")).json();
    assert_eq!((&once["view"], &once["kind"]), (&"spectrum".into(), &"lines".into()));
    assert_eq!((&once["x"]["step"], &once["x"]["len"]), (&976.5625.into(), &512.into()));
    let (place, level) = peak(&once);
    assert!(place == 100 && (level + 6.02).abs() < 0.05, "{place} {level}");

    let mut messages = follow(&program, &format!("{path}/spectrum?points=512&every_seconds=0.05"));
    let first = messages.next().unwrap();
    assert_eq!(peak(&first).0, 100);
    let signals = r#"{"source": {"signals": "cw(0.25, 195312.5); nodither(0)"}}"#;
    let at = patch(&program, "/api/v1/blocks", signals).json()["effective_timestamp"].clone();
    let changed = messages.find(|message| message["timestamp"].as_u64() >= at.as_u64()).unwrap();
    let (place, level) = peak(&changed);
    assert!(place == 200 && (level + 12.04).abs() < 0.05, "{place} {level}");
    let next = messages.next().unwrap();
    assert!(next["frame"].as_u64() > changed["frame"].as_u64());
    let seconds = next["timestamp"].as_f64().unwrap() / 1e6;
    assert!((next["time_seconds"].as_f64().unwrap() - seconds).abs() < 1e-9);

    let histogram = program.get(&format!("{path}/histogram?once=true")).json();
    assert_eq!(histogram["x"]["len"], 1024);
    let rms = histogram["figures"]["rms"]["value"].as_f64().unwrap();
    assert!((rms + 12.04).abs() < 0.05 && histogram["figures"]["clipped"]["value"] == 0.0, "{rms}");

    let path = "/api/v1/blocks/f/outputs/output/views";
    let views = program.get(path).json();
    assert_eq!(views["views"][0]["selects"][0]["axis"], "pol");
    let band = program.get(&format!("{path}/band_pass?once=true&pol=0&points=64")).json();
    // 195 kHz of 500 kHz.
    assert_eq!(peak(&band).0, 25);
    stop(program);
    // The stream ends with the run.
    messages.for_each(drop);
}

#[test]
fn invalid_view_requests_are_rejected_with_help() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TONE, &[]);
    let wrong = |of: &str, status: u16| {
        let answer = program.get(&format!("/api/v1/blocks/f/outputs/output/views{of}"));
        (answer.problem(status), answer.json()["help"][0].as_str().unwrap_or_default().to_owned())
    };
    let (detail, help) = wrong("/band_pas", 404);
    assert_eq!(detail, "`f.output` has no view `band_pas`");
    assert_eq!(help, "did you mean `band_pass`?");
    assert_eq!(wrong("/spectrum", 404).1, "the only view here is `band_pass`");
    let (detail, help) = wrong("/band_pass?antenna=0", 400);
    assert_eq!(detail, "the view `band_pass` has no selectable axis `antenna`");
    assert_eq!(help, "the only axis here is `pol`");
    let (detail, help) = wrong("/band_pass?pol=2", 400);
    assert_eq!((&*detail, &*help), ("`pol` is out of range", "give a number from 0 to 1"));
    for query in ["pol=-1", "pol=", "pol=x", "points=15", "points=4097", "once=maybe"] {
        wrong(&format!("/band_pass?{query}"), 400);
    }
    for seconds in ["0.049", "61", "nan", "inf", "-1", "1e999", ""] {
        wrong(&format!("/band_pass?every_seconds={seconds}"), 400);
    }
    program.get("/api/v1/blocks/b/outputs/output/views").problem(404);
    program.get("/api/v1/blocks/g/outputs/output/views/spectrum").problem(404);
    program.get("/api/v1/blocks/f/outputs/output/views/%ff").problem(400);
    stop(program);
}

#[test]
fn slow_and_vanished_clients_cause_no_drops() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), ENDLESS, &[]);
    let path = "/api/v1/blocks/source/outputs/output";
    let spectrum = format!("{path}/views/spectrum?every_seconds=0.05");
    let stream = format!("{path}/stream?every_seconds=0.05");
    // Some clients never read, two read as fast as possible, and one at a time connects and disconnects.
    let mut slow: Vec<TcpStream> = (0..2).map(|_| ask(&program, &stream)).collect();
    slow.extend((0..2).map(|_| ask(&program, &spectrum)));
    let mut fast = [follow(&program, &spectrum), follow(&program, &stream)];
    let taken =
        || program.get("/api/v1/blocks/sink").json()["totals"]["frames_in"].as_u64().unwrap();
    let (mut before, began) = (taken(), Instant::now());
    let mut sequences = [0; 2];
    while began.elapsed() < Duration::from_secs(5) {
        drop(ask(&program, &spectrum));
        for (messages, last) in fast.iter_mut().zip(&mut sequences) {
            let message = messages.next().unwrap();
            let sequence = ["frame", "sequence"].map(|key| message[key].as_u64());
            let sequence = sequence.into_iter().flatten().next().unwrap();
            assert!(sequence > *last, "frames go on");
            *last = sequence;
        }
        // On a busy machine no frame may pass between two requests.
        let asked = Instant::now();
        before = loop {
            match taken() {
                now if now > before => break now,
                _ => assert!(asked.elapsed() < LIMIT, "the flowgraph makes no progress"),
            }
        };
    }
    // A client with many streams is limited to its share, and single frames remain available.
    let status = |stream: &mut TcpStream| -> String {
        let mut line = [0; 12];
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.read_exact(&mut line).unwrap();
        String::from_utf8_lossy(&line).into_owned()
    };
    let mut more: Vec<TcpStream> = (0..40).map(|_| ask(&program, &spectrum)).collect();
    let rejected = more.iter_mut().map(status).filter(|status| status == "HTTP/1.1 429").count();
    assert!((28..40).contains(&rejected), "{rejected} of 40");
    let once = format!("{path}/views/spectrum?once=true&points=64");
    for _ in 0..10 {
        assert_eq!(program.get(&once).status, 200);
        assert_eq!(program.get(&once.replace("views/spectrum", "snapshot")).status, 200);
    }
    drop((slow, more, fast));
    let ends = Instant::now() + LIMIT;
    while status(&mut ask(&program, &spectrum)) != "HTTP/1.1 200" {
        assert!(Instant::now() < ends, "taps outlive their clients");
        std::thread::sleep(Duration::from_millis(50));
    }
    let result = stop(program);
    assert_eq!(result["blocks"][0]["frames_out"], result["blocks"][1]["frames_in"]);
    assert_eq!(result["blocks"][1]["drops"], 0);
    assert_eq!(result["failures"], serde_json::json!([]));
}

#[test]
fn several_views_share_one_stream() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TONE, &[]);
    let wanted =
        "view=source/pol0/spectrum%3Fpoints%3D16&view=f/output/band_pass%3Fpoints%3D16%26pol%3D1";
    let told: Vec<Value> = follow(&program, &format!("/api/v1/views?{wanted}")).take(12).collect();
    let of = |index| told.iter().filter(move |message| message["index"] == index);
    assert!(of(0).count() > 0 && of(0).all(|message| message["view"] == "spectrum"));
    assert!(of(1).count() > 0 && of(1).all(|message| message["selected"][0]["index"] == 1));
    for wrong in ["", "?view=source/pol0", "?view=f/output/band_pass%3Fpol%3D2", "?views=1"] {
        program.get(&format!("/api/v1/views{wrong}")).problem(400);
    }
    program.get("/api/v1/views?view=source/pol0/spektrum").problem(404);
    stop(program);
}
