//! Kinds of blocks.

use crate::app::App;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use fxgraph::KindEntry;
use fxgraph::diagnostic::suggest;
use fxgraph_api::kinds::{ImplementationInfo, KindPage, KindSummary};

fn summary(kind: &KindEntry) -> KindSummary {
    let implementations = kind.implementations.iter().map(|implementation| ImplementationInfo {
        name: implementation.name.to_owned(),
        device: implementation.device.to_owned(),
        summary: implementation.summary.to_owned(),
    });
    KindSummary {
        kind: kind.name.to_owned(),
        summary: kind.summary(),
        inputs: kind.inputs.to_string(),
        outputs: kind.outputs.to_string(),
        implementations: implementations.collect(),
    }
}

/// All kinds of blocks
#[utoipa::path(get, path = "/kinds", tag = "kinds", operation_id = "list_kinds",
    responses((status = 200, description = "the kinds, sorted by name", body = Vec<KindSummary>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<KindSummary>> {
    Json(app.control.registry().iter().map(summary).collect())
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
        summary: summary(kind),
        parameters: (kind.schema)().to_value(),
        doc: kind.doc.to_owned(),
        examples: kind.examples.iter().map(|text| (*text).to_owned()).collect(),
    }))
}
