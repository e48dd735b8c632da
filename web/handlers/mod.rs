//! Handlers under `/api/v1`, and the OpenAPI description.
//!
//! # Layout
//! - [`flowgraph`]: state, graph, configuration, start and stop of the flowgraph
//! - [`blocks`]: ports, parameters, statistics and faults of blocks
//! - [`changes`]: live updates and swaps
//! - [`history`]: values of gauges over minutes and hours
//! - [`kinds`]: kinds of blocks
//! - [`events`]: events, as a list and as a stream
//! - `output`: look-up of an output
//! - `ports`: types of ports in responses
//! - [`prepared`]: live updates in two steps
//! - `recordings`: recorders
//! - `request`: query values and blocking work, shared by handlers
//! - [`snapshot`]: one frame of an output
//! - [`stream`]: frames of an output
//! - [`views`]: views of an output
//! - [`shadows`]: shadows of blocks
//! - [`update`]: replacement of the running flowgraph

mod blocks;
mod changes;
mod events;
pub(crate) mod flowgraph;
pub(crate) mod history;
mod kinds;
mod output;
mod ports;
pub(crate) mod prepared;
mod recordings;
pub(crate) mod request;
pub(crate) mod shadows;
mod snapshot;
mod stream;
pub(crate) mod update;
mod views;

use crate::app::App;
use crate::metrics;
use crate::problem::MEDIA_TYPE;
use axum::{Json, Router, routing};
use fxgraph_api::problem::Problem;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{self, Content, ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Path of the OpenAPI description.
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

/// Router of the API, with its description.
pub(crate) fn described() -> OpenApiRouter<App> {
    let whole = OpenApiRouter::with_openapi(Description::openapi());
    whole.routes(routes!(metrics::get)).nest(
        "/api/v1",
        OpenApiRouter::new()
            .routes(routes!(flowgraph::get, update::update))
            .routes(routes!(flowgraph::health))
            .routes(routes!(flowgraph::live))
            .routes(routes!(flowgraph::ready))
            .routes(routes!(flowgraph::start))
            .routes(routes!(flowgraph::stop))
            .routes(routes!(flowgraph::abort))
            .routes(routes!(blocks::list, changes::live_update))
            .routes(routes!(history::get))
            .routes(routes!(blocks::get, changes::swap))
            .routes(routes!(changes::set_array))
            .routes(routes!(prepared::prepare))
            .routes(routes!(prepared::commit))
            .routes(routes!(prepared::cancel))
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

/// Statuses of the layers around the handlers, possible for every request.
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

/// Completes an OpenAPI 3.1 document: tokens, statuses of every request, bodies of errors.
pub(crate) fn description(mut api: openapi::OpenApi) -> openapi::OpenApi {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let schemes = &mut api.components.get_or_insert_default().security_schemes;
    schemes.insert("token".to_owned(), RefOr::T(SecurityScheme::Http(bearer)));
    let none: [&str; 0] = [];
    // Without or with a token, depending on the options of the server.
    api.security =
        Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", none)]);
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        let responses = &mut operation.responses.responses;
        for (status, meaning) in ANYWHERE {
            let response = ResponseBuilder::new().description(meaning).build();
            responses.entry(status.to_owned()).or_insert(RefOr::T(response));
        }
        // All errors are problem documents.
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

/// Router of all requests that need the token.
pub(crate) fn router(app: App) -> Router {
    described().split_for_parts().0.with_state(app)
}

/// The OpenAPI 3.1 document of a flowgraph, as JSON.
#[must_use]
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(of_flowgraph()).unwrap_or_default()
}

/// The OpenAPI 3.1 document of a flowgraph.
pub(crate) fn of_flowgraph() -> openapi::OpenApi {
    description(described().into_openapi())
}

/// Router of the OpenAPI description `api`.
pub(crate) fn description_router(api: openapi::OpenApi) -> Router {
    Router::new().route(DESCRIPTION, routing::get(move || async move { Json(api) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openapi_description_matches_snapshot() {
        insta::assert_json_snapshot!("openapi", of_flowgraph());
    }
}
