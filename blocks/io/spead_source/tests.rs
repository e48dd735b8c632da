#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use super::means::Means;
use super::*;
use crate::io::spead::item;
use crate::io::spead::packet::{Head, Pointer};
use crate::io::spead::pcap::{self, Datagram};
use fxgraph::edge::Harness;
use fxgraph::{At, Env, Frame, Next, Ports};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn source(extra: serde_json::Value) -> SpeadSource {
    let mut parameters = serde_json::json!({
        "stream": "digitiser", "adc_sample_rate_hz": 1e6, "bits": 8, "samples_per_heap": 64,
        "samples_per_frame": 256, "window": 2,
    });
    parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    serde_json::from_value(parameters).unwrap()
}

fn env() -> Env {
    Env::detached("source")
}

fn harness(parameters: &SpeadSource, env: &Env) -> Harness {
    let outputs = KindSpec::outputs(parameters, &[]).unwrap();
    let ports = Ports { inputs: vec![], outputs };
    Harness::new(parameters.build(&ports.inputs, env).unwrap(), &ports, 8).unwrap()
}

fn heap(number: u64) -> Vec<u8> {
    let items = [
        Pointer::immediate(item::TIMESTAMP, number * 64),
        Pointer::immediate(item::DIGITISER_ID, 0),
        Pointer::addressed(item::RAW_SAMPLES, 0),
    ];
    [Head::new(number, 64, 0, 64, &items).as_bytes(), &[number as u8; 64]].concat()
}

fn stop() -> Vec<u8> {
    let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
    [Head::new(1 << 30, 1, 0, 1, &items).as_bytes(), &[0]].concat()
}

/// Returns all frames until the source finishes by itself.
fn collect(harness: &mut Harness) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
    collect_while(harness, || ())
}

/// Returns all frames until the source finishes, calling `something` in every step.
fn collect_while(
    harness: &mut Harness,
    mut something: impl FnMut(),
) -> Vec<(u64, Vec<u32>, Vec<u8>)> {
    let mut frames = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut keep = |frame: Arc<Frame>| {
        let header = frame.header();
        frames.push((
            header.timestamp,
            header.validity.clone(),
            frame.as_slice::<u8>().unwrap().to_vec(),
        ));
    };
    loop {
        let next = Harness::block_on(harness.run()).unwrap();
        while let Some(frame) = harness.receive(0) {
            keep(frame);
        }
        if next == Next::Finished {
            return frames;
        }
        assert!(Instant::now() < deadline, "the source does not finish");
        something();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn heaps_from_the_network_become_frames_until_the_stop_heap() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let env = env();
    let extra = serde_json::json!({"addresses": [address], "stop_after_senders": 1});
    let mut harness = harness(&source(extra), &env);
    Harness::block_on(harness.start()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in (8..24).filter(|n| *n != 13) {
        sender.send_to(&heap(number), &address).unwrap();
    }
    sender.send_to(&stop(), &address).unwrap();
    let frames = collect(&mut harness);
    Harness::block_on(harness.finish()).unwrap();
    assert_eq!(frames.iter().map(|f| f.0).collect::<Vec<_>>(), [512, 768, 1024, 1280]);
    assert_eq!(frames[1].1, [1, 0, 1, 1]);
    assert_eq!(frames[3].2[64..128], [21; 64]);
    let received =
        env.counters.list().iter().find(|c| c.name == "packets_received").unwrap().counter.get();
    assert_eq!(received, 16);
    let last =
        env.counters.gauges().into_iter().find(|g| g.name == "last_received_timestamp_samples");
    assert_eq!(last.unwrap().gauge.get(), Some(23.0 * 64.0));
    // The summary names the sender that ended the stream.
    let said = env.summary.get();
    let from = sender.local_addr().unwrap().to_string();
    assert!(said.contains("stop heap") && said.contains(&from), "{said}");
}

#[test]
fn capture_file_with_a_slow_reader_drops_nothing() {
    play("10.0.0.1:5", ["239.1.1.2:7148", "239.1.1.9:7148"], "239.1.1.0+3:7148");
}

#[test]
fn capture_file_of_ipv6_is_played() {
    play("[fd77::1]:5", ["[ff05::1:2]:7148", "[ff05::1:9]:7148"], "[ff05::1:0]+3:7148");
    // A packet does not tell its interface.
    play("[fe80::1]:5", ["[ff02::1:2]:7148", "[ff02::1:9]:7148"], "[ff02::1:0]+3:7148");
}

/// Plays packets of a stream to the first of two destinations, which `addresses` has, and one to the other.
fn play(from: &str, to: [&str; 2], addresses: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heaps.pcap");
    let heaps: Vec<Vec<u8>> = (0..400).map(heap).collect();
    let other = heap(3);
    let mut file = std::fs::File::create(&path).unwrap();
    let from = from.parse().unwrap();
    let wanted = heaps.iter().map(|h| (to[0], h));
    let datagrams = std::iter::once((to[1], &other)).chain(wanted);
    let datagrams =
        datagrams.map(|(to, payload)| Datagram { from, to: to.parse().unwrap(), payload });
    pcap::write(&mut file, datagrams).unwrap();
    drop(file);
    let env = env();
    let parameters = source(serde_json::json!({"pcap": path, "addresses": [addresses]}));
    let mut harness = harness(&parameters, &env);
    Harness::block_on(harness.start()).unwrap();
    let frames = collect(&mut harness);
    assert_eq!(frames.len(), 100);
    for (i, (timestamp, validity, payload)) in frames.iter().enumerate() {
        assert_eq!(*timestamp, i as u64 * 256);
        assert_eq!(validity, &[1; 4]);
        assert_eq!(payload[200], (i * 4 + 3) as u8);
    }
    assert!(env.counters.list().iter().filter(|c| c.is_loss).all(|c| c.counter.get() == 0));
}

#[test]
fn source_flushes_open_frames_on_stop_and_on_silence() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    for stopping in [true, false] {
        let env = env();
        let idle = if stopping { serde_json::json!(null) } else { serde_json::json!(0.2) };
        let extra = serde_json::json!({"addresses": [address], "finish_after_seconds": idle});
        let mut harness = harness(&source(extra), &env);
        Harness::block_on(harness.start()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..6 {
            sender.send_to(&heap(number), &address).unwrap();
        }
        let mut frames = 0;
        if stopping {
            // Until the first, complete frame is out, so that the second one is open.
            while frames == 0 {
                Harness::block_on(harness.run()).unwrap();
                frames += usize::from(harness.receive(0).is_some());
            }
            std::thread::sleep(Duration::from_millis(100));
            harness.stopping = true;
        }
        assert_eq!(frames + collect(&mut harness).len(), 2);
    }
}

#[test]
fn rejected_packets_do_not_delay_the_end_of_the_stream() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    for idle in [serde_json::json!(null), serde_json::json!(0.2)] {
        let env = env();
        let extra = serde_json::json!({
            "addresses": [address], "finish_after_seconds": idle, "stop_after_senders": 1,
        });
        let mut harness = harness(&source(extra), &env);
        Harness::block_on(harness.start()).unwrap();
        let [sender, stranger] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for number in 40..80 {
            sender.send_to(&heap(number), &address).unwrap();
        }
        if idle.is_null() {
            sender.send_to(&stop(), &address).unwrap();
        }
        // Noise, a late heap, a heap far ahead, and the stop heap of a stranger.
        let noise = [b"noise".to_vec(), heap(3), heap(1 << 30), stop()];
        let frames = collect_while(&mut harness, || {
            for datagram in &noise {
                stranger.send_to(datagram, &address).unwrap();
            }
        });
        assert_eq!(frames.len(), 10);
        assert_eq!(count(&env, "heaps_stop"), u64::from(idle.is_null()));
        let said = env.summary.get();
        let from = sender.local_addr().unwrap().to_string();
        assert!(said.contains(&from), "{said}");
    }
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
}

/// Runs the source until it has sent `count` frames.
fn frames(harness: &mut Harness, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut got = 0;
    while got < count {
        assert!(Instant::now() < deadline, "{got} of {count} frames");
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
        got += std::iter::from_fn(|| harness.receive(0)).count();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(got, count);
}

#[test]
fn stop_heap_of_a_foreign_address_is_ignored_after_one_packet_of_data() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let env = env();
    let extra = serde_json::json!({"addresses": [address], "stop_after_senders": 1});
    let mut harness = harness(&source(extra), &env);
    Harness::block_on(harness.start()).unwrap();
    let [sender, foreign] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let send = |range: std::ops::Range<u64>| {
        for number in range {
            let from = if number == 30 { &foreign } else { &sender };
            from.send_to(&heap(number), &address).unwrap();
        }
    };
    send(0..40);
    foreign.send_to(&stop(), &address).unwrap();
    frames(&mut harness, 10);
    // Longer than the source waits after a stop heap.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
    send(40..80);
    sender.send_to(&stop(), &address).unwrap();
    assert_eq!(collect(&mut harness).len(), 10);
    assert_eq!((count(&env, "heaps_stop"), count(&env, "heaps_stop_refused")), (1, 1));
}

#[test]
fn stop_heap_is_ignored_by_default_and_the_sender_may_return() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let env = env();
    let mut harness = harness(&source(serde_json::json!({"addresses": [address]})), &env);
    Harness::block_on(harness.start()).unwrap();
    for round in 0..3 {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..40 {
            sender.send_to(&heap(round * 40 + number), &address).unwrap();
        }
        sender.send_to(&stop(), &address).unwrap();
        frames(&mut harness, 10);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
    assert_eq!(count(&env, "heaps_stop"), 3);
    harness.stopping = true;
    assert_eq!(collect(&mut harness).len(), 0);
    assert!(env.summary.get().contains("was stopped"), "{}", env.summary.get());
}

/// Sends heaps of a digitiser that restarts; returns the timestamps of frames, or the error.
fn restarted(on_restart: &str, env: &Env) -> Result<Vec<u64>, String> {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let extra = serde_json::json!({"addresses": [address], "on_restart": on_restart});
    let mut harness = harness(&source(extra), env);
    Harness::block_on(harness.start()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = 100_000_000;
    for number in 0..40 {
        sender.send_to(&heap(first + number), &address).unwrap();
    }
    frames(&mut harness, 10);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut times = Vec::new();
    for number in 0.. {
        assert!(Instant::now() < deadline, "neither frames nor an error");
        sender.send_to(&heap(number), &address).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        Harness::block_on(harness.run()).map_err(|error| error.to_string())?;
        times.extend(std::iter::from_fn(|| harness.receive(0)).map(|f| f.header().timestamp));
        if times.len() >= 30 {
            break;
        }
    }
    Ok(times)
}

#[test]
fn restarted_digitiser_continues_with_resync() {
    let env = env();
    let times = restarted("resync", &env).unwrap();
    let expected: Vec<u64> = (0..times.len() as u64).map(|n| (1 << 48) + n * 256).collect();
    assert_eq!(times, expected);
    assert_eq!(count(&env, "resyncs"), 1);
    let gauges = env.counters.gauges();
    let sync = gauges.iter().find(|g| g.name == "sync_time_seconds").unwrap().gauge.get();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_secs_f64() - sync.unwrap()).abs() < 60.0);
}

#[test]
fn restarted_digitiser_ends_the_source_with_a_reason_with_stop() {
    let env = env();
    let error = restarted("stop", &env).unwrap_err();
    // 10^8 heaps of 64 samples, 10^6 a second.
    assert!(error.contains("(6400.0 s)") && error.contains("sync_time_seconds"), "{error}");
    assert!(env.summary.get().contains("sync_time_seconds"), "{}", env.summary.get());
}

#[test]
fn live_source_waits_for_frames_while_the_socket_buffer_lasts() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let env = env();
    let extra = serde_json::json!({"addresses": [address], "stop_after_senders": 1});
    let mut harness = harness(&source(extra), &env);
    Harness::block_on(harness.start()).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Far more frames than are lent, and no block takes any for a while.
    for number in 0..80 {
        sender.send_to(&heap(number), &address).unwrap();
    }
    Harness::block_on(harness.run()).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    sender.send_to(&stop(), &address).unwrap();
    assert_eq!(collect(&mut harness).len(), 20);
    assert_eq!(count(&env, "frames_dropped"), 0);
}

#[test]
fn capture_records_that_are_not_datagrams_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mixed.pcap");
    let heaps: Vec<Vec<u8>> = (0..8).map(heap).collect();
    let mut bytes = Vec::new();
    let (from, to) = ("10.0.0.1:5".parse().unwrap(), "239.1.1.2:7148".parse().unwrap());
    let datagrams = heaps.iter().map(|payload| Datagram { from, to, payload });
    pcap::write(&mut bytes, datagrams).unwrap();
    // A record of 20 bytes that is an IPv4 header of TCP.
    bytes.extend([0; 8]);
    bytes.extend([20, 0, 0, 0, 20, 0, 0, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6]);
    bytes.extend([0; 10]);
    std::fs::write(&path, bytes).unwrap();
    let env = env();
    let mut harness = harness(&source(serde_json::json!({"pcap": path})), &env);
    Harness::block_on(harness.start()).unwrap();
    assert_eq!(collect(&mut harness).len(), 2);
    assert_eq!(count(&env, "packets_received"), 8);
    assert_eq!(count(&env, "records_skipped"), 1);
    assert_eq!(count(&env, "records_extended"), 0);
}

#[test]
fn default_window_covers_125_ms_of_samples_and_50_ms_of_antennas_within_its_limits() {
    let frames = |extra: serde_json::Value| {
        let parameters = source(extra);
        Means::of(&parameters, &parameters.layout().unwrap(), 0.0).window
    };
    let f = |antennas: usize, channels: usize| {
        serde_json::json!({
            "stream": "f_engine", "channels": channels, "antennas": antennas, "window": null,
            "adc_sample_rate_hz": 1.712e9, "samples_per_frame": null, "pcap": "x", "substreams": 4,
        })
    };
    // Heaps of 2.45 ms: 50 ms of heaps, or as many as 256 MiB hold.
    assert_eq!(frames(f(1, 8192)), 21);
    assert_eq!(frames(f(4, 8192)), 8);
    assert_eq!(frames(f(16, 8192)), 4);
    // Heaps of 31 us: the largest window.
    assert_eq!(frames(f(4, 100)), 64);
    assert_eq!(frames(serde_json::json!({"pcap": "x", "window": 7})), 7);
    // Frames of a quarter second.
    assert_eq!(
        frames(serde_json::json!({"pcap": "x", "window": null, "samples_per_frame": 262_144})),
        4
    );
}

#[test]
fn port_in_use_is_named_in_the_error() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut harness = harness(&source(serde_json::json!({"addresses": [address]})), &env());
    let error = Harness::block_on(harness.start()).unwrap_err().to_string();
    assert!(error.contains(&address), "{error}");
}

#[test]
fn missing_capture_file_is_named_in_the_error() {
    let mut harness = harness(&source(serde_json::json!({"pcap": "/nowhere/x.pcap"})), &env());
    let error = Harness::block_on(harness.start()).unwrap_err().to_string();
    assert!(error.contains("/nowhere/x.pcap"), "{error}");
}

#[test]
fn bad_parameters_are_all_reported_at_once_with_help() {
    let parameters = source(serde_json::json!({
        "addresses": ["239.1.1.1"], "bits": 11, "adc_sample_rate_hz": 0.0, "pol": 2,
    }));
    let rejections = KindSpec::outputs(&parameters, &[]).unwrap_err();
    let at: Vec<_> = rejections.iter().map(|r| r.at.clone()).collect();
    let expected = ["addresses", "adc_sample_rate_hz", "bits", "pol"];
    assert_eq!(at, expected.map(At::Parameter));
    assert!(rejections.iter().all(|r| r.help.is_some()));
}

#[test]
fn spead_source_rejects_hostile_sizes() {
    let f = |extra: serde_json::Value| {
        let mut parameters = serde_json::json!({
            "stream": "f_engine", "adc_sample_rate_hz": 1e9, "channels": 1024, "antennas": 4,
            "pcap": "x", "substreams": 4,
        });
        parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let source: SpeadSource = fxgraph::kind::read(&parameters).map_err(|_| vec![])?;
        source.outputs(&[])
    };
    let ports = f(serde_json::json!({})).unwrap();
    assert_eq!(
        ports[0].to_string(),
        "ci8 [heap 1][antenna 4][channel 1024][spectrum 256][pol 2] @ 1 GS/s / 524288"
    );
    for (key, value) in [
        ("channels", 0_u64),
        ("channels", u64::MAX),
        ("antennas", 0),
        ("antennas", 1 << 40),
        ("substreams", 0),
        ("substreams", 1 << 60),
        ("spectra_per_heap", 0),
        ("spectra_per_heap", u64::MAX),
        ("channels_per_substream", 0),
        ("channels_per_substream", u64::MAX),
        ("first_channel", u64::MAX),
        ("samples_per_spectrum", 0),
        ("samples_per_spectrum", u64::MAX),
        ("samples_per_frame", 0),
        ("samples_per_frame", 524_289),
        ("samples_per_frame", 1 << 60),
        ("receive_buffer_bytes", u64::MAX),
        ("window", u64::MAX),
    ] {
        assert!(f(serde_json::json!({key: value})).is_err(), "{key} = {value}");
    }
}

#[test]
fn frame_sizes_are_those_of_digitisers_on_the_network() {
    let sizes = |extra| source(extra).frame_sizes().map(|frame| frame.sizes);
    let network = sizes(serde_json::json!({})).unwrap();
    assert_eq!((network[0], network[1]), (64, 128));
    assert_eq!(network.last(), Some(&(32 << 20)), "8 bits up to 32 MiB");
    assert_eq!(sizes(serde_json::json!({"samples_per_heap": 0})), None);
    assert_eq!(sizes(serde_json::json!({"stream": "f_engine", "channels": 64})), None);
}

#[test]
fn flagged_antennas_are_missing_from_the_heap_at_the_effective_timestamp() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heaps.pcap");
    // 4 channels, 4 spectra of 8 samples and 2 polarisations of complex bytes: heaps of 32 samples and 64 bytes.
    let heap = |number: u64, antenna: u64| {
        let items = [
            Pointer::immediate(item::TIMESTAMP, number * 32),
            Pointer::immediate(item::FENG_ID, antenna),
            Pointer::immediate(item::FREQUENCY, 0),
            Pointer::addressed(item::FENG_RAW, 0),
        ];
        let value = (10 * antenna + number + 1) as u8;
        [Head::new(2 * number + antenna, 64, 0, 64, &items).as_bytes(), &[value; 64]].concat()
    };
    let heaps: Vec<Vec<u8>> = (0..8).flat_map(|n| [heap(n, 0), heap(n, 1)]).collect();
    let (from, to) = ("10.0.0.1:5".parse().unwrap(), "239.1.1.2:7148".parse().unwrap());
    let datagrams = heaps.iter().map(|payload| Datagram { from, to, payload });
    pcap::write(&mut std::fs::File::create(&path).unwrap(), datagrams).unwrap();
    let parameters: SpeadSource = serde_json::from_value(serde_json::json!({
        "stream": "f_engine", "adc_sample_rate_hz": 1e6, "channels": 4, "antennas": 2,
        "spectra_per_heap": 4, "substreams": 1, "samples_per_frame": 64, "window": 2,
        "pcap": path, "flagged_antennas": [0],
    }))
    .unwrap();
    let outputs = KindSpec::outputs(&parameters, &[]).unwrap();
    let ports = Ports { inputs: vec![], outputs };
    let env = env();
    let mut block = parameters.build(&ports.inputs, &env).unwrap();
    for (from, mask) in [(96, vec![false, true]), (160, vec![false, false])] {
        let change = fxgraph::changes::When::at(from);
        block.update(change.change(vec![("flagged_antennas", Box::new(mask))])).unwrap();
    }
    let mut harness = Harness::new(block, &ports, 8).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let frames = collect(&mut harness);
    let flags: Vec<u32> = frames.iter().flat_map(|(_, validity, _)| validity.clone()).collect();
    // Units are [heap][antenna].
    let expected = [[0, 1], [0, 1], [0, 1], [1, 0], [1, 0], [1, 1], [1, 1], [1, 1]];
    assert_eq!(flags, expected.concat());
    let payloads = frames.iter().flat_map(|(_, _, payload)| payload.chunks(64));
    for (unit, (payload, flag)) in payloads.zip(&flags).enumerate() {
        let (number, antenna) = (unit / 2, unit % 2);
        let value = (10 * antenna + number + 1) as u8 * *flag as u8;
        assert_eq!(payload, [value; 64]);
    }
    assert_eq!(count(&env, "antenna_heaps_flagged"), 5);
}

#[test]
fn spead_source_rejects_flags_of_antennas_that_do_not_exist() {
    let parameters = source(serde_json::json!({"pcap": "x", "flagged_antennas": [0]}));
    let rejections = KindSpec::outputs(&parameters, &[]).unwrap_err();
    assert_eq!(rejections[0].at, At::Parameter("flagged_antennas"));
}

#[test]
fn nyquist_zone_gives_the_band_of_digitisers_and_of_f_engines() {
    let f_engine = |extra: serde_json::Value| {
        let mut parameters = serde_json::json!({
            "stream": "f_engine", "addresses": ["127.0.0.1:7148"], "adc_sample_rate_hz": 8e8,
            "channels": 16, "spectra_per_heap": 4, "samples_per_frame": 128,
        });
        parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value::<SpeadSource>(parameters).unwrap()
    };
    let digitiser = |extra: serde_json::Value| {
        let mut parameters =
            serde_json::json!({"addresses": ["127.0.0.1:7148"], "adc_sample_rate_hz": 8e8});
        parameters.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        source(parameters)
    };
    let band = |source: SpeadSource| source.outputs(&[]).unwrap()[0].band;
    let second = serde_json::json!({"nyquist_zone": 2});
    assert_eq!(band(digitiser(serde_json::json!({}))), None);
    assert_eq!(band(digitiser(second.clone())), Some(Band::signed(1, 0, 6e8, -4e8)));
    let mixed = serde_json::json!({"nyquist_zone": 2, "centre_hz": 1.4e9});
    assert_eq!(band(digitiser(mixed)), Some(Band::signed(1, 0, 1.4e9, -4e8)));
    assert_eq!(band(f_engine(serde_json::json!({}))), Some(Band::signed(16, 0, 2e8, 4e8)));
    assert_eq!(band(f_engine(second)), Some(Band::signed(16, 0, 6e8, -4e8)));
    let signed = serde_json::json!({"centre_hz": 6e8, "bandwidth_hz": -4e8});
    assert_eq!(band(f_engine(signed)), Some(Band::signed(16, 0, 6e8, -4e8)));
    let both = f_engine(serde_json::json!({"nyquist_zone": 2, "bandwidth_hz": 4e8}));
    assert_eq!(both.outputs(&[]).unwrap_err()[0].at, At::Parameter("bandwidth_hz"));
}
