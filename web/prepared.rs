//! Live updates that are prepared or committed, until they can no longer be cancelled or taken back.

use crate::problem::Problem;
use axum::http::StatusCode;
use fxgraph::control::{self, LiveUpdateError, Replaced};
use fxgraph::lock::lock;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Largest number of committed updates that may be taken back, the newest ones.
const MOST_COMMITTED: usize = 16;
/// Time for which an update stays prepared, while other changes wait, and for which it may be taken back after its commit.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

type Outcome = Result<Option<control::LiveUpdate>, LiveUpdateError>;

/// A prepared update.
pub(crate) struct Pending {
    pub id: String,
    /// Receives the timestamp; the update is cancelled when it is dropped.
    pub decide: Sender<u64>,
    pub done: oneshot::Receiver<Outcome>,
}

/// An update for which a commit was requested.
struct Committed {
    id: String,
    at: Instant,
    /// Values that the update has replaced; `None` if it is not committed, or not yet.
    replaced: Option<Arc<Replaced>>,
    is_taken_back: bool,
}

/// The updates of a flowgraph that clients have prepared.
#[derive(Default)]
pub(crate) struct PreparedUpdates(Mutex<Updates>);

#[derive(Default)]
struct Updates {
    /// At most one, because other changes wait for it.
    prepared: Option<Pending>,
    /// In the order of their commits.
    committed: Vec<Committed>,
}

impl PreparedUpdates {
    /// The updates, without those that can no longer be taken back.
    fn updates(&self) -> MutexGuard<'_, Updates> {
        let mut updates = lock(&self.0);
        updates.committed.retain(|update| update.at.elapsed() < LEASE);
        updates
    }

    pub fn put(&self, pending: Pending) {
        // An earlier one is over: this one has the turn.
        self.updates().prepared = Some(pending);
    }

    /// Takes a prepared update to cancel it.
    pub fn take(&self, id: &str) -> Option<Pending> {
        self.updates().prepared.take_if(|pending| pending.id == id)
    }

    /// Takes a prepared update to commit it.
    pub fn begin_commit(&self, id: &str) -> Result<Pending, Problem> {
        let mut updates = self.updates();
        let pending = updates.prepared.take_if(|pending| pending.id == id).ok_or_else(is_over)?;
        let (id, at) = (id.to_owned(), Instant::now());
        if updates.committed.len() == MOST_COMMITTED {
            updates.committed.remove(0);
        }
        updates.committed.push(Committed { id, at, replaced: None, is_taken_back: false });
        Ok(pending)
    }

    /// Notes a commit; the caller has the turn.
    pub fn end_commit(&self, id: &str, replaced: Replaced) {
        let mut updates = self.updates();
        if let Some(update) = updates.committed.iter_mut().find(|update| update.id == id) {
            update.replaced = Some(Arc::new(replaced));
        }
    }

    /// Whether a commit of the update was requested.
    pub fn may_be_committed(&self, id: &str) -> bool {
        self.updates().committed.iter().any(|update| update.id == id)
    }

    /// Values that a committed update has replaced; the caller has the turn.
    pub fn replaced(&self, id: &str) -> Result<Arc<Replaced>, Problem> {
        let updates = self.updates();
        let mut later = updates.committed.iter().skip_while(|update| update.id != id);
        let own = later.next().filter(|update| !update.is_taken_back);
        let own = own.and_then(|update| update.replaced.clone()).ok_or_else(is_unknown)?;
        // A later update that is taken back restores the values of this one.
        if later.filter_map(|update| update.replaced.as_deref()).any(|update| own.overlaps(update))
        {
            let detail = format!(
                "a later update of the same parameters was committed less than {} s ago",
                LEASE.as_secs()
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail)
                .help("check the values in force, and set the right ones"));
        }
        Ok(own)
    }

    /// Notes that an update was taken back.
    pub fn end_take_back(&self, id: &str) {
        let mut updates = self.updates();
        if let Some(update) = updates.committed.iter_mut().find(|update| update.id == id) {
            update.is_taken_back = true;
        }
    }
}

pub(crate) fn is_over() -> Problem {
    let detail = "there is no such prepared update";
    let help = format!("prepare it again; it is cancelled after {} s", LEASE.as_secs());
    Problem::new(StatusCode::NOT_FOUND, detail).help(help)
}

pub(crate) fn is_unknown() -> Problem {
    let detail = "there is no such update, or it can no longer be taken back";
    let help = format!("a committed update can be taken back for {} s", LEASE.as_secs());
    Problem::new(StatusCode::NOT_FOUND, detail).help(help)
}
