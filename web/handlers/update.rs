//! Replacement of the running flowgraph.

use super::changes::{difference, media_type, way_name};
use super::request::{asked, beside, lost};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use fxgraph::control::{
    Applied, BlockUpdate, LiveUpdateError, NotStartable, Step, Update, UpdateError, Updated, Way,
};
use fxgraph::flowgraph::Setting;
use fxgraph::runtime::with_causes;
use fxgraph_api::changes::{BlockUpdateInfo, UpdateInfo};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::timeout;

/// Time for which a request waits for an update, below its time limit; an update of long frames goes on.
const APPLY: Duration = Duration::from_secs(20);
/// Media types of a flowgraph.
const MEDIA_TYPES: [&str; 3] = ["application/yaml", "application/x-yaml", "application/json"];

fn block_info(BlockUpdate { block, differences, step }: &BlockUpdate) -> BlockUpdateInfo {
    let none = || "none".to_owned();
    let (way, gap, restart_because) = match step {
        Step::Same => ("nothing", none(), None),
        Step::Queue => ("queue", none(), None),
        Step::LiveUpdate => ("live_update", none(), None),
        Step::Swap(way) => (way_name(way), way.gap(), None),
        Step::Restart(why) => ("restart", Way::Restart(String::new()).gap(), Some(why.clone())),
    };
    let differences = differences.iter().map(difference).collect();
    BlockUpdateInfo { block: block.clone(), way: way.to_owned(), gap, restart_because, differences }
}

/// Describes an update that was not made yet.
#[must_use]
pub fn info(update: &Update) -> UpdateInfo {
    UpdateInfo {
        blocks: update.blocks.iter().map(block_info).collect(),
        restart_because: update.obstacles(),
        config_hash: update.plan().config_hash.clone(),
        is_made: false,
        is_restarting: false,
        effective_timestamp: None,
        not_atomic: update.not_atomic(),
        goes_on_after_event: None,
    }
}

impl From<NotStartable> for Problem {
    fn from(error: NotStartable) -> Self {
        let problem = Self::new(StatusCode::CONFLICT, error.to_string());
        match error {
            NotStartable::Over => {
                problem.help("start the program with `fxgraph run --hold` to allow further starts")
            }
            NotStartable::Draining => problem,
            NotStartable::Another => problem
                .help("check the flowgraph that runs then, and send the request again")
                .retry_after(Duration::from_secs(2)),
        }
    }
}

impl From<UpdateError> for Problem {
    fn from(error: UpdateError) -> Self {
        let error = match error {
            UpdateError::LiveUpdate(LiveUpdateError::Busy) => return Self::busy(error.to_string()),
            UpdateError::NotStartable(error) => return error.into(),
            error => error,
        };
        let UpdateError::Restart(reasons) = error else {
            return Self::new(StatusCode::CONFLICT, with_causes(&error))
                .help("see `/api/v1/events` for details");
        };
        let problem =
            Self::new(StatusCode::CONFLICT, "the update needs a restart of the flowgraph");
        let problem = reasons.into_iter().fold(problem, Self::help);
        problem.help("use `restart=true` to drain the flowgraph and start the new one")
    }
}

/// Returns the body of a request as the text of a flowgraph.
fn flowgraph_text(headers: &HeaderMap, body: Bytes) -> Result<String, Problem> {
    if !MEDIA_TYPES.contains(&media_type(headers).as_str()) {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be YAML or JSON",
        )
        .help("send YAML with `Content-Type: application/yaml`, or JSON"));
    }
    String::from_utf8(body.into())
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body is not UTF-8 text"))
}

/// Parses values for parameters of the flowgraph from a JSON object.
fn settings(text: &str) -> Result<Vec<Setting>, Problem> {
    let values: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| {
            Problem::new(StatusCode::BAD_REQUEST, "`set` must be a JSON object")
                .help("give a value like `set={\"channels\":64}`")
        })?;
    let setting = |(name, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(text) => Setting::text(name, text),
        other => Setting::text(name, other.to_string()),
    };
    Ok(values.into_iter().map(setting).collect())
}

/// Replaces the running flowgraph, atomically
#[utoipa::path(put, path = "/flowgraph", tag = "flowgraph", operation_id = "put_flowgraph",
    params(
        ("dry_run" = Option<bool>, Query, description = "reports the effect without changing anything"),
        ("restart" = Option<bool>, Query, description =
            "if the change is not possible while frames flow, the flowgraph drains and the new one starts; if that fails, the previous one is restored"),
        ("may_hold_up" = Option<bool>, Query, description =
            "lets the flowgraph wait for new blocks (for files, not for live data)"),
        ("set" = Option<String>, Query, description =
            "parameters of the flowgraph, a JSON object", example = json!("{}")),
    ),
    request_body(description = "the whole flowgraph, in the format of its file",
        content((String = "application/yaml"), (Object = "application/json"))),
    responses(
        (status = 200, description = "the change is done, or possible with `dry_run`", body = UpdateInfo),
        (status = 202, description =
            "the flowgraph drains, then the new one starts; or the update goes on, because its frames are long: its result \
             is the next event `updated` or `not_updated` after `goes_on_after_event`", body = UpdateInfo),
        (status = 400, description = "malformed request"),
        (status = 409, description = "the change needs a restart, or failed; the flowgraph continues unchanged"),
        (status = 415, description = "the body is neither YAML nor JSON"),
        (status = 422, description = "rejected, with all diagnostics; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
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
    let (of_update, by) = (app.clone(), Peer(client).client(&headers));
    let read = move || {
        let update = of_update.control.update_by(by, &text, &set).map_err(Problem::from);
        let update = if is_dry { update } else { of_update.told(None, update) };
        Ok((turn, update?))
    };
    let (turn, update) = beside(read).await?;
    let info = info(&update);
    if is_dry {
        return Ok((StatusCode::OK, Json(info)));
    }
    let last = app.control.events_since(0).last().map_or(0, |event| event.sequence);
    let under_way = UpdateInfo { goes_on_after_event: Some(last), ..info.clone() };
    let made = beside(move || {
        let _turn = turn;
        let limit = update.usual_limit();
        Ok(match app.control.apply_or_restart(&update, may_restart, limit, may_hold_up)? {
            Applied::Restarting => {
                (StatusCode::ACCEPTED, UpdateInfo { is_restarting: true, ..info })
            }
            Applied::Updated(Updated { effective_timestamp }) => {
                (StatusCode::OK, UpdateInfo { is_made: true, effective_timestamp, ..info })
            }
        })
    });
    // It goes on if the client leaves.
    let made = tokio::spawn(made);
    match timeout(APPLY, made).await {
        Ok(made) => {
            let (status, info) = made.map_err(lost)??;
            Ok((status, Json(info)))
        }
        Err(_) => Ok((StatusCode::ACCEPTED, Json(under_way))),
    }
}
