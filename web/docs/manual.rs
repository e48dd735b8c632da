//! The manual at `/docs/`.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// mdBook sets styles in its pages; its scripts are allowed one by one.
const POLICY: &str = "default-src 'none'; style-src 'self' 'unsafe-inline'; font-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'; script-src 'self'";

/// Headers of a file of the manual, computed once.
struct Described {
    media_type: &'static str,
    policy: String,
    /// Hash of the content: a browser asks with it whether its copy is still right.
    etag: String,
}

/// One for each file of the manual, in the same order.
static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| {
    fxgraph_manual::FILES.iter().map(|(path, content)| Described::new(path, content)).collect()
});

impl Described {
    fn new(path: &str, content: &[u8]) -> Self {
        let media_type = match path.rsplit_once('.').map_or("", |(_, suffix)| suffix) {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "woff2" => "font/woff2",
            "json" => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        // Only pages have scripts within.
        let page =
            std::str::from_utf8(content).ok().filter(|_| media_type.starts_with("text/html"));
        let policy = page.map_or_else(|| POLICY.to_owned(), policy);
        let etag = format!("\"{}\"", STANDARD.encode(Sha256::digest(content)));
        Self { media_type, policy, etag }
    }
}

pub(super) fn router() -> Router {
    let page = async |Path(path): Path<String>, headers: HeaderMap| answer(&path, &headers);
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(async |headers: HeaderMap| answer("index.html", &headers)))
        .route("/docs/{*path}", get(page))
}

fn answer(path: &str, request: &HeaderMap) -> Response {
    let Some(index) = fxgraph_manual::index(path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Described { media_type, policy, etag } = &DESCRIBED[index];
    let headers = [
        (header::CONTENT_TYPE, *media_type),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::ETAG, etag),
        // Another version of the program may answer at this address next time.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    if request.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag.as_str()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, fxgraph_manual::FILES[index].1).into_response()
}

/// The policy of a page: scripts within the page run if they are those that mdBook wrote.
fn policy(page: &str) -> String {
    let scripts = page.split("<script>").skip(1).filter_map(|rest| rest.split("</script>").next());
    let hashes =
        scripts.map(|script| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(script))));
    format!("{POLICY}{}", hashes.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_with_the_page_gets_no_content() {
        let first = answer("index.html", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut request = HeaderMap::new();
        request.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(answer("index.html", &request).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answer("glossary.html", &request).status(), StatusCode::OK);
    }

    #[test]
    fn policy_names_the_scripts_of_a_page() {
        // openssl dgst -sha256 -binary | base64
        let hash = "'sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc='";
        assert!(policy("<p><script>doSomething();</script>").ends_with(hash));
        assert_eq!(policy("<script src=\"a.js\"></script>"), POLICY);
    }
}
