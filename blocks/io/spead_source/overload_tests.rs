//! A live flowgraph that gets twice as much as it can process.
#![allow(clippy::unwrap_used)]

use fxgraph::Control;
use fxgraph::flowgraph::load_text;
use fxgraph::runtime::{Options, Prepared};
use std::net::UdpSocket;
use std::time::Duration;

/// Two polarisations of 250 frames per second each, and a block that passes 125 of them.
fn flowgraph(ports: [u16; 2]) -> String {
    let [pol0, pol1] = ports;
    format!(
        "flowgraph: g
blocks:
  sky:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 2048000, samples_per_frame: 8192, period_samples: 8192, paced: true}}
  send:
    kind: spead_sink
    replicate: 2
    input: \"sky.pol${{index}}\"
    parameters:
      stream: digitiser
      digitiser_id: \"${{index}}\"
      samples_per_heap: 1024
      destinations: [\"127.0.0.1:${{{pol0} if index == 0 else {pol1}}}\"]
  pol:
    kind: spead_source
    replicate: 2
    parameters:
      stream: digitiser
      pol: \"${{index}}\"
      addresses: [\"127.0.0.1:${{{pol0} if index == 0 else {pol1}}}\"]
      adc_sample_rate_hz: 2048000
      samples_per_heap: 1024
      samples_per_frame: 8192
      receive_buffer_bytes: 524288
  align: {{kind: pol_aligner, inputs: [\"pol[0]\", \"pol[1]\"]}}
  slow:
    kind: fault_injector
    input: align.pol0
    parameters: {{fault: stall, faults: 1000000, stall_seconds: 0.008}}
  n: {{kind: null_sink, replicate: 2, input: \"${{['slow', 'align.pol1'][index]}}\"}}
"
    )
}

#[test]
fn overloaded_flowgraph_drops_the_same_frames_of_both_polarisations() {
    const LIMIT: Duration = Duration::from_mins(1);
    let free = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let ports = free.each_ref().map(|socket| socket.local_addr().unwrap().port());
    drop(free);
    let registry = || crate::kinds();
    let loaded = load_text("g.yaml", &flowgraph(ports), &[], &registry()).result;
    let plan = loaded.unwrap_or_else(|problems| panic!("{problems:?}"));
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    let count = |block: &str, name: &str| {
        let stats = control.stats().into_iter().find(|stats| stats.name == block).unwrap();
        stats.counters.iter().find(|named| named.name == name).unwrap().counter.get()
    };
    while count("align", "pairs") < 500 {
        assert!(!control.wait_timeout(Duration::from_millis(10)), "the flowgraph has ended");
    }
    control.request_stop();
    assert!(control.wait_timeout(LIMIT));
    assert!(running.wait().failures.is_empty());
    let pairs = count("align", "pairs");
    let dropped = ["pol[0]", "pol[1]"].map(|pol| count(pol, "frames_dropped"));
    let unpaired = ["pol0", "pol1"].map(|pol| count("align", &format!("{pol}_frames_unpaired")));
    assert!(dropped.iter().all(|dropped| *dropped > pairs / 4), "{dropped:?} of {pairs}");
    assert!(unpaired.iter().sum::<u64>() < pairs / 10, "{unpaired:?} of {pairs}");
}
