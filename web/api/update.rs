//! Another flowgraph in place of the one that runs.

use super::changes::{DifferenceInfo, media_type, way_name};
use super::request::{asked, beside};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use fxgraph::control::{BlockUpdate, NotStartable, RetuneError, Step, Update, UpdateError, Way};
use fxgraph::flowgraph::Setting;
use fxgraph::runtime::{RunState, with_causes};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use utoipa::ToSchema;

/// Longest time that an update takes; more would outlast the request.
const APPLY: Duration = Duration::from_secs(20);
/// What a flowgraph may be sent as.
const MEDIA_TYPES: [&str; 3] = ["application/yaml", "application/x-yaml", "application/json"];

/// What becomes of a block.
#[derive(Serialize, ToSchema)]
struct BlockUpdateInfo {
    /// Name of the block.
    block: String,
    /// What is done to it: nothing, retune, seamless or held (it is swapped), restart.
    #[schema(example = "retune")]
    way: &'static str,
    /// The interruption to expect, in words.
    #[schema(example = "none")]
    gap: String,
    /// Why it takes a restart, if it does.
    restart_because: Option<String>,
    /// What becomes different.
    differences: Vec<DifferenceInfo>,
}

impl From<&BlockUpdate> for BlockUpdateInfo {
    fn from(BlockUpdate { block, differences, step }: &BlockUpdate) -> Self {
        let none = || "none".to_owned();
        let (way, gap, restart_because) = match step {
            Step::Same => ("nothing", none(), None),
            Step::Retune => ("retune", none(), None),
            Step::Swap(way) => (way_name(way), way.gap(), None),
            Step::Restart(why) => ("restart", Way::Restart(String::new()).gap(), Some(why.clone())),
        };
        let differences = differences.iter().map(Into::into).collect();
        Self { block: block.clone(), way, gap, restart_because, differences }
    }
}

/// What it takes to have another flowgraph run.
#[derive(Serialize, ToSchema)]
pub(super) struct UpdateInfo {
    /// The blocks that run, in their order, then those that would be new.
    blocks: Vec<BlockUpdateInfo>,
    /// Everything for which a new start is needed.
    restart_because: Vec<String>,
    /// SHA-256 over the flowgraph as a start would have it, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    config_hash: String,
    /// Whether it is made; with `dry_run` it is not, and a restart is made later.
    is_made: bool,
    /// Whether the flowgraph drains now, to be followed by the other one.
    is_restarting: bool,
    /// Timestamp from which data are those of the other flowgraph: blocks that were swapped go over with their first
    /// frame that starts there or later. `null` if it is not made, or nothing is different.
    effective_timestamp: Option<u64>,
    /// What of it does not take effect at that timestamp, and why.
    not_atomic: Vec<String>,
}

impl UpdateInfo {
    fn of(update: &Update) -> Self {
        Self {
            blocks: update.blocks.iter().map(Into::into).collect(),
            restart_because: update.obstacles(),
            config_hash: update.plan().config_hash.clone(),
            is_made: false,
            is_restarting: false,
            effective_timestamp: None,
            not_atomic: update.not_atomic(),
        }
    }
}

impl From<NotStartable> for Problem {
    fn from(error: NotStartable) -> Self {
        let problem = Self::new(StatusCode::CONFLICT, error.to_string());
        match error {
            NotStartable::Over => problem
                .help("`fxgraph run --hold` is ready for another start whenever a run has ended"),
            NotStartable::Draining => problem,
            NotStartable::Another => problem
                .help("look at what runs then, and send it again")
                .retry_after(Duration::from_secs(2)),
        }
    }
}

impl From<UpdateError> for Problem {
    fn from(error: UpdateError) -> Self {
        if let UpdateError::Retune(RetuneError::Busy) = error {
            return Self::busy(error.to_string());
        }
        let UpdateError::Restart(reasons) = error else {
            return Self::new(StatusCode::CONFLICT, with_causes(&error))
                .help("`/api/v1/events` may say more");
        };
        let problem = Self::new(StatusCode::CONFLICT, "not all of it can change while frames flow");
        let problem = reasons.into_iter().fold(problem, Self::help);
        problem.help("`restart=true` drains the flowgraph and starts the other one")
    }
}

/// The body of a request as a flowgraph.
fn flowgraph_text(headers: &HeaderMap, body: Bytes) -> Result<String, Problem> {
    if !MEDIA_TYPES.contains(&media_type(headers).as_str()) {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body is no flowgraph")
            .help("send YAML with `Content-Type: application/yaml`, or JSON"));
    }
    String::from_utf8(body.into())
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is no text"))
}

/// Values for parameters of the flowgraph, from a JSON object.
fn settings(text: &str) -> Result<Vec<Setting>, Problem> {
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| {
            Problem::new(StatusCode::BAD_REQUEST, "`set` cannot be read")
                .help("give it like `set={\"channels\":64}`")
        })?;
    let setting = |(name, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(text) => Setting::typed(name, text),
        other => Setting::typed(name, other.to_string()),
    };
    Ok(values.into_iter().map(setting).collect())
}

/// Has another flowgraph run in place of this one: all of it, or nothing
#[utoipa::path(put, path = "/flowgraph", tag = "flowgraph", operation_id = "put_flowgraph",
    params(
        ("dry_run" = Option<bool>, Query, description = "only says what would be done"),
        ("restart" = Option<bool>, Query, description =
            "if it cannot be done while frames flow, the flowgraph drains and the other one starts; \
             the one before is back if that fails"),
        ("may_hold_up" = Option<bool>, Query, description =
            "the flowgraph may wait for new blocks: right for files, wrong for a telescope"),
        ("set" = Option<String>, Query, description =
            "values of its parameters, a JSON object", example = json!("{}")),
    ),
    request_body(description = "the whole flowgraph, as its file has it",
        content((String = "application/yaml"), (Object = "application/json"))),
    responses(
        (status = 200, description = "it is made, or with `dry_run` could be", body = UpdateInfo),
        (status = 202, description = "the flowgraph drains, and the other one follows", body = UpdateInfo),
        (status = 400, description = "the request cannot be read"),
        (status = 409, description = "it takes a restart, or failed; the flowgraph goes on as before"),
        (status = 415, description = "the body is neither YAML nor JSON"),
        (status = 422, description = "refused, with every reason; nothing has changed"),
        (status = 503, description = "other changes come first: `Retry-After` says when to ask again"),
    ))]
pub(super) async fn update(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<UpdateInfo>), Problem> {
    app.allow_full()?;
    let is_dry = asked::<bool>(&query, "dry_run", "true")?.unwrap_or_default();
    let may_restart = asked::<bool>(&query, "restart", "true")?.unwrap_or_default();
    let may_hold_up = asked::<bool>(&query, "may_hold_up", "true")?.unwrap_or_default();
    let set = query.get("set").map_or(Ok(Vec::new()), |text| settings(text))?;
    let text = flowgraph_text(&headers, body)?;
    let turn = if is_dry { None } else { Some(app.turn(client).await?) };
    let made = move || {
        let _turn = turn;
        let control = &app.control;
        let update = control.update(&text, &set)?;
        let info = UpdateInfo::of(&update);
        if is_dry {
            return Ok((StatusCode::OK, info));
        }
        let state = control.state();
        let is_still = matches!(state, RunState::Prepared | RunState::Ended | RunState::Failed);
        if is_still || (may_restart && !update.obstacles().is_empty()) {
            control.request_other(update.plan().clone())?;
            return Ok((StatusCode::ACCEPTED, UpdateInfo { is_restarting: true, ..info }));
        }
        let updated = control.apply(&update, APPLY, may_hold_up)?;
        let effective_timestamp = updated.effective_timestamp;
        Ok((StatusCode::OK, UpdateInfo { is_made: true, effective_timestamp, ..info }))
    };
    let (status, info) = beside(made).await?;
    Ok((status, Json(info)))
}
