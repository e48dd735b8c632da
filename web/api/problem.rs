//! Errors as problem documents (RFC 9457).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Problem document (RFC 9457) of a rejected request, without `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Name of the HTTP status.
    #[schema(example = "Not Found")]
    pub title: String,
    /// The HTTP status.
    #[schema(example = 404, minimum = 400, maximum = 599)]
    pub status: u16,
    /// Error message.
    #[schema(example = "there is no block `pbf`")]
    pub detail: String,
    /// Help, one line per element.
    #[schema(example = json!(["did you mean `pfb`?"]))]
    pub help: Vec<String>,
    /// All diagnostics of a flowgraph or a change, as in `fxgraph validate --json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub diagnostics: Vec<Value>,
}
