//! Stream of frames of an output.

use super::output::{MAX_BYTES, Output};
use super::request::{asked, within};
use super::snapshot::snapshot;
use super::views::{DEFAULT_EVERY_SECONDS, EVERY_SECONDS};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use crate::taps::Look;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fxgraph::PortType;
use fxgraph::control::TapFrame;
use fxgraph_api::frames::StreamedFrame;
use std::collections::HashMap;
use std::time::Duration;

/// Some frames of an output as server-sent events: header, and payload as .npy
#[utoipa::path(get, path = "/blocks/{name}/outputs/{port}/stream", tag = "blocks",
    operation_id = "follow_frames",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`",
            example = "source"),
        ("port" = String, Path, description = "name of the output", example = "output"),
        ("every" = Option<u64>, Query, minimum = 1,
            description = "sends at most every n-th frame; 1 by default"),
        ("every_seconds" = Option<f64>, Query, minimum = 0.05, maximum = 60,
            description = "minimum time between two frames, in seconds; 0.25 by default"),
        ("max_bytes" = Option<usize>, Query,
            description = "largest payload to accept, in bytes; 16 MiB by default"),
    ),
    responses(
        (status = 200, description = "each frame as the `data` of an event `frame`, until the output \
            ends; an event `problem` reports why the stream ends early",
            body = StreamedFrame, content_type = "text/event-stream"),
        (status = 400, description = "malformed request"),
        (status = 404, description = "unknown block or output"),
        (status = 409, description = "the output has ended"),
        (status = 422, description = "the frames are larger than `max_bytes`"),
        (status = 429, description = "too many streams of outputs, of all clients or of this one"),
        (status = 500, description = "copying from the device failed"),
        (status = 503, description = "the block does not respond, or memory for its frames is short"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path((name, port)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Problem> {
    let max_bytes = asked(&query, "max_bytes", "1000000")?.unwrap_or(MAX_BYTES);
    let every = within(&query, "every", &(1..=u64::MAX))?.unwrap_or(1);
    let seconds = within(&query, "every_seconds", &EVERY_SECONDS)?.unwrap_or(DEFAULT_EVERY_SECONDS);
    let output = Output::find(&app, &name, &port)?.up_to(max_bytes)?;
    let (bytes, pause) = (output.port.frame_bytes(), Duration::from_secs_f64(seconds));
    let (look, name) = ((client, Look::Follow), output.name.clone());
    let watch = app.taps.open(&app.control, look, name, bytes, every, pause).await?;
    let made = move |port: &PortType, frame: TapFrame| StreamedFrame {
        header: snapshot(output.name.clone(), port, &frame.header),
        npy: BASE64_STANDARD.encode(frame.to_npy(port)),
    };
    Ok(Sse::new(watch.events("frame", None, made)).keep_alive(KeepAlive::default()).into_response())
}
