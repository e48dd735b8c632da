//! Swaps and looks at outputs whose frames last seconds, longer than a request should wait.

use super::http::Program;
use super::{patch, stop};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Frames of 6.4 s.
const SLOW: &str = "flowgraph: slow
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1280, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, input: source.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 256}}
  end: {kind: null_sink, input: source.pol1}
  sink: {kind: null_sink, input: f}
";

/// `fxgraph swap f` with `value`; returns what it printed.
fn swap(program: &Program, value: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    let connect = program.address.to_string();
    command.args(["swap", "f", value, "--connect", &connect]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("the swap goes on until its first frames are checked"), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the answers show the swap, which is a moment after the event.
fn wait_for_taps(program: &Program, taps: u32) {
    while program.get("/api/v1/blocks/f").json()["parameters"]["taps"] != taps {
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn swap_of_long_frames_is_answered_in_time_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SLOW, &[]);
    let printed = swap(&program, "taps=8");
    assert!(printed.contains("swapped without interruption"), "{printed}");
    wait_for_taps(&program, 8);
    // Over REST, the answer says which event to look for.
    let under_way = patch(&program, "/api/v1/blocks/f", r#"{"parameters": {"taps": 4}}"#);
    assert_eq!(under_way.status, 202, "{under_way:?}");
    let under_way = under_way.json();
    assert_eq!(under_way["is_made"], false);
    let since = under_way["goes_on_after_event"].as_u64().unwrap();
    let result = loop {
        let events = program.get(&format!("/api/v1/events?since={since}")).json();
        let mut events = events["events"].as_array().unwrap().clone().into_iter();
        if let Some(event) = events.find(|event| event["block"] == "f") {
            break event;
        }
        sleep(Duration::from_millis(100));
    };
    assert_eq!(result["kind"], "swapped", "{result}");
    assert_eq!(result["text"], "in place, 3 frames checked");
    wait_for_taps(&program, 4);
    let result = stop(program);
    let frames = |block: usize, key: &str| result["blocks"][block][key].as_u64().unwrap();
    assert_eq!(frames(0, "frames_out"), frames(1, "frames_in") + frames(2, "frames_in"));
}

/// Waits for an event of a kind in `kinds` after the number `since`; returns kind and text.
fn event(program: &Program, since: u64, kinds: &[&str]) -> (String, String) {
    loop {
        let events = program.get(&format!("/api/v1/events?since={since}")).json();
        let all = events["events"].as_array().unwrap();
        let text = |event: &serde_json::Value, key: &str| event[key].as_str().unwrap().to_owned();
        if let Some(event) =
            all.iter().find(|event| kinds.contains(&event["kind"].as_str().unwrap()))
        {
            return (text(event, "kind"), text(event, "text"));
        }
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn flowgraph_of_long_frames_is_replaced_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SLOW, &[]);
    let edited = SLOW.replace("taps: 4", "taps: 8");
    let headers = [("Content-Type", "application/yaml")];
    let put = |text: &str| {
        super::http::request(program.address, "PUT", "/api/v1/flowgraph", &headers, text.as_bytes())
    };
    let under_way = put(&edited);
    assert_eq!(under_way.status, 202, "{under_way:?}");
    let under_way = under_way.json();
    assert_eq!(
        (&under_way["is_made"], &under_way["is_restarting"]),
        (&false.into(), &false.into())
    );
    let since = under_way["goes_on_after_event"].as_u64().unwrap();
    let (kind, text) = event(&program, since, &["updated", "not_updated"]);
    assert_eq!(kind, "updated", "{text}");
    assert!(text.starts_with("1 block from timestamp "), "{text}");
    wait_for_taps(&program, 8);
    stop(program);
}
