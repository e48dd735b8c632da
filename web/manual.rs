//! The manual at `/docs/`.

use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// mdBook sets styles in its pages; its scripts are allowed one by one.
const POLICY: &str = "default-src 'none'; style-src 'self' 'unsafe-inline'; font-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'; script-src 'self'";

pub(crate) fn router() -> Router {
    Router::new()
        .route("/docs", get(|| async { Redirect::permanent("/docs/") }))
        .route("/docs/", get(|| async { answer("index.html") }))
        .route("/docs/{*path}", get(|Path(path): Path<String>| async move { answer(&path) }))
}

fn answer(path: &str) -> Response {
    let Some(content) = fxgraph_manual::file(path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
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
    // Only pages have scripts within; the search index is large.
    let page = std::str::from_utf8(content).ok().filter(|_| media_type.starts_with("text/html"));
    let policy = page.map_or_else(|| POLICY.to_owned(), policy);
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, &policy),
        // Another version of the program may answer at this address next time.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
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
    fn policy_names_the_scripts_of_a_page() {
        // openssl dgst -sha256 -binary | base64
        let hash = "'sha256-RFWPLDbv2BY+rCkDzsE+0fr8ylGr2R2faWMhq4lfEQc='";
        assert!(policy("<p><script>doSomething();</script>").ends_with(hash));
        assert_eq!(policy("<script src=\"a.js\"></script>"), POLICY);
    }
}
