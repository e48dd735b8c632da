//! State shared by all handlers.

use crate::event_counts::EventCounts;
use crate::history::History;
use crate::live::Live;
use crate::prepared::PreparedUpdates;
use crate::problem::Problem;
use crate::shares::{Share, Shares};
use crate::taps::Taps;
use axum::http::StatusCode;
use fxgraph::Control;
use fxgraph::runtime::EventKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum number of open streams of events; each keeps a connection until the client closes it.
const STREAMS: usize = 16;
/// Maximum number of waiting changes, half of it for one client, and how long each may wait.
const CHANGES: usize = 1024;
const TURN: Duration = Duration::from_secs(20);

/// Permission of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// Change live parameters, start and stop the flowgraph, and record.
    Live,
    /// Also swap blocks and replace the flowgraph.
    #[default]
    Full,
}

impl Permission {
    /// Name in options and responses: `live` or `full`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Full => "full",
        }
    }
}

/// State shared by all handlers; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub control: Control,
    /// When the server was made.
    pub began: SystemTime,
    pub permission: Permission,
    /// Largest body of a request, in bytes.
    pub body_bytes: usize,
    pub live: Arc<Live>,
    pub history: Arc<History>,
    pub events: Arc<EventCounts>,
    pub streams: Shares,
    changes: Shares,
    turns: Arc<Semaphore>,
    pub taps: Taps,
    pub prepared: Arc<PreparedUpdates>,
}

impl App {
    pub fn new(control: Control, permission: Permission, body_bytes: usize) -> Self {
        Self {
            control,
            began: SystemTime::now(),
            permission,
            body_bytes,
            live: Arc::default(),
            history: Arc::default(),
            events: Arc::default(),
            streams: Shares::new(STREAMS),
            changes: Shares::new(CHANGES),
            turns: Arc::new(Semaphore::new(1)),
            taps: Taps::default(),
            prepared: Arc::default(),
        }
    }

    /// Returns an error unless clients have full permission.
    pub fn allow_full(&self) -> Result<(), Problem> {
        if self.permission == Permission::Full {
            return Ok(());
        }
        let detail = "clients may change live parameters only";
        Err(Problem::new(StatusCode::FORBIDDEN, detail)
            .help("start the program with `fxgraph run --control full` to allow other changes"))
    }
}

impl App {
    /// Adds an event for a rejected request to change the flowgraph; returns `result`.
    pub fn told<T>(&self, block: Option<&str>, result: Result<T, Problem>) -> Result<T, Problem> {
        if let Err(problem) = &result
            && problem.is_rejection()
        {
            self.control.tell(EventKind::Rejected, block, &problem.first_line());
        }
        result
    }
}

/// Exclusive right of one client to make a change, until dropped.
pub(crate) struct Turn {
    _share: Share,
    _turn: OwnedSemaphorePermit,
}

impl App {
    /// Waits until `client` may make a change; requests are served in order of arrival. Waiting blocks no thread.
    pub async fn turn(&self, client: IpAddr) -> Result<Turn, Problem> {
        let many = || {
            let most = CHANGES / 2;
            Problem::busy(format!("at most {most} changes of one client may wait for their turn"))
        };
        let late = || {
            let seconds = TURN.as_secs();
            Problem::busy(format!(
                "other changes are in progress: this one had no turn in {seconds} s"
            ))
        };
        let share = self.changes.take(client, 1).ok_or_else(many)?;
        let turn = timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or_else(late)?;
        Ok(Turn { _share: share, _turn: turn })
    }
}
