//! Shadows over HTTP.

use super::http::{self, FILTERED, Program};
use super::{needs, patch, python, stop};
use std::process::Command;
use std::time::Duration;

/// Fetches both frames of the first difference.
const FETCH: &str = "
import io, sys, urllib.request, numpy
def get(side):
    with urllib.request.urlopen(sys.argv[1] + side) as answer:
        return numpy.load(io.BytesIO(answer.read())), answer.headers['fxgraph-timestamp']
(a, then), (b, other) = get('block'), get('shadow')
print(a.dtype, a.shape == b.shape == (1, 64, 32), (a != b).any(), then == other == sys.argv[2])
";

#[test]
fn shadow_starts_compares_and_ends() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), FILTERED, &[]);
    let path = "/api/v1/blocks/f/shadow";
    let start = |query: &str, body: &str| {
        let json = [("Content-Type", "application/json")];
        let path = format!("{path}{query}");
        http::request(program.address, "POST", &path, &json, body.as_bytes())
    };
    let end = || http::request(program.address, "DELETE", path, &[], b"");
    let wait = |figure: &str, least: u64| loop {
        let shadow = program.get(path).json();
        if shadow[figure].as_u64().unwrap() >= least {
            return shadow;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(program.get(path).problem(404), "`f` has no shadow");
    end().problem(404);
    assert_eq!(program.get("/api/v1/shadows").json(), serde_json::json!([]));

    let same = r#"{"parameters": {"threads": 2}}"#;
    let started = start("", same);
    assert_eq!(started.status, 201, "{started:?}");
    assert_eq!(started.json()["parameters"]["threads"], 2);
    assert_eq!(start("", same).problem(409), "`f` has a shadow; end the shadow first");
    patch(&program, "/api/v1/blocks/f", same).problem(409);
    let seen = wait("frames_compared", 5);
    assert_eq!((&seen["frames_different"], &seen["ended"]), (&0.into(), &().into()));
    assert!(seen["shadow_seconds_per_frame"].as_f64().unwrap() > 0.0);
    assert!(seen["shadow_memory_bytes"].as_u64().unwrap() > 0);
    assert_eq!(program.get("/api/v1/shadows").json()[0]["block"], "f");
    program.get(&format!("{path}/first_difference/block")).problem(404);
    let last = end();
    assert_eq!(last.status, 200);
    assert!(last.json()["frames_compared"].as_u64().unwrap() >= 5);
    program.get(path).problem(404);

    start("?stop_at_first_difference=maybe", same).problem(400);
    start("", r#"{"parameters": {"tops": 8}}"#).problem(422);
    let started = start("?stop_at_first_difference=true", r#"{"parameters": {"taps": 8}}"#);
    assert_eq!(started.status, 201, "{started:?}");
    let seen = wait("frames_different", 1);
    assert_eq!((&seen["frames_different"], &seen["ended"]), (&1.into(), &"a frame differs".into()));
    assert!(seen["different_fraction"].as_f64().unwrap() > 0.0);
    assert!(seen["max_difference"].as_f64().unwrap() >= seen["rms_difference"].as_f64().unwrap());
    let url = format!("http://{}{path}/first_difference/", program.address);
    let fetched = Command::new(python::python())
        .args(["-c", FETCH, &url, &seen["first_difference_timestamp"].to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&fetched.stdout).into_owned();
    let errors = String::from_utf8_lossy(&fetched.stderr);
    assert_eq!(said, "float32 True True True\n", "{errors}");
    program.get(&format!("{path}/first_difference/other")).problem(404);
    let result = stop(program);
    assert_eq!(result["shadows"][0]["ended"], "a frame differs");
}
