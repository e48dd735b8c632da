//! A digitiser that is restarted with another sync time while the receiver goes on, from packets to files.

use super::{example, fxgraph, needs, script};
use crate::support::http::Program;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const RATE: &str = "1048576";

/// Unix time of the host in seconds.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Sends 4 seconds of packets of a digitiser with a sync time, at the present time. Returns the sync time and the time of
/// the host before and after it.
fn digitise(directory: &Path, addresses: &[String; 2], sync_time: u64) -> String {
    let flowgraph = example("05_digitisers.yaml").display().to_string();
    let settings = [
        format!("adc_sample_rate_hz={RATE}"),
        format!("sync_time_seconds={sync_time}"),
        "seconds=4".to_owned(),
        format!("pol0={}", addresses[0]),
        format!("pol1={}", addresses[1]),
    ];
    let set = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["run", "--quiet", &flowgraph].into_iter().chain(set).collect();
    let before = now();
    let output = fxgraph(directory, &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    format!("{sync_time},{before},{}", now())
}

#[test]
fn uvh5_files_before_and_after_a_restart_of_the_digitiser_have_the_times_of_their_sync_times() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // All bound at once, so that the ports differ.
    let free = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let addresses = free.each_ref().map(|socket| socket.local_addr().unwrap().to_string());
    drop(free);
    let started = now() as u64;
    let sync_times = [started - 5000, started - 7];
    let source = |pol: usize| {
        format!(
            "  pol{pol}:
    kind: spead_source
    parameters: {{stream: digitiser, pol: {pol}, addresses: ['{}'], adc_sample_rate_hz: {RATE}, sync_time_seconds: {}}}
",
            addresses[pol], sync_times[0]
        )
    };
    let flowgraph = format!(
        "flowgraph: restarted
include: ['{}']
parameters: {{adc_sample_rate_hz: {RATE}}}
blocks:
{}{}  f: {{template: f_engine, inputs: [pol0, pol1], parameters: {{channels: 64, gain: 0.35}}}}
  array: {{kind: antenna_stack, inputs: [f]}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 512}}}}
  vis:
    kind: uvh5_sink
    input: x
    parameters:
      path: vis.uvh5
      telescope: {{name: laboratory, latitude_degrees: 50.73, longitude_degrees: 7.1, height_metres: 62}}
      antennas_enu_metres: [[0, 0, 0]]
",
        example("include/f_engine.yaml").display(),
        source(0),
        source(1)
    );
    let receiver = Program::running(directory, &flowgraph, &[]);
    let runs = sync_times.map(|sync_time| digitise(directory, &addresses, sync_time));
    assert_eq!(receiver.post("/api/v1/flowgraph/stop").status, 202);
    let output = receiver.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!directory.join("vis_3.uvh5").exists());
    let said = script(directory, "restarted.py", &[RATE, &runs[0], &runs[1]]);
    print!("{said}");
    assert!(said.contains("2 files have the times of their sync times"), "{said}");
}
