//! Values of gauges over minutes and hours.

use super::request::within;
use crate::app::App;
use crate::history::{MINUTES, SECONDS};
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use fxgraph::diagnostic::suggest;
use fxgraph_api::history::History;
use std::collections::HashMap;

/// Query parameters.
const KNOWN: [&str; 3] = ["gauge", "block", "seconds"];

/// Values of a gauge of all blocks, over minutes or hours
#[utoipa::path(get, path = "/history", tag = "blocks", operation_id = "get_history",
    params(
        ("gauge" = Option<String>, Query, example = "digitiser_level_dbfs",
            description = "name of the gauge; without it, the response lists the gauges only"),
        ("block" = Option<String>, Query, description = "name of a block, for its values only"),
        ("seconds" = Option<usize>, Query, minimum = 1, maximum = 86400,
            description = "time up to now, 600 by default: up to 600 with a value for each second, above with the mean of \
                each minute"),
    ),
    responses(
        (status = 200, description = "the values; they are kept from the start of the process on. An unknown gauge has none",
            body = History),
        (status = 400, description = "a value is malformed or out of range"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<History>, Problem> {
    let Wanted { gauge, block, seconds } = Wanted::of(&query)?;
    Ok(Json(app.history.page(gauge, block, seconds)))
}

/// Values of the query.
pub(crate) struct Wanted<'a> {
    pub gauge: Option<&'a str>,
    pub block: Option<&'a str>,
    pub seconds: usize,
}

impl<'a> Wanted<'a> {
    pub fn of(query: &'a HashMap<String, String>) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::new(StatusCode::BAD_REQUEST, detail);
        if let Some(unknown) = query.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(bad(format!("unknown query parameter `{unknown}`")).maybe_help(suggest(
                unknown,
                "parameter",
                &KNOWN,
            )));
        }
        let text = |name: &str| query.get(name).map(String::as_str);
        let (gauge, block) = (text("gauge"), text("block"));
        let is_name =
            |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if let Some(name) = gauge.filter(|name| !is_name(name)) {
            return Err(bad(format!(
                "the name of a gauge has letters, digits and `_` only, got `{name}`"
            ))
            .help("list the gauges with `GET /api/v1/history`"));
        }
        let seconds = within(query, "seconds", &(1..=60 * MINUTES))?.unwrap_or(SECONDS);
        Ok(Self { gauge, block, seconds })
    }
}
