//! Parts of a deployment, as `fxgraph fleet` sees them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A part of a deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartInfo {
    /// Name of its host in the flowgraph.
    #[schema(example = "f_host[0]")]
    pub name: String,
    /// Address of its server, `HOST:PORT`; `null` if the engine has not placed the part.
    pub address: Option<String>,
    /// Whether it has answered the last request.
    pub answers: bool,
    /// Result of the last request: `answers`, `no_answer` (it is busy, or the network is; it keeps what was last known), `not_there`
    /// (nothing listens at its address, or the engine has not placed it), `rejects_token`, or `not_asked` yet.
    #[serde(default)]
    #[schema(required, example = "answers")]
    pub contact: String,
    /// Time since its last answer, in seconds, which is the age of what is known of it; `null` if it answers or is not
    /// there.
    #[serde(default)]
    #[schema(required)]
    pub silent_seconds: Option<f64>,
    /// Whether it answers, has not failed, and frames pass all its blocks. Fewer than three requests in a row without an
    /// answer change nothing.
    pub is_healthy: bool,
    /// Everything that is wrong with it, one line per element.
    pub troubles: Vec<String>,
    /// Whether its configuration differs from the deployed one: a client has changed it, or another one was deployed.
    #[serde(default)]
    #[schema(required)]
    pub is_changed: bool,
    /// State: prepared, starting, running, draining, ended or failed; `null` if it is not known.
    pub state: Option<String>,
    /// Hash of the configuration that it runs; `null` if it is not known.
    pub config_hash: Option<String>,
    /// Hash of the deployed configuration.
    pub deployed_config_hash: String,
    /// Version of fxgraph that it runs; `null` if it is not known.
    pub version: Option<String>,
    /// Largest lag of one of its blocks behind real time.
    pub lag_seconds: Option<f64>,
}

/// Servers that Prometheus scrapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetGroup {
    /// Addresses, `HOST:PORT`.
    pub targets: Vec<String>,
    /// Labels of all their metrics.
    pub labels: BTreeMap<String, String>,
}
