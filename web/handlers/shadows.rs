//! Shadows of blocks, and the differences of their frames.

use super::changes::json_object;
use super::request::{asked, beside};
use super::snapshot::{NPY, Sent};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use crate::taps::Look;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use fxgraph::control::ShadowReport;
use fxgraph::difference::StreamDifference;
use fxgraph::runtime::{Pair, Unanswered};
use fxgraph_api::shadows::ShadowInfo;
use std::collections::HashMap;

/// Describes a shadow with its results so far.
#[must_use]
pub fn info(report: ShadowReport) -> ShadowInfo {
    let finite = |value: f64| value.is_finite().then_some(value);
    let compared = report.compared;
    let StreamDifference { frames, frames_different, frames_alone, values } = compared.difference;
    let (first_difference_output, first_difference_timestamp) =
        compared.first.as_ref().map(|pair| (pair.output, pair.timestamp)).unzip();
    ShadowInfo {
        block: report.block,
        kind: report.kind.to_owned(),
        implementation: report.implementation.to_owned(),
        parameters: report.parameters,
        ended: compared.ended,
        frames_compared: frames,
        frames_different,
        frames_alone,
        frames_dropped: compared.frames_dropped,
        values_compared: values.values,
        values_different: values.values_different,
        different_fraction: values.share(),
        max_difference: finite(values.max),
        rms_difference: finite(values.rms()),
        first_difference_output,
        first_difference_timestamp,
        seconds_per_frame: compared.block_time.map(|time| time.as_secs_f64()),
        shadow_seconds_per_frame: compared.shadow_time.map(|time| time.as_secs_f64()),
        memory_bytes: report.block_bytes,
        shadow_memory_bytes: report.shadow_bytes,
        comparison_memory_bytes: report.bytes,
    }
}

/// Finds the shadow of the block called `name`.
fn find(app: &App, name: &str) -> Result<ShadowReport, Problem> {
    super::blocks::find(app, name)?;
    let known = app.control.shadows().into_iter().find(|report| report.block == name);
    known.ok_or_else(|| none(name))
}

fn none(name: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("`{name}` has no shadow"))
        .help(format!("`POST /api/v1/blocks/{name}/shadow` starts one"))
}

impl From<Unanswered> for Problem {
    fn from(error: Unanswered) -> Self {
        let status = match error {
            Unanswered::NoSuchBlock(_) => StatusCode::NOT_FOUND,
            Unanswered::Ended(_) => StatusCode::CONFLICT,
            Unanswered::Busy { .. } | Unanswered::Hung { .. } => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

/// All shadows, with their results
#[utoipa::path(get, path = "/shadows", tag = "blocks", operation_id = "list_shadows",
    responses((status = 200, description = "in order of creation", body = Vec<ShadowInfo>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<ShadowInfo>> {
    Json(app.control.shadows().into_iter().map(info).collect())
}

/// The shadow of a block, with its results
#[utoipa::path(get, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "get_shadow",
    params(("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "the shadow", body = ShadowInfo),
        (status = 404, description = "unknown block, or the block has no shadow"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<ShadowInfo>, Problem> {
    Ok(Json(info(find(&app, &name)?)))
}

/// Starts a shadow: another implementation of a block on the same frames, whose output is compared
#[utoipa::path(post, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "start_shadow",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("stop_at_first_difference" = Option<bool>, Query, description =
            "stops at the first frame that differs, and keeps it"),
    ),
    request_body(content = HashMap<String, Value>,
        description = "changed keys of the block: kind, parameters, implementation, device",
        example = json!({"parameters": {"taps": 8}})),
    responses(
        (status = 201, description = "the shadow is running", body = ShadowInfo),
        (status = 400, description = "malformed request"),
        (status = 404, description = "unknown block"),
        (status = 409, description = "the shadow cannot run now; the flowgraph continues unchanged"),
        (status = 415, description = "the `Content-Type` is not JSON"),
        (status = 422, description = "rejected, with all diagnostics"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn start(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<ShadowInfo>), Problem> {
    app.allow_full()?;
    let ends_at_difference =
        asked::<bool>(&query, "stop_at_first_difference", "true")?.unwrap_or_default();
    super::blocks::find(&app, &name)?;
    let request = json_object(&headers, body)?;
    let by = Peer(client).client(&headers);
    let turn = app.turn(client).await?;
    let started = beside(move || {
        let _turn = turn;
        let change = app.control.change_by(by, &name, request)?;
        app.control.shadow(&change, ends_at_difference)?;
        find(&app, &name)
    });
    Ok((StatusCode::CREATED, Json(info(started.await?))))
}

/// Ends the shadow of a block
#[utoipa::path(delete, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "end_shadow",
    params(("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "the shadow has ended; its results", body = ShadowInfo),
        (status = 404, description = "unknown block, or the block has no shadow"),
        (status = 503, description = "the block did not finish a frame in time; try again"),
    ))]
pub(super) async fn end(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<ShadowInfo>, Problem> {
    app.allow_full()?;
    super::blocks::find(&app, &name)?;
    let ended = beside(move || app.control.end_shadow(&name)?.ok_or_else(|| none(&name)));
    Ok(Json(info(ended.await?)))
}

/// The first differing frame of a block or of its shadow, as .npy
#[utoipa::path(get, path = "/blocks/{name}/shadow/first_difference/{side}", tag = "blocks",
    operation_id = "get_first_difference",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("side" = String, Path, description = "`block` or `shadow`", example = "block"),
    ),
    responses(
        (status = 200, description = "the payload as .npy",
            headers(("fxgraph-timestamp" = u64, description = "timestamp of the frame, in ADC samples")),
            content(("application/octet-stream"))),
        (status = 404, description = "unknown shadow, or no difference so far"),
        (status = 422, description = "the frames are too large"),
        (status = 429, description = "too many requests for frames: retry after `Retry-After`"),
    ))]
pub(super) async fn first_difference(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path((name, side)): Path<(String, String)>,
) -> Result<impl IntoResponse, Problem> {
    let Some(pair) = find(&app, &name)?.compared.first else {
        let detail = format!("no frame of `{name}` differs from its shadow's so far");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    };
    let to_npy = match side.as_str() {
        "block" => Pair::block_npy,
        "shadow" => Pair::shadow_npy,
        _ => {
            let detail = format!("the side must be `block` or `shadow`, got `{side}`");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail)
                .help("use `.../first_difference/block` or `.../first_difference/shadow`"));
        }
    };
    let sent = Sent {
        _room: app.taps.room(client, Look::Once, pair.block.len()).await?,
        array: to_npy(&pair),
    };
    let headers =
        [("content-type", NPY.to_owned()), ("fxgraph-timestamp", pair.timestamp.to_string())];
    Ok((headers, Bytes::from_owner(sent)))
}
