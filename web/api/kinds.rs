//! Kinds of blocks.

use super::types::ImplementationInfo;
use crate::app::App;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use fxgraph::KindEntry;
use fxgraph::diagnostic::suggest;
use serde::Serialize;
use utoipa::ToSchema;

/// Summary of a kind of block.
#[derive(Serialize, ToSchema)]
pub(super) struct KindSummary {
    /// Name, the value of the key `kind`.
    #[schema(example = "pfb")]
    kind: &'static str,
    /// Summary in one sentence.
    summary: String,
    /// Names of the inputs; optional inputs in brackets.
    #[schema(example = "pol0, [pol1]")]
    inputs: String,
    /// Names of the outputs.
    #[schema(example = "output")]
    outputs: String,
    /// Implementations; the first one of each device family is its default.
    implementations: Vec<ImplementationInfo>,
}

impl From<&KindEntry> for KindSummary {
    fn from(kind: &KindEntry) -> Self {
        Self {
            kind: kind.name,
            summary: kind.summary(),
            inputs: kind.inputs.to_string(),
            outputs: kind.outputs.to_string(),
            implementations: kind.implementations.iter().map(Into::into).collect(),
        }
    }
}

/// A kind of block.
#[derive(Serialize, ToSchema)]
pub(super) struct KindPage {
    #[serde(flatten)]
    summary: KindSummary,
    /// JSON Schema of the parameters.
    #[schema(value_type = Object)]
    parameters: serde_json::Value,
    /// Documentation page, in Markdown.
    doc: &'static str,
    /// Example flowgraphs (YAML) in which the block `block` is of this kind.
    examples: &'static [&'static str],
}

/// All kinds of blocks
#[utoipa::path(get, path = "/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, description = "the kinds, sorted by name", body = Vec<KindSummary>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<KindSummary>> {
    Json(app.control.registry().iter().map(Into::into).collect())
}

/// One kind: its page, ports and parameters
#[utoipa::path(get, path = "/kinds/{kind}", tag = "kinds", operation_id = "get_kind",
    params(("kind" = String, Path, description = "name of the kind", example = "null_sink")),
    responses(
        (status = 200, description = "the kind", body = KindPage),
        (status = 404, description = "unknown kind"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<KindPage>, Problem> {
    let registry = app.control.registry();
    let Some(kind) = registry.get(&name) else {
        let known: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
        let detail = format!("there is no kind of block `{name}`");
        return Err(
            Problem::new(StatusCode::NOT_FOUND, detail).maybe_help(suggest(&name, "kind", &known))
        );
    };
    Ok(Json(KindPage {
        summary: kind.into(),
        parameters: (kind.schema)().to_value(),
        doc: kind.doc,
        examples: kind.examples,
    }))
}
