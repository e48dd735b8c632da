//! Live updates in two steps, for updates of several flowgraphs at one timestamp.

use super::changes::{LIVE_UPDATE, expect_json, read_object, updated};
use super::request::{asked, beside, lost};
use crate::app::App;
use crate::guard::Peer;
use crate::prepared::{LEASE, Pending, is_over, is_unknown};
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use fxgraph::control;
use fxgraph_api::changes::{LiveUpdate, ParameterName, PreparedUpdate, TakenBack};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use tokio::sync::oneshot;
/// Waits for the timestamp until the lease is over. The clock decides, also for a program that was stopped meanwhile.
fn decision(decide: &Receiver<u64>) -> Option<u64> {
    let began = Instant::now();
    let at = decide.recv_timeout(LEASE).ok();
    at.filter(|_| began.elapsed() < LEASE)
}

/// Prepares a live update: its blocks accept the values, which apply when it is committed
#[utoipa::path(post, path = "/updates", tag = "blocks", operation_id = "prepare_update",
    request_body(content = HashMap<String, HashMap<String, Value>>,
        description = "changed parameters, by name of block",
        example = json!({"f[0].postproc": {"gains": 2}})),
    responses(
        (status = 200, description = "all blocks have accepted the values; commit or cancel the update within 5 s",
            body = PreparedUpdate),
        (status = 400, description = "the body is not JSON"),
        (status = 404, description = "unknown block"),
        (status = 409, description = "the change is not possible now; nothing has changed"),
        (status = 415, description = "the `Content-Type` is not JSON"),
        (status = 422, description = "rejected, with all diagnostics; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn prepare(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<PreparedUpdate>, Problem> {
    expect_json(&headers)?;
    let turn = app.turn(client).await?;
    let most_bytes = app.body_bytes;
    // The turn stays with the body if the client leaves.
    let (turn, request) = beside(move || Ok((turn, read_object(body, most_bytes)?))).await?;
    let id = format!("{:016x}", RandomState::new().hash_one(()));
    let (offer, offered) = oneshot::channel();
    let (decide, decided) = channel();
    let (done_in, done) = oneshot::channel();
    let (of_hold, of_commit) = (app.clone(), id.clone());
    let hold = move || {
        let _turn = turn;
        let outcome = of_hold.control.live_update_prepared(request, LIVE_UPDATE, |prepared| {
            let _ = offer.send(prepared);
            decision(&decided)
        });
        let outcome = outcome.map(|made| {
            made.map(|(made, replaced)| {
                of_hold.prepared.end_commit(&of_commit, replaced);
                made
            })
        });
        // Nobody waits for the outcome of an update that was not committed.
        let _ = done_in.send(outcome);
        Ok(())
    };
    // It goes on if the client leaves, until the lease is over.
    tokio::spawn(beside(hold));
    let Ok(prepared) = offered.await else {
        return match done.await {
            Ok(Err(error)) => app.told(None, Err(error.into())),
            _ => Err(Problem::new(StatusCode::CONFLICT, "the run has ended")),
        };
    };
    app.prepared.put(Pending { id: id.clone(), decide, done });
    Ok(Json(PreparedUpdate {
        id,
        lease_seconds: LEASE.as_secs_f64(),
        newest_timestamp: prepared.newest_timestamp,
        adc_sample_rate_hz: prepared.clock.map(|clock| clock.adc_sample_rate_hz),
        sync_time_seconds: prepared.clock.map(|clock| clock.sync_time.to_unix_f64()),
        sync_time: prepared.clock.map(|clock| clock.sync_time.to_string()),
    }))
}

/// Commits a prepared update at a timestamp, exactly
#[utoipa::path(post, path = "/updates/{id}/commit", tag = "blocks", operation_id = "commit_update",
    params(
        ("id" = String, Path, description = "identifier of the prepared update", example = "0"),
        ("at" = i64, Query, minimum = 0, description = "effective timestamp, in ADC samples since the sync time"),
    ),
    responses(
        (status = 200, description = "the values are scheduled in all blocks", body = LiveUpdate),
        (status = 400, description = "`at` is missing or not a timestamp"),
        (status = 404, description = "no such prepared update: it was cancelled, or its time is over"),
        (status = 409, description = "a block has passed the timestamp; nothing has changed"),
        (status = 422, description = "rejected; nothing has changed"),
    ))]
pub(super) async fn commit(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<LiveUpdate>, Problem> {
    let at = asked::<u64>(&query, "at", "123456")?.ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "`at` is missing")
            .help("give a value like `at=123456`")
    })?;
    let pending = app.prepared.begin_commit(&id)?;
    pending.decide.send(at).map_err(|_| is_over())?;
    match pending.done.await {
        Ok(Ok(Some(made))) => Ok(Json(updated(&made))),
        Ok(Err(error)) => Err(error.into()),
        _ => Err(is_over()),
    }
}

/// Cancels a prepared update, or takes a committed one back
///
/// The parameters of a committed update get the values that they would have without it. Values that a later change has
/// set stay.
#[utoipa::path(delete, path = "/updates/{id}", tag = "blocks", operation_id = "cancel_update",
    params(("id" = String, Path, description = "identifier of the update", example = "0")),
    responses(
        (status = 200, description = "the committed update is taken back", body = TakenBack),
        (status = 204, description = "the prepared update is cancelled; nothing has changed"),
        (status = 404, description = "no such update: it was taken back, or committed more than 5 s ago"),
        (status = 409, description = "the update cannot be taken back; nothing has changed"),
        (status = 422, description = "the earlier values are rejected now, with all diagnostics; nothing has changed"),
        (status = 503, description = "other changes are in progress: retry after `Retry-After`"),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    if let Some(Pending { decide, done, .. }) = app.prepared.take(&id) {
        drop(decide);
        let _ = done.await;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    if !app.prepared.may_be_committed(&id) {
        return Err(is_unknown());
    }
    // It goes on if the client leaves.
    let taken = tokio::spawn(async move {
        // A commit in progress has the turn.
        let turn = app.turn(client).await?;
        let replaced = app.prepared.replaced(&id)?;
        let take_back = move || {
            let _turn = turn;
            let taken = app.control.take_back(&replaced, LIVE_UPDATE)?;
            app.prepared.end_take_back(&id);
            Ok(taken)
        };
        beside(take_back).await
    });
    let control::TakenBack { effective_timestamp, is_late, kept } = taken.await.map_err(lost)??;
    let name = |(block, parameter): (String, &'static str)| ParameterName {
        block,
        parameter: parameter.to_owned(),
    };
    let kept = kept.into_iter().map(name).collect();
    Ok(Json(TakenBack { effective_timestamp, is_late, kept }).into_response())
}
