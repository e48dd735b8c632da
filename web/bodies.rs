//! Bodies of requests: limits of their size and time, and of the memory that they take together.

use crate::problem::Problem;
use crate::shares::{Share, Shares};
use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Largest body of a request in bytes, unless the operator sets another limit.
pub const BODY_BYTES: usize = 1 << 20;
/// Time limit for a body of no bytes, and bytes that each further second must bring.
const GRACE: Duration = Duration::from_secs(5);
const BYTES_PER_SECOND: f64 = 262_144.0;
/// Memory for all bodies in bytes, half of it for one client, and the least number of largest bodies that it holds.
const MEMORY_BYTES: usize = 256 << 20;
const MEMORY_BODIES: usize = 4;
/// Bytes for which memory is taken at a time, while a body arrives.
const STEP_BYTES: usize = 64 << 10;

/// Limits of bodies.
pub(crate) struct Bodies {
    most_bytes: usize,
    grace: Duration,
    steps: Shares,
}

/// A body, whose memory is counted until it is dropped.
pub(crate) struct Received {
    pub bytes: Vec<u8>,
    pub memory: Vec<Share>,
}

impl Bodies {
    /// Limits of bodies of up to `most_bytes`.
    pub fn new(most_bytes: usize) -> Self {
        let memory = MEMORY_BYTES.max(most_bytes.saturating_mul(MEMORY_BODIES));
        Self { most_bytes, grace: GRACE, steps: Shares::new(memory / STEP_BYTES) }
    }

    /// Receives `body`, for which its client has announced `length` bytes.
    pub async fn receive(
        &self,
        client: IpAddr,
        length: Option<usize>,
        body: Body,
    ) -> Result<Received, Problem> {
        self.allow(length.unwrap_or_default())?;
        let mut received = Received { bytes: Vec::new(), memory: Vec::new() };
        let (mut stream, began) = (body.into_data_stream(), Instant::now());
        loop {
            let next = timeout_at(began + self.time(received.bytes.len()), stream.next());
            let Some(piece) = next.await.map_err(|_| slow())? else { return Ok(received) };
            let piece = piece.map_err(|error| {
                Problem::new(StatusCode::BAD_REQUEST, format!("the body ended early: {error}"))
            })?;
            let length = received.bytes.len() + piece.len();
            self.allow(length)?;
            while received.memory.len() * STEP_BYTES < length {
                let step = self.steps.take(client, 1).ok_or_else(|| {
                    Problem::busy("the bodies of other requests take the memory for bodies")
                })?;
                received.memory.push(step);
            }
            received.bytes.extend_from_slice(&piece);
        }
    }

    /// Time limit for the next piece of a body of which `arrived` bytes have arrived.
    fn time(&self, arrived: usize) -> Duration {
        self.grace + Duration::from_secs_f64(arrived as f64 / BYTES_PER_SECOND)
    }

    fn allow(&self, length: usize) -> Result<(), Problem> {
        let most = self.most_bytes;
        if length <= most {
            return Ok(());
        }
        let detail = format!("the body of a request must have at most {most} bytes");
        Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
            .help("start the program with `--max-body MIB` to allow larger ones"))
    }
}

fn slow() -> Problem {
    let detail = format!(
        "the body must arrive within {} s, plus a second for each {} KiB",
        GRACE.as_secs(),
        BYTES_PER_SECOND / 1024.0
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use std::convert::Infallible;
    use std::net::Ipv4Addr;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn body_beyond_the_limit_is_rejected_before_and_while_it_arrives() {
        let bodies = Bodies::new(10);
        let receive = |length, bytes: &'static [u8]| {
            run(bodies.receive(CLIENT, length, Body::from(bytes))).map(|received| received.bytes)
        };
        assert_eq!(receive(Some(10), b"0123456789").unwrap(), b"0123456789");
        for (length, bytes) in [(Some(11), &b""[..]), (None, b"0123456789a")] {
            let problem = receive(length, bytes).unwrap_err().document;
            assert_eq!((problem.status, problem.help.len()), (413, 1));
            assert!(problem.detail.contains("at most 10 bytes"), "{problem:?}");
        }
    }

    #[test]
    fn body_that_does_not_arrive_is_rejected() {
        let bodies = Bodies { grace: Duration::ZERO, ..Bodies::new(BODY_BYTES) };
        let silent = futures_util::stream::pending::<Result<Bytes, Infallible>>();
        let received = run(bodies.receive(CLIENT, None, Body::from_stream(silent)));
        assert_eq!(received.err().unwrap().document.status, 408);
    }

    #[test]
    fn memory_is_counted_as_a_body_arrives_and_each_piece_brings_time() {
        let bodies = Bodies::new(BODY_BYTES);
        let pieces = (0..32).map(|_| Ok::<_, Infallible>(Bytes::from(vec![0; 32 << 10])));
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let received = run(bodies.receive(CLIENT, None, body)).ok().unwrap();
        assert_eq!((received.bytes.len(), received.memory.len()), (BODY_BYTES, 16));
        assert_eq!(bodies.time(BODY_BYTES), Duration::from_secs(9));
        let half = bodies.steps.take(CLIENT, MEMORY_BYTES / STEP_BYTES / 2 - 16);
        let body = || Body::from(vec![0; STEP_BYTES + 1]);
        let rejected = run(bodies.receive(CLIENT, None, body())).err().unwrap().document;
        assert_eq!(rejected.status, 503);
        drop(half);
        assert!(run(bodies.receive(CLIENT, None, body())).is_ok());
    }
}
