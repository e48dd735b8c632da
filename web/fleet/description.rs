//! OpenAPI description of a fleet: that of a flowgraph's server, without what a fleet rejects, and with its own paths.

use super::merge;
use crate::handlers;
use utoipa::OpenApi;
use utoipa::openapi;

/// Paths of a flowgraph's server that a fleet does not serve.
const NOT_SERVED: [&str; 6] = [
    "/api/v1/flowgraph/abort",
    "/api/v1/flowgraph/start",
    "/api/v1/flowgraph/stop",
    "/api/v1/updates",
    "/api/v1/updates/{id}",
    "/api/v1/updates/{id}/commit",
];

#[derive(OpenApi)]
#[openapi(
    paths(merge::parts, merge::targets),
    tags((name = "parts", description = "parts of the deployment"))
)]
struct Own;

pub(crate) fn description() -> openapi::OpenApi {
    let mut api = handlers::paths();
    api.paths.paths.retain(|path, _| !NOT_SERVED.contains(&path.as_str()));
    if let Some(flowgraph) = api.paths.paths.get_mut("/api/v1/flowgraph") {
        flowgraph.put = None;
    }
    api.info.description = Some(
        "Monitoring and control of the parts of a deployment as one flowgraph. GET has no side effects. Errors are \
         problem documents (RFC 9457) with help."
            .to_owned(),
    );
    api.merge(Own::openapi());
    handlers::completed(api)
}
