//! Kinds of blocks.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// An implementation of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImplementationInfo {
    /// Name, the value of the key `implementation`.
    #[schema(example = "cpu")]
    pub name: String,
    /// Device family: `cpu` or `cuda`.
    #[schema(example = "cpu")]
    pub device: String,
    /// Summary in one line.
    pub summary: String,
}

/// Summary of a kind of block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KindSummary {
    /// Name, the value of the key `kind`.
    #[schema(example = "pfb")]
    pub kind: String,
    /// Summary in one sentence.
    pub summary: String,
    /// Names of the inputs; optional inputs in brackets.
    #[schema(example = "pol0, [pol1]")]
    pub inputs: String,
    /// Names of the outputs.
    #[schema(example = "output")]
    pub outputs: String,
    /// Implementations; the first one of each device family is its default.
    pub implementations: Vec<ImplementationInfo>,
}

/// A kind of block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct KindPage {
    #[serde(flatten)]
    #[allow(missing_docs)]
    pub summary: KindSummary,
    /// JSON Schema of the parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Documentation page, in Markdown.
    pub doc: String,
    /// Example flowgraphs (YAML) in which the block `block` is of this kind.
    pub examples: Vec<String>,
}
