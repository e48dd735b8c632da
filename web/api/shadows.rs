//! Second forms of blocks on the same frames, and what is different about theirs.

use super::changes::json_text;
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
use serde::Serialize;
use std::collections::HashMap;
use utoipa::ToSchema;

/// A block's shadow, and what was seen of it so far.
#[derive(Serialize, ToSchema)]
pub(super) struct ShadowInfo {
    /// Name of the block.
    #[schema(example = "f[0].pfb")]
    block: String,
    /// Kind of the shadow.
    #[schema(example = "pfb")]
    kind: &'static str,
    /// Its form.
    #[schema(example = "cpu")]
    implementation: &'static str,
    /// Its parameters.
    #[schema(value_type = Object)]
    parameters: serde_json::Value,
    /// Why it has ended, if it has: its fault, or a frame that differs.
    ended: Option<String>,
    /// Pairs of frames that were compared: of one time and one validity.
    frames_compared: u64,
    /// Those with values that differ.
    frames_different: u64,
    /// Frames of either block for which the other one made none of that time and validity.
    frames_alone: u64,
    /// Frames that the shadow or the comparison was too slow for.
    frames_dropped: u64,
    /// Valid values in the pairs.
    values_compared: u64,
    /// Those that differ.
    values_different: u64,
    /// The share of them.
    different_fraction: f64,
    /// Largest magnitude of a difference; `null` if it is not finite.
    max_difference: f64,
    /// Root of the mean squared magnitude of all differences; `null` if it is not finite.
    rms_difference: f64,
    /// Output of the first pair of frames that differs, by position; `first_difference` has the arrays.
    first_difference_output: Option<usize>,
    /// Its time, in ADC samples since sync time.
    first_difference_timestamp: Option<u64>,
    /// Time that the block works on a frame, while the shadow is there.
    seconds_per_frame: Option<f64>,
    /// Time that the shadow works on a frame.
    shadow_seconds_per_frame: Option<f64>,
    /// Memory of the block and of its outputs' frames.
    memory_bytes: usize,
    /// The same of the shadow in the block's place.
    shadow_memory_bytes: usize,
    /// Memory that the comparison takes for as long as it lasts.
    comparison_memory_bytes: usize,
}

impl From<ShadowReport> for ShadowInfo {
    fn from(report: ShadowReport) -> Self {
        let compared = report.compared;
        let StreamDifference { frames, frames_different, frames_alone, values } =
            compared.difference;
        let (first_difference_output, first_difference_timestamp) =
            compared.first.as_ref().map(|pair| (pair.output, pair.timestamp)).unzip();
        Self {
            block: report.block,
            kind: report.kind,
            implementation: report.implementation,
            parameters: report.parameters,
            ended: compared.ended,
            frames_compared: frames,
            frames_different,
            frames_alone,
            frames_dropped: compared.frames_dropped,
            values_compared: values.values,
            values_different: values.values_different,
            different_fraction: values.share(),
            max_difference: values.max,
            rms_difference: values.rms(),
            first_difference_output,
            first_difference_timestamp,
            seconds_per_frame: compared.block_time.map(|time| time.as_secs_f64()),
            shadow_seconds_per_frame: compared.shadow_time.map(|time| time.as_secs_f64()),
            memory_bytes: report.block_bytes,
            shadow_memory_bytes: report.shadow_bytes,
            comparison_memory_bytes: report.bytes,
        }
    }
}

/// The shadow of the block called `name`.
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

/// All shadows, and what they show
#[utoipa::path(get, path = "/shadows", tag = "blocks", operation_id = "list_shadows",
    responses((status = 200, description = "in the order in which they came", body = Vec<ShadowInfo>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<ShadowInfo>> {
    Json(app.control.shadows().into_iter().map(Into::into).collect())
}

/// The shadow of a block, and what it shows
#[utoipa::path(get, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "get_shadow",
    params(("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "the shadow", body = ShadowInfo),
        (status = 404, description = "there is no such block, or it has no shadow"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<ShadowInfo>, Problem> {
    Ok(Json(find(&app, &name)?.into()))
}

/// Runs another form of a block beside it, on the same frames, and compares what they make
#[utoipa::path(post, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "start_shadow",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("stop_at_first_difference" = Option<bool>, Query, description =
            "compares up to the first frame that differs, which is kept"),
    ),
    request_body(content = HashMap<String, Value>,
        description = "keys of the block that are different: kind, parameters, implementation, device",
        example = json!({"parameters": {"taps": 8}})),
    responses(
        (status = 201, description = "it is there", body = ShadowInfo),
        (status = 400, description = "the request cannot be read"),
        (status = 404, description = "there is no such block"),
        (status = 409, description = "it cannot be there; the flowgraph goes on as before"),
        (status = 415, description = "the body does not say that it is JSON"),
        (status = 422, description = "refused, with every reason"),
        (status = 503, description = "other changes come first: `Retry-After` says when to ask again"),
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
    let text = json_text(&headers, &body)?;
    let turn = app.turn(client).await?;
    let started = beside(move || {
        let _turn = turn;
        let change = app.control.change(&name, &text)?;
        app.control.shadow(&change, ends_at_difference)?;
        find(&app, &name)
    });
    Ok((StatusCode::CREATED, Json(started.await?.into())))
}

/// Ends the shadow of a block
#[utoipa::path(delete, path = "/blocks/{name}/shadow", tag = "blocks", operation_id = "end_shadow",
    params(("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "it is gone; what it showed", body = ShadowInfo),
        (status = 404, description = "there is no such block, or it has no shadow"),
        (status = 503, description = "the block did not come to the end of a frame in time; try again"),
    ))]
pub(super) async fn end(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<ShadowInfo>, Problem> {
    app.allow_full()?;
    super::blocks::find(&app, &name)?;
    let ended = beside(move || app.control.end_shadow(&name)?.ok_or_else(|| none(&name)));
    Ok(Json(ended.await?.into()))
}

/// The first frame of a block that differs from its shadow's, or the shadow's, for NumPy
#[utoipa::path(get, path = "/blocks/{name}/shadow/first_difference/{side}", tag = "blocks",
    operation_id = "get_first_difference",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("side" = String, Path, description = "`block` or `shadow`", example = "block"),
    ),
    responses(
        (status = 200, description = "the payload as NumPy's array",
            headers(("fxgraph-timestamp" = u64, description = "time of the frame, in ADC samples")),
            content(("application/octet-stream"))),
        (status = 404, description = "there is no such shadow, or nothing differs so far"),
        (status = 422, description = "its frames are too large"),
        (status = 429, description = "others come first: `Retry-After` says when to ask again"),
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
            let detail = format!("there is no frame of `{side}`");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail)
                .help("ask for that of `block` or of `shadow`"));
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
