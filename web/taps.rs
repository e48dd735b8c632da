//! Taps for clients: limits on their number and memory, and threads that copy their frames.
//!
//! Clients that follow an output keep a place until they disconnect, and each client gets a [share](crate::shares) of
//! these places. Requests for one frame wait for a place, the requests of one client one after the other, so that
//! neither followers nor other clients keep them out.
//!
//! Each client has its own tap, whose queue keeps only the newest frame: a slow client misses frames. Waiting for
//! frames blocks no thread. A tap ends when its client disconnects.

use crate::problem::Problem;
use crate::shares::{Share, Shares};
use axum::http::StatusCode;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use fxgraph::control::{Tap, TapError, TapFrame, TapOptions, Tapped};
use fxgraph::lock::lock;
use fxgraph::runtime::Unanswered;
use fxgraph::{Control, PortType};
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum number of taps: for clients that follow an output, and for requests of one frame.
pub(crate) const TAPS: usize = FOLLOWERS + SNAPSHOTS;
const FOLLOWERS: usize = 24;
const SNAPSHOTS: usize = 8;
/// Maximum number of simultaneous requests for one frame per client.
const SNAPSHOTS_OF_CLIENT: usize = 3;
/// Time limit to wait for a place for one frame.
const WAIT: Duration = Duration::from_secs(8);
/// Memory limit for the frames of all taps of each kind, in KiB.
const MEMORY_KIB: usize = 1 << 19;
/// Frames in memory per tap: one queued, one arriving, one being read, its copy, and the response made of it.
const FRAMES: usize = 5;
/// Maximum number of copies and views computed at once; others wait, and get newer frames.
const WORKERS: usize = 2;
/// Time limit for a block to respond, and the shortest one for the first frame.
const LIMIT: Duration = Duration::from_secs(20);
/// Longest time limit for the first frame, below the time limit of the request.
const LONGEST_WAIT: Duration = Duration::from_secs(80);

/// Purpose of a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// One frame.
    Once,
    /// A stream of frames.
    Follow,
}

/// Places for taps; cheap to clone.
#[derive(Clone)]
pub(crate) struct Taps {
    followers: Shares,
    followers_kib: Shares,
    snapshots: Arc<Semaphore>,
    snapshots_kib: Arc<Semaphore>,
    /// Places of each client for requests of one frame.
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

/// A place for a tap, returned on drop.
pub(crate) struct Room {
    _shares: Vec<Share>,
    _permits: Vec<OwnedSemaphorePermit>,
    /// Semaphore of the client's permit.
    _client: Option<Arc<Semaphore>>,
}

impl Taps {
    /// Takes a place for a tap of `client` with frames of `bytes` bytes.
    pub async fn room(&self, client: IpAddr, look: Look, bytes: usize) -> Result<Room, Problem> {
        let kib = bytes.saturating_mul(FRAMES).div_ceil(1024);
        if kib > MEMORY_KIB {
            let detail = format!("frames of {bytes} bytes are too large for a tap");
            let most = MEMORY_KIB / FRAMES * 1024;
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
                .help(format!("the limit is {most} bytes; choose an output with smaller frames")));
        }
        match look {
            Look::Follow => self.share(client, kib).ok_or_else(|| {
                let detail = "too many streams of outputs are open";
                let help = format!(
                    "the limit is {FOLLOWERS} streams of all clients with {} MiB of frames, and half of the free \
                     places for one client",
                    MEMORY_KIB / 1024
                );
                Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).help(help).retry_after(WAIT)
            }),
            Look::Once => timeout(WAIT, self.turn(client, kib)).await.unwrap_or_else(|_| {
                let detail = "too many requests for frames";
                let help =
                    format!("the limit is {SNAPSHOTS} of all clients, {SNAPSHOTS_OF_CLIENT} of one client");
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
                    .help(help)
                    .retry_after(WAIT))
            }),
        }
    }

    /// Opens a tap of `client` at `output` (`block.port`) with frames of `bytes` bytes. It takes at most one frame in
    /// `every`, and waits at least `pause` between two frames.
    pub async fn open(
        &self,
        control: &Control,
        (client, look): (IpAddr, Look),
        output: String,
        bytes: usize,
        every: u64,
        pause: Duration,
    ) -> Result<Watch, Problem> {
        let room = self.room(client, look, bytes).await?;
        let (control, workers) = (control.clone(), Arc::clone(&self.workers));
        let most_per_second = (!pause.is_zero()).then(|| 1.0 / pause.as_secs_f64());
        let options = TapOptions { every, most_per_second, queue: 1 };
        let open = move || Ok(Watch { tap: control.tap(&output, options, LIMIT)?, room, workers });
        spawn_blocking(open).await.map_err(over)?
    }

    fn share(&self, client: IpAddr, kib: usize) -> Option<Room> {
        let shares = vec![self.followers.take(client, 1)?, self.followers_kib.take(client, kib)?];
        Some(Room { _shares: shares, _permits: Vec::new(), _client: None })
    }

    /// Waits for a place for one frame.
    async fn turn(&self, client: IpAddr, kib: usize) -> Result<Room, Problem> {
        let own = {
            let mut clients = lock(&self.of_clients);
            clients.retain(|_, known| known.strong_count() > 0);
            let known = clients.get(&client).and_then(Weak::upgrade);
            let own = known.unwrap_or_else(|| Arc::new(Semaphore::new(SNAPSHOTS_OF_CLIENT)));
            clients.insert(client, Arc::downgrade(&own));
            own
        };
        // The client's own limit first, so that its waiting requests do not delay other clients.
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
            TapError::Rejected(_) | TapError::Unanswered(Unanswered::NoSuchBlock(_)) => {
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
    // Declared first: the tap ends before its place is returned.
    tap: Tap,
    room: Room,
    workers: Arc<Semaphore>,
}

impl Watch {
    /// Applies `made` to the next frame on a worker thread; returns `None` at the end of the output.
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
                    // The block was swapped, and frames come from the new block.
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

    /// Applies `made` to the first frame, and ends the tap. Returns the result with the place of the tap.
    pub async fn first<T: Send + 'static>(
        self,
        made: impl Fn(&PortType, TapFrame) -> T + Clone + Send + 'static,
    ) -> Result<(T, Room), Problem> {
        let output = self.tap.output().to_owned();
        let seconds_per_frame = 1.0 / self.tap.port().clock.frames_per_second();
        let limit = frame_limit(seconds_per_frame);
        match timeout(limit, self.next(made)).await {
            Ok(Ok(Some((made, watch)))) => Ok((made, watch.room)),
            Ok(Ok(None)) => {
                Err(Problem::new(StatusCode::CONFLICT, format!("`{output}` has ended")))
            }
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                let seconds = limit.as_secs();
                let detail = format!("no frame from `{output}` within {seconds} s");
                if seconds_per_frame > limit.as_secs_f64() {
                    let detail = format!("{detail}: its frames are {seconds_per_frame:.0} s long");
                    return Err(Problem::new(StatusCode::CONFLICT, detail)
                        .help("follow the output with its `stream`, which has no time limit"));
                }
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .help("see `/api/v1/flowgraph` for the state of the blocks and the data rates"))
            }
        }
    }

    /// Applies `made` to every frame and returns the results as server-sent events `name`, until the output ends. An
    /// event `problem` reports why the stream ends early. `index`, if given, is added to all events.
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
                        let told = Indexed { index, told: problem.document };
                        Some((Event::default().event("problem").json_data(told), None))
                    }
                }
            }
        })
    }
}

/// Time limit for a frame: a frame that has just gone by is followed by one a frame interval later.
fn frame_limit(seconds_per_frame: f64) -> Duration {
    let frames = Duration::try_from_secs_f64(2.0 * seconds_per_frame).unwrap_or(LONGEST_WAIT);
    frames.clamp(LIMIT, LONGEST_WAIT)
}

/// Event of one of several streams, with the index of the stream.
#[derive(Serialize)]
struct Indexed<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(flatten)]
    told: T,
}

/// Error for a run that has ended, and with it the threads that wait for blocks.
fn over<E>(_: E) -> Problem {
    Problem::new(StatusCode::CONFLICT, "the run has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn time_limit_of_a_frame_follows_its_length() {
        let seconds = |seconds_per_frame| frame_limit(seconds_per_frame).as_secs();
        assert_eq!([0.001, 1.0, 33.0, 79.0, 3600.0].map(seconds), [20, 20, 66, 80, 80]);
        assert_eq!(seconds(f64::INFINITY), 80);
    }

    #[test]
    fn snapshots_get_places_despite_a_client_with_many_requests() {
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
            assert!(waits.is_err(), "it waits for its own requests");
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
