//! The page at `/`, and the one to try the API; both work without a network.

use crate::api;
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa_swagger_ui::{Config, SwaggerUi};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

pub(crate) fn router() -> Router {
    let page = |media_type: &'static str, text: &'static str| {
        let headers =
            [(header::CONTENT_TYPE, media_type), (header::CONTENT_SECURITY_POLICY, POLICY)];
        get(move || async move { (headers, text).into_response() })
    };
    let try_it =
        SwaggerUi::new("/docs").config(Config::from(api::DESCRIPTION).try_it_out_enabled(true));
    Router::from(try_it)
        .route("/", page("text/html; charset=utf-8", include_str!("ui/index.html")))
        .route("/page.js", page("text/javascript; charset=utf-8", include_str!("ui/page.js")))
        .route("/page.css", page("text/css; charset=utf-8", include_str!("ui/page.css")))
}
