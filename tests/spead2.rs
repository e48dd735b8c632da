//! SPEAD interoperability with spead2: its heaps are received exactly, and it decodes our heaps
//! exactly, with our descriptors.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/needs.rs"]
mod needs;
#[path = "support/python.rs"]
mod python;
#[path = "support/repository.rs"]
mod repository;

use fxgraph::edge::Harness;
use fxgraph::{
    Axis, Band, Clock, Dtype, Env, FrameMut, KindSpec, Next, PortType, Ports, ValidityType,
};
use fxgraph_blocks::io::spead_sink::SpeadSink;
use fxgraph_blocks::io::spead_source::SpeadSource;
use repository::root;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SAMPLES: u64 = 4096;

fn peer() -> Command {
    let mut command = Command::new(python::python());
    command.arg(root().join("tests/spead2_peer.py"));
    command
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Computes the samples that the peer sends.
fn sample(index: u64) -> i64 {
    ((index.wrapping_mul(2_654_435_761) >> 7) % 1023).cast_signed() - 511
}

fn unpacked(packed: &[u8], index: usize) -> i64 {
    let bit = index * 10;
    let value = (0..10).fold(0_i64, |value, i| {
        let at = bit + i;
        (value << 1) | i64::from(packed[at / 8] >> (7 - at % 8) & 1)
    });
    if value < 512 { value } else { value - 1024 }
}

#[test]
fn digitiser_heaps_of_spead2_arrive_exactly_with_missing_ones_flagged() {
    if !needs::python() {
        return;
    }
    // One packet per heap, like digitisers, and several packets per heap.
    for packet in [9000, 1500] {
        let ports = [free_port(), free_port()];
        let parameters: SpeadSource = serde_json::from_value(json!({
            "stream": "digitiser", "adc_sample_rate_hz": 1e9, "samples_per_frame": 16 * SAMPLES,
            "addresses": ports.map(|port| format!("127.0.0.1:{port}")), "pol": 0,
            "stop_after_senders": 1,
        }))
        .unwrap();
        let outputs = parameters.outputs(&[]).unwrap();
        let declared = Ports { inputs: vec![], outputs };
        let env = Env::detached("source");
        let block = parameters.build(&declared.inputs, &env).unwrap();
        let mut harness = Harness::new(block, &declared, 16).unwrap();
        Harness::block_on(harness.start()).unwrap();
        let lost = [1003_u64, 1017, 1018, 1063];
        let mut sender = peer()
            .arg("send")
            .args(ports.map(|port| port.to_string()))
            .args(["--first", "1000", "--heaps", "80", "--packet", &packet.to_string()])
            .args(["--swap", "9", "30", "31", "50", "--lose"])
            .args(lost.map(|heap| heap.to_string()))
            .spawn()
            .unwrap();
        let mut seen = 0;
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let next = Harness::block_on(harness.run()).unwrap();
            while let Some(frame) = harness.receive(0) {
                let first = frame.header().timestamp / SAMPLES;
                for (i, valid) in frame.header().validity.iter().enumerate() {
                    let heap = first + i as u64;
                    let expected = (1000..1080).contains(&heap) && !lost.contains(&heap);
                    assert_eq!(*valid, u32::from(expected), "heap {heap}");
                    seen += *valid;
                    for s in 0..SAMPLES as usize {
                        let index = i * SAMPLES as usize + s;
                        let expected = if expected { sample(heap * SAMPLES + s as u64) } else { 0 };
                        assert_eq!(unpacked(frame.as_slice().unwrap(), index), expected);
                    }
                }
            }
            if next == Next::Finished {
                break;
            }
            assert!(Instant::now() < deadline, "spead2's stop heap ends the stream");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(sender.wait().unwrap().success());
        assert_eq!(seen, 76);
    }
}

/// Starts spead2 receivers at `addresses`; returns the process and its output lines.
fn receiver_at(addresses: &[String]) -> (Child, impl Iterator<Item = Value> + use<>) {
    let mut receiver =
        peer().arg("receive").args(addresses).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (receiver, lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()))
}

/// Runs a sink on `frames` frames and returns the heaps that spead2 received at `destinations`; `at`
/// of a heap is the index of the destination.
fn received(
    parameters: Value,
    input: PortType,
    listen: &[String],
    frames: usize,
    fill: impl Fn(usize, &mut FrameMut),
) -> Vec<Value> {
    let parameters: SpeadSink = serde_json::from_value(parameters).unwrap();
    parameters.outputs(std::slice::from_ref(&input)).unwrap();
    let declared = Ports { inputs: vec![input], outputs: vec![] };
    let block = parameters.build(&declared.inputs, &Env::detached("sink")).unwrap();
    let mut harness = Harness::new(block, &declared, frames).unwrap();
    let (mut receiver, heaps) = receiver_at(listen);
    Harness::block_on(harness.start()).unwrap();
    for number in 0..frames {
        assert!(harness.send(0, |frame| fill(number, frame)));
    }
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    let heaps = heaps.collect();
    wait(&mut receiver);
    heaps
}

fn wait(child: &mut Child) {
    assert!(child.wait().unwrap().success());
}

fn port(
    dtype: Dtype,
    axes: &[(&'static str, usize)],
    samples: u64,
    validity: ValidityType,
) -> PortType {
    PortType {
        dtype,
        axes: axes.iter().map(|(name, len)| Axis::new(name, *len)).collect(),
        clock: Clock::new(1e6, samples),
        band: Some(Band::signed(64, 32, 0.0, 1.0)),
        validity,
    }
}

fn number(heap: &Value, item: &str) -> Option<i64> {
    heap["items"][item][2][0].as_i64()
}

fn data<'a>(heaps: &'a [Value], item: &str) -> Vec<&'a Value> {
    heaps.iter().filter(|heap| !heap["items"][item].is_null()).collect()
}

#[test]
fn voltages_in_substreams_on_multicast_groups_are_decoded_exactly() {
    if !needs::python() {
        return;
    }
    let group_port = free_port();
    let listen: Vec<String> = (4..8).map(|i| format!("239.255.18.{i}:{group_port}")).collect();
    let parameters = json!({
        "stream": "f_engine", "destinations": [format!("239.255.18.4+3:{group_port}")],
        "interface": "127.0.0.1", "packet_payload_bytes": 500, "feng_id": 2, "n_antennas": 5,
    });
    let axes = [("heap", 2), ("channel", 32), ("spectrum", 16), ("pol", 2)];
    let validity = ValidityType::flags(vec![Axis::new("heap", 2)]);
    let value = |frame: usize, i: usize| ((frame * 7 + i * 13 + i / 251) % 255) as u8 as i8;
    let fill = |number: usize, frame: &mut FrameMut| {
        let (header, payload) = frame.parts_mut::<i8>().unwrap();
        header.timestamp = number as u64 * 4096;
        header.validity.copy_from_slice(&[1, u32::from(number != 1)]);
        (0..payload.len()).for_each(|i| payload[i] = value(number, i));
    };
    let input = port(Dtype::Ci8, &axes, 4096, validity);
    let heaps = received(parameters, input, &listen, 3, fill);
    let voltages = data(&heaps, "feng_raw");
    // Three frames of two heaps and four substreams; one heap was not valid.
    assert_eq!(voltages.len(), 20);
    let mut counters = Vec::new();
    for heap in &voltages {
        assert_eq!(number(heap, "feng_id"), Some(2));
        let timestamp = number(heap, "timestamp").unwrap() as usize;
        let substream = (number(heap, "frequency").unwrap() as usize - 32) / 8;
        let (frame, time) = (timestamp / 4096, timestamp % 4096 / 2048);
        assert!((frame, time) != (1, 1));
        assert_eq!(heap["at"], json!(substream), "block i goes to group i");
        let raw = &heap["items"]["feng_raw"];
        assert_eq!(raw[0], json!([8, 16, 2, 2]));
        let start = (time * 4 + substream) * 8 * 16 * 2 * 2;
        for (i, got) in raw[2].as_array().unwrap().iter().enumerate() {
            assert_eq!(got.as_i64(), Some(i64::from(value(frame, start + i))));
        }
        counters.push(heap["counter"].as_u64().unwrap());
    }
    assert!(counters.iter().all(|counter| counter % 5 == 2));
    counters.sort_unstable();
    counters.dedup();
    assert_eq!(counters.len(), 20);
}

#[test]
fn visibilities_with_flags_and_beams_are_decoded_exactly() {
    if !needs::python() {
        return;
    }
    let address = format!("127.0.0.1:{}", free_port());
    let axes = [("channel", 16), ("baseline", 3), ("product", 4)];
    let validity = ValidityType { axes: vec![Axis::new("baseline", 3)], full: 8 };
    let value = |i: usize| (i as i32).wrapping_mul(715_827_883) ^ 0x55aa;
    let fill = |number: usize, frame: &mut FrameMut| {
        let (header, payload) = frame.parts_mut::<i32>().unwrap();
        header.timestamp = (number as u64 + 3) * 65_536;
        header.validity.fill(if number == 1 { 0 } else { 8 });
        // Antenna 1 lacks three of the heaps with antenna 0.
        header.validity[1] = 5;
        (0..payload.len()).for_each(|i| payload[i] = value(i));
    };
    let parameters = json!({"stream": "x_engine", "destinations": [address], "rate": 0});
    let input = port(Dtype::Ci32, &axes, 65_536, validity);
    let heaps = received(parameters, input, std::slice::from_ref(&address), 3, fill);
    let dumps = data(&heaps, "xeng_raw");
    let times: Vec<_> = dumps.iter().map(|heap| number(heap, "timestamp").unwrap()).collect();
    assert_eq!(times, [3 * 65_536, 5 * 65_536]);
    let raw = &dumps[0]["items"]["xeng_raw"];
    assert_eq!((&raw[0], &raw[1]), (&json!([16, 12, 2]), &json!("int32")));
    assert_eq!(number(dumps[0], "frequency"), Some(32));
    for (i, got) in raw[2].as_array().unwrap().iter().enumerate() {
        let flag = [i32::MIN, 1][i % 2];
        let expected = if i / 8 % 3 == 1 { flag } else { value(i) };
        assert_eq!(got.as_i64(), Some(i64::from(expected)));
    }
    let order = &heaps[0]["items"]["bls_ordering"];
    let pairs = [0, 0, 1, 0, 0, 1, 1, 1, 0, 2, 1, 2, 0, 3, 1, 3, 2, 2, 3, 2, 2, 3, 3, 3];
    assert_eq!(*order, json!([[12, 2], "uint16", pairs]));

    let (first, second) = (free_port(), free_port());
    let listen = [format!("127.0.0.1:{first}"), format!("127.0.0.1:{second}")];
    let axes = [("heap", 2), ("beam", 2), ("channel", 16), ("spectrum", 8)];
    let validity = ValidityType { axes: vec![Axis::new("heap", 2)], full: 4 };
    let fill = |_: usize, frame: &mut FrameMut| {
        let (header, payload) = frame.parts_mut::<i8>().unwrap();
        header.validity.copy_from_slice(&[3, 4]);
        let (heap, beam) = (2 * 16 * 8 * 2, 16 * 8 * 2);
        for (i, value) in payload.iter_mut().enumerate() {
            *value = (i / heap * 50 + i % heap / beam * 20 + i % 17) as i8;
        }
    };
    let parameters = json!({"stream": "b_engine", "destinations": listen});
    let input = port(Dtype::Ci8, &axes, 8192, validity);
    let heaps = received(parameters, input, &listen, 1, fill);
    let beams = data(&heaps, "bf_raw");
    assert_eq!(beams.len(), 4);
    let mut seen = Vec::new();
    for heap in beams {
        let beam = heap["at"].as_u64().unwrap() as usize;
        let time = number(heap, "timestamp").unwrap() as usize / 4096;
        seen.push((beam, time));
        assert_eq!(number(heap, "beam_ants"), Some(3 + time as i64));
        assert_eq!(number(heap, "frequency"), Some(32));
        let raw = &heap["items"]["bf_raw"];
        assert_eq!((&raw[0], &raw[1]), (&json!([16, 8, 2]), &json!("int8")));
        for (i, got) in raw[2].as_array().unwrap().iter().enumerate() {
            let index = time * 2 * 256 + beam * 256 + i;
            assert_eq!(got.as_i64(), Some((time * 50 + beam * 20 + index % 17) as i64));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

/// Runs `harness` for `time` without ending its input.
fn work(harness: &mut Harness, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        Harness::block_on(harness.step()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn descriptors_are_repeated_for_late_receivers() {
    if !needs::python() {
        return;
    }
    let address = format!("239.255.18.9:{}", free_port());
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "x_engine", "destinations": [address], "interface": "127.0.0.1", "rate": 0,
        "descriptor_seconds": 0.05,
    }))
    .unwrap();
    let axes = [("channel", 4), ("baseline", 1), ("product", 4)];
    let validity = ValidityType { axes: vec![Axis::new("baseline", 1)], full: 1 };
    let declared =
        Ports { inputs: vec![port(Dtype::Ci32, &axes, 1024, validity)], outputs: vec![] };
    let block = parameters.build(&declared.inputs, &Env::detached("sink")).unwrap();
    let mut harness = Harness::new(block, &declared, 4).unwrap();
    let send = |harness: &mut Harness, number: i32| {
        let sent = harness.send(0, |frame| {
            frame.fill_validity(1);
            frame.header_mut().timestamp = number as u64 * 1024;
            frame.as_mut_slice::<i32>().unwrap().fill(number);
        });
        assert!(sent);
        Harness::block_on(harness.step()).unwrap();
    };
    let listen = || receiver_at(std::slice::from_ref(&address));
    let (mut early, early_heaps) = listen();
    Harness::block_on(harness.start()).unwrap();
    send(&mut harness, 1);
    let (mut late, late_heaps) = listen();
    // Longer than the interval of descriptors.
    work(&mut harness, Duration::from_millis(200));
    send(&mut harness, 2);
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    let (early_heaps, late_heaps): (Vec<_>, Vec<_>) = (early_heaps.collect(), late_heaps.collect());
    wait(&mut early);
    wait(&mut late);
    assert_ne!(early_heaps[0]["descriptors"], json!(0), "descriptors before the data");
    let again = |heaps: &[Value]| heaps.iter().filter(|heap| heap["descriptors"] != 0).count();
    assert!(again(&early_heaps) >= 3 && again(&late_heaps) >= 1);
    for (heaps, numbers) in [(&early_heaps, &[1, 2][..]), (&late_heaps, &[2])] {
        let dumps = data(heaps, "xeng_raw");
        assert_eq!(dumps.len(), numbers.len());
        for (dump, number) in dumps.iter().zip(numbers) {
            assert_eq!(self::number(dump, "timestamp"), Some(number * 1024));
            assert_eq!(self::number(dump, "frequency"), Some(32));
            let raw = &dump["items"]["xeng_raw"];
            assert_eq!((&raw[0], &raw[1]), (&json!([4, 4, 2]), &json!("int32")));
            assert!(raw[2].as_array().unwrap().iter().all(|value| value == number));
        }
    }
}

#[test]
fn sink_never_exceeds_the_rate_of_a_slow_stream() {
    let address = format!("127.0.0.1:{}", free_port());
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "f_engine", "destinations": [address], "packet_payload_bytes": 64,
    }))
    .unwrap();
    // 64 packets per 0.1 s of signal; up to 32 packets per system call.
    let axes = [("heap", 1), ("channel", 16), ("spectrum", 64), ("pol", 2)];
    let validity = ValidityType::flags(vec![Axis::new("heap", 1)]);
    let input = port(Dtype::Ci8, &axes, 100_000, validity);
    let declared = Ports { inputs: vec![input], outputs: vec![] };
    let env = Env::detached("sink");
    let block = parameters.build(&declared.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &declared, 4).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let start = Instant::now();
    for _ in 0..4 {
        assert!(harness.send(0, |frame| frame.fill_validity(1)));
    }
    let sent = || {
        let counters = env.counters.list();
        counters.iter().find(|named| named.name == "packets_sent").unwrap().counter.get() as f64
    };
    for _ in 0..40 {
        work(&mut harness, Duration::from_millis(5));
        // Read before the clock, so that a delay in between only raises the bound.
        let packets = sent();
        let seconds = start.elapsed().as_secs_f64();
        assert!(packets <= 1.1 * 640.0 * seconds + 32.0, "{packets} after {seconds} s");
    }
    assert!(sent() > 0.0);
}

#[test]
fn packed_samples_and_four_bit_voltages_are_decoded_by_their_descriptors() {
    if !needs::python() {
        return;
    }
    let address = format!("127.0.0.1:{}", free_port());
    let listen = std::slice::from_ref(&address);
    let fill = |_: usize, frame: &mut FrameMut| {
        let (header, payload) = frame.parts_mut::<u8>().unwrap();
        header.validity.fill(1);
        (0..payload.len()).for_each(|i| payload[i] = (i * 37 % 251) as u8);
    };
    let packed: Vec<u8> = (0..160).map(|i| (i * 37 % 251) as u8).collect();
    let validity = ValidityType::flags(vec![Axis::new("heap", 2)]);
    let parameters = json!({
        "stream": "digitiser", "destinations": [address], "samples_per_heap": 64, "digitiser_id": 5,
    });
    let input = port(Dtype::Packed(10), &[("sample", 128)], 128, validity.clone());
    let heaps = received(parameters, input, listen, 1, fill);
    let samples = data(&heaps, "raw_data");
    assert_eq!(samples.len(), 2);
    for (h, heap) in samples.iter().enumerate() {
        assert_eq!(number(heap, "digitiser_id"), Some(5));
        assert_eq!(heap["items"]["raw_data"][0], json!([64]));
        for (i, got) in heap["items"]["raw_data"][2].as_array().unwrap().iter().enumerate() {
            assert_eq!(got.as_i64(), Some(unpacked(&packed, h * 64 + i)));
        }
    }
    let axes = [("heap", 2), ("channel", 4), ("spectrum", 2), ("pol", 2)];
    let parameters = json!({"stream": "f_engine", "destinations": [address]});
    let heaps = received(parameters, port(Dtype::Ci4, &axes, 64, validity), listen, 1, fill);
    let voltages = data(&heaps, "feng_raw");
    assert_eq!(voltages.len(), 2);
    let raw = &voltages[0]["items"]["feng_raw"];
    assert_eq!(raw[0], json!([4, 2, 2, 2]));
    for (i, got) in raw[2].as_array().unwrap().iter().enumerate() {
        let nibble = if i % 2 == 0 { packed[i / 2] >> 4 } else { packed[i / 2] & 15 };
        assert_eq!(got.as_i64(), Some(i64::from((nibble << 4).cast_signed() >> 4)));
    }
}
