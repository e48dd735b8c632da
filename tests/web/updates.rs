//! Updates in two steps that are cancelled or taken back, with changes of other clients in between.

use super::http::{Program, Response, request};
use super::patch;
use fxgraph_api::changes::{ParameterName, PreparedUpdate, TakenBack};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::Duration;

const SPECTRA: &str = "flowgraph: spectra
blocks:
  source:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, paced: true, signals: wgn(0.1)}
  f: {kind: pfb, input: source.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 64}}
  t: {kind: fft, input: f}
  p: {kind: postproc, input: t, parameters: {gains: 1}}
  end: {kind: null_sink, input: source.pol1}
  sink: {kind: null_sink, input: p}
";

fn send(program: &Program, method: &str, path: &str, body: &str) -> Response {
    let headers = [("Content-Type", "application/json")];
    request(program.address, method, &format!("/api/v1/{path}"), &headers, body.as_bytes())
}

/// Prepares gains of 2.
fn prepare(program: &Program) -> PreparedUpdate {
    let update = send(program, "POST", "updates", r#"{"p": {"gains": 2}}"#);
    serde_json::from_value(update.json()).unwrap()
}

fn cancel(program: &Program, id: &str) -> Response {
    send(program, "DELETE", &format!("updates/{id}"), "")
}

/// Commits gains of 2, a minute ahead; returns the identifier of the update and its timestamp.
fn commit(program: &Program) -> (String, u64) {
    let PreparedUpdate { id, newest_timestamp, .. } = prepare(program);
    let at = newest_timestamp.unwrap() + 60_000_000;
    let made = send(program, "POST", &format!("updates/{id}/commit?at={at}"), "");
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(gains(program).last(), Some(&(at, json!(2))));
    (id, at)
}

/// Gains of `p` in force, and those scheduled, by timestamp.
fn gains(program: &Program) -> Vec<(u64, Value)> {
    let block = program.get("/api/v1/blocks/p").json();
    let scheduled = program.get("/api/v1/flowgraph").json()["scheduled"].clone();
    let all = scheduled.as_array().unwrap().iter();
    let of_gains = all.filter(|value| value["parameter"] == "gains");
    let later =
        of_gains.map(|value| (value["timestamp"].as_u64().unwrap(), value["value"].clone()));
    [(0, block["parameters"]["gains"].clone())].into_iter().chain(later).collect()
}

/// Takes an update back, and checks whether a later change has set the gains, and that a repetition has no effect.
fn take_back(program: &Program, id: &str, at: u64, is_kept: bool) {
    let taken = cancel(program, id);
    assert_eq!(taken.status, 200, "{taken:?}");
    let name = ParameterName { block: "p".to_owned(), parameter: "gains".to_owned() };
    let kept = if is_kept { vec![name] } else { vec![] };
    let expected = TakenBack { effective_timestamp: at, is_late: false, kept };
    assert_eq!(serde_json::from_value::<TakenBack>(taken.json()).unwrap(), expected);
    let before = gains(program);
    let detail = "there is no such update, or it can no longer be taken back";
    assert_eq!(cancel(program, id).problem(404), detail);
    assert_eq!(gains(program), before);
}

fn set(program: &Program, query: &str, values: &str) {
    let made = patch(program, &format!("/api/v1/blocks{query}"), values);
    assert_eq!(made.status, 200, "{made:?}");
}

fn wait_for_gains(program: &Program, expected: &Value) {
    while gains(program)[0].1 != *expected {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn committed_update_is_taken_back_except_where_a_later_change_has_set_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), SPECTRA, &[]);
    while program.get("/api/v1/blocks/p").json()["newest_timestamp"]
        .as_u64()
        .is_none_or(|at| at == 0)
    {
        std::thread::sleep(Duration::from_millis(10));
    }

    // A prepared update is cancelled, and not committed afterwards.
    let PreparedUpdate { id, newest_timestamp, .. } = prepare(&program);
    assert_eq!(cancel(&program, &id).status, 204);
    let at = newest_timestamp.unwrap() + 60_000_000;
    send(&program, "POST", &format!("updates/{id}/commit?at={at}"), "").problem(404);
    cancel(&program, &id).problem(404);
    cancel(&program, "0").problem(404);
    assert_eq!(gains(&program), [(0, json!(1))]);

    // Another parameter of the block.
    let (id, at) = commit(&program);
    set(&program, "", r#"{"p": {"dither_seed": 7}}"#);
    take_back(&program, &id, at, false);
    assert_eq!(gains(&program), [(0, json!(1)), (at, json!(1))]);
    let parameters = program.get("/api/v1/blocks/p").json()["parameters"].clone();
    assert_eq!(parameters["dither_seed"], 7);

    // The same parameter, before the timestamp of the update and after it.
    let (id, at) = commit(&program);
    set(&program, &format!("?at={}", at + 1000), r#"{"p": {"gains": 4}}"#);
    take_back(&program, &id, at, true);
    assert!(gains(&program).ends_with(&[(at, json!(1)), (at + 1000, json!(4))]));
    let (id, at) = commit(&program);
    set(&program, "", r#"{"p": {"gains": 3}}"#);
    take_back(&program, &id, at, true);
    wait_for_gains(&program, &json!(3));
    assert_eq!(gains(&program), [(0, json!(3))]);

    // A swap of the block.
    let (id, at) = commit(&program);
    let swapped = patch(&program, "/api/v1/blocks/p", r#"{"parameters": {"gains": 5}}"#);
    assert_eq!(swapped.status, 200, "{swapped:?}");
    take_back(&program, &id, at, true);
    assert_eq!(gains(&program), [(0, json!(5))]);

    // Too late.
    let (id, at) = commit(&program);
    std::thread::sleep(Duration::from_millis(5100));
    cancel(&program, &id).problem(404);
    assert_eq!(gains(&program), [(0, json!(5)), (at, json!(2))]);

    // Two updates of the same parameter: the later one is taken back, and restores the value of the earlier one.
    let [(first, _), (second, at)] = [(); 2].map(|()| commit(&program));
    let detail = "a later update of the same parameters was committed less than 5 s ago";
    assert_eq!(cancel(&program, &first).problem(409), detail);
    take_back(&program, &second, at, false);
    assert_eq!(cancel(&program, &first).problem(409), detail);
    assert_eq!(gains(&program).last(), Some(&(at, json!(2))));
    super::stop(program);
}

/// A `.npy` file with complex gains, all `gain`.
fn npy(shape: &[u64], gain: f32) -> Vec<u8> {
    let elements = shape.iter().product::<u64>() as usize;
    let element = [gain.to_le_bytes(), 0_f32.to_le_bytes()].concat();
    [fxgraph::npy::header("<c8", shape, 0), element.repeat(elements)].concat()
}

#[test]
fn array_in_a_body_or_a_file_sets_gains_and_errors_state_its_shape() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("gains.npy"), npy(&[1, 16], 0.5)).unwrap();
    let text = SPECTRA.replace("gains: 1", "gains: {npy: gains.npy}");
    let program = Program::running(directory.path(), &text, &["--max-body", "3"]);
    let gains = || program.get("/api/v1/blocks/p").json()["parameters"]["gains"].clone();
    let first = gains();
    assert!(first["npy_base64"].is_string(), "{first}");
    let put = |body: &[u8], media_type| {
        let path = "/api/v1/blocks/p/parameters/gains";
        request(program.address, "PUT", path, &[("Content-Type", media_type)], body)
    };
    let made = put(&npy(&[1, 16], 2.0), "application/x-npy");
    assert_eq!(made.status, 200, "{made:?}");
    assert_ne!(gains(), first);
    put(&npy(&[1, 16], 2.0), "text/plain").problem(415);
    for shape in [&[2, 16][..], &[1, 15], &[1, 16, 1]] {
        let rejected = put(&npy(shape, 2.0), "application/octet-stream");
        rejected.problem(422);
        assert!(
            rejected.body.contains(
                &format!("NumPy type `<c8` and shape {shape:?}")
                    .replace('[', "(")
                    .replace(']', ")")
            ),
            "{rejected:?}"
        );
    }
    put(b"no array", "application/x-npy").problem(422);
    // A request beyond the default limit, with more values than a file may have.
    let many = json!({"p": {"gains": vec![vec![1; 400_000]]}}).to_string() + &" ".repeat(1 << 20);
    let rejected = send(&program, "PATCH", "blocks", &many);
    rejected.problem(422);
    assert!(!rejected.body.contains("E0102"), "{rejected:?}");
    let detail = send(&program, "PATCH", "blocks", &" ".repeat(4 << 20)).problem(413);
    assert_eq!(detail, "the body of a request must have at most 3145728 bytes");
    // The original text names the file of its author.
    let yaml = [("Content-Type", "application/yaml")];
    let path = "/api/v1/flowgraph?dry_run=true";
    let again = request(program.address, "PUT", path, &yaml, text.as_bytes());
    assert_eq!(again.status, 200, "{again:?}");
    super::stop(program);
}

#[test]
fn answer_to_a_delay_model_states_each_piece_as_it_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    let sync = "sync_time_seconds: 1790000000, adc_sample_rate_hz: 1000000";
    let flowgraph = SPECTRA.replace("adc_sample_rate_hz: 1000000", sync);
    let delays = "spectra_per_frame: 64, max_delay_seconds: 1.0e-5}";
    let flowgraph = flowgraph.replace("spectra_per_frame: 64}", delays);
    let program = Program::running(directory.path(), &flowgraph, &[]);
    program.wait("running");
    let pieces = json!([[
        {"delay_seconds": 2e-6, "rate": 1e-9},
        {"start_samples": 90_000_000, "delay_seconds": 2.1e-6, "rate": 1e-9},
    ]]);
    let answer = patch(&program, "/api/v1/blocks", &json!({"f": {"delays": pieces}}).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    let from = answer["effective_timestamp"].as_u64().unwrap();
    let understood = answer["understood"]["f"]["delays"][0].as_array().unwrap().clone();
    assert_eq!(understood.len(), 2, "{answer}");
    // The first piece begins at timestamp 0, and is in force from the update on.
    assert_eq!(understood[0]["start_samples"], 0);
    assert_eq!(understood[0]["start_utc"], "2026-09-21T14:13:20Z");
    assert_eq!(understood[0]["in_force_from"], from);
    assert_eq!(understood[1]["start_samples"], 90_000_000);
    assert_eq!(understood[1]["start_utc"], "2026-09-21T14:14:50Z");
    assert_eq!(understood[1]["in_force_from_utc"], "2026-09-21T14:14:50Z");
    assert!(understood.iter().all(|piece| piece["has_expired"] == false), "{answer}");
}

#[test]
fn answer_to_a_delay_model_from_before_a_restart_of_the_sender_states_that_it_has_expired() {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let receiver = format!(
        "flowgraph: receiver
blocks:
  source:
    kind: spead_source
    parameters: {{stream: digitiser, addresses: ['{address}'], adc_sample_rate_hz: 524288, samples_per_frame: 16384}}
  f: {{kind: pfb, input: source, parameters: {{channels: 16, taps: 4, spectra_per_frame: 64, max_delay_seconds: 1.0e-5}}}}
  sink: {{kind: null_sink, input: f}}
"
    );
    let sender = |first_timestamp: u64| {
        let text = format!(
            "flowgraph: sender
blocks:
  digitiser:
    kind: digitiser_simulator
    parameters: {{adc_sample_rate_hz: 524288, samples_per_frame: 16384, period_samples: 65536, paced: true,
                 first_timestamp: {first_timestamp}}}
  out: {{kind: spead_sink, input: digitiser.pol0, parameters: {{stream: digitiser, destinations: ['{address}']}}}}
  end: {{kind: null_sink, input: digitiser.pol1}}
"
        );
        Program::running(directories[1].path(), &text, &[])
    };
    let program = Program::running(directories[0].path(), &receiver, &[]);
    let wait_beyond = |timestamp: u64| {
        let newest = || program.get("/api/v1/blocks/f").json()["newest_timestamp"].as_u64();
        while newest().is_none_or(|newest| newest <= timestamp) {
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let has_expired = |pieces: Value| -> Vec<Value> {
        let body = json!({"f": {"delays": [pieces]}}).to_string();
        let answer = patch(&program, "/api/v1/blocks", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let understood = answer.json()["understood"]["f"]["delays"][0].clone();
        understood.as_array().unwrap().iter().map(|piece| piece["has_expired"].clone()).collect()
    };
    let first = 1 << 34;
    let piece = json!({"start_samples": first, "delay_seconds": 2e-6, "rate": 1e-9});
    let before = sender(first);
    wait_beyond(first);
    assert_eq!(has_expired(json!([piece])), [json!(false)]);
    super::stop(before);

    // The timestamps of the restarted sender continue in the next turn of the 48 bits.
    let after = sender(0);
    wait_beyond(1 << 48);
    let start = (1_u64 << 48) + (1 << 40);
    let later = json!({"start_samples": start, "delay_seconds": 3e-6, "rate": 1e-9});
    assert_eq!(has_expired(json!([piece, later])), [json!(true), json!(false)]);
    // A delay that does not change has no time.
    let constant = json!({"start_samples": first, "delay_seconds": 2e-6});
    assert_eq!(has_expired(json!([constant])), [json!(false)]);
    super::stop(after);
    super::stop(program);
}
