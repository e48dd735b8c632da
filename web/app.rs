//! What all handlers share.

use crate::live::Live;
use crate::problem::Problem;
use crate::shares::{Share, Shares};
use crate::taps::Taps;
use axum::http::StatusCode;
use fxgraph::Control;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Streams of events that are open at once; each holds a connection for as long as the client likes.
const STREAMS: usize = 16;
/// Changes that wait for their turn at once, and how long each does.
const CHANGES: usize = 32;
const TURN: Duration = Duration::from_secs(8);

/// What clients may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permission {
    /// Live parameters; they may also start and stop the flowgraph, and record.
    Live,
    /// Blocks, their kinds and the whole flowgraph too.
    #[default]
    Full,
}

impl Permission {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Full => "full",
        }
    }
}

/// What all handlers share; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub control: Control,
    pub permission: Permission,
    pub live: Arc<Live>,
    pub events: Arc<EventCounts>,
    pub streams: Shares,
    changes: Shares,
    turns: Arc<Semaphore>,
    pub taps: Taps,
}

impl App {
    pub fn new(control: Control, permission: Permission) -> Self {
        Self {
            control,
            permission,
            live: Arc::default(),
            events: Arc::default(),
            streams: Shares::new(STREAMS),
            changes: Shares::new(CHANGES),
            turns: Arc::new(Semaphore::new(1)),
            taps: Taps::default(),
        }
    }

    /// Refuses what clients may do with full permission only.
    pub fn allow_full(&self) -> Result<(), Problem> {
        if self.permission == Permission::Full {
            return Ok(());
        }
        let detail = "clients may change live parameters only";
        Err(Problem::new(StatusCode::FORBIDDEN, detail)
            .help("`fxgraph run --control full` lets them change blocks and the flowgraph"))
    }
}

/// The turn of one client to change something, for as long as it is kept.
pub(crate) struct Turn {
    _share: Share,
    _turn: OwnedSemaphorePermit,
}

impl App {
    /// Waits until it is the turn of a change that `client` asks for: first come, first served. Whoever waits holds no
    /// thread.
    pub async fn turn(&self, client: IpAddr) -> Result<Turn, Problem> {
        let busy =
            || Problem::busy("other changes are being made, and this one had no turn in time");
        let share = self.changes.take(client, 1).ok_or_else(busy)?;
        let turn = timeout(TURN, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok).ok_or_else(busy)?;
        Ok(Turn { _share: share, _turn: turn })
    }
}

/// Events so far by kind, also of those that the run's log has forgotten.
#[derive(Default)]
pub(crate) struct EventCounts(Mutex<(u64, BTreeMap<&'static str, u64>)>);

impl EventCounts {
    /// The counts, with what happened since they were asked for last.
    pub fn counts(&self, control: &Control) -> BTreeMap<&'static str, u64> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for event in control.events_since(counted.0) {
            counted.0 = event.sequence;
            *counted.1.entry(event.kind.name()).or_default() += 1;
        }
        counted.1.clone()
    }
}
