//! Taps for clients: how many there are, what memory they take, and who waits for their frames.
//!
//! Those who follow an output hold a place for as long as they like: each client gets a [share](crate::shares). Those
//! who want one frame wait for a place, those of each client one behind the other, so that neither followers nor
//! another client's requests keep them out.
//!
//! Each client has a tap of its own, whose queue holds the newest frame alone: a client that reads slowly, or not at
//! all, misses frames. While nothing comes by, no thread waits. A client that is gone takes its tap with it.

use crate::app::App;
use crate::problem::Problem;
use crate::shares::{Share, Shares};
use axum::http::StatusCode;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use fxgraph::PortType;
use fxgraph::control::{Tap, TapError, TapFrame, TapOptions, Tapped};
use fxgraph::runtime::Unanswered;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Taps at once: of clients that follow an output, and of those that want one frame.
pub(crate) const TAPS: usize = FOLLOWERS + SNAPSHOTS;
const FOLLOWERS: usize = 24;
const SNAPSHOTS: usize = 8;
/// Those of one client that want one frame.
const SNAPSHOTS_OF_CLIENT: usize = 3;
/// How long those who want one frame wait for a place.
const WAIT: Duration = Duration::from_secs(8);
/// Memory that the frames of all taps of either sort may take, in KiB.
const MEMORY_KIB: usize = 1 << 19;
/// Frames that each takes memory for: one that waits, one that arrives, one that is read, its copy, and what is
/// made of it.
const FRAMES: usize = 5;
/// Copies and views that are made at once; others wait, and their frames get newer meanwhile.
const WORKERS: usize = 2;
/// Time for a block to answer, and for the first frame to come by; more would outlast the request.
const LIMIT: Duration = Duration::from_secs(20);

/// Why a client looks at an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// For one frame.
    Once,
    /// For as long as it likes.
    Follow,
}

/// Room for taps; cheap to clone.
#[derive(Clone)]
pub(crate) struct Taps {
    followers: Shares,
    followers_kib: Shares,
    snapshots: Arc<Semaphore>,
    snapshots_kib: Arc<Semaphore>,
    /// Places for one frame that each client has.
    of_clients: Arc<Mutex<HashMap<IpAddr, Weak<Semaphore>>>>,
    workers: Arc<Semaphore>,
}

impl Default for Taps {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self {
            followers: Shares::new(FOLLOWERS),
            followers_kib: Shares::new(MEMORY_KIB),
            snapshots: semaphore(SNAPSHOTS),
            snapshots_kib: semaphore(MEMORY_KIB),
            of_clients: Arc::default(),
            workers: semaphore(WORKERS),
        }
    }
}

/// A place among the taps, given back when it is dropped.
pub(crate) struct Room {
    _shares: Vec<Share>,
    _permits: Vec<OwnedSemaphorePermit>,
    /// What the permits of the client are of.
    _client: Option<Arc<Semaphore>>,
}

impl Taps {
    /// Room for a tap of `client` whose frames have `bytes` bytes.
    pub async fn room(&self, client: IpAddr, look: Look, bytes: usize) -> Result<Room, Problem> {
        let kib = bytes.saturating_mul(FRAMES).div_ceil(1024);
        if kib > MEMORY_KIB {
            let detail = format!("frames of {bytes} bytes are too large to be looked at");
            let most = MEMORY_KIB / FRAMES * 1024;
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).help(format!(
                "{most} bytes are the most; look at an output with smaller frames"
            )));
        }
        match look {
            Look::Follow => self.share(client, kib).ok_or_else(|| {
                let detail = "too many outputs are being followed";
                let help = format!(
                    "{FOLLOWERS} at once by all clients, with {} MiB of frames, and half of what is free \
                     by one",
                    MEMORY_KIB / 1024
                );
                Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).help(help).retry_after(WAIT)
            }),
            Look::Once => timeout(WAIT, self.turn(client, kib)).await.unwrap_or_else(|_| {
                let detail = "too many frames are being asked for";
                let help =
                    format!("{SNAPSHOTS} at once by all clients, {SNAPSHOTS_OF_CLIENT} by one");
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
                    .help(help)
                    .retry_after(WAIT))
            }),
        }
    }

    fn share(&self, client: IpAddr, kib: usize) -> Option<Room> {
        let shares = vec![self.followers.take(client, 1)?, self.followers_kib.take(client, kib)?];
        Some(Room { _shares: shares, _permits: Vec::new(), _client: None })
    }

    /// Waits for a place for one frame.
    async fn turn(&self, client: IpAddr, kib: usize) -> Result<Room, Problem> {
        let own = {
            let mut clients = self.of_clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(|_, known| known.strong_count() > 0);
            let known = clients.get(&client).and_then(Weak::upgrade);
            let own = known.unwrap_or_else(|| Arc::new(Semaphore::new(SNAPSHOTS_OF_CLIENT)));
            clients.insert(client, Arc::downgrade(&own));
            own
        };
        // First among the client's own: nobody else waits for them.
        let first = Arc::clone(&own).acquire_owned().await.map_err(over)?;
        let place = Arc::clone(&self.snapshots).acquire_owned().await.map_err(over)?;
        let memory = Arc::clone(&self.snapshots_kib).acquire_many_owned(kib as u32);
        let permits = vec![first, place, memory.await.map_err(over)?];
        Ok(Room { _shares: Vec::new(), _permits: permits, _client: Some(own) })
    }
}

impl From<TapError> for Problem {
    fn from(error: TapError) -> Self {
        let status = match &error {
            TapError::Refused(_) | TapError::Unanswered(Unanswered::NoSuchBlock(_)) => {
                StatusCode::NOT_FOUND
            }
            TapError::Unanswered(Unanswered::Ended(_)) => StatusCode::CONFLICT,
            TapError::Unanswered(Unanswered::Busy { .. } | Unanswered::Hung { .. })
            | TapError::Memory(_) => StatusCode::SERVICE_UNAVAILABLE,
            TapError::Device(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

/// The tap of one client.
pub(crate) struct Watch {
    // Ended before its room is given to another one.
    tap: Tap,
    room: Room,
    workers: Arc<Semaphore>,
}

impl Watch {
    /// A tap of `client` of `output`, `block.port`, whose frames have `bytes` bytes; with one frame out of `every` at most, and a
    /// pause of `pause` between two of them at least.
    pub async fn open(
        app: &App,
        (client, look): (IpAddr, Look),
        output: String,
        bytes: usize,
        every: u64,
        pause: Duration,
    ) -> Result<Self, Problem> {
        let room = app.taps.room(client, look, bytes).await?;
        let (control, workers) = (app.control.clone(), Arc::clone(&app.taps.workers));
        let most_per_second = (!pause.is_zero()).then(|| 1.0 / pause.as_secs_f64());
        let options = TapOptions { every, most_per_second, queue: 1 };
        let open = move || Ok(Self { tap: control.tap(&output, options, LIMIT)?, room, workers });
        spawn_blocking(open).await.map_err(over)?
    }

    /// What `made` makes of the next frame, on a thread that may take its time; `None` at the end of the output.
    async fn next<T: Send + 'static>(
        mut self,
        made: impl Fn(&PortType, TapFrame) -> T + Clone + Send + 'static,
    ) -> Result<Option<(T, Self)>, Problem> {
        loop {
            let ready = self.tap.ready();
            ready.await;
            let worker = Arc::clone(&self.workers).acquire_owned().await.map_err(over)?;
            let made = made.clone();
            let work = move || {
                let taken = match self.tap.next(Duration::ZERO)? {
                    Tapped::Frame(frame) => Some(Some(made(self.tap.port(), frame))),
                    // Frames come from another block than before.
                    Tapped::Nothing => None,
                    Tapped::Ended => Some(None),
                };
                drop(worker);
                Ok::<_, Problem>((taken, self))
            };
            let taken;
            (taken, self) = spawn_blocking(work).await.map_err(over)??;
            if let Some(taken) = taken {
                return Ok(taken.map(|taken| (taken, self)));
            }
        }
    }

    /// What `made` makes of the first frame, which has to come by in time; with the room of the tap, which has ended.
    pub async fn first<T: Send + 'static>(
        self,
        made: impl Fn(&PortType, TapFrame) -> T + Clone + Send + 'static,
    ) -> Result<(T, Room), Problem> {
        let output = self.tap.output().to_owned();
        match timeout(LIMIT, self.next(made)).await {
            Ok(Ok(Some((made, watch)))) => Ok((made, watch.room)),
            Ok(Ok(None)) => {
                Err(Problem::new(StatusCode::CONFLICT, format!("`{output}` has ended")))
            }
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                let seconds = LIMIT.as_secs();
                let detail = format!("no frame came from `{output}` within {seconds} s");
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .help("`/api/v1/flowgraph` shows the state of the blocks and what flows"))
            }
        }
    }

    /// What `made` makes of frame after frame, as server-sent events called `name`, to the end of the output. An event
    /// called `problem` says why there are no more, if the output did not end. With `index` all of them carry it.
    pub fn events<T: Serialize + 'static>(
        self,
        name: &'static str,
        index: Option<usize>,
        made: impl Fn(&PortType, TapFrame) -> T + Clone + Send + 'static,
    ) -> impl Stream<Item = Result<Event, axum::Error>> {
        let told = move |port: &PortType, frame: TapFrame| {
            let told = Indexed { index, told: made(port, frame) };
            Event::default().event(name).json_data(told)
        };
        stream::unfold(Some(self), move |watch| {
            let told = told.clone();
            async move {
                match watch?.next(told).await {
                    Ok(taken) => taken.map(|(event, watch)| (event, Some(watch))),
                    Err(problem) => {
                        let told = Indexed { index, told: problem };
                        Some((Event::default().event("problem").json_data(told), None))
                    }
                }
            }
        })
    }
}

/// Something of one of several streams.
#[derive(Serialize)]
struct Indexed<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(flatten)]
    told: T,
}

/// The run has ended, and with it the threads that wait for blocks.
fn over<E>(_: E) -> Problem {
    Problem::new(StatusCode::CONFLICT, "the run ended meanwhile")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn snapshots_find_room_beside_a_client_that_follows_and_asks_for_all() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let taps = Taps::default();
            let hog: IpAddr = Ipv4Addr::new(10, 0, 0, 1).into();
            let mut followed = Vec::new();
            for _ in 0..50 {
                followed.extend(taps.room(hog, Look::Follow, 1024).await);
            }
            assert_eq!(followed.len(), FOLLOWERS / 2);
            let mut taken = Vec::new();
            for _ in 0..SNAPSHOTS_OF_CLIENT {
                taken.push(taps.room(hog, Look::Once, 1024).await.unwrap());
            }
            let waits = timeout(Duration::from_millis(20), taps.room(hog, Look::Once, 1024)).await;
            assert!(waits.is_err(), "it waits for one of its own");
            for number in 2..4 {
                let other = Ipv4Addr::new(10, 0, 0, number).into();
                taken.push(taps.room(other, Look::Once, 1024).await.unwrap());
                followed.push(taps.room(other, Look::Follow, 1024).await.unwrap());
            }
            drop(taken);
            assert!(taps.room(hog, Look::Once, 1024).await.is_ok());
        });
    }
}
