//! Snapshot of an output: its next frame.

use super::output::{MAX_BYTES, Output};
use super::ports::carries;
use super::request::asked;
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use crate::taps::{Look, Room};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use fxgraph::control::TapFrame;
use fxgraph::{Header, PortType, ValidityType};
use fxgraph_api::frames::{Snapshot, ValidityInfo};
use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;
use utoipa::ToSchema;

/// Media type of .npy, which has no type of its own.
pub(super) const NPY: &str = "application/octet-stream";

/// Summarises `counts`, one per unit of `validity`.
fn summary(counts: &[u32], validity: &ValidityType) -> ValidityInfo {
    let whole = counts.iter().filter(|count| **count >= validity.full).count();
    let missing = counts.iter().filter(|count| **count == 0).count();
    let is_mixed = whole < counts.len() && missing < counts.len();
    ValidityInfo {
        units: counts.len(),
        whole,
        partial: counts.len() - whole - missing,
        missing,
        counts: is_mixed.then(|| counts.to_vec()),
    }
}

/// Describes a frame of `output`.
pub(super) fn snapshot(output: String, port: &PortType, header: &Header) -> Snapshot {
    let clock = port.clock.in_base(&header.base);
    Snapshot {
        output,
        sequence: header.sequence,
        timestamp: header.timestamp,
        unix_time_seconds: clock.unix_seconds(header.timestamp),
        config_id: format!("{:016x}", header.config_id),
        validity: summary(&header.validity, &port.validity),
        carries: carries(&PortType { clock, ..port.clone() }),
    }
}

/// Format of a snapshot.
#[derive(Clone, Copy, PartialEq, ToSchema)]
#[schema(rename_all = "lowercase")]
enum Format {
    Json,
    Npy,
}

impl FromStr for Format {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        match word {
            "json" => Ok(Self::Json),
            "npy" => Ok(Self::Npy),
            _ => Err(()),
        }
    }
}

/// Format according to the `Accept` header.
fn accepted(headers: &HeaderMap) -> Format {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let mut types = accept.unwrap_or_default().split(',');
    let is_npy = types.any(|t| t.split(';').next().unwrap_or_default().trim() == NPY);
    if is_npy { Format::Npy } else { Format::Json }
}

/// Array being sent to a client; it keeps the place of its tap until sent.
pub(super) struct Sent {
    pub array: Vec<u8>,
    pub _room: Room,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.array
    }
}

/// One frame of an output: timestamp, validity and type, or its payload as .npy
#[utoipa::path(get, path = "/blocks/{name}/outputs/{port}/snapshot", tag = "blocks",
    operation_id = "get_snapshot",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`",
            example = "source"),
        ("port" = String, Path, description = "name of the output", example = "output"),
        ("format" = inline(Option<Format>), Query, description =
            "`npy` for the payload as .npy, like `Accept: application/octet-stream`; or `json`"),
        ("max_bytes" = Option<usize>, Query,
            description = "largest payload to accept, in bytes; 16 MiB by default"),
    ),
    responses(
        (status = 200, description = "the next frame; with `npy`, its header is in HTTP headers",
            headers(
                ("fxgraph-sequence" = u64, description = "`sequence` of the frame, with `npy`"),
                ("fxgraph-timestamp" = u64, description = "`timestamp` of the frame, with `npy`"),
                ("fxgraph-config-id" = String, description = "`config_id` of the frame, with `npy`"),
            ),
            content((Snapshot = "application/json"), ("application/octet-stream"))),
        (status = 400, description = "malformed request"),
        (status = 404, description = "unknown block or output"),
        (status = 409, description = "the output has ended, or no frame came because its frames are longer than a request may wait"),
        (status = 422, description = "the frame is larger than `max_bytes`"),
        (status = 429, description = "too many requests for frames: retry after `Retry-After`"),
        (status = 500, description = "copying from the device failed"),
        (status = 503, description = "no frame arrived in time, or memory for it is short"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path((name, port)): Path<(String, String)>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let format = asked(&query, "format", "npy")?.unwrap_or_else(|| accepted(&headers));
    let max_bytes = asked(&query, "max_bytes", "1000000")?.unwrap_or(MAX_BYTES);
    let output = Output::find(&app, &name, &port)?.up_to(max_bytes)?;
    let bytes = output.port.frame_bytes();
    let (look, name) = ((client, Look::Once), output.name.clone());
    let watch = app.taps.open(&app.control, look, name, bytes, 1, Duration::ZERO).await?;
    let made = move |port: &PortType, frame: TapFrame| {
        let header = snapshot(output.name.clone(), port, &frame.header);
        (header, (format == Format::Npy).then(|| frame.to_npy(port)))
    };
    let ((header, array), room) = watch.first(made).await?;
    let Some(array) = array else { return Ok(Json(header).into_response()) };
    let headers = [
        ("content-type", NPY.to_owned()),
        ("fxgraph-sequence", header.sequence.to_string()),
        ("fxgraph-timestamp", header.timestamp.to_string()),
        ("fxgraph-config-id", header.config_id),
    ];
    Ok((headers, Bytes::from_owner(Sent { array, _room: room })).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_whole_partial_or_missing() {
        let validity = ValidityType { axes: vec![], full: 3 };
        let counts = vec![3, 0, 1, 2, 3, 0, 3];
        let told = summary(&counts, &validity);
        let expected =
            ValidityInfo { units: 7, whole: 3, partial: 2, missing: 2, counts: Some(counts) };
        assert_eq!(told, expected);
        assert_eq!(summary(&[3, 3], &validity).counts, None);
        assert_eq!(summary(&[0, 0], &validity).counts, None);
    }
}
