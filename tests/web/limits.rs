//! Bottlenecks that queues do not show, or show at several blocks.

use super::http::{self, Program};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn receiver_that_is_too_slow_is_the_limit_and_leaves_no_margin() {
    // The kernel chooses a free port, which the flowgraph uses next.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let flowgraph = format!(
        "flowgraph: receiver
blocks:
  clock:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true}}
  pol0: {{kind: null_sink, input: clock.pol0}}
  pol1: {{kind: null_sink, input: clock.pol1}}
  receiver:
    kind: spead_source
    parameters: {{stream: digitiser, addresses: [\"127.0.0.1:{port}\"], adc_sample_rate_hz: 1712000000,
                 receive_buffer_bytes: 4096}}
  end: {{kind: null_sink, input: receiver}}
"
    );
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), &flowgraph, &[]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // No heaps: the thread works, and no frame leaves the block. More packets than the buffer holds at a time.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..1000 {
                    let _ = socket.send_to(&[0; 64], ("127.0.0.1", port));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let began = Instant::now();
        let flowgraph = loop {
            let flowgraph = program.get("/api/v1/flowgraph").json();
            let is_known = flowgraph["limited_by"]["block"] == "receiver";
            if is_known || began.elapsed() > Duration::from_mins(1) {
                break flowgraph;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let block = program.get("/api/v1/blocks/receiver").json();
        let metrics = program.get("/metrics").body;
        is_over.store(true, Ordering::Relaxed);

        let limit = &flowgraph["limited_by"];
        assert_eq!(limit["block"], "receiver", "{limit}");
        let text = limit["text"].as_str().unwrap();
        assert!(text.contains("thread `receive`") || text.contains("packets per second"), "{text}");
        assert!(flowgraph["deadline_margin_fraction"].as_f64().unwrap() < 0.1, "{flowgraph}");
        assert_eq!(block["threads"][0]["name"], "receive");
        assert!(block["threads"][0]["busy_seconds"].as_f64().unwrap() > 0.0);
        let counters = block["counters"].as_array().unwrap();
        let dropped =
            counters.iter().find(|counter| counter["name"] == "packets_dropped_by_kernel");
        assert!(dropped.unwrap()["count"].as_u64().unwrap() > 0);
        let busy = metrics.lines().any(|line| {
            line.starts_with("fxgraph_block_thread_busy_seconds_total{")
                && line.contains("block=\"receiver\"")
                && line.contains("thread=\"receive\"")
        });
        assert!(busy, "{metrics}");
    });
    super::stop(program);
}

#[test]
fn block_that_stalls_once_a_second_is_the_limit_and_not_its_busier_reader() {
    let flowgraph = "flowgraph: bursts
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true}
  end: {kind: null_sink, input: source.pol1}
  burst: {kind: fault_injector, input: source.pol0, parameters: {stall_seconds: 0.3}}
  pfb: {kind: pfb, input: burst, parameters: {channels: 1024, taps: 8}}
  sink: {kind: null_sink, input: pfb}
";
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), flowgraph, &[]);
    let limits = (0..20).map(|_| {
        let stall = r#"{"burst": {"fault": "stall"}}"#;
        let json = [("Content-Type", "application/json")];
        let blocks = "/api/v1/blocks";
        let made = http::request(program.address, "PATCH", blocks, &json, stall.as_bytes());
        assert_eq!(made.status, 200, "{made:?}");
        std::thread::sleep(Duration::from_secs(1));
        program.get("/api/v1/flowgraph").json()["limited_by"].clone()
    });
    let named: Vec<_> = limits.filter(|limit| limit["block"].is_string()).take(3).collect();
    let right = named.iter().filter(|limit| limit["block"] == "burst").count();
    assert!(right >= 2, "{named:?}");
    super::stop(program);
}
