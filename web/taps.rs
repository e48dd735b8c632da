//! Taps for clients: how many there are, what memory they take, and who waits for their frames.
//!
//! Each client has a tap of its own, whose queue holds the newest frame alone: a client that reads slowly, or not at
//! all, misses frames. While nothing comes by, no thread waits. A client that is gone takes its tap with it.

use crate::app::App;
use crate::problem::Problem;
use axum::http::StatusCode;
use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use fxgraph::PortType;
use fxgraph::control::{Tap, TapError, TapFrame, TapOptions, Tapped};
use fxgraph::runtime::Unanswered;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Taps at once.
pub(crate) const TAPS: usize = 16;
/// Memory that the frames of all taps may take, in KiB.
const MEMORY_KIB: usize = 1 << 20;
/// Frames that each takes memory for: one that waits, one that arrives, one that is read, its copy, and what is
/// made of it.
const FRAMES: usize = 5;
/// Copies and views that are made at once; others wait, and their frames get newer meanwhile.
const WORKERS: usize = 2;
/// Time for a block to answer, and for the first frame to come by; more would outlast the request.
const LIMIT: Duration = Duration::from_secs(20);

/// Room for taps; cheap to clone.
#[derive(Clone)]
pub(crate) struct Taps {
    places: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    workers: Arc<Semaphore>,
}

impl Default for Taps {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { places: semaphore(TAPS), memory: semaphore(MEMORY_KIB), workers: semaphore(WORKERS) }
    }
}

/// A place among the taps, given back when it is dropped.
pub(crate) struct Room {
    _place: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl Taps {
    /// Room for a tap whose frames have `bytes` bytes.
    pub fn room(&self, bytes: usize) -> Result<Room, Problem> {
        let kib = bytes.saturating_mul(FRAMES).div_ceil(1024);
        if kib > MEMORY_KIB {
            let detail = format!("frames of {bytes} bytes are too large to be looked at");
            let most = MEMORY_KIB / FRAMES * 1024;
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).help(format!(
                "{most} bytes are the most; look at an output with smaller frames"
            )));
        }
        let too_many = |_| {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many outputs are being looked at")
                .help(format!("{TAPS} at once, with {} MiB of frames", MEMORY_KIB / 1024))
        };
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(too_many)?;
        let memory = Arc::clone(&self.memory);
        let memory = memory.try_acquire_many_owned(kib as u32).map_err(too_many)?;
        Ok(Room { _place: place, _memory: memory })
    }
}

impl From<TapError> for Problem {
    fn from(error: TapError) -> Self {
        let status = match &error {
            TapError::Refused(_) | TapError::Unanswered(Unanswered::NoSuchBlock(_)) => {
                StatusCode::NOT_FOUND
            }
            TapError::Unanswered(Unanswered::Ended(_)) => StatusCode::CONFLICT,
            TapError::Unanswered(Unanswered::Busy { .. }) | TapError::Memory(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
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
    /// A tap of `output`, `block.port`, whose frames have `bytes` bytes; with one frame out of `every` at most, and a
    /// pause of `pause` between two of them at least.
    pub async fn open(
        app: &App,
        output: String,
        bytes: usize,
        every: u64,
        pause: Duration,
    ) -> Result<Self, Problem> {
        let room = app.taps.room(bytes)?;
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
