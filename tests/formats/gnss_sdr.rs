//! Satellites that the receiver finds are those that gnss-sdr finds in the same file.

use super::{fxgraph, needs, script};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const RATE_HZ: u32 = 4_000_000;

/// A receiver of all GPS satellites in a file of `RATE_HZ` complex samples per second.
fn receiver(file: &str, bandwidth_hz: f64) -> String {
    let satellites = (1..=32).map(|prn| format!("{{system: gps_l1_ca, prn: {prn}}}"));
    format!(
        "flowgraph: receiver
blocks:
  samples:
    kind: file_source
    parameters:
      path: {file}
      raw:
        dtype: ci8
        axes: [{{name: sample, len: 80000}}]
        samples_per_frame: 80000
        adc_sample_rate_hz: {RATE_HZ}
        band: {{channels: 1, centre_hz: 1575420000, bandwidth_hz: {bandwidth_hz}}}
  acquire:
    kind: gnss_acquisition
    input: samples
    parameters: {{satellites: [{}]}}
  track: {{kind: gnss_tracker, inputs: [samples, acquire]}}
  end: {{kind: null_sink, input: track}}
",
        satellites.collect::<Vec<_>>().join(", ")
    )
}

/// Doppler shift in Hz and C/N0 in dB Hz of each satellite in the table that the receiver prints.
fn found(directory: &Path, file: &str, bandwidth_hz: f64) -> BTreeMap<u64, [f64; 2]> {
    fs::write(directory.join("receiver.yaml"), receiver(file, bandwidth_hz)).unwrap();
    let output = fxgraph(directory, &["run", "receiver.yaml"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let rows = printed.lines().filter_map(|line| line.trim_start().strip_prefix('G'));
    // A satellite that was found and never locked has no values.
    let value = |text: &str| if text == "-" { f64::NAN } else { text.parse().unwrap() };
    let row = |row: &str| {
        let values: Vec<f64> = row.split_whitespace().map(value).collect();
        (values[0] as u64, [values[1], values[2]])
    };
    rows.map(row).collect()
}

/// Returns the satellites that gnss-sdr tracks, and all that it found.
fn of_gnss_sdr(directory: &Path, arguments: &[&str]) -> (Vec<u64>, Value) {
    let found: Value = serde_json::from_str(&script(directory, "gnss_sdr.py", arguments)).unwrap();
    let tracked = found["tracked"].as_array().unwrap();
    (tracked.iter().map(|prn| prn.as_u64().unwrap()).collect(), found)
}

/// Turns the spectrum of interleaved complex samples of 8 bits.
fn conjugate(samples: &mut [u8]) {
    samples
        .iter_mut()
        .skip(1)
        .step_by(2)
        .for_each(|imaginary| *imaginary = imaginary.wrapping_neg());
}

#[test]
fn gnss_sdr_finds_the_simulated_satellites_that_the_receiver_finds() {
    if !needs::formats() || !needs::gnss_sdr() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let sky = format!(
        "flowgraph: sky
blocks:
  sky:
    kind: gnss_signal_simulator
    parameters:
      satellites:
        - {{system: gps_l1_ca, prn: 3, doppler_hz: 1234.5, code_phase_chips: 100.3, cn0_db_hz: 53}}
        - {{system: gps_l1_ca, prn: 17, doppler_hz: -2222, code_phase_chips: 900.7, cn0_db_hz: 53}}
      dtype: ci8
      noise_rms: 12
      adc_sample_rate_hz: {RATE_HZ}
      samples_per_frame: 80000
      frames: 50
  file: {{kind: file_sink, input: sky, parameters: {{path: sky.npy}}}}
"
    );
    super::run_flowgraph(directory, &sky);
    let array = fs::read(directory.join("sky.npy")).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([array[8], array[9]]));
    let mut samples = array[header..].to_vec();
    fs::write(directory.join("sky.i8"), &samples).unwrap();

    let rate = RATE_HZ.to_string();
    let (tracked, first) = of_gnss_sdr(directory, &["sky.i8", &rate, "8", "3"]);
    assert_eq!(tracked, [3, 17]);
    assert_eq!(first["positive"], true);
    let doppler_hz = first["doppler_hz"].as_f64().unwrap();

    let upper = found(directory, "sky.i8", 4e6);
    conjugate(&mut samples);
    fs::write(directory.join("turned.i8"), &samples).unwrap();
    let lower = found(directory, "turned.i8", -4e6);
    for found in [upper, lower] {
        assert_eq!(found.keys().collect::<Vec<_>>(), [&3, &17]);
        // The bins of gnss-sdr are 250 Hz apart.
        assert!((found[&3][0] - doppler_hz).abs() <= 125.0, "{found:?} {doppler_hz}");
        for (prn, shift) in [(3, 1234.5), (17, -2222.0)] {
            let [measured, cn0] = found[&prn];
            assert!((measured - shift).abs() < 5.0 && (cn0 - 53.0).abs() < 1.0, "{found:?}");
        }
    }
}

#[test]
fn gnss_sdr_finds_no_satellite_of_the_recording_that_the_receiver_does_not_find() {
    let Ok(recordings) = std::env::var("FXGRAPH_RECORDINGS") else {
        println!("skipped: FXGRAPH_RECORDINGS does not name a directory of recordings");
        return;
    };
    if !needs::formats() || !needs::gnss_sdr() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let recording = Path::new(&recordings).join("gnss_l1_4msps_iq.i8");
    let own = found(directory, recording.to_str().unwrap(), -4e6);
    let mut samples = fs::read(&recording).unwrap();
    conjugate(&mut samples);
    fs::write(directory.join("turned.i8"), samples).unwrap();
    let (tracked, _) = of_gnss_sdr(directory, &["turned.i8", &RATE_HZ.to_string(), "16"]);
    println!("gnss-sdr: {tracked:?}; the receiver: {own:?}");
    assert!(tracked.len() >= 4, "{tracked:?}");
    assert!(tracked.iter().all(|prn| own.contains_key(prn)), "{tracked:?} {own:?}");
    let is_there = |prn: &u64| [4, 16, 18, 25, 26, 29, 31, 32].contains(prn);
    assert!(own.len() >= 7 && own.keys().all(is_there), "{own:?}");

    // The same satellites in the samples of a pipe, whose sideband the sink turns.
    let yaml = format!(
        "flowgraph: pipe
blocks:
  samples:
    kind: file_source
    parameters:
      path: {}
      raw:
        dtype: ci8
        axes: [{{name: sample, len: 80000}}]
        samples_per_frame: 80000
        adc_sample_rate_hz: {RATE_HZ}
        band: {{channels: 1, centre_hz: 1575420000, bandwidth_hz: -4e6}}
  sink:
    kind: sample_sink
    input: samples
    parameters: {{to: {{fifo: pipe}}, type: ci16, conjugate: true}}
",
        recording.display()
    );
    fs::write(directory.join("pipe.yaml"), yaml).unwrap();
    let mut sink = std::process::Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let mut sink =
        sink.args(["run", "--quiet", "pipe.yaml"]).current_dir(directory).spawn().unwrap();
    while !directory.join("pipe").exists() {
        assert!(sink.try_wait().unwrap().is_none());
    }
    // The acquisition of weak ones takes longer than the recording lasts in some runs.
    let strong = tracked.iter().filter(|prn| own[*prn][1] >= 40.0);
    let wanted: Vec<String> = strong.clone().map(ToString::to_string).collect();
    assert!(wanted.len() >= 4, "{wanted:?}");
    let arguments = ["--pipe", "pipe", &RATE_HZ.to_string(), "16", &wanted.join(",")];
    let (of_pipe, _) = of_gnss_sdr(directory, &arguments);
    println!("gnss-sdr on the pipe: {of_pipe:?}");
    assert!(sink.wait().unwrap().success());
    assert!(strong.clone().all(|prn| of_pipe.contains(prn)), "{tracked:?} {of_pipe:?}");
    assert!(of_pipe.iter().all(is_there), "{of_pipe:?}");
}
