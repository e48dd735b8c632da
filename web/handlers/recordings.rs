//! Recorders, which write the frames of an output before and after a trigger.

use super::changes::json_object;
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
use fxgraph_api::recordings::{RecorderInfo, RecordingInfo};
use std::collections::HashMap;
use std::time::Duration;

/// Time limit for a block to attach a recorder.
const LIMIT: Duration = Duration::from_secs(20);

fn recording(recorded: Recorded) -> RecordingInfo {
    RecordingInfo {
        path: recorded.path.display().to_string(),
        frames: recorded.frames,
        payload_bytes: recorded.bytes,
        first_timestamp: recorded.timestamps.0,
        last_timestamp: recorded.timestamps.1,
        frames_lost: recorded.lost,
        cause: recorded.cause,
    }
}

fn info(status: RecorderStatus) -> RecorderInfo {
    RecorderInfo {
        name: status.name,
        output: Some(status.output).filter(|output| !output.is_empty()),
        state: status.state.name().to_owned(),
        frames_kept: status.frames_kept,
        frames_lost: status.frames_lost,
        frames_written: status.frames_written,
        recordings: status.recordings.into_iter().map(recording).collect(),
        fault: status.fault,
    }
}

impl From<RecordError> for Problem {
    fn from(error: RecordError) -> Self {
        let text = error.to_string();
        let with = |status| Self::new(status, text);
        match error {
            RecordError::Request(rejected) => rejected.into(),
            RecordError::Tap(error) => error.into(),
            RecordError::NoDirectory => with(StatusCode::CONFLICT)
                .help("start the program with `fxgraph run --recordings DIR`"),
            RecordError::Name(_) | RecordError::Rejected(_) => {
                with(StatusCode::UNPROCESSABLE_ENTITY)
            }
            RecordError::NoSuchRecorder(_) => with(StatusCode::NOT_FOUND)
                .help("list the recorders with `fxgraph record` or `GET /api/v1/recorders`"),
            RecordError::Ended(_) | RecordError::IsBlock(_) => with(StatusCode::CONFLICT),
            RecordError::TooMany => with(StatusCode::TOO_MANY_REQUESTS),
            RecordError::Memory { .. } => {
                with(StatusCode::SERVICE_UNAVAILABLE).help("ask for a shorter `before_seconds`")
            }
            RecordError::Room(_) => with(StatusCode::INSUFFICIENT_STORAGE)
                .help("delete recordings, or choose another directory with `--recordings`"),
            RecordError::Files(_) => with(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// All recorders: blocks of the flowgraph, and recorders created through the API
#[utoipa::path(get, path = "/recorders", tag = "recorders", operation_id = "list_recorders",
    responses((status = 200, description = "in order of creation", body = Vec<RecorderInfo>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<RecorderInfo>> {
    Json(app.control.recorders().into_iter().map(info).collect())
}

/// A recorder, with its recordings
#[utoipa::path(get, path = "/recorders/{name}", tag = "recorders", operation_id = "get_recorder",
    params(("name" = String, Path, description = "number of the recorder, or the name of its block", example = "1")),
    responses(
        (status = 200, description = "the recorder", body = RecorderInfo),
        (status = 404, description = "unknown recorder"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    Ok(Json(info(app.control.recorder(&name)?)))
}

/// Records an output: at once, or before and after a request, an event or a condition on the data
#[utoipa::path(post, path = "/blocks/{name}/outputs/{port}/recordings", tag = "recorders",
    operation_id = "record",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source"),
        ("port" = String, Path, description = "name of the output", example = "output"),
    ),
    request_body(content = HashMap<String, Value>,
        description = "parameters of the kind `recorder`; `path` must be a file name, by default \
            derived from the output",
        example = json!({"before_seconds": 2, "after_seconds": 1, "trigger": {"events": {"kinds": ["data_lost"]}}})),
    responses(
        (status = 201, description = "the recorder is running", body = RecorderInfo),
        (status = 400, description = "malformed request"),
        (status = 404, description = "unknown block or output"),
        (status = 409, description = "the output has ended, or the program runs without `--recordings`"),
        (status = 415, description = "the `Content-Type` is not JSON"),
        (status = 422, description = "rejected, with all diagnostics"),
        (status = 429, description = "too many recorders"),
        (status = 500, description = "copying from the device failed, or no thread could be started"),
        (status = 503, description = "the block was busy, or memory for the frames is short"),
        (status = 507, description = "the disk space for recordings is used up"),
    ))]
pub(super) async fn start(
    State(app): State<App>,
    Path((name, port)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<RecorderInfo>), Problem> {
    let output = Output::find(&app, &name, &port)?.name;
    let request = json_object(&headers, body)?;
    let started = beside(move || {
        let options = app.control.recorder_options(&output, request)?;
        Ok(app.control.record(&output, options, LIMIT)?)
    });
    Ok((StatusCode::CREATED, Json(info(started.await?))))
}

/// Triggers a recorder: writes the frames before and after the trigger
#[utoipa::path(post, path = "/recorders/{name}/trigger", tag = "recorders",
    operation_id = "trigger_recorder",
    params(
        ("name" = String, Path, description = "number of the recorder, or the name of its block", example = "1"),
        ("at" = Option<i64>, Query, minimum = 0,
            description = "timestamp of the trigger, in ADC samples since the sync time; now by default"),
    ),
    responses(
        (status = 202, description = "the recording is started or extended", body = RecorderInfo),
        (status = 400, description = "`at` is not a timestamp"),
        (status = 404, description = "unknown recorder"),
        (status = 409, description = "the recorder has ended"),
    ))]
pub(super) async fn trigger(
    State(app): State<App>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<(StatusCode, Json<RecorderInfo>), Problem> {
    let at = asked::<u64>(&query, "at", "123456")?;
    Ok((StatusCode::ACCEPTED, Json(info(app.control.trigger_recorder(&name, at)?))))
}

/// Stops a recorder created through the API, and closes its files
#[utoipa::path(post, path = "/recorders/{name}/stop", tag = "recorders",
    operation_id = "stop_recorder",
    params(("name" = String, Path, description = "number of the recorder", example = "1")),
    responses(
        (status = 200, description = "the recorder has stopped", body = RecorderInfo),
        (status = 404, description = "unknown recorder"),
        (status = 409, description = "the recorder is a block of the flowgraph"),
    ))]
pub(super) async fn stop(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    end(app, name, Control::stop_recorder).await
}

/// Deletes a recorder created through the API, and its files
#[utoipa::path(delete, path = "/recorders/{name}", tag = "recorders",
    operation_id = "delete_recorder",
    params(("name" = String, Path, description = "number of the recorder", example = "1")),
    responses(
        (status = 200, description = "the recorder is deleted; its last state", body = RecorderInfo),
        (status = 404, description = "unknown recorder"),
        (status = 409, description = "the recorder is a block of the flowgraph"),
        (status = 500, description = "a file cannot be deleted"),
    ))]
pub(super) async fn delete(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<RecorderInfo>, Problem> {
    end(app, name, Control::delete_recorder).await
}

/// Ends a recorder with `how`, which may wait for the disk.
async fn end(
    app: App,
    name: String,
    how: fn(&Control, &str) -> Result<RecorderStatus, RecordError>,
) -> Result<Json<RecorderInfo>, Problem> {
    let ended = beside(move || Ok(how(&app.control, &name)?));
    Ok(Json(info(ended.await?)))
}
