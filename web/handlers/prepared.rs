//! Live updates in two steps, for updates of several flowgraphs at one timestamp.

use super::changes::{RETUNE, json_object, retuned};
use super::flowgraph::scheduled;
use super::request::{asked, beside};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use fxgraph::control::{self, RetuneError};
use fxgraph_api::changes::{PreparedUpdate, Retuned};
use fxgraph_api::flowgraph::ScheduledValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time for which an update stays prepared. Other changes wait meanwhile.
const LEASE: Duration = Duration::from_secs(5);

type Outcome = Result<Option<control::Retuned>, RetuneError>;

/// A prepared update.
struct Pending {
    id: String,
    /// Receives the timestamp; the update is cancelled when it is dropped.
    decide: Sender<u64>,
    done: oneshot::Receiver<Outcome>,
}

/// The prepared update of a flowgraph: at most one, because other changes wait for it.
#[derive(Default)]
pub(crate) struct PreparedUpdates(Mutex<Option<Pending>>);

impl PreparedUpdates {
    fn put(&self, pending: Pending) {
        // An earlier one is over: this one has the turn.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
    }

    fn take(&self, id: &str) -> Result<Pending, Problem> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.take_if(|pending| pending.id == id).ok_or_else(is_over)
    }
}

fn is_over() -> Problem {
    let detail = "there is no such prepared update";
    let help = format!("prepare it again; it is cancelled after {} s", LEASE.as_secs());
    Problem::new(StatusCode::NOT_FOUND, detail).help(help)
}

/// Waits for the timestamp until the lease is over. The clock decides, also for a program that was stopped meanwhile.
fn decision(decide: &Receiver<u64>) -> Option<u64> {
    let began = Instant::now();
    let at = decide.recv_timeout(LEASE).ok();
    at.filter(|_| began.elapsed() < LEASE)
}

/// Values of the parameters `names`, by name of block: those in force, and those that take effect later.
fn before(app: &App, names: &[(String, Vec<String>)]) -> (Map<String, Value>, Vec<ScheduledValue>) {
    let (plan, later) = app.control.in_force_and_scheduled();
    let of_block = |(name, keys): &(String, Vec<String>)| {
        let block = &plan.blocks[plan.block(name)?];
        let value = |key: &String| block.parameters.get(key).cloned().unwrap_or_default();
        let values = keys.iter().map(|key| (key.clone(), value(key)));
        Some((name.clone(), Value::Object(values.collect())))
    };
    let in_force = names.iter().filter_map(of_block).collect();
    let is_named = |value: &ScheduledValue| {
        names.iter().any(|(name, keys)| *name == value.block && keys.contains(&value.parameter))
    };
    (in_force, later.into_iter().map(scheduled).filter(is_named).collect())
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
    let request = json_object(&headers, &body)?;
    let names = request.parameter_names();
    let turn = app.turn(client).await?;
    let id = format!("{:016x}", RandomState::new().hash_one(()));
    let (offer, offered) = oneshot::channel();
    let (decide, decided) = channel();
    let (done_in, done) = oneshot::channel();
    let of_hold = app.clone();
    let hold = move || {
        let _turn = turn;
        let outcome = of_hold.control.retune_prepared(request, RETUNE, |prepared| {
            // Read while no other change is made: blocks request updates, too.
            let _ = offer.send((prepared, before(&of_hold, &names)));
            decision(&decided)
        });
        let outcome = outcome.map(|made| made.map(|(made, _)| made));
        // Nobody waits for the outcome of an update that was not committed.
        let _ = done_in.send(outcome);
        Ok(())
    };
    // It goes on if the client leaves, until the lease is over.
    tokio::spawn(beside(hold));
    let Ok((prepared, (before, scheduled))) = offered.await else {
        return match done.await {
            Ok(Err(error)) => Err(error.into()),
            _ => Err(Problem::new(StatusCode::CONFLICT, "the run has ended")),
        };
    };
    app.prepared.put(Pending { id: id.clone(), decide, done });
    Ok(Json(PreparedUpdate {
        id,
        lease_seconds: LEASE.as_secs_f64(),
        newest_timestamp: prepared.newest_timestamp,
        adc_sample_rate_hz: prepared.clock.map(|clock| clock.adc_sample_rate_hz),
        sync_time_seconds: prepared.clock.map(|clock| clock.sync_time_seconds),
        before,
        scheduled,
    }))
}

/// Commits a prepared update at a timestamp, exactly
#[utoipa::path(post, path = "/updates/{id}/commit", tag = "blocks", operation_id = "commit_update",
    params(
        ("id" = String, Path, description = "identifier of the prepared update", example = "0"),
        ("at" = i64, Query, minimum = 0, description = "effective timestamp, in ADC samples since the sync time"),
    ),
    responses(
        (status = 200, description = "the values are scheduled in all blocks", body = Retuned),
        (status = 400, description = "`at` is missing or not a timestamp"),
        (status = 404, description = "no such prepared update: it was cancelled, or its time is over"),
        (status = 409, description = "a block has passed the timestamp; nothing has changed"),
        (status = 422, description = "rejected; nothing has changed"),
    ))]
pub(super) async fn commit(
    State(app): State<App>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Retuned>, Problem> {
    let at = asked::<u64>(&query, "at", "123456")?.ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "`at` is missing")
            .help("give a value like `at=123456`")
    })?;
    let pending = app.prepared.take(&id)?;
    pending.decide.send(at).map_err(|_| is_over())?;
    match pending.done.await {
        Ok(Ok(Some(made))) => Ok(Json(retuned(&made))),
        Ok(Err(error)) => Err(error.into()),
        _ => Err(is_over()),
    }
}

/// Cancels a prepared update
#[utoipa::path(delete, path = "/updates/{id}", tag = "blocks", operation_id = "cancel_update",
    params(("id" = String, Path, description = "identifier of the prepared update", example = "0")),
    responses(
        (status = 204, description = "the update is cancelled; nothing has changed"),
        (status = 404, description = "no such prepared update"),
    ))]
pub(super) async fn cancel(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let Pending { decide, done, .. } = app.prepared.take(&id)?;
    drop(decide);
    let _ = done.await;
    Ok(StatusCode::NO_CONTENT)
}
