//! What stands under `/api/v1`, and the description of everything that is served to programs.
//!
//! # Layout
//! - [`flowgraph`]: the flowgraph as a whole: state, graph, configuration, stop
//! - [`blocks`]: one block: ports, parameters, figures, faults
//! - [`changes`]: live parameters and swaps
//! - [`kinds`]: the kinds of blocks there are
//! - [`events`]: what happened, to look up and as a stream
//! - `output`: an output, by the name of its block and its own
//! - [`recordings`]: outputs to files
//! - `request`: what handlers share
//! - [`snapshot`]: one frame of an output
//! - [`stream`]: its frames as they run by
//! - [`views`]: what they look like
//! - [`shadows`]: second forms of blocks on the same frames
//! - [`types`]: how ports and parameters are told
//! - [`update`]: another flowgraph in place of the one that runs

mod blocks;
mod changes;
mod events;
mod flowgraph;
mod kinds;
mod output;
mod recordings;
mod request;
mod shadows;
mod snapshot;
mod stream;
mod types;
mod update;
mod views;

use crate::app::App;
use crate::metrics;
use crate::problem::{MEDIA_TYPE, Problem};
use axum::{Json, Router, routing};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{self, Content, ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where the API's description is served.
pub(crate) const DESCRIPTION: &str = "/api/v1/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(title = "fxgraph", description = "Monitoring and control of a running flowgraph. GET has no side \
        effects. Errors are problem documents (RFC 9457) with help.", license(name = "BSD-3-Clause", identifier = "BSD-3-Clause")),
    components(schemas(Problem)),
    tags(
        (name = "flowgraph", description = "the flowgraph as a whole"),
        (name = "blocks", description = "blocks of the flowgraph"),
        (name = "recorders", description = "recordings of outputs"),
        (name = "kinds", description = "kinds of blocks"),
        (name = "events", description = "events of the run"),
        (name = "metrics", description = "metrics for Prometheus"),
    )
)]
struct Description;

/// The API, and its description.
fn described() -> OpenApiRouter<App> {
    let whole = OpenApiRouter::with_openapi(Description::openapi());
    whole.routes(routes!(metrics::get)).nest(
        "/api/v1",
        OpenApiRouter::new()
            .routes(routes!(flowgraph::get, update::update))
            .routes(routes!(flowgraph::health))
            .routes(routes!(flowgraph::start))
            .routes(routes!(flowgraph::stop))
            .routes(routes!(flowgraph::abort))
            .routes(routes!(blocks::list, changes::retune))
            .routes(routes!(blocks::get, changes::swap))
            .routes(routes!(snapshot::get))
            .routes(routes!(stream::get))
            .routes(routes!(views::list))
            .routes(routes!(views::get))
            .routes(routes!(views::follow))
            .routes(routes!(recordings::start))
            .routes(routes!(recordings::list))
            .routes(routes!(recordings::get, recordings::delete))
            .routes(routes!(recordings::trigger))
            .routes(routes!(recordings::stop))
            .routes(routes!(shadows::list))
            .routes(routes!(shadows::get, shadows::start, shadows::end))
            .routes(routes!(shadows::first_difference))
            .routes(routes!(kinds::list))
            .routes(routes!(kinds::get))
            .routes(routes!(events::list))
            .routes(routes!(events::stream)),
    )
}

/// Statuses that any request may be answered with, by the layers around the handlers.
const ANYWHERE: [(&str, &str); 7] = [
    ("401", "the token is missing or wrong"),
    (
        "403",
        "the request comes from a page of another site, or clients do not have this permission",
    ),
    ("408", "the request took too long"),
    ("413", "the request body is too large"),
    ("421", "`Host` is not a name of this machine"),
    ("429", "too many requests at once"),
    ("503", "too many connections, or a block was busy"),
];

/// The OpenAPI 3.1 document.
fn description(mut api: openapi::OpenApi) -> openapi::OpenApi {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let schemes = &mut api.components.get_or_insert_default().security_schemes;
    schemes.insert("token".to_owned(), RefOr::T(SecurityScheme::Http(bearer)));
    let none: [&str; 0] = [];
    // Without a token, or with one: it depends on how the server was started.
    api.security =
        Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", none)]);
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        let responses = &mut operation.responses.responses;
        for (status, meaning) in ANYWHERE {
            let response = ResponseBuilder::new().description(meaning).build();
            responses.entry(status.to_owned()).or_insert(RefOr::T(response));
        }
        // Whatever goes wrong is told as a problem.
        for (status, response) in responses {
            if let (true, RefOr::T(response)) = (status.starts_with(['4', '5']), response) {
                let problem = Ref::from_schema_name("Problem");
                let content: Content = ContentBuilder::new().schema(Some(problem)).build();
                response.content.insert(MEDIA_TYPE.to_owned(), RefOr::T(content));
            }
        }
    }
    api
}

fn operations(item: &mut openapi::PathItem) -> impl Iterator<Item = &mut openapi::path::Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// Everything that tells of the flowgraph or changes it.
pub(crate) fn router(app: App) -> Router {
    described().split_for_parts().0.with_state(app)
}

/// The description of it.
pub(crate) fn description_router() -> Router {
    let api = description(described().split_for_parts().1);
    Router::new().route(DESCRIPTION, routing::get(move || async move { Json(api) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn api() -> openapi::OpenApi {
        description(described().split_for_parts().1)
    }

    #[test]
    fn the_description_changes_on_purpose_only() {
        insta::assert_json_snapshot!("openapi", api());
    }

    #[test]
    fn the_readme_lists_the_endpoints() {
        let mut table = String::from("| request | what it does |\n|---|---|\n");
        for (path, item) in &mut api().paths.paths {
            let methods = [
                ("GET", &item.get),
                ("PUT", &item.put),
                ("POST", &item.post),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
            ];
            for (method, operation) in methods {
                let Some(operation) = operation else { continue };
                let summary = operation.summary.clone().unwrap_or_default();
                table += &format!("| `{method} {path}` | {summary} |\n");
            }
        }
        let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        let readme = std::fs::read_to_string(readme).unwrap();
        assert!(readme.contains(&table), "it should read:\n{table}");
    }
}
