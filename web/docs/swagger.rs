//! Swagger UI at `/docs/api/`, which works without a network.

use crate::handlers;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use std::sync::Arc;
use tower_http::set_header::SetResponseHeaderLayer;
use utoipa_swagger_ui::Config;

/// Swagger UI uses inline styles.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

/// Path, media type and text of files in place of those of Swagger UI, which do not fit the window of a phone.
const SWAGGER: [(&str, &str, &str); 2] = [
    ("/docs/api/", "text/html; charset=utf-8", include_str!("../swagger/index.html")),
    ("/docs/api/index.css", "text/css; charset=utf-8", include_str!("../swagger/index.css")),
];

/// Swagger UI, to try requests.
pub(super) fn router() -> Router {
    let config = Arc::new(Config::from(handlers::DESCRIPTION).try_it_out_enabled(true));
    let file = move |Path(path): Path<String>| async move {
        match utoipa_swagger_ui::serve(&path, config) {
            Ok(Some(file)) => {
                ([(header::CONTENT_TYPE, file.content_type)], file.bytes.into_owned())
                    .into_response()
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    };
    let policy = SetResponseHeaderLayer::overriding(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    let router = Router::new()
        .route("/docs/api", get(|| async { Redirect::to("/docs/api/") }))
        .route("/docs/api/{*path}", get(file));
    let router = SWAGGER.into_iter().fold(router, |router, (path, media_type, text)| {
        router.route(path, get(move || async move { ([(header::CONTENT_TYPE, media_type)], text) }))
    });
    router.layer(policy)
}
