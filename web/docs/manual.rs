//! The manual at `/docs/`, rendered when clients ask for its pages.

use crate::pages::POLICY;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use fxgraph_manual::{Generated, Manual};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// The manual of the program, for all servers of the process.
static MANUAL: OnceLock<Manual> = OnceLock::new();

/// `generated` returns the pages that the program adds.
pub(super) fn router(generated: fn() -> Generated) -> Router {
    // On a thread that may compute for long.
    let page = move |path: String, request: HeaderMap| async move {
        let answer =
            move || answer(MANUAL.get_or_init(|| Manual::new(generated())), &path, &request);
        let answer = tokio::task::spawn_blocking(answer).await;
        answer.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    };
    let first = move |headers: HeaderMap| page("index.html".to_owned(), headers);
    let other = move |Path(path): Path<String>, headers: HeaderMap| page(path, headers);
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(first))
        .route("/docs/{*path}", get(other))
}

fn answer(manual: &'static Manual, path: &str, request: &HeaderMap) -> Response {
    let Some(content) = manual.file(path) else { return StatusCode::NOT_FOUND.into_response() };
    let media_type = match path.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        _ => "text/plain; charset=utf-8",
    };
    // Hash of the content: a browser asks with it whether its copy is still right.
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let etag = format!("\"{:016x}\"", hasher.finish());
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::ETAG, &etag),
        // Another version of the program may answer at this address next time.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    if request.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag.as_str()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manual without the pages that a program adds.
    fn written() -> &'static Manual {
        MANUAL.get_or_init(|| Manual::new(Generated::new()))
    }

    #[test]
    fn browser_with_the_page_gets_no_content() {
        let first = answer(written(), "index.html", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut request = HeaderMap::new();
        request.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(answer(written(), "index.html", &request).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answer(written(), "glossary.html", &request).status(), StatusCode::OK);
    }

    #[test]
    fn alerts_lead_to_a_section_of_the_manual() {
        let (page, anchor) = crate::dashboard::ABOUT.split_once('#').unwrap_or_default();
        let html = String::from_utf8_lossy(written().file(page).unwrap_or_default());
        assert!(html.contains(&format!(" id=\"{anchor}\"")));
    }
}
