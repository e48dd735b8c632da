//! The manual at `/docs/`, and Swagger UI at `/docs/api/`.

mod manual;
mod swagger;

use axum::Router;

pub(crate) fn router() -> Router {
    manual::router().merge(swagger::router())
}
