//! Changes while frames flow: live updates of parameters, and swaps of blocks.

use super::request::{asked, beside, lost};
use crate::app::App;
use crate::bodies::BODY_BYTES;
use crate::guard::Peer;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use fxgraph::control::{self, Change, Difference, LiveUpdateError, Rejected, SwapError, Way};
use fxgraph::diagnostic::{first, to_json};
use fxgraph::flowgraph::request::Request;
use fxgraph::runtime::{Unanswered, with_causes};
use fxgraph_api::changes::{ChangeInfo, DifferenceInfo, LiveUpdate};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit for blocks to accept new values.
pub(super) const LIVE_UPDATE: Duration = Duration::from_secs(15);
/// Time for which a request waits for a swap, below its time limit; a swap of long frames goes on.
const SWAP: Duration = Duration::from_secs(20);

pub(super) fn difference(Difference { key, from, to }: &Difference) -> DifferenceInfo {
    DifferenceInfo { key: key.clone(), from: from.clone(), to: to.clone() }
}

fn info(change: &Change, is_made: bool) -> ChangeInfo {
    let restart_because = match &change.way {
        Way::Restart(why) => Some(why.clone()),
        _ => None,
    };
    let memory = change.memory.iter().map(|(device, bytes)| (device.to_string(), *bytes));
    ChangeInfo {
        block: change.block.clone(),
        differences: change.differences.iter().map(difference).collect(),
        way: way_name(&change.way).to_owned(),
        gap: change.way.gap(),
        restart_because,
        memory_bytes: memory.collect(),
        is_made,
        goes_on_after_event: None,
    }
}

/// Name of a way in the API.
pub(super) fn way_name(way: &Way) -> &'static str {
    match way {
        Way::Nothing => "nothing",
        Way::LiveUpdate => "live_update",
        Way::Seamless => "seamless",
        Way::Held { .. } => "held",
        Way::Restart(_) => "restart",
    }
}

impl From<Rejected> for Problem {
    fn from(Rejected { sources, problems }: Rejected) -> Self {
        let told = first(&problems).map(|problem| to_json(problem, &sources)).collect();
        let detail = problems.first().map_or("the change was rejected", |problem| &problem.message);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail).diagnostics(told)
    }
}

impl From<LiveUpdateError> for Problem {
    fn from(error: LiveUpdateError) -> Self {
        match error {
            LiveUpdateError::Rejected(rejected) => rejected.into(),
            LiveUpdateError::Busy => Self::busy(error.to_string()),
            LiveUpdateError::Unanswered(Unanswered::NoSuchBlock(_)) => {
                Self::new(StatusCode::NOT_FOUND, error.to_string())
            }
            LiveUpdateError::NotStarted => Self::new(StatusCode::CONFLICT, error.to_string())
                .help("start it, or replace it with `PUT /api/v1/flowgraph`"),
            _ => Self::new(StatusCode::CONFLICT, with_causes(&error))
                .help("no parameter has changed; see `/api/v1/events` for details"),
        }
    }
}

impl From<SwapError> for Problem {
    fn from(error: SwapError) -> Self {
        let error = match error {
            SwapError::Busy => return Self::busy(error.to_string()),
            SwapError::LiveUpdate(error) => return error.into(),
            other => other,
        };
        Self::new(StatusCode::CONFLICT, with_causes(&error))
            .help("the flowgraph continues unchanged; see `/api/v1/events` for details")
    }
}

/// Media type of a request's body in lower case, from its `Content-Type`.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

/// Reads the JSON object in the body of a request.
pub(super) fn json_object(headers: &HeaderMap, body: Bytes) -> Result<Request, Problem> {
    expect_json(headers)?;
    read_object(body, BODY_BYTES)
}

pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    if media_type(headers) == "application/json" {
        return Ok(());
    }
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is not JSON")
        .help("send `Content-Type: application/json`"))
}

/// Reads a JSON object of at most `most_bytes` bytes.
pub(super) fn read_object(body: Bytes, most_bytes: usize) -> Result<Request, Problem> {
    let text = String::from_utf8(body.into()).ok();
    let is_object = text.as_ref().is_some_and(|text| text.trim_start().starts_with('{'));
    let request = text.and_then(|text| Request::json_within(text, most_bytes));
    let Some(request) = request else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the body is not JSON"));
    };
    if !is_object {
        let detail = "the body must be a JSON object";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    Ok(request)
}

/// Sets live parameters of blocks, all at the same timestamp or none
#[utoipa::path(patch, path = "/blocks", tag = "blocks", operation_id = "live_update",
    params(("at" = Option<i64>, Query, minimum = 0,
        description = "effective timestamp, in ADC samples since the sync time; by default the earliest possible")),
    request_body(content = HashMap<String, HashMap<String, Value>>,
        description = "changed parameters, by name of block",
        example = json!({"f[0].postproc": {"gains": 2}})),
    responses(
        (status = 200, description = "the values are scheduled in all blocks", body = LiveUpdate),
        (status = 400, description = "the body is not JSON, or `at` is not a timestamp"),
        (status = 404, description = "unknown block"),
        (status = 409, description = "the change is not possible now; nothing has changed"),
        (status = 415, description = "the `Content-Type` is not JSON"),
        (status = 422, description = "rejected, with all diagnostics; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn live_update(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<LiveUpdate>, Problem> {
    let at = asked::<u64>(&query, "at", "123456")?;
    expect_json(&headers)?;
    let turn = app.turn(client).await?;
    let made = beside(move || {
        let _turn = turn;
        // Values take many times the memory of their text, so that only the request with the turn has them.
        let request = read_object(body, app.body_bytes)?;
        app.told(None, app.control.live_update(request, at, LIVE_UPDATE).map_err(Problem::from))
    });
    Ok(Json(updated(&made.await?)))
}

/// Media types of NumPy files.
const ARRAYS: [&str; 2] = ["application/octet-stream", "application/x-npy"];

/// Sets a live parameter of a block to an array, the content of a NumPy file
#[utoipa::path(put, path = "/blocks/{name}/parameters/{parameter}", tag = "blocks", operation_id = "set_array",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("parameter" = String, Path, description = "name of the live parameter", example = "signals"),
        ("at" = Option<i64>, Query, minimum = 0,
            description = "effective timestamp, in ADC samples since the sync time; by default the earliest possible"),
    ),
    request_body(description = "a `.npy` file: integers, `<f4`, `<f8`, `<c8` or `<c16` in C order; its axes are those of \
        the lists that the parameter takes, and complex elements are `{re, im}`",
        content((Vec<u8> = "application/octet-stream"), (Vec<u8> = "application/x-npy"))),
    responses(
        (status = 200, description = "the values are scheduled", body = LiveUpdate),
        (status = 400, description = "`at` is not a timestamp"),
        (status = 404, description = "unknown block"),
        (status = 409, description = "the change is not possible now; nothing has changed"),
        (status = 415, description = "the `Content-Type` is not that of a NumPy file"),
        (status = 422, description = "rejected, with type and shape of the array; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn set_array(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path((name, parameter)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<LiveUpdate>, Problem> {
    let at = asked::<u64>(&query, "at", "123456")?;
    if !ARRAYS.contains(&media_type(&headers).as_str()) {
        let detail = "the body must be a NumPy file";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
            .help(format!("send `Content-Type: {}`", ARRAYS[1])));
    }
    super::blocks::find(&app, &name)?;
    let turn = app.turn(client).await?;
    let made = beside(move || {
        let _turn = turn;
        let request = Request::array(&name, &parameter, &body);
        drop(body);
        app.told(
            Some(&name),
            app.control.live_update(request, at, LIVE_UPDATE).map_err(Problem::from),
        )
    });
    Ok(Json(updated(&made.await?)))
}

pub(super) fn updated(made: &control::LiveUpdate) -> LiveUpdate {
    LiveUpdate {
        effective_timestamp: made.effective_timestamp,
        is_late: made.is_late,
        steady_state_timestamp: made.steady_state_timestamp,
        config_id: format!("{:016x}", made.config_id),
        seconds_ahead: made.seconds_ahead,
        understood: made.understood.clone(),
    }
}

/// Swaps a block: new parameters, implementation or kind
#[utoipa::path(patch, path = "/blocks/{name}", tag = "blocks", operation_id = "swap_block",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("dry_run" = Option<bool>, Query, description = "reports the effect without changing anything"),
        ("may_hold_up" = Option<bool>, Query, description =
            "lets the flowgraph wait for the new block (for files, not for live data)"),
    ),
    request_body(content = HashMap<String, Value>,
        description = "changed keys of the block: kind, parameters, implementation, device, on_fault",
        example = json!({"parameters": {"taps": 8}})),
    responses(
        (status = 200, description = "the change is done, or possible with `dry_run`", body = ChangeInfo),
        (status = 202, description =
            "the swap goes on, because its frames are long; its result is the next event of the block after \
             `goes_on_after_event`", body = ChangeInfo),
        (status = 400, description = "malformed request"),
        (status = 404, description = "unknown block"),
        (status = 409, description = "the swap failed; the flowgraph continues unchanged"),
        (status = 415, description = "the `Content-Type` is not JSON"),
        (status = 422, description = "rejected, with all diagnostics; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn swap(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<ChangeInfo>), Problem> {
    app.allow_full()?;
    let is_dry = asked::<bool>(&query, "dry_run", "true")?.unwrap_or_default();
    let may_hold_up = asked::<bool>(&query, "may_hold_up", "true")?.unwrap_or_default();
    super::blocks::find(&app, &name)?;
    expect_json(&headers)?;
    let turn = if is_dry { None } else { Some(app.turn(client).await?) };
    let (of_change, by) = (app.clone(), Peer(client).client(&headers));
    // The turn stays with the body if the client leaves.
    let read = move || {
        let request = read_object(body, of_change.body_bytes)?;
        let change = of_change.control.change_by(by, &name, request).map_err(Problem::from);
        let change = if is_dry { change } else { of_change.told(Some(&name), change) };
        Ok((turn, change?))
    };
    let (turn, change) = beside(read).await?;
    if is_dry {
        return Ok((StatusCode::OK, Json(info(&change, false))));
    }
    let last = app.control.events_since(0).last().map_or(0, |event| event.sequence);
    let under_way = ChangeInfo { goes_on_after_event: Some(last), ..info(&change, false) };
    let made = beside(move || {
        let _turn = turn;
        app.control.swap(&change, change.usual_limit(), may_hold_up)?;
        Ok(info(&change, true))
    });
    let made = tokio::spawn(made);
    match timeout(SWAP, made).await {
        Ok(made) => Ok((StatusCode::OK, Json(made.map_err(lost)??))),
        Err(_) => Ok((StatusCode::ACCEPTED, Json(under_way))),
    }
}
