//! Answers of the server in the types that clients read.

use super::http::{Program, Response, request};
use super::{TUNABLE, patch};
use fxgraph_api::blocks::{BlockPage, BlockSummary};
use fxgraph_api::changes::{ChangeInfo, LiveUpdate, UpdateInfo};
use fxgraph_api::events::EventList;
use fxgraph_api::flowgraph::{FlowgraphPage, Health};
use fxgraph_api::frames::Snapshot;
use fxgraph_api::kinds::{KindPage, KindSummary};
use fxgraph_api::problem::Problem;
use fxgraph_api::recordings::RecorderInfo;
use fxgraph_api::shadows::ShadowInfo;
use fxgraph_api::views::{Message, ViewList};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// Reads `answer` as a `T`, which must contain all of it.
fn whole<T: DeserializeOwned + Serialize>(answer: &Response) -> T {
    let read: T = serde_json::from_value(answer.json()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), answer.json());
    read
}

#[test]
fn answers_are_read_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = TUNABLE.replace("input: source.pol0", "input: filter").replace(
        "  a:",
        "  filter: {kind: pfb, input: source.pol0, parameters: {channels: 64, taps: 4}}\n  a:",
    );
    let program = Program::running(directory.path(), &flowgraph, &["--recordings", "."]);
    let get = |path: &str| program.get(&format!("/api/v1/{path}"));
    let output = |path: &str| get(&format!("blocks/source/outputs/pol0/{path}"));
    let send = |method: &str, path: &str, media_type: &str, body: &str| {
        let headers = [("Content-Type", media_type)];
        request(program.address, method, &format!("/api/v1/{path}"), &headers, body.as_bytes())
    };

    whole::<Health>(&get("health"));
    whole::<FlowgraphPage>(&get("flowgraph"));
    whole::<Vec<BlockSummary>>(&get("blocks"));
    whole::<BlockPage>(&get("blocks/a"));
    whole::<Vec<KindSummary>>(&get("kinds"));
    whole::<KindPage>(&get("kinds/digitiser_simulator"));
    whole::<EventList>(&get("events"));
    whole::<Snapshot>(&output("snapshot"));
    for view in whole::<ViewList>(&output("views")).views {
        whole::<Message>(&output(&format!("views/{}?once=true", view.name)));
    }
    assert_eq!(whole::<Problem>(&get("blocks/sourc")).status, 404);

    let signals = r#"{"source": {"signals": "cw(0.3, 2000)"}}"#;
    whole::<LiveUpdate>(&patch(&program, "/api/v1/blocks", signals));
    let swap = r#"{"on_fault": "skip"}"#;
    whole::<ChangeInfo>(&patch(&program, "/api/v1/blocks/a?dry_run=true", swap));
    whole::<UpdateInfo>(&send("PUT", "flowgraph?dry_run=true", "application/yaml", &flowgraph));
    whole::<ShadowInfo>(&send("POST", "blocks/filter/shadow", "application/json", "{}"));
    let recordings = "blocks/source/outputs/pol0/recordings";
    whole::<RecorderInfo>(&send("POST", recordings, "application/json", "{}"));
    whole::<Vec<RecorderInfo>>(&get("recorders"));
}

#[test]
fn swap_of_a_source_to_other_live_values_is_a_live_update() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::running(directory.path(), TUNABLE, &[]);
    let swap = |query: &str, parameters: &str| {
        let path = format!("/api/v1/blocks/source?{query}");
        patch(&program, &path, &format!("{{\"parameters\": {{{parameters}}}}}"))
    };
    let live = r#""signals": "cw(0.3, 2000)""#;
    let would: ChangeInfo = whole(&swap("dry_run=true", live));
    assert_eq!(
        (would.way.as_str(), would.restart_because, would.is_made),
        ("live_update", None, false)
    );
    let more = format!("{live}, \"period_samples\": 16384");
    let other: ChangeInfo = whole(&swap("dry_run=true", &more));
    assert!(other.way == "restart" && other.restart_because.is_some());
    let made: ChangeInfo = whole(&swap("dry_run=false", live));
    assert!(made.way == "live_update" && made.is_made);
    let block = || program.get("/api/v1/blocks/source").json();
    let began = Instant::now();
    while block()["parameters"]["signals"] != "cw(0.3, 2000)" {
        assert!(began.elapsed() < Duration::from_mins(1), "{}", block());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(block()["totals"]["restarts"], 0);
}
