//! Outputs to files, with what came before an event.

use super::changes::json_text;
use super::output::Output;
use super::request::{asked, beside};
use crate::app::App;
use crate::problem::Problem;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use fxgraph::Control;
use fxgraph::control::RecordError;
use fxgraph::recording::{Recorded, RecorderStatus};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use utoipa::ToSchema;

/// Time for a block to take up a recorder.
const LIMIT: Duration = Duration::from_secs(20);

/// What keeps the newest frames of an output, and what it has recorded.
#[derive(Serialize, ToSchema)]
pub(super) struct RecorderInfo {
    /// Its name: a number, or that of its block.
    #[schema(example = "1")]
    name: String,
    /// The output that it reads, `block.port`; `null` for a block of the flowgraph.
    #[schema(example = "f[0].pfb.output")]
    output: Option<String>,
    /// `waiting` for a trigger, `recording`, `failed` or `ended`.
    #[schema(example = "waiting")]
    state: &'static str,
    /// Frames in memory.
    frames_kept: u64,
    /// Frames that were to be recorded and found no room: the disk is too slow.
    frames_lost: u64,
    /// Frames in files.
    frames_written: u64,
    /// The recordings that it has made, the newest last.
    recordings: Vec<RecordingInfo>,
    /// Why it failed, if it has.
    fault: Option<String>,
}

/// A recording.
#[derive(Serialize, ToSchema)]
struct RecordingInfo {
    /// Its file, on the machine on which the flowgraph runs.
    path: String,
    /// Frames in it.
    frames: u64,
    /// Bytes of payload in it.
    payload_bytes: u64,
    /// Timestamp of its first frame, in ADC samples since sync time.
    first_timestamp: u64,
    /// Timestamp of its last frame.
    last_timestamp: u64,
    /// Frames that should be in it and found no room.
    frames_lost: u64,
    /// Why it was made.
    cause: String,
}

impl From<Recorded> for RecordingInfo {
    fn from(recorded: Recorded) -> Self {
        Self {
            path: recorded.path.display().to_string(),
            frames: recorded.frames,
            payload_bytes: recorded.bytes,
            first_timestamp: recorded.timestamps.0,
            last_timestamp: recorded.timestamps.1,
            frames_lost: recorded.lost,
            cause: recorded.cause,
        }
    }
}

impl From<RecorderStatus> for RecorderInfo {
    fn from(status: RecorderStatus) -> Self {
        Self {
            name: status.name,
            output: Some(status.output).filter(|output| !output.is_empty()),
            state: status.state.name(),
            frames_kept: status.frames_kept,
            frames_lost: status.frames_lost,
            frames_written: status.frames_written,
            recordings: status.recordings.into_iter().map(Into::into).collect(),
            fault: status.fault,
        }
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let text = error.to_string();
        let with = |status| Self::new(status, text);
        match error {
            RecordError::Request(refused) => refused.into(),
            RecordError::Tap(error) => error.into(),
            RecordError::NoFolder => with(StatusCode::CONFLICT)
                .help("`fxgraph run --recordings DIR` says where recordings may be written"),
            RecordError::Name(_) | RecordError::Refused(_) => {
                with(StatusCode::UNPROCESSABLE_ENTITY)
            }
            RecordError::NoSuchRecorder(_) => {
                with(StatusCode::NOT_FOUND).help("`GET /api/v1/recorders` lists them")
            }
            RecordError::Ended(_) | RecordError::IsBlock(_) => with(StatusCode::CONFLICT),
            RecordError::TooMany => with(StatusCode::TOO_MANY_REQUESTS),
            RecordError::Memory { .. } => {
                with(StatusCode::SERVICE_UNAVAILABLE).help("ask for a shorter `before_seconds`")
            }
            RecordError::Room(_) => with(StatusCode::INSUFFICIENT_STORAGE).help(
                "delete recordings that are done with, or give `--recordings` another folder",
            ),
            RecordError::Files(_) => with(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// All recorders: blocks of the flowgraph, and those that were asked for
#[utoipa::path(get, path = "/recorders", tag = "recorders", operation_id = "list_recorders",
    responses((status = 200, description = "in the order in which they came", body = Vec<RecorderInfo>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<RecorderInfo>> {
    Json(app.control.recorders().into_iter().map(Into::into).collect())
}

/// A recorder, and what it has recorded
#[utoipa::path(get, path = "/recorders/{name}", tag = "recorders", operation_id = "get_recorder",
    params(("name" = String, Path, description = "its number, or the name of its block", example = "1")),
    responses(
        (status = 200, description = "the recorder", body = RecorderInfo),
        (status = 404, description = "there is no such recorder"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    Ok(Json(app.control.recorder(&name)?.into()))
}

/// Records an output: at once, or around a request, an event or a frame that shows something
#[utoipa::path(post, path = "/blocks/{name}/outputs/{port}/recordings", tag = "recorders",
    operation_id = "record",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("port" = String, Path, description = "its output", example = "output"),
    ),
    request_body(content = HashMap<String, Value>,
        description = "parameters of the kind `recorder`; `path` is the name of a file, after the output \
            unless given",
        example = json!({"before_seconds": 2, "after_seconds": 1, "trigger": {"events": {"kinds": ["data_lost"]}}})),
    responses(
        (status = 201, description = "the recorder reads the output", body = RecorderInfo),
        (status = 400, description = "the request cannot be read"),
        (status = 404, description = "there is no such output"),
        (status = 409, description = "the output has ended, or nobody said where recordings may be written"),
        (status = 415, description = "the body does not say that it is JSON"),
        (status = 422, description = "refused, with every reason"),
        (status = 429, description = "there are too many recorders"),
        (status = 500, description = "the device cannot be read, or no thread was to be had"),
        (status = 503, description = "the block was busy, or there is no memory for the frames"),
        (status = 507, description = "recordings may take no more of the disk"),
    ))]
pub(super) async fn start(
    State(app): State<App>,
    Path((name, port)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<RecorderInfo>), Problem> {
    let output = Output::find(&app, &name, &port)?.name;
    let text = json_text(&headers, &body)?;
    let started = beside(move || {
        let options = app.control.recorder_options(&output, &text)?;
        Ok(app.control.record(&output, options, LIMIT)?)
    });
    Ok((StatusCode::CREATED, Json(started.await?.into())))
}

/// Has a recorder write what came shortly before, and what comes after
#[utoipa::path(post, path = "/recorders/{name}/trigger", tag = "recorders",
    operation_id = "trigger_recorder",
    params(
        ("name" = String, Path, description = "its number, or the name of its block", example = "1"),
        ("at" = Option<i64>, Query, minimum = 0,
            description = "a timestamp, in ADC samples since sync time; now unless given"),
    ),
    responses(
        (status = 202, description = "it records, or goes on for longer", body = RecorderInfo),
        (status = 400, description = "`at` is no timestamp"),
        (status = 404, description = "there is no such recorder"),
        (status = 409, description = "it has ended"),
    ))]
pub(super) async fn trigger(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<(StatusCode, Json<RecorderInfo>), Problem> {
    let at = asked::<u64>(&query, "at", "123456")?;
    Ok((StatusCode::ACCEPTED, Json(app.control.trigger_recorder(&name, at)?.into())))
}

/// Ends a recorder that was asked for; what it is recording is closed
#[utoipa::path(post, path = "/recorders/{name}/stop", tag = "recorders",
    operation_id = "stop_recorder",
    params(("name" = String, Path, description = "its number", example = "1")),
    responses(
        (status = 200, description = "its files are closed", body = RecorderInfo),
        (status = 404, description = "there is no such recorder"),
        (status = 409, description = "it is a block of the flowgraph"),
    ))]
pub(super) async fn stop(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    end(app, name, Control::stop_recorder).await
}

/// Ends a recorder that was asked for, and removes its files
#[utoipa::path(delete, path = "/recorders/{name}", tag = "recorders",
    operation_id = "delete_recorder",
    params(("name" = String, Path, description = "its number", example = "1")),
    responses(
        (status = 200, description = "it is gone; what it had recorded", body = RecorderInfo),
        (status = 404, description = "there is no such recorder"),
        (status = 409, description = "it is a block of the flowgraph"),
        (status = 500, description = "a file cannot be removed"),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    end(app, name, Control::delete_recorder).await
}

/// Has `how` end a recorder, which may wait for the disk.
async fn end(
    app: App,
    name: String,
    how: fn(&Control, &str) -> Result<RecorderStatus, RecordError>,
) -> Result<Json<RecorderInfo>, Problem> {
    let ended = beside(move || Ok(how(&app.control, &name)?));
    Ok(Json(ended.await?.into()))
}
