//! What stands under `/api/v1`.
//!
//! # Layout
//! - [`flowgraph`]: the flowgraph as a whole: state, graph, configuration, stop
//! - [`blocks`]: one block: ports, parameters, figures, faults
//! - [`kinds`]: the kinds of blocks there are
//! - [`events`]: what happened, to look up and as a stream
//! - [`types`]: how ports and parameters are told

mod blocks;
mod events;
mod flowgraph;
mod kinds;
mod types;

use crate::app::App;
use crate::problem::{MEDIA_TYPE, Problem};
use axum::{Json, Router, routing};
use utoipa::OpenApi;
use utoipa::openapi::{self, Content, ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where the API's description is served.
pub(crate) const DESCRIPTION: &str = "/api/v1/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(title = "fxgraph", description = "Watching and controlling a running flowgraph. GET \
        changes nothing. Errors are problem documents (RFC 9457) that say what is wrong and what \
        to do.", license(name = "BSD-3-Clause", identifier = "BSD-3-Clause")),
    components(schemas(Problem)),
    tags(
        (name = "flowgraph", description = "the flowgraph as a whole"),
        (name = "blocks", description = "its blocks"),
        (name = "kinds", description = "kinds of blocks"),
        (name = "events", description = "what happened"),
    )
)]
struct Description;

/// The API, and its description.
fn described() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi()).nest(
        "/api/v1",
        OpenApiRouter::new()
            .routes(routes!(flowgraph::get))
            .routes(routes!(flowgraph::health))
            .routes(routes!(flowgraph::stop))
            .routes(routes!(flowgraph::abort))
            .routes(routes!(blocks::list))
            .routes(routes!(blocks::get))
            .routes(routes!(kinds::list))
            .routes(routes!(kinds::get))
            .routes(routes!(events::list))
            .routes(routes!(events::stream)),
    )
}

/// Statuses that any request may be answered with, by the layers around the handlers.
const ANYWHERE: [(&str, &str); 1] = [("408", "the request took too long")];

/// The OpenAPI 3.1 document.
fn description(mut api: openapi::OpenApi) -> openapi::OpenApi {
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        for (status, meaning) in ANYWHERE {
            let problem = Ref::from_schema_name("Problem");
            let content: Content = ContentBuilder::new().schema(Some(problem)).build();
            let response =
                ResponseBuilder::new().description(meaning).content(MEDIA_TYPE, content).build();
            let responses = &mut operation.responses.responses;
            responses.entry(status.to_owned()).or_insert(RefOr::T(response));
        }
    }
    api
}

fn operations(item: &mut openapi::PathItem) -> impl Iterator<Item = &mut openapi::path::Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete]
        .into_iter()
        .filter_map(Option::as_mut)
}

/// Everything under `/api/v1`.
pub(crate) fn router(app: App) -> Router {
    let (router, api) = described().split_for_parts();
    let api = description(api);
    let shown = move || async move { Json(api) };
    router.with_state(app).route(DESCRIPTION, routing::get(shown))
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
