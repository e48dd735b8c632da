//! Described streams with spead2: it decodes the frames of a real process by their descriptors, and its heaps are
//! received exactly.

use crate::support::repository::root;
use crate::support::{needs, python};
use fxgraph::edge::Harness;
use fxgraph::{Env, KindSpec, Next, Ports};
use fxgraph_blocks::io::stream_source::StreamSource;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a peer.
const LIMIT: Duration = Duration::from_mins(3);

fn peer() -> Command {
    let mut command = Command::new(python::python());
    command.arg(root().join("tests/spead2_peer.py"));
    command
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a flowgraph whose source counts bytes up, modulo 251; returns the heaps that spead2 received.
fn heaps_of_a_process(source: &str) -> Vec<Value> {
    let address = format!("127.0.0.1:{}", free_port());
    let mut receiver = peer().arg("receive").arg(&address).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("send.yaml");
    let text = format!(
        "flowgraph: send\nblocks:\n  source: {{kind: null_source, parameters: {{pattern: counter, {source}}}}}\n  \
         send: {{kind: stream_sink, input: source, parameters: {{destination: \"{address}\", \
         packet_payload_bytes: 500}}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let output = run.arg("run").arg("-q").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let heaps = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(receiver.wait().unwrap().success());
    heaps
}

fn number(heap: &Value, item: &str) -> Option<u64> {
    heap["items"][item][2][0].as_u64()
}

/// Byte `index` of the stream of bytes that the source sends.
fn counted(index: usize) -> u8 {
    (index % 251) as u8
}

#[test]
fn spead2_decodes_frames_of_a_process_by_their_descriptors() {
    if !needs::python() {
        return;
    }
    let heaps = heaps_of_a_process(
        "dtype: ci16, axes: [{name: antenna, len: 3}, {name: channel, len: 50}], validity_axes: \
         [{name: antenna, len: 3}], validity_full: 7, missing_every: 4, samples_per_frame: 100, \
         adc_sample_rate_hz: 1.0e+4, first_timestamp: 281474976710600, frames: 6",
    );
    let kind: Value =
        serde_json::from_str(heaps[0]["items"]["type"][2][0].as_str().unwrap()).unwrap();
    assert_eq!((&kind["dtype"], &kind["axes"][1]["len"]), (&json!("ci16"), &json!(50)));
    assert_eq!(kind["validity"]["full"], json!(7));
    assert_eq!(kind["clock"]["samples_per_frame"], json!(100));
    let data: Vec<&Value> = heaps.iter().filter(|heap| !heap["items"]["data"].is_null()).collect();
    assert_eq!(data.len(), 6);
    for (frame, heap) in data.iter().enumerate() {
        assert_eq!(number(heap, "sequence"), Some(frame as u64));
        let timestamp =
            number(heap, "timestamp_high").unwrap() << 48 | number(heap, "timestamp").unwrap();
        assert_eq!(timestamp, 281_474_976_710_600 + 100 * frame as u64);
        let values = &heap["items"]["data"];
        assert_eq!((&values[0], &values[1]), (&json!([3, 50, 2]), &json!("int16")));
        for (index, value) in values[2].as_array().unwrap().iter().enumerate() {
            let at = frame * 600 + 2 * index;
            let expected = i16::from_le_bytes([counted(at), counted(at + 1)]);
            assert_eq!(value.as_i64(), Some(i64::from(expected)), "value {index} of frame {frame}");
        }
        let counts: Vec<u64> =
            (1..=3).map(|unit| if (frame * 3 + unit) % 4 == 0 { 0 } else { 7 }).collect();
        assert_eq!(heap["items"]["validity"], json!([[3], "uint32", counts]));
        assert_eq!(heap["items"]["annotations"][2], json!(["{}"]));
    }
    assert_eq!(number(heaps.last().unwrap(), "run"), number(data[0], "run"));
}

#[test]
fn spead2_decodes_complex_floats_and_single_counts() {
    if !needs::python() {
        return;
    }
    let heaps = heaps_of_a_process(
        "dtype: cf32, axes: [{name: sample, len: 8}], samples_per_frame: 8, adc_sample_rate_hz: 1.0e+3, frames: 2",
    );
    let data: Vec<&Value> = heaps.iter().filter(|heap| !heap["items"]["data"].is_null()).collect();
    assert_eq!(data.len(), 2);
    for (frame, heap) in data.iter().enumerate() {
        let values = &heap["items"]["data"];
        assert_eq!((&values[0], &values[1]), (&json!([8, 2]), &json!("float32")));
        for (index, value) in values[2].as_array().unwrap().iter().enumerate() {
            let bytes = [0, 1, 2, 3].map(|byte| counted(frame * 64 + 4 * index + byte));
            // JSON is not read to the last bit of 64, but to all of 32.
            let value = value.as_f64().map(|value| value as f32);
            assert_eq!(value, Some(f32::from_le_bytes(bytes)));
        }
        assert_eq!(heap["items"]["validity"], json!([[], "uint32", [1]]));
    }
}

/// Number, validity, annotation and payload of a frame.
type Found = (u64, Vec<u32>, Vec<f64>, Vec<i16>);

/// Frames that the source makes of the heaps of spead2.
fn frames_of_spead2(arguments: &[&str], kind: &Value) -> Vec<Found> {
    let port = free_port();
    let parameters = json!({"source": format!("127.0.0.1:{port}"), "type": kind});
    let parameters: StreamSource = fxgraph::kind::read(&parameters).unwrap();
    let ports = Ports { inputs: vec![], outputs: parameters.outputs(&[]).unwrap() };
    let block = parameters.build(&[], &Env::detached("source")).unwrap();
    let mut harness = Harness::new(block, &ports, 16).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let mut sender = peer()
        .args(["send-frames", &port.to_string(), "--type", &kind.to_string()])
        .args(arguments)
        .spawn()
        .unwrap();
    let mut frames = Vec::new();
    let mut ended: Option<Instant> = None;
    let deadline = Instant::now() + LIMIT;
    loop {
        let next = Harness::block_on(harness.run()).unwrap();
        while let Some(frame) = harness.receive(0) {
            let header = frame.header();
            let power = header.annotations.get("adc_power").to_vec();
            let payload = frame.as_slice::<i16>().unwrap().to_vec();
            frames.push((header.timestamp / 1000 - 5, header.validity.clone(), power, payload));
        }
        if next == Next::Finished {
            break;
        }
        // The stop heap ends a stream that is not rejected long before.
        assert!(Instant::now() < deadline, "the sender must end within {LIMIT:?}");
        if ended.is_none() && sender.try_wait().unwrap().is_some() {
            ended = Some(Instant::now());
        }
        harness.stopping = ended.is_some_and(|at| at.elapsed() > Duration::from_secs(3));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(sender.wait().unwrap().success());
    frames
}

#[test]
fn frames_of_spead2_arrive_exactly_with_missing_ones_flagged() {
    if !needs::python() {
        return;
    }
    let kind = json!({
        "dtype": "i16", "axes": [{"name": "antenna", "len": 3}, {"name": "channel", "len": 40}],
        "clock": {"adc_sample_rate_hz": 1e6, "sync_time_seconds": 0, "samples_per_frame": 1000},
        "validity": {"axes": [{"name": "antenna", "len": 3}], "full": 2},
    });
    // One packet per heap and several; all items, and only those that must be there.
    for (packet, all) in [("1472", true), ("200", true), ("200", false)] {
        let mut arguments = vec!["--frames", "12", "--packet", packet, "--lose", "4", "5"];
        if all {
            arguments.push("--all");
        }
        let frames = frames_of_spead2(&arguments, &kind);
        assert_eq!(
            frames.iter().map(|frame| frame.0).collect::<Vec<_>>(),
            (0..12).collect::<Vec<_>>()
        );
        for (number, validity, power, payload) in frames {
            if number == 4 || number == 5 {
                assert_eq!((validity, payload), (vec![0; 3], vec![0; 120]));
                continue;
            }
            let expected: Vec<i16> = (0..120).map(|e| 100 * number as i16 + e).collect();
            assert_eq!(payload, expected);
            if all {
                assert_eq!(validity, [2, number as u32 % 3, 1]);
                assert!(power[0].to_bits() == (number as f64 / 3.0).to_bits() && power[1].is_nan());
            } else {
                assert_eq!((validity, power), (vec![2; 3], vec![]));
            }
        }
    }
}

#[test]
fn frames_of_spead2_with_another_type_are_rejected() {
    if !needs::python() {
        return;
    }
    let ours = json!({
        "dtype": "i16", "axes": [{"name": "channel", "len": 120}],
        "clock": {"adc_sample_rate_hz": 1e6, "sync_time_seconds": 0, "samples_per_frame": 1000},
        "validity": {"axes": [{"name": "channel", "len": 3}], "full": 2},
    });
    let theirs = ours.to_string().replace("120", "60");
    assert_eq!(frames_of_spead2(&["--frames", "3", "--all", "--type", &theirs], &ours), []);
}
