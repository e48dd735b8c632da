#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Env, Next, Ports, ValidityType};
use serde_json::json;

fn f_engine_input(channels: usize) -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: [("heap", 2), ("channel", channels), ("spectrum", 16), ("pol", 2)]
            .map(|(name, len)| Axis::new(name, len))
            .to_vec(),
        clock: Clock::new(1e6, 64 * channels as u64),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

fn rejections(parameters: &serde_json::Value, input: &PortType) -> Vec<Rejection> {
    let parameters: SpeadSink = serde_json::from_value(parameters.clone()).unwrap();
    KindSpec::outputs(&parameters, std::slice::from_ref(input)).unwrap_err()
}

#[test]
fn spead_sink_rejects_unequal_groups_with_a_number_that_fits() {
    let parameters = json!({"stream": "f_engine", "destinations": ["239.1.1.0+6:7148"]});
    let all = rejections(&parameters, &f_engine_input(64));
    assert_eq!(all[0].code, codes::INPUT_AXIS);
    assert_eq!(all[0].message, "64 channels cannot be divided equally among 7 groups");
    let help = "use 4 groups, the largest number below that fits";
    assert_eq!(all[0].help.as_deref(), Some(help));
}

#[test]
fn spead_sink_rejects_frames_of_another_stream() {
    let parameters = json!({"stream": "x_engine", "destinations": ["239.1.1.0:7148"]});
    let codes: Vec<_> =
        rejections(&parameters, &f_engine_input(64)).iter().map(|r| r.code).collect();
    assert_eq!(codes, [codes::INPUT_DTYPE, codes::INPUT_AXIS]);
}

#[test]
fn bad_parameters_are_all_reported_at_once() {
    let parameters = json!({
        "stream": "f_engine", "destinations": ["nowhere"], "packet_payload_bytes": 0,
        "rate": -1.0, "catch_up": 0.9, "descriptor_seconds": 0.0, "feng_id": 4, "n_antennas": 4,
    });
    let all = rejections(&parameters, &f_engine_input(64));
    let at: Vec<_> = all.iter().map(|r| r.at.clone()).collect();
    let expected = [
        "destinations",
        "packet_payload_bytes",
        "rate",
        "catch_up",
        "descriptor_seconds",
        "feng_id",
    ];
    assert_eq!(at, expected.map(At::Parameter));
}

#[test]
fn spead_sink_rejects_validity_that_does_not_fit_the_heaps() {
    let parameters = json!({"stream": "f_engine", "destinations": ["239.1.1.0:7148"]});
    let mut input = f_engine_input(64);
    input.validity = ValidityType::flags(vec![]);
    let all = rejections(&parameters, &input);
    assert_eq!(all[0].message, "the input's validity must be [heap 2], got one flag");
}

#[test]
fn digitiser_heap_is_sent_only_with_all_samples_valid() {
    let port = |units| PortType {
        dtype: Dtype::Packed(8),
        axes: vec![Axis::new("sample", 64)],
        validity: ValidityType::flags(vec![Axis::new("heap", units)]),
        ..f_engine_input(64)
    };
    let sent = |flags: &[u32], samples_per_heap: usize| {
        let parameters: SpeadSink = serde_json::from_value(json!({
            "stream": "digitiser", "destinations": ["127.0.0.1:9"], "samples_per_heap": samples_per_heap,
        }))
        .unwrap();
        let heaps = parameters.heaps(&port(flags.len())).unwrap();
        let pool =
            fxgraph::frame::Pool::new(&fxgraph::frame::HostAllocator, 1, 64, flags.len()).unwrap();
        let mut frame = pool.take().unwrap();
        frame.header_mut().validity.copy_from_slice(flags);
        frame.header_mut().timestamp = (1 << 48) - 8;
        let frame = frame.freeze();
        let times = (0..heaps.per_frame()).filter(|i| heaps.heap(&frame, *i).is_some());
        times.collect::<Vec<_>>()
    };
    assert_eq!(sent(&[1, 0, 1, 1], 16), [0, 2, 3]);
    assert_eq!(sent(&[1, 0, 1, 1], 8), [0, 1, 4, 5, 6, 7]);
    assert_eq!(sent(&[1, 0, 1, 1], 32), [1]);
    assert_eq!(sent(&[1], 16), [0, 1, 2, 3]);
}

#[test]
fn heaps_without_data_take_their_time_in_the_schedule() {
    const FRAMES: u32 = 8;
    let mut input = f_engine_input(64);
    // A frame of two heaps takes 10 ms.
    input.clock.adc_sample_rate_hz = 409_600.0;
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "f_engine", "destinations": ["127.0.0.1:9"], "rate": 1.0, "catch_up": 1.01,
    }))
    .unwrap();
    let ports = Ports { inputs: vec![input], outputs: vec![] };
    let env = Env::detached("sink");
    let block = parameters.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, FRAMES as usize).unwrap();
    Harness::block_on(harness.start()).unwrap();
    for number in 0..u64::from(FRAMES) {
        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = 4096 * number;
            // The second heap of each frame did not arrive.
            frame.header_mut().validity.copy_from_slice(&[1, 0]);
        }));
    }
    harness.end(0);
    let began = std::time::Instant::now();
    loop {
        match Harness::block_on(harness.step()).unwrap() {
            Next::After(wait) => std::thread::sleep(wait),
            Next::Finished => break,
            _ => {}
        }
    }
    let expected = std::time::Duration::from_millis(10) * (FRAMES - 1);
    assert!(began.elapsed() >= expected.mul_f64(0.9), "{:?}", began.elapsed());
}

#[test]
fn slow_stream_does_not_delay_descriptors() {
    let mut input = f_engine_input(64);
    // A frame takes 4 s.
    input.clock.adc_sample_rate_hz = 1024.0;
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "f_engine", "destinations": [receiver.local_addr().unwrap().to_string()],
        "descriptor_seconds": 0.05,
    }))
    .unwrap();
    let ports = Ports { inputs: vec![input], outputs: vec![] };
    let env = Env::detached("sink");
    let mut harness =
        Harness::new(parameters.build(&ports.inputs, &env).unwrap(), &ports, 2).unwrap();
    Harness::block_on(harness.start()).unwrap();
    assert!(harness.send(0, |frame| frame.fill_validity(1)));
    let mut received = vec![];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // Descriptors, a heap, and descriptors again before the second heap is due.
    while received.len() < 3 {
        assert!(std::time::Instant::now() < deadline, "{received:?}");
        match Harness::block_on(harness.step()).unwrap() {
            Next::After(wait) => {
                assert!(wait <= std::time::Duration::from_millis(50), "{wait:?}");
                std::thread::sleep(wait);
            }
            next => assert_eq!(next, Next::Again),
        }
        let mut packet = [0; 9000];
        while let Ok(len) = receiver.recv(&mut packet) {
            let packet = crate::io::spead::packet::Packet::parse(&packet[..len]).unwrap();
            received.push(packet.pointers().any(|p| p.id == crate::io::spead::item::DESCRIPTOR));
        }
    }
    assert_eq!(received[..3], [true, false, true]);
}

/// Receives until the stop heap; returns the timestamps of data, and `None` for descriptors.
fn receive(receiver: &std::net::UdpSocket) -> Vec<Option<u64>> {
    use crate::io::spead::item;
    let mut got = vec![];
    let mut bytes = [0; 9000];
    loop {
        let len = receiver.recv(&mut bytes).unwrap();
        let packet = crate::io::spead::packet::Packet::parse(&bytes[..len]).unwrap();
        let value = |id| packet.pointers().find(|p| p.id == id).map(|p| p.value);
        if value(item::STREAM_CONTROL) == Some(item::STREAM_STOP) {
            return got;
        }
        let is_descriptor = value(item::DESCRIPTOR).is_some();
        got.push(value(item::TIMESTAMP).filter(|_| !is_descriptor));
    }
}

#[test]
fn spead_sink_sends_heaps_only_while_enabled() {
    sends_heaps_only_while_enabled(1);
}

#[test]
fn spead_sink_with_several_threads_sends_heaps_only_while_enabled() {
    sends_heaps_only_while_enabled(3);
}

fn sends_heaps_only_while_enabled(threads: usize) {
    use fxgraph::Control;
    use fxgraph::flowgraph::load_text;
    use fxgraph::runtime::{Options, Prepared};
    use std::time::Duration;
    const LIMIT: Duration = Duration::from_mins(1);
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    let to = receiver.local_addr().unwrap();
    let text = format!(
        "flowgraph: g
blocks:
  s:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 8192, paced: true}}
  o:
    kind: spead_sink
    input: s.pol0
    parameters: {{stream: digitiser, destinations: [\"{to}\"], samples_per_heap: 1024, enabled: false, threads: {threads}}}
  n: {{kind: null_sink, input: s.pol1}}
"
    );
    let registry = || crate::kinds();
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    let count = |name: &str| {
        let all = control.stats().into_iter().flat_map(|stats| stats.counters);
        all.filter(|named| named.name == name).map(|named| named.counter.get()).sum::<u64>()
    };
    let wait = |name: &str, more: u64| {
        let until = count(name) + more;
        while count(name) < until {
            assert!(!control.wait_timeout(Duration::from_millis(2)), "the flowgraph has ended");
        }
    };
    let received = std::thread::spawn(move || receive(&receiver));
    wait("heaps_disabled", 20);
    assert_eq!(count("packets_sent"), 0);
    let from = control.live_update("o: {enabled: true}", None, LIMIT).unwrap().effective_timestamp;
    wait("heaps_sent", 20);
    let until =
        control.live_update("o: {enabled: false}", None, LIMIT).unwrap().effective_timestamp;
    wait("heaps_disabled", 20);
    let sent = count("heaps_sent");
    wait("heaps_disabled", 20);
    assert_eq!(count("heaps_sent"), sent, "nothing is sent while the sink is disabled");
    let sink = control.stats().into_iter().find(|stats| stats.name == "o").unwrap();
    let last =
        sink.gauges.iter().find(|named| named.name == "last_sent_timestamp_samples").unwrap();
    let last = last.gauge.get();
    control.request_stop();
    assert!(control.wait_timeout(LIMIT));
    assert!(running.wait().failures.is_empty());
    let received = received.join().unwrap();
    assert_eq!(received[0], None, "descriptors go first");
    let mut times: Vec<u64> = received.into_iter().flatten().collect();
    // Heaps of several threads may overtake each other.
    let bound = if threads > 1 { 8192 } else { 0 };
    assert!(times.is_sorted_by(|a, b| *a < b + bound), "{times:?}");
    times.sort_unstable();
    let first = from.next_multiple_of(1024);
    let expected: Vec<u64> = (first..until).step_by(1024).collect();
    assert_eq!(times, expected, "from {from} until {until}");
    let newest = times.last().map(|last| *last as f64).unwrap();
    assert!((newest - bound as f64..=newest).contains(&last.unwrap()), "{last:?} of {newest}");
}

#[test]
fn heaps_of_one_packet_are_sent_together_each_once_and_in_order_at_its_destination() {
    send_heaps_of_one_packet(1);
}

#[test]
fn several_threads_send_each_heap_once_and_in_order_if_each_has_destinations_of_its_own() {
    send_heaps_of_one_packet(3);
}

fn send_heaps_of_one_packet(threads: usize) {
    use crate::io::spead::item;
    const HEAPS: u64 = 200;
    const GROUPS: u64 = 3;
    const HEAP_BYTES: usize = 512;
    let mut input = f_engine_input(64);
    input.dtype = Dtype::Packed(8);
    input.axes = vec![Axis::new("sample", HEAPS as usize * HEAP_BYTES)];
    input.clock.samples_per_frame = HEAPS * HEAP_BYTES as u64;
    input.validity = ValidityType::flags(vec![Axis::new("heap", HEAPS as usize)]);
    let receivers: Vec<_> =
        (0..GROUPS).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let destinations: Vec<_> =
        receivers.iter().map(|r| r.local_addr().unwrap().to_string()).collect();
    for receiver in &receivers {
        receiver.set_read_timeout(Some(std::time::Duration::from_mins(1))).unwrap();
    }
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "digitiser", "destinations": destinations, "samples_per_heap": HEAP_BYTES, "rate": 0.0,
        "threads": threads,
    }))
    .unwrap();
    let ports = Ports { inputs: vec![input], outputs: vec![] };
    let env = Env::detached("sink");
    let block = parameters.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let payload = |heap: u64, byte: usize| (7 * heap as usize + byte) as u8;
    assert!(harness.send(0, |frame| {
        frame.header_mut().validity.fill(1);
        frame.header_mut().validity[50] = 0;
        let data = frame.as_mut_slice::<u8>().unwrap();
        for (heap, data) in data.chunks_mut(HEAP_BYTES).enumerate() {
            data.iter_mut().enumerate().for_each(|(i, byte)| *byte = payload(heap as u64, i));
        }
    }));
    harness.end(0);
    loop {
        match Harness::block_on(harness.step()).unwrap() {
            Next::After(wait) => std::thread::sleep(wait),
            Next::Finished => break,
            _ => {}
        }
    }
    let mut counters = vec![];
    for (group, receiver) in (0..).zip(&receivers) {
        let expected = (0..HEAPS).filter(|heap| heap % GROUPS == group && *heap != 50);
        let mut expected = expected.peekable();
        while expected.peek().is_some() {
            let mut bytes = [0; 9000];
            let len = receiver.recv(&mut bytes).unwrap();
            let packet = crate::io::spead::packet::Packet::parse(&bytes[..len]).unwrap();
            if packet.pointers().any(|pointer| pointer.id == item::DESCRIPTOR) {
                continue;
            }
            let heap = expected.next().unwrap();
            assert_eq!(packet.value(item::TIMESTAMP), Some(heap * HEAP_BYTES as u64));
            let is_same = |(i, byte): (usize, &u8)| *byte == payload(heap, i);
            assert!(packet.payload.iter().enumerate().all(is_same), "heap {heap}");
            counters.push(packet.heap_counter);
        }
    }
    counters.sort_unstable();
    counters.dedup();
    assert_eq!(counters.len() as u64, HEAPS - 1, "each heap has a number of its own");
}

#[test]
fn threads_are_at_most_the_heaps_of_a_frame() {
    let parameters =
        json!({"stream": "f_engine", "destinations": ["239.1.1.0:7148"], "threads": 3});
    let all = rejections(&parameters, &f_engine_input(64));
    assert_eq!(
        all[0].message,
        "`threads` must be at most the number of heaps of a frame (2), got 3"
    );
}

/// Runs a sink with two threads of frames of two heaps of several packets, to `destination`; returns its error.
fn run_two_threads(destination: &str, frames: usize) -> Result<(), BlockError> {
    let parameters: SpeadSink = serde_json::from_value(json!({
        "stream": "f_engine", "destinations": [destination], "rate": 0.0, "threads": 2,
        "packet_payload_bytes": 512,
    }))
    .unwrap();
    let ports = Ports { inputs: vec![f_engine_input(64)], outputs: vec![] };
    let env = Env::detached("sink");
    let mut harness =
        Harness::new(parameters.build(&ports.inputs, &env).unwrap(), &ports, 4).unwrap();
    Harness::block_on(harness.start())?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let mut sent = 0;
    loop {
        assert!(std::time::Instant::now() < deadline);
        while sent < frames
            && harness.send(0, |frame| {
                frame.fill_validity(1);
                frame.header_mut().timestamp = 4096 * sent as u64;
                frame.as_mut_slice::<u8>().unwrap().fill(sent as u8);
            })
        {
            sent += 1;
        }
        if sent == frames {
            harness.end(0);
        }
        match Harness::block_on(harness.step())? {
            // The next frame wakes a block before its time.
            Next::After(wait) => std::thread::sleep(wait.min(std::time::Duration::from_millis(1))),
            Next::Finished => return Ok(()),
            _ => {}
        }
    }
}

#[test]
fn two_threads_send_all_packets_of_every_heap_and_then_one_stop_heap() {
    use crate::io::spead::item;
    use std::collections::BTreeMap;
    // All packets fit the buffer of the receiving socket.
    const FRAMES: usize = 8;
    let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_mins(1))).unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    let received = std::thread::spawn(move || {
        let mut heaps: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut bytes = [0; 9000];
        loop {
            let len = receiver.recv(&mut bytes).unwrap();
            let packet = crate::io::spead::packet::Packet::parse(&bytes[..len]).unwrap();
            if packet.value(item::STREAM_CONTROL) == Some(item::STREAM_STOP) {
                return heaps;
            }
            let timestamp = packet.value(item::TIMESTAMP);
            let is_data = !packet.pointers().any(|pointer| pointer.id == item::DESCRIPTOR);
            if let Some(timestamp) = timestamp.filter(|_| is_data) {
                let (_, bytes) = heaps.entry(packet.heap_counter).or_insert((timestamp, 0));
                *bytes += packet.payload.len();
                let frame = timestamp / 4096;
                assert!(packet.payload.iter().all(|byte| *byte == frame as u8));
            }
        }
    });
    run_two_threads(&to, FRAMES).unwrap();
    let heaps = received.join().unwrap();
    let mut timestamps: Vec<u64> = heaps.values().map(|(timestamp, _)| *timestamp).collect();
    timestamps.sort_unstable();
    assert_eq!(timestamps, (0..2 * FRAMES as u64).map(|heap| 2048 * heap).collect::<Vec<_>>());
    let bytes = heaps.values().map(|(_, bytes)| *bytes);
    assert_eq!(bytes.collect::<Vec<_>>(), [64 * 16 * 2 * 2; 2 * FRAMES]);
}

#[test]
fn receivers_of_a_sink_with_threads_see_one_sender_and_its_stop_heap() {
    use fxgraph::Control;
    use fxgraph::flowgraph::load_text;
    use fxgraph::runtime::{Options, Prepared};
    let free = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let [even, odd] = free.each_ref().map(|socket| socket.local_addr().unwrap());
    drop(free);
    // Thread 0 sends the even heaps and the stop heaps, thread 1 the odd heaps.
    let text = format!(
        "flowgraph: g
blocks:
  s:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, period_samples: 8192, paced: true, frames: 40}}
  o:
    kind: spead_sink
    input: s.pol0
    parameters: {{stream: digitiser, destinations: [\"{even}\", \"{odd}\"], samples_per_heap: 1024, threads: 2}}
  n: {{kind: null_sink, input: s.pol1}}
  r:
    kind: spead_source
    parameters: {{stream: digitiser, addresses: [\"{odd}\"], adc_sample_rate_hz: 1000000, samples_per_heap: 1024,
      samples_per_frame: 8192, stop_after_senders: 1}}
  m: {{kind: null_sink, input: r}}
"
    );
    let registry = || crate::kinds();
    let plan = load_text("g.yaml", &text, &[], &registry()).result.ok().unwrap();
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    assert!(control.wait_timeout(std::time::Duration::from_mins(1)), "the source does not end");
    assert!(running.wait().failures.is_empty());
}

#[test]
fn error_of_a_thread_is_that_of_the_sink() {
    // The kernel sends to a broadcast address only if asked to.
    let error = run_two_threads("255.255.255.255:7148", 4).unwrap_err();
    assert!(error.to_string().contains("cannot send to 255.255.255.255:7148"), "{error}");
}
