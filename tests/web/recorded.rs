//! Recorded files stay when the process records to the same name again: after a swap, a restart and a second start.

use super::http::{Program, request};
use std::path::Path;
use std::time::{Duration, Instant};

/// A sink of each kind that has files; each may overwrite.
const FLOWGRAPH: &str = r#"flowgraph: recorded
parameters: {queue: 4}
blocks:
  n: {kind: digitiser_simulator, parameters: {signals: "wgn(0.1)", paced: true, adc_sample_rate_hz: 1.024e6, samples_per_frame: 32768, sync_time_seconds: 1.79e9}}
  f: {kind: f_engine, inputs: [n.pol0, n.pol1], queue: "${queue}", parameters: {channels: 64, gains: 0.3}}
  a: {kind: antenna_stack, inputs: [f]}
  x: {kind: correlator, input: a, parameters: {spectra_per_dump: 256}}
  p: {kind: pfb, input: n.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 1024}}
  t: {kind: fft, input: p}
  d: {kind: detect, input: t, parameters: {spectra: 4, products: power}}
  uvh5: {kind: uvh5_sink, inputs: [x], parameters: {path: o.uvh5, overwrite: true, commit_seconds: 0.1, telescope: {name: t, latitude_degrees: -30, longitude_degrees: 20, height_metres: 1000}, antennas_enu_metres: [[0, 0, 0]]}}
  fil: {kind: filterbank_sink, input: d, parameters: {path: o.fil, bits: 32, overwrite: true}}
  guppi: {kind: guppi_sink, input: f, parameters: {path: o.0000.raw, overwrite: true}}
  dada: {kind: dada_sink, input: f, parameters: {path: o.dada, overwrite: true}}
  vdif: {kind: vdif_sink, input: n.pol1, parameters: {path: o.vdif, overwrite: true, bits: 2, payload_bytes: 1000}}
  r: {kind: ddc, input: n.pol1, parameters: {centre_hz: 256.0e+3, decimation: 4, samples_per_frame: 4096}}
  sigmf: {kind: sigmf_sink, input: r, parameters: {path: o.sigmf-meta, overwrite: true}}
  npy: {kind: file_sink, input: x, parameters: {path: o.npy, overwrite: true}}
  npz: {kind: file_sink, input: x, parameters: {path: p.npz, overwrite: true}}
  png: {kind: image_sink, input: t, parameters: {path: o.png, rows: channel, columns: spectrum}}
"#;

/// Each sink, its first file and its second, and a parameter to change with a value.
const SINKS: [(&str, &str, &str, &str); 9] = [
    ("uvh5", "o.uvh5", "o_2.uvh5", r#"{"commit_seconds": 0.2}"#),
    ("fil", "o.fil", "o_2.fil", r#"{"source_name": "b"}"#),
    ("guppi", "o.0000.raw", "o.0000_2.raw", r#"{"telescope": "b"}"#),
    ("dada", "o.dada", "o_2.dada", r#"{"telescope": "b"}"#),
    ("vdif", "o.vdif", "o_2.vdif", r#"{"station": "Mk"}"#),
    ("sigmf", "o.sigmf-data", "o_2.sigmf-data", r#"{"author": "b"}"#),
    ("npy", "o.npy", "o_2.npy", r#"{"max_frames": 100000}"#),
    ("npz", "p.npz", "p_2.npz", r#"{"max_frames": 100000}"#),
    ("png", "o.png", "o_2.png", r#"{"row_pixels": 2}"#),
];

/// Content of the files of an earlier process.
const EARLIER: &[u8] = b"earlier";

/// Bytes that were written to the file `name`; 0 if it does not exist or is of an earlier process.
fn written(directory: &Path, name: &str) -> u64 {
    let path = directory.join(name);
    // The arrays of an archive are in a directory until it is assembled.
    let parts = directory.join(format!("{name}.parts/data.npy"));
    let bytes = std::fs::read(if parts.exists() { parts } else { path }).unwrap_or_default();
    match bytes.get(28..36) {
        _ if bytes == EARLIER => 0,
        // A growing file has a hole at its end; the superblock has the end of its contents.
        Some(end) if has_extension(name, "uvh5") => u64::from_le_bytes(end.try_into().unwrap()),
        _ => bytes.len() as u64,
    }
}

fn has_extension(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// Waits until all of these files of streams have data.
fn wait_for(directory: &Path, files: impl Iterator<Item = &'static str> + Clone) {
    let began = Instant::now();
    // An image is written at the end, and headers have up to 4096 bytes.
    let is_short = |name: &&str| !has_extension(name, "png") && written(directory, name) < 10_000;
    while let Some(name) = files.clone().find(is_short) {
        assert!(began.elapsed() < Duration::from_mins(2), "{name} has no data");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs the flowgraph; `again` lets its sinks begin again. All that was recorded before must stay.
fn check(arguments: &[&str], again: impl FnOnce(&Program)) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for (_, first, ..) in SINKS {
        std::fs::write(directory.join(first), EARLIER).unwrap();
    }
    let program = Program::start(directory, FLOWGRAPH, arguments);
    if arguments.contains(&"--hold") {
        assert_eq!(program.post("/api/v1/flowgraph/start").status, 202);
    }
    program.wait("running");
    wait_for(directory, SINKS.iter().map(|sink| sink.1));
    let before = SINKS.map(|(_, first, ..)| written(directory, first));
    again(&program);
    wait_for(directory, SINKS.iter().map(|sink| sink.2));
    let events = program.get("/api/v1/events").json()["events"].to_string();
    assert!(events.contains("o.fil was recorded by this process before"), "{events}");
    program.signal("-INT");
    let output = program.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for ((name, first, second, _), before) in SINKS.into_iter().zip(before) {
        let (after, later) = (written(directory, first), written(directory, second));
        assert!(after >= before.max(100) && later > 100, "{name}: {before}, {after}, {later}");
    }
}

#[test]
fn swapped_sinks_keep_what_they_recorded() {
    check(&["--files", "."], |program| {
        let json = [("Content-Type", "application/json")];
        for (name, .., parameters) in SINKS {
            let (path, body) =
                (format!("/api/v1/blocks/{name}"), format!("{{\"parameters\": {parameters}}}"));
            let made = request(program.address, "PATCH", &path, &json, body.as_bytes());
            assert_eq!(made.status, 200, "{name}: {made:?}");
        }
    });
}

#[test]
fn restarted_flowgraph_keeps_what_it_recorded() {
    check(&["--files", "."], |program| {
        let yaml = [("Content-Type", "application/yaml")];
        let text = FLOWGRAPH.replace("queue: 4", "queue: 8");
        let path = "/api/v1/flowgraph?restart=true";
        let made = request(program.address, "PUT", path, &yaml, text.as_bytes());
        assert_eq!(made.status, 202, "{made:?}");
    });
}

#[test]
fn second_start_of_a_held_flowgraph_keeps_what_the_first_recorded() {
    check(&["--hold"], |program| {
        assert_eq!(program.post("/api/v1/flowgraph/stop").status, 202);
        program.wait("ended");
        assert_eq!(program.post("/api/v1/flowgraph/start").status, 202);
        program.wait("running");
    });
}
