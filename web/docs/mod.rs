//! The manual at `/docs/`, and Swagger UI at `/docs/api/`.

mod manual;
mod swagger;

use axum::Router;
use std::collections::BTreeMap;

/// `manual` returns the pages that the program adds to the manual.
pub(crate) fn router(manual: fn() -> BTreeMap<String, String>) -> Router {
    manual::router(manual).merge(swagger::router())
}
