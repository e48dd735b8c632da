//! Live updates of blocks of several parts: prepared at all parts, then committed at one timestamp.
//!
//! Nothing changes unless all parts have accepted the values. A part that fails between the two steps leaves the old
//! values at all others: they schedule the values again that they would have without the update.

use super::client::{Asked, Unanswered};
use super::parts::Part;
use crate::problem::Problem;
use axum::Json;
use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use futures_util::future::join_all;
use fxgraph_api::changes::{PreparedUpdate, Retuned};
use fxgraph_api::problem::Problem as Document;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time limit of a part to accept the values: less than the time for which the fastest part keeps the update prepared.
const PREPARE: Duration = Duration::from_secs(3);
/// Time limit of a part to commit the update, and to take it back.
const COMMIT: Duration = Duration::from_secs(1);
/// Distance of the timestamp from the newest samples, in seconds: more than the time for committing and taking back.
const LEAD_SECONDS: f64 = 3.0;
/// Largest answer, in bytes: it has the values without the update.
const MOST_BYTES: usize = 16 << 20;

/// The blocks of one part, and their new values.
pub(super) type Values = BTreeMap<String, (Arc<Part>, Map<String, Value>)>;

/// Why a part did not do what it was asked for.
enum Failure {
    /// It said no.
    Refused(Box<Document>),
    /// It has not received the request.
    Unreachable(String),
    /// There is no answer, so it may have done it.
    Lost(String),
}

impl Failure {
    fn text(&self) -> String {
        match self {
            Self::Refused(document) => document.detail.clone(),
            Self::Unreachable(why) | Self::Lost(why) => format!("does not answer: {why}"),
        }
    }
}

/// Asks a part; `limit` is for all of it, from the connection to the end of the answer.
async fn ask<T: DeserializeOwned>(
    part: &Part,
    method: Method,
    path: &str,
    body: Option<&Map<String, Value>>,
    limit: Duration,
) -> Result<T, Failure> {
    let (address, token) = part.server().map_err(Failure::Unreachable)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = body.map(|body| Value::Object(body.clone()).to_string()).unwrap_or_default();
    let body = body.into();
    let asked =
        Asked { address: &address, token: token.as_deref(), method, path, headers, body, limit };
    let answered = async {
        let failure = |error: Unanswered| {
            if error.may_be_received {
                Failure::Lost(error.why)
            } else {
                Failure::Unreachable(error.why)
            }
        };
        let answer = asked.send().await.map_err(failure)?;
        let status = answer.status();
        let body = to_bytes(answer.into_body(), MOST_BYTES).await;
        Ok((status, body.map_err(|error| Failure::Lost(error.to_string()))?))
    };
    let late = |_| Failure::Lost(format!("no answer within {} s", limit.as_secs()));
    let (status, body) = timeout(limit, answered).await.map_err(late)??;
    let unreadable = |_| Failure::Lost("its answer is not that of fxgraph".to_owned());
    if status.is_success() {
        let body = if body.is_empty() { "null".into() } else { body };
        return serde_json::from_slice(&body).map_err(unreadable);
    }
    let refused =
        serde_json::from_slice(&body).map(|document| Failure::Refused(Box::new(document)));
    Err(refused.unwrap_or_else(unreadable))
}

/// An update that a part has prepared.
struct Prepared {
    part: Arc<Part>,
    update: PreparedUpdate,
    at: Instant,
}

/// Updates blocks of several parts at one timestamp: `at`, or the earliest one that leaves all parts enough time.
pub(super) async fn update(values: Values, at: Option<u64>) -> Result<Json<Retuned>, Problem> {
    let prepared = prepare(&values).await?;
    let at = match timestamp(&prepared, at) {
        Ok(at) => at,
        Err(problem) => {
            cancel(&prepared).await;
            return Err(problem);
        }
    };
    let commits = prepared.iter().map(|prepared| async move {
        let path = format!("/api/v1/updates/{}/commit?at={at}", prepared.update.id);
        ask::<Retuned>(&prepared.part, Method::POST, &path, None, COMMIT).await
    });
    let commits = join_all(commits).await;
    if let Some(last) = last_steady(&commits) {
        return Ok(Json(last));
    }
    Err(take_back(&prepared, commits, at).await)
}

/// The result, if all parts have committed.
fn last_steady(commits: &[Result<Retuned, Failure>]) -> Option<Retuned> {
    let all: Option<Vec<&Retuned>> = commits.iter().map(|commit| commit.as_ref().ok()).collect();
    all?.into_iter().max_by_key(|made| made.steady_state_timestamp).cloned()
}

async fn prepare(values: &Values) -> Result<Vec<Prepared>, Problem> {
    let asks = values.values().map(|(part, values)| async move {
        let path = "/api/v1/updates";
        let update: PreparedUpdate = ask(part, Method::POST, path, Some(values), PREPARE).await?;
        // It becomes a part of paths.
        if !update.id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Failure::Lost("its answer is not that of fxgraph".to_owned()));
        }
        Ok::<_, Failure>(Prepared { part: Arc::clone(part), update, at: Instant::now() })
    });
    let (mut prepared, mut failed) = (Vec::new(), Vec::new());
    for (answer, (part, _)) in join_all(asks).await.into_iter().zip(values.values()) {
        match answer {
            Ok(ready) => prepared.push(ready),
            Err(failure) => failed.push((part.name.clone(), failure)),
        }
    }
    let Some((name, failure)) = failed.first() else { return Ok(prepared) };
    cancel(&prepared).await;
    let detail = format!("part `{name}`: {}; nothing has changed at any part", failure.text());
    Err(match failure {
        Failure::Refused(document) => {
            let status = StatusCode::from_u16(document.status);
            let problem = Problem::new(status.unwrap_or(StatusCode::CONFLICT), detail);
            let problem = problem.diagnostics(document.diagnostics.clone());
            document.help.iter().fold(problem, Problem::help)
        }
        _ => Problem::new(StatusCode::BAD_GATEWAY, detail)
            .help("see `GET /api/v1/parts`; a prepared update is cancelled by itself after 5 s"),
    })
}

async fn cancel(prepared: &[Prepared]) {
    // An update that cannot be cancelled is not committed, either.
    let cancels = prepared.iter().map(|prepared| async move {
        let path = format!("/api/v1/updates/{}", prepared.update.id);
        let _ = ask::<Value>(&prepared.part, Method::DELETE, &path, None, COMMIT).await;
    });
    join_all(cancels).await;
}

/// Chooses the timestamp.
fn timestamp(prepared: &[Prepared], at: Option<u64>) -> Result<u64, Problem> {
    let unsuitable = |detail: String, help: &str| {
        Problem::new(StatusCode::CONFLICT, detail + "; nothing has changed at any part").help(help)
    };
    let mut clock = None;
    let mut earliest = 0.0_f64;
    for Prepared { part, update, at } in prepared {
        let name = &part.name;
        let (Some(rate), Some(sync)) = (update.adc_sample_rate_hz, update.sync_time_seconds) else {
            let detail = format!("the blocks of part `{name}` have no timestamps");
            return Err(unsuitable(detail, "change them in a request of their own"));
        };
        if clock.replace((rate, sync)).is_some_and(|clock| clock != (rate, sync)) {
            let detail = format!("the blocks of part `{name}` have another clock than others");
            return Err(unsuitable(detail, "change them in a request of their own"));
        }
        let Some(newest) = update.newest_timestamp else {
            let detail = format!("no sample has passed the blocks of part `{name}` yet");
            return Err(unsuitable(detail, "send the request again when data flow"));
        };
        let lead = at.elapsed().as_secs_f64() + LEAD_SECONDS;
        earliest = earliest.max(newest as f64 + lead * rate);
    }
    let earliest = earliest.ceil() as u64;
    if at.is_some_and(|at| at < earliest) {
        let at = at.unwrap_or_default();
        let detail =
            format!("timestamp {at} is too early for all parts: at least {earliest} is needed");
        let help = format!("give a timestamp at least {LEAD_SECONDS} s ahead, or omit `at`");
        return Err(unsuitable(detail, &help));
    }
    Ok(at.unwrap_or(earliest))
}

/// Values of the updated parameters without the update, from its timestamp `at` on: by effective timestamp, and by name
/// of block.
fn without(update: &PreparedUpdate, at: u64) -> BTreeMap<u64, Map<String, Value>> {
    let mut values = BTreeMap::from([(at, update.before.clone())]);
    // In the order of their timestamps, so that the last value up to `at` remains.
    for scheduled in &update.scheduled {
        let blocks = values.entry(scheduled.timestamp.max(at)).or_default();
        let block = blocks.entry(&scheduled.block).or_insert_with(|| Map::new().into());
        if let Some(parameters) = block.as_object_mut() {
            parameters.insert(scheduled.parameter.clone(), scheduled.value.clone());
        }
    }
    values
}

/// Schedules the values without the update again, where it was committed; returns what has become of the update.
async fn take_back(
    prepared: &[Prepared],
    commits: Vec<Result<Retuned, Failure>>,
    at: u64,
) -> Problem {
    let undone = prepared.iter().zip(&commits).map(|(prepared, commit)| async move {
        let name = &prepared.part.name;
        let may_have_it = match commit {
            Ok(_) => false,
            Err(Failure::Lost(_)) => true,
            Err(failure) => return (true, format!("part `{name}`: {}", failure.text())),
        };
        let mut wrong = Vec::new();
        // A part whose answer did not arrive may have committed.
        for (from, values) in without(&prepared.update, at) {
            let path = format!("/api/v1/blocks?at={from}");
            match ask::<Retuned>(&prepared.part, Method::PATCH, &path, Some(&values), COMMIT).await
            {
                Ok(made) if !made.is_late => {}
                Ok(made) => {
                    let until = made.effective_timestamp;
                    wrong.push(format!("had wrong values from timestamp {from} to {until}"));
                }
                Err(failure) => {
                    let lost = matches!(failure, Failure::Lost(_));
                    let lacks = if lost { "may lack" } else { "lacks" };
                    let what = match (from > at, may_have_it) {
                        (true, _) => {
                            &format!("{lacks} the values scheduled from timestamp {from} on")
                        }
                        (false, true) => "unknown",
                        (false, false) => "has the new values",
                    };
                    wrong.push(format!("{what}: {}", failure.text()));
                    break;
                }
            }
        }
        let said = if wrong.is_empty() { "keeps its values" } else { &wrong.join(", ") };
        (wrong.is_empty(), format!("part `{name}`: {said}"))
    });
    let undone = join_all(undone).await;
    let is_undone = undone.iter().all(|(is_undone, _)| *is_undone);
    let said: Vec<String> = undone.into_iter().map(|(_, text)| text).collect();
    let said = said.join(" | ");
    if is_undone {
        let detail = format!("nothing has changed at any part: {said}");
        return Problem::new(StatusCode::CONFLICT, detail).help("send the request again");
    }
    let detail = format!("the parts do not agree after timestamp {at}: {said}");
    Problem::new(StatusCode::BAD_GATEWAY, detail).help(
        "a part that its engine starts again has the deployed values; see `GET /api/v1/parts`, and set the values again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph_api::flowgraph::ScheduledValue;
    use serde_json::json;

    #[test]
    fn values_without_an_update_are_those_scheduled_before_and_after_it() {
        let scheduled = |block: &str, timestamp, value| ScheduledValue {
            block: block.to_owned(),
            parameter: "level".to_owned(),
            value,
            timestamp,
        };
        let before = json!({"a": {"level": 1, "gain": 7}, "b": {"level": 2}});
        let update = PreparedUpdate {
            id: "0".to_owned(),
            lease_seconds: 5.0,
            newest_timestamp: Some(50),
            adc_sample_rate_hz: None,
            sync_time_seconds: None,
            before: before.as_object().unwrap().clone(),
            scheduled: vec![
                scheduled("a", 60, json!(3)),
                scheduled("a", 100, json!(4)),
                scheduled("b", 101, json!(null)),
                scheduled("a", 200, json!(5)),
            ],
        };
        let values = |at| json!(without(&update, at));
        let expected = json!({
            "100": {"a": {"level": 4, "gain": 7}, "b": {"level": 2}},
            "101": {"b": {"level": null}},
            "200": {"a": {"level": 5}},
        });
        assert_eq!(values(100), expected);
        let all = json!({"300": {"a": {"level": 5, "gain": 7}, "b": {"level": null}}});
        assert_eq!(values(300), all);
    }
}
