//! Requests that a fleet answers, and their OpenAPI description.
//!
//! Router and description are made from one list. Requests that a flowgraph answers, too, have the description of the
//! flowgraph, with what differs at a fleet.

use super::{Fleet, forward, merge};
use crate::handlers;
use crate::problem::Problem;
use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::{MethodFilter, MethodRouter, on};
use std::collections::BTreeSet;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{self, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(title = "fxgraph fleet", description = "Monitoring and control of all parts of a deployment as one \
        flowgraph. GET has no side effects. Errors are problem documents (RFC 9457) with help. The `stream_sink` and \
        `stream_source` blocks that connect parts are named `PART/BLOCK`, and so are recorders: `PART/RECORDER`.",
        license(name = "BSD-3-Clause", identifier = "BSD-3-Clause")),
    tags((name = "parts", description = "parts of the deployment"))
)]
struct Description;

/// A request that a flowgraph answers, too.
struct Shared {
    handler: MethodRouter<Fleet>,
    /// Summary, if that of the flowgraph is wrong for a fleet.
    summary: Option<&'static str>,
    /// Differences from a flowgraph.
    description: &'static str,
    /// Further meanings of statuses.
    statuses: &'static [(&'static str, &'static str)],
}

impl Shared {
    /// A request that the fleet passes to one part.
    fn passed(handler: MethodRouter<Fleet>, description: &'static str) -> Self {
        let statuses = &[
            ("502", "the part does not answer the request"),
            ("503", "the part has a trouble, or one that is not there may have the block"),
        ];
        Self { handler, summary: None, description, statuses }
    }

    /// A request that the fleet answers from all parts.
    fn merged(handler: MethodRouter<Fleet>, description: &'static str) -> Self {
        Self { handler, summary: None, description, statuses: &[] }
    }

    /// Adds what differs at a fleet to the description of the flowgraph.
    fn describe(&self, operation: &mut Operation) {
        if let Some(summary) = self.summary {
            operation.summary = Some(summary.to_owned());
        }
        let before = operation.description.take().map(|text| text + "\n\n").unwrap_or_default();
        operation.description = Some(before + self.description);
        for (status, meaning) in self.statuses {
            let new = || RefOr::T(ResponseBuilder::new().build());
            let responses = &mut operation.responses.responses;
            if let RefOr::T(response) = responses.entry((*status).to_owned()).or_insert_with(new) {
                let sep = if response.description.is_empty() { "" } else { "; " };
                response.description.push_str(&format!("{sep}{meaning}"));
            }
        }
    }
}

/// How a fleet answers a request of flowgraphs; `None` if a fleet does not answer it.
fn shared(method: &Method, path: &str) -> Option<Shared> {
    const LISTS: &str = "The lists of all parts that are there, one after the other; a part that does not answer has its last one.";
    let filter = MethodFilter::try_from(method.clone()).ok()?;
    let answer = match (method.as_str(), path) {
        ("GET", "/metrics") => Shared::merged(
            on(filter, merge::metrics),
            "The metrics of all parts that answer, each with the label `part`.",
        ),
        ("GET", "/api/v1/health") => Shared {
            statuses: &[("503", "a part has failed or has a trouble")],
            ..Shared::merged(
                on(filter, merge::health),
                "The sums of all faults, the longest time, and the first state that a part has of: failed, draining, \
                 running, starting, prepared, ended. A part has a trouble if it is not there, rejects the token, or has \
                 not answered three requests in a row; before that its last answer counts.",
            )
        },
        ("GET", "/api/v1/health/live") => Shared {
            statuses: &[("503", "a part has a trouble")],
            ..Shared::merged(
                on(filter, merge::live),
                "For all parts; one that rejects the token is alive.",
            )
        },
        ("GET", "/api/v1/health/ready") => Shared {
            statuses: &[("503", "a part has a trouble")],
            ..Shared::merged(on(filter, merge::ready), "For all parts.")
        },
        ("GET", "/api/v1/flowgraph") => Shared {
            statuses: &[("503", "no part answers")],
            ..Shared::merged(
                on(filter, merge::flowgraph),
                "The flowgraphs of all parts that are there as one, with edges for the streams between parts. A part \
                 that is not there, or has not answered three requests in a row, is one of the `faults`.",
            )
        },
        ("GET", "/api/v1/blocks") => Shared::merged(on(filter, merge::blocks), LISTS),
        ("GET", "/api/v1/history") => {
            Shared::merged(on(filter, merge::history), "The values of all parts that answer.")
        }
        ("GET", "/api/v1/recorders") => Shared::merged(on(filter, merge::recorders), LISTS),
        ("GET", "/api/v1/shadows") => Shared::merged(on(filter, merge::shadows), LISTS),
        ("GET", "/api/v1/events") => Shared::merged(
            on(filter, merge::events),
            "The events of all parts, numbered by the fleet in the order in which it has received them.",
        ),
        ("GET", "/api/v1/events/stream") => Shared {
            summary: Some("Events as server-sent events"),
            ..Shared::merged(
                on(filter, merge::follow_events),
                "The events of all parts, numbered by the fleet in the order in which it has received them. The \
                 stream continues when a part ends.",
            )
        },
        ("PATCH", "/api/v1/blocks") => Shared::passed(
            on(filter, forward::live_update),
            "Blocks of several parts change at one timestamp or not at all: each part prepares the update, then all \
             commit it.",
        ),
        ("GET", "/api/v1/views") => {
            Shared::passed(on(filter, forward::views), "The blocks may belong to several parts.")
        }
        ("GET", "/api/v1/kinds" | "/api/v1/kinds/{kind}") => Shared::passed(
            on(filter, forward::kinds),
            "The fleet passes the request to the first part that answers.",
        ),
        (_, path) if path.starts_with("/api/v1/blocks/{name}") => Shared::passed(
            on(filter, forward::block),
            "The fleet passes the request to the part of the block.",
        ),
        (_, path) if path.starts_with("/api/v1/recorders/{name}") => Shared::passed(
            on(filter, forward::recorder),
            "The fleet passes the request to the part of the recorder.",
        ),
        _ => return None,
    };
    Some(answer)
}

/// Operations of a path, by method.
fn operations(item: PathItem) -> impl Iterator<Item = (Method, Operation)> {
    let all = [
        (Method::GET, item.get),
        (Method::PUT, item.put),
        (Method::POST, item.post),
        (Method::PATCH, item.patch),
        (Method::DELETE, item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation?)))
}

/// Router with its description.
fn described() -> OpenApiRouter<Fleet> {
    let mut router = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(merge::parts))
        .routes(routes!(merge::targets));
    let of_flowgraph = handlers::described().into_openapi();
    let mut tags = of_flowgraph.tags.unwrap_or_default();
    tags.extend(router.get_openapi_mut().tags.take().unwrap_or_default());
    router.get_openapi_mut().tags = Some(tags);
    let schemas = of_flowgraph.components.unwrap_or_default().schemas;
    router.get_openapi_mut().components.get_or_insert_default().schemas.extend(schemas);
    for (path, item) in of_flowgraph.paths.paths {
        for (method, mut operation) in operations(item) {
            if let Some(shared) = shared(&method, &path) {
                shared.describe(&mut operation);
                router = router.route(&path, shared.handler);
                let item = router.get_openapi_mut().paths.paths.entry(path.clone()).or_default();
                put(item, &method, operation);
            } else if path.starts_with("/api/v1/flowgraph")
                && let Ok(filter) = MethodFilter::try_from(method)
            {
                // Not described: no fleet can do it.
                router = router.route(&path, on(filter, reject));
            }
        }
    }
    router
}

fn put(item: &mut PathItem, method: &Method, operation: Operation) {
    let slot = match method.as_str() {
        "PUT" => &mut item.put,
        "POST" => &mut item.post,
        "PATCH" => &mut item.patch,
        "DELETE" => &mut item.delete,
        _ => &mut item.get,
    };
    *slot = Some(operation);
}

/// Requests about the whole flowgraph that no fleet can pass on.
async fn reject(method: Method) -> Problem {
    let detail = if method == Method::PUT {
        "a fleet replaces no flowgraph: it is cut into parts before it is deployed"
    } else {
        "a fleet starts and stops no parts: their engine does, in the right order"
    };
    Problem::new(StatusCode::NOT_IMPLEMENTED, detail)
        .help("deploy the new flowgraph, or use the engine; `GET /api/v1/parts` has the addresses of the parts")
}

/// Router of all requests that need the token.
pub(crate) fn router(fleet: Fleet) -> Router {
    described().split_for_parts().0.with_state(fleet)
}

/// The OpenAPI 3.1 document of a fleet, as JSON.
#[must_use]
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(description()).unwrap_or_default()
}

/// The OpenAPI 3.1 document.
pub(crate) fn description() -> openapi::OpenApi {
    let mut api = handlers::description(described().into_openapi());
    remove_unused_schemas(&mut api);
    remove_unused_tags(&mut api);
    api
}

/// Removes the schemas of requests that only flowgraphs answer.
fn remove_unused_schemas(api: &mut openapi::OpenApi) {
    const PREFIX: &str = "#/components/schemas/";
    fn references(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => {
                found.extend(text.strip_prefix(PREFIX).map(str::to_owned));
            }
            serde_json::Value::Array(all) => all.iter().for_each(|each| references(each, found)),
            serde_json::Value::Object(all) => all.values().for_each(|each| references(each, found)),
            _ => {}
        }
    }
    let Some(components) = &mut api.components else { return };
    let mut waiting = Vec::new();
    references(&serde_json::to_value(&api.paths).unwrap_or_default(), &mut waiting);
    let mut used = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        let schema = components.schemas.get(&name);
        let schema = serde_json::to_value(schema).unwrap_or_default();
        if used.insert(name) {
            references(&schema, &mut waiting);
        }
    }
    components.schemas.retain(|name, _| used.contains(name));
}

/// Removes the tags without requests.
fn remove_unused_tags(api: &mut openapi::OpenApi) {
    let items = api.paths.paths.values().cloned();
    let used: BTreeSet<String> = items
        .flat_map(operations)
        .flat_map(|(_, operation)| operation.tags.unwrap_or_default())
        .collect();
    api.tags.iter_mut().for_each(|tags| tags.retain(|tag| used.contains(&tag.name)));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::app::Permission;
    use crate::guard::Peer;
    use axum::body::Body;
    use axum::http::Request;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use serde_json::Value;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    const METHODS: [&str; 5] = ["GET", "PUT", "POST", "PATCH", "DELETE"];

    fn fleet_router() -> Router {
        let find: super::super::Find = Arc::new(|| Ok(Vec::new()));
        router(Fleet::new("test".to_owned(), find, Permission::Full))
    }

    /// Paths of all routes, which axum shows only as text.
    fn paths(router: &Router) -> BTreeSet<String> {
        let text = format!("{router:?}");
        // The text of the router for all other paths follows.
        let text = text.split("fallback_router").next().unwrap();
        let is_path = |text: &&str| text.starts_with('/') && !text.contains(' ');
        text.split('"').filter(is_path).map(str::to_owned).collect()
    }

    /// Whether the router has a handler for the request that does not always reject it.
    async fn is_served(router: &Router, method: &str, path: &str) -> bool {
        let path = path.replace(['{', '}'], "");
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(Peer(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let answer = TowerToHyperService::new(router.clone()).call(request).await.unwrap();
        let rejected = [StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        !rejected.contains(&answer.status())
    }

    #[test]
    fn description_has_exactly_the_requests_that_the_router_serves() {
        let router = fleet_router();
        let document = serde_json::to_value(description()).unwrap();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                described.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut served = BTreeSet::new();
        for path in paths(&router) {
            for method in METHODS {
                if runtime.block_on(is_served(&router, method, &path)) {
                    served.insert(format!("{method} {path}"));
                }
            }
        }
        assert_eq!(described, served);
        for own in ["GET /api/v1/parts", "GET /api/v1/targets", "GET /metrics"] {
            assert!(served.contains(own), "{own}");
        }
        for other in
            ["PUT /api/v1/flowgraph", "POST /api/v1/flowgraph/stop", "POST /api/v1/updates"]
        {
            assert!(!served.contains(other), "{other}");
        }
    }

    #[test]
    fn description_has_exactly_the_schemas_that_it_refers_to() {
        let document = serde_json::to_value(description()).unwrap();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for name in schemas.keys() {
            assert!(text.contains(&format!("\"#/components/schemas/{name}\"")), "{name}");
        }
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        assert!(schemas.contains_key("PartInfo") && !schemas.contains_key("PreparedUpdate"));
    }

    #[test]
    fn description_of_a_passed_request_names_the_statuses_of_a_fleet() {
        let document = serde_json::to_value(description()).unwrap();
        let statuses = |path: &str, method: &str| -> Value {
            document["paths"][path][method]["responses"].clone()
        };
        let block = statuses("/api/v1/blocks/{name}", "get");
        assert_eq!(block["502"]["description"], "the part does not answer the request");
        assert!(block["502"]["content"]["application/problem+json"].is_object());
        let live_update = statuses("/api/v1/blocks", "patch");
        let busy = live_update["503"]["description"].as_str().unwrap();
        assert!(busy.contains("Retry-After") && busy.contains("has a trouble"), "{busy}");
        assert!(statuses("/api/v1/blocks", "get")["502"].is_null());
    }
}
