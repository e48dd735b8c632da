//! Live updates of blocks of several parts: prepared at all parts, then committed at one timestamp.
//!
//! Nothing changes unless all parts have accepted the values. A part that fails between the two steps leaves the old
//! values at all others: they take the update back, except where a later change has set a value.

use super::client::{Asked, Unanswered};
use super::parts::Part;
use crate::problem::Problem;
use axum::Json;
use axum::body::to_bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use futures_util::future::join_all;
use fxgraph_api::changes::{LiveUpdate, ParameterName, PreparedUpdate, TakenBack};
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
/// Largest answer, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// The blocks of one part, and their new values.
pub(super) type Values = BTreeMap<String, (Arc<Part>, Map<String, Value>)>;

/// Why a part did not do what it was asked for.
enum Failure {
    /// It said no.
    Rejected(Box<Document>),
    /// It has not received the request.
    Unreachable(String),
    /// There is no answer, so it may have done it.
    Lost(String),
}

impl Failure {
    fn text(&self) -> String {
        match self {
            Self::Rejected(document) => document.detail.clone(),
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
    let rejected =
        serde_json::from_slice(&body).map(|document| Failure::Rejected(Box::new(document)));
    Err(rejected.unwrap_or_else(unreadable))
}

/// An update that a part has prepared.
struct Prepared {
    part: Arc<Part>,
    update: PreparedUpdate,
    at: Instant,
}

/// Updates blocks of several parts at one timestamp: `at`, or the earliest one that leaves all parts enough time.
pub(super) async fn update(values: Values, at: Option<u64>) -> Result<Json<LiveUpdate>, Problem> {
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
        ask::<LiveUpdate>(&prepared.part, Method::POST, &path, None, COMMIT).await
    });
    let commits = join_all(commits).await;
    if let Some(last) = last_steady(&commits) {
        return Ok(Json(last));
    }
    Err(take_back(&prepared, commits, at).await)
}

/// The result, if all parts have committed.
fn last_steady(commits: &[Result<LiveUpdate, Failure>]) -> Option<LiveUpdate> {
    let all: Option<Vec<&LiveUpdate>> = commits.iter().map(|commit| commit.as_ref().ok()).collect();
    let all = all?;
    let understood = all.iter().flat_map(|made| made.understood.clone()).collect();
    let last = all.into_iter().max_by_key(|made| made.steady_state_timestamp)?;
    Some(LiveUpdate { understood, ..last.clone() })
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
        Failure::Rejected(document) => {
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
        let (Some(rate), Some(sync)) = (update.adc_sample_rate_hz, update.sync_time.clone()) else {
            let detail = format!("the blocks of part `{name}` have no timestamps");
            return Err(unsuitable(detail, "change them in a request of their own"));
        };
        let of_part = (rate, sync);
        if clock.replace(of_part.clone()).is_some_and(|clock| clock != of_part) {
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

/// Result of cancelling an update at a part, or of taking it back there.
struct Fate {
    /// Whether the part has no value of the update.
    is_undone: bool,
    /// Whether the part keeps values that a later change has set.
    has_kept: bool,
    text: String,
}

/// Cancels the update at a part, or takes it back.
async fn undo(
    Prepared { part, update, .. }: &Prepared,
    commit: &Result<LiveUpdate, Failure>,
    at: u64,
) -> Fate {
    let fate = |is_undone, has_kept, text: &str| {
        let text = format!("part `{}`: {text}", part.name);
        Fate { is_undone, has_kept, text }
    };
    if let Err(failure @ (Failure::Rejected(_) | Failure::Unreachable(_))) = commit {
        return fate(true, false, &failure.text());
    }
    // A part whose answer did not arrive may have committed.
    let path = format!("/api/v1/updates/{}", update.id);
    let taken = ask::<Option<TakenBack>>(part, Method::DELETE, &path, None, COMMIT).await;
    let taken = match taken {
        Ok(taken) => taken,
        Err(failure) => {
            let is_known =
                matches!(&failure, Failure::Rejected(document) if document.status != 404);
            let has = if is_known && commit.is_ok() { "has the new values" } else { "unknown" };
            return fate(false, false, &format!("{has}: {}", failure.text()));
        }
    };
    let Some(TakenBack { effective_timestamp, is_late, kept }) = taken else {
        return fate(true, false, "keeps its values");
    };
    let mut text = "keeps its values".to_owned();
    if is_late {
        text = format!("had wrong values from timestamp {at} to {effective_timestamp}");
    }
    let name =
        |ParameterName { block, parameter }: &ParameterName| format!("`{block}.{parameter}`");
    let names: Vec<String> = kept.iter().map(name).collect();
    if !names.is_empty() {
        let keeps = if is_late { "; keeps" } else { " and" };
        text += &format!("{keeps} the later change of {}", names.join(", "));
    }
    fate(!is_late, !names.is_empty(), &text)
}

/// Takes the update back where it was committed; returns the answer to the client.
async fn take_back(
    prepared: &[Prepared],
    commits: Vec<Result<LiveUpdate, Failure>>,
    at: u64,
) -> Problem {
    let undone = prepared.iter().zip(&commits).map(|(prepared, commit)| undo(prepared, commit, at));
    let fates = join_all(undone).await;
    let said: Vec<&str> = fates.iter().map(|fate| fate.text.as_str()).collect();
    let said = said.join(" | ");
    if !fates.iter().all(|fate| fate.is_undone) {
        let detail = format!("the parts do not agree after timestamp {at}: {said}");
        return Problem::new(StatusCode::BAD_GATEWAY, detail).help(
            "a part that its engine starts again has the deployed values; see `GET /api/v1/parts`, and set the values again",
        );
    }
    if fates.iter().any(|fate| fate.has_kept) {
        let detail = format!("nothing of the update remains at any part: {said}");
        return Problem::new(StatusCode::CONFLICT, detail)
            .help("check the later changes, and send the request again");
    }
    let detail = format!("nothing has changed at any part: {said}");
    Problem::new(StatusCode::CONFLICT, detail).help("send the request again")
}
