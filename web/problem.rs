//! Errors as problem documents (RFC 9457).

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fxgraph_api::problem::Problem as Document;
use std::time::Duration;

/// The media type of a problem document.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Most characters of a detail in an event.
const MOST_TOLD: usize = 300;

/// Error of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub document: Document,
    /// When to try again, in seconds; sent as `Retry-After`.
    retry_after: Option<u64>,
}

impl Problem {
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let document = Document {
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            help: Vec::new(),
            diagnostics: Vec::new(),
        };
        Self { document, retry_after: None }
    }

    /// The server is busy; the same request may succeed later.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
            .help("nothing has changed; send the request again")
            .retry_after(Duration::from_secs(2))
    }

    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time.as_secs().max(1));
        self
    }

    pub fn diagnostics(mut self, diagnostics: Vec<serde_json::Value>) -> Self {
        self.document.diagnostics = diagnostics;
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.document.help.push(help.into());
        self
    }

    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.document.help.extend(help);
        self
    }
}

impl Problem {
    /// Whether a valid request to change the flowgraph was rejected.
    pub fn is_rejection(&self) -> bool {
        [StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY]
            .iter()
            .any(|status| status.as_u16() == self.document.status)
    }

    /// First line of its detail, for an event.
    pub fn first_line(&self) -> String {
        self.document.detail.lines().next().unwrap_or_default().chars().take(MOST_TOLD).collect()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.document.status).unwrap_or(StatusCode::BAD_REQUEST);
        let retry_after = self.retry_after.map(HeaderValue::from);
        let mut response = (status, axum::Json(self.document)).into_response();
        let media_type = HeaderValue::from_static(MEDIA_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Converts errors of the layers around the handlers to problem documents.
pub(crate) async fn explain(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status();
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t == MEDIA_TYPE);
    if is_problem || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let allow = response.headers().get(header::ALLOW).cloned();
    let detail = match status {
        StatusCode::NOT_FOUND => format!("there is nothing at `{path}`"),
        StatusCode::METHOD_NOT_ALLOWED => format!("`{path}` does not support `{method}`"),
        StatusCode::REQUEST_TIMEOUT => "the request took too long".to_owned(),
        StatusCode::PAYLOAD_TOO_LARGE => "the body is too large".to_owned(),
        _ => format!("malformed request `{method} {path}`"),
    };
    let problem = Problem::new(status, detail);
    let problem = match &allow {
        Some(allow) => problem.help(format!("use {}", allow.to_str().unwrap_or_default())),
        None if status == StatusCode::NOT_FOUND => problem.help("see all paths at `/docs/api/`"),
        None => problem,
    };
    let mut response = problem.into_response();
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}
