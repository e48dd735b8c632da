//! Query values and blocking work, shared by handlers.

use crate::problem::Problem;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use tokio::task::JoinError;

/// Parses a value of the query, if present.
pub(crate) fn asked<T: FromStr>(
    query: &HashMap<String, String>,
    name: &str,
    example: &str,
) -> Result<Option<T>, Problem> {
    let Some(text) = query.get(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        Problem::new(StatusCode::BAD_REQUEST, format!("invalid value of `{name}`"))
            .help(format!("give a value like `{name}={example}`"))
    })
}

/// Parses a number of the query within `range`, if present.
pub(super) fn within<T: FromStr + PartialOrd + Display>(
    query: &HashMap<String, String>,
    name: &str,
    range: &RangeInclusive<T>,
) -> Result<Option<T>, Problem> {
    let (least, most) = (range.start(), range.end());
    let number = asked::<T>(query, name, &least.to_string())?;
    if number.as_ref().is_none_or(|number| range.contains(number)) {
        return Ok(number);
    }
    let detail = format!("`{name}` is out of range");
    let help = format!("give a number from {least} to {most}");
    Err(Problem::new(StatusCode::BAD_REQUEST, detail).help(help))
}

/// Runs `work` on a thread where it may wait for blocks, and returns its result.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

/// The problem of a request whose task did not end by itself.
pub(super) fn lost(error: JoinError) -> Problem {
    if error.is_panic() {
        return Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the program failed to process this request",
        )
        .help("this is a bug in fxgraph, which continues to run; please report the request");
    }
    Problem::new(StatusCode::CONFLICT, "the run has ended")
}
