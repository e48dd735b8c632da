//! The kinds of blocks there are.

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

/// A kind of block in short.
#[derive(Serialize, ToSchema)]
pub(super) struct KindSummary {
    /// The word after `kind:`.
    #[schema(example = "pfb")]
    kind: &'static str,
    /// What it does, in one sentence.
    summary: String,
    /// Names of its inputs; an optional one stands in brackets.
    #[schema(example = "pol0, [pol1]")]
    inputs: String,
    /// Names of its outputs.
    #[schema(example = "output")]
    outputs: String,
    /// Its forms; the first of each sort of device is the default there.
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
    /// JSON Schema of its parameters, with their texts and limits.
    #[schema(value_type = Object)]
    parameters: serde_json::Value,
    /// Its page, in Markdown.
    doc: &'static str,
    /// Flowgraphs (YAML) that show it at work, in the block called `block`.
    examples: &'static [&'static str],
}

/// All kinds that blocks may be of
#[utoipa::path(get, path = "/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, description = "by name", body = Vec<KindSummary>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<KindSummary>> {
    Json(app.control.registry().iter().map(Into::into).collect())
}

/// One kind: its page, ports and parameters
#[utoipa::path(get, path = "/kinds/{kind}", tag = "kinds", operation_id = "get_kind",
    params(("kind" = String, Path, description = "the word after `kind:`", example = "null_sink")),
    responses(
        (status = 200, description = "the kind", body = KindPage),
        (status = 404, description = "there is no such kind"),
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
