//! The receiving side of a source: from sockets or a capture file through the window to frames.

use super::candidates::HELD_BYTES;
use super::network::{Network, Notes};
use super::senders::{self, AFTER_STOP};
use super::window::{Outcome, Window};
use crate::common::link::{Link, Report, TICK};
use crate::common::measured_rate::MeasuredRate;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::pcap::{Capture, Skipped};
use crate::io::spead::port::View;
use fxgraph::access::ReadPath;
use fxgraph::files::Awaited;
use fxgraph::runtime::EventKind;
use fxgraph::{BlockError, Counter, Counters, Env};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time without data from a pipe after which it is reported.
const SILENCE: Duration = Duration::from_secs(5);

/// Memory that `threads` threads allocate, in bytes.
pub fn buffer_bytes(threads: usize) -> usize {
    HELD_BYTES.saturating_add(threads.saturating_mul(4 << 20))
}

/// Source of datagrams.
pub enum Input {
    /// The network.
    Network(Network),
    /// A capture file.
    File {
        /// The file, or a pipe.
        file: File,
        /// Datagrams read.
        packets: Counter,
        /// Payload bytes of these datagrams.
        bytes: Counter,
        /// Records that are not complete UDP datagrams, and those of IPv6 with extension headers.
        skipped: [Counter; 2],
        /// Destinations to accept; empty accepts all.
        addresses: Vec<SocketAddr>,
        /// Path of the file, for messages.
        path: ReadPath,
    },
}

impl Input {
    /// Creates the input from a capture file.
    pub fn file(
        file: File,
        addresses: Vec<SocketAddr>,
        path: ReadPath,
        counters: &Counters,
    ) -> Self {
        Self::File {
            file,
            packets: counters.count("packets_received", "datagrams read from the file"),
            bytes: counters.count("bytes_received", "payload bytes of these datagrams"),
            skipped: [
                counters.count(
                    "records_skipped",
                    "records of the file that are not complete UDP datagrams: fragments and other protocols",
                ),
                counters.count(
                    "records_extended",
                    "records of the file that are IPv6 packets with extension headers, such as fragments, which are not read",
                ),
            ],
            addresses,
            path,
        }
    }
}

/// End conditions of a stream, and options of the receiving threads.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Time without data after which the stream ends.
    pub idle: Option<Duration>,
    /// Number of stopped senders that ends the stream; 0 ignores stop heaps.
    pub senders: usize,
    /// Whether data are dropped when the flowgraph does not keep up.
    pub is_live: bool,
    /// Sample rate, for messages.
    pub adc_sample_rate_hz: f64,
}

/// Reason why a stream ended.
pub enum End {
    /// The flowgraph stops.
    Asked,
    /// The capture file was read to its end.
    File,
    /// These senders stopped.
    Stopped(Vec<Endpoint>),
    /// No data arrived for this time.
    Silent(Duration),
}

/// State of the receiving side, which one thread at a time has.
pub struct Receiving {
    /// The window.
    pub window: Window,
    /// The queues to the block.
    pub link: Link,
    /// The block's environment.
    pub env: Env,
    /// Reason of the end, once the stream has ended.
    pub result: Option<Result<End, BlockError>>,
    terms: Terms,
    /// Time of the last data. Silence is measured from the first data, so the source waits for a late sender.
    last_data: Option<Instant>,
    /// Time since which the stream seems to have ended.
    ending: Option<Instant>,
    pace: MeasuredRate,
}

impl Receiving {
    /// Creates the state of threads that fill the frames of `window`.
    pub fn new(window: Window, link: Link, terms: Terms, env: Env) -> Self {
        let pace = MeasuredRate::default();
        Self { window, link, env, result: None, terms, last_data: None, ending: None, pace }
    }

    /// Whether data are dropped when the flowgraph does not keep up.
    pub fn is_live(&self) -> bool {
        self.terms.is_live
    }

    /// Runs until the stream ends.
    pub fn run(mut self, input: Input) {
        // Datagrams that arrive before the flowgraph runs wait in the socket buffer.
        self.link.wait_for_first();
        match input {
            Input::File { file, packets, bytes, skipped, addresses, path } => {
                let result = self.read(file, &addresses, ([&packets, &bytes], &skipped), &path);
                self.conclude(result);
            }
            Input::Network(network) => {
                if self.terms.is_live {
                    match network.watch() {
                        Ok(views) => {
                            let fill = move || views.iter().map(View::fill).fold(0.0, f32::max);
                            self.link.live = Some(Box::new(fill));
                        }
                        Err(error) => return self.conclude(Err(error)),
                    }
                }
                network.listen(self);
            }
        }
    }

    /// Sends all open frames and reports the end of the stream.
    pub fn conclude(mut self, result: Result<End, BlockError>) {
        self.window.flush(&mut self.link);
        self.window.show();
        self.announce(result);
    }

    /// Reports the end of the stream.
    pub fn announce(self, result: Result<End, BlockError>) {
        let text = match &result {
            Ok(End::Asked) => "the flowgraph was stopped".to_owned(),
            Ok(End::File) => "the capture file was read to its end".to_owned(),
            Ok(End::Stopped(senders)) => format!("stop heap from {}", senders::list(senders)),
            Ok(End::Silent(time)) => format!(
                "no data for {} s (finish_after_seconds) from {}",
                time.as_secs_f64(),
                self.window.senders().names()
            ),
            Err(error) => error.to_string(),
        };
        self.env.summary.set(format!("the stream ended: {text}\n"));
        self.env.events.add(EventKind::StreamEnded, text);
        self.link.report(match result {
            Ok(_) => Report::Ended,
            Err(error) => Report::Failed(error),
        });
    }

    fn read(
        &mut self,
        file: File,
        addresses: &[SocketAddr],
        ([packets, bytes], skipped): ([&Counter; 2], &[Counter; 2]),
        path: &ReadPath,
    ) -> Result<End, BlockError> {
        let cannot_read = |error: io::Error| {
            BlockError::new(format!("cannot read {path}: {error}")).because(error)
        };
        let (stop, events, idle) =
            (self.link.stop_flag(), self.env.events.clone(), self.terms.idle);
        let (mut is_told, is_silent) = (false, Cell::new(false));
        // Only a pipe has no data for a while.
        let file = Awaited::new(file, |silence| {
            if silence >= SILENCE && !std::mem::replace(&mut is_told, true) {
                let text = format!("waits for data from the pipe {path}");
                events.add(EventKind::Warning, text);
            }
            is_silent.set(packets.get() > 0 && idle.is_some_and(|idle| silence >= idle));
            is_silent.get() || stop.load(Ordering::Acquire)
        });
        let mut capture = match Capture::new(BufReader::with_capacity(1 << 20, file)) {
            Err(_) if self.link.stopping() => return Ok(End::Asked),
            capture => capture.map_err(cannot_read)?,
        };
        let mut end = End::Asked;
        while !self.link.stopping() {
            let Some(datagram) = capture.next_datagram().map_err(cannot_read)? else {
                end = match idle.filter(|_| is_silent.get()) {
                    Some(idle) => End::Silent(idle),
                    None if self.link.stopping() => End::Asked,
                    None => End::File,
                };
                break;
            };
            // A packet does not say on which interface its link is.
            let is_to =
                |one: &SocketAddr| (one.ip(), one.port()) == (datagram.to.ip(), datagram.to.port());
            if !(addresses.is_empty() || addresses.iter().any(is_to)) {
                continue;
            }
            packets.add(1);
            bytes.add(datagram.payload.len() as u64);
            let outcome = self.window.datagram(datagram.payload, datagram.from, &mut self.link);
            if let Outcome::Restarted { samples } = outcome {
                return Err(self.restarted(samples));
            }
        }
        let Skipped { other, extended } = capture.skipped();
        skipped[0].add(other);
        skipped[1].add(extended);
        Ok(end)
    }

    /// Looks at the state of the stream after a thread has read its sockets. Returns the reason if the stream
    /// has ended.
    pub fn after(&mut self, mut notes: Notes) -> Option<Result<End, BlockError>> {
        // The present time, not that of the batch: the thread may have waited for frames since.
        let now = Instant::now();
        self.window.tick(now);
        notes.add(self.window.look(&mut self.link));
        self.window.keep_time(&mut self.link);
        self.window.show();
        self.check_pace(now);
        if let Some(samples) = notes.restarted {
            return Some(Err(self.restarted(samples)));
        }
        if notes.is_alive {
            self.last_data = Some(now);
        }
        let silence = now.duration_since(self.last_data?);
        // Data that another thread held while it waited for a frame.
        let silence = self.window.silence().map_or(silence, |of_window| of_window.min(silence));
        let Some(end) = self.end(now, silence) else {
            self.ending = None;
            return None;
        };
        // After a pause of the program data wait in the sockets, so the threads look once more.
        (now.duration_since(*self.ending.get_or_insert(now)) >= TICK).then_some(Ok(end))
    }

    /// Reports a stream that does not come at the sample rate of the flowgraph.
    fn check_pace(&mut self, now: Instant) {
        let Some(newest) = self.window.newest() else { return };
        let expected_hz = self.terms.adc_sample_rate_hz;
        if let Some(hz) = self.pace.note(now, newest, expected_hz) {
            let text = format!(
                "{hz:.0} samples per second arrive, {:.3} times `adc_sample_rate_hz`: that parameter is wrong, or the \
                 sender does not send in real time",
                hz / expected_hz
            );
            self.env.events.add(EventKind::Warning, text);
        }
    }

    /// Returns the reason why the stream has ended after `silence` without data, if it has. Rejected
    /// packets are not data.
    fn end(&self, now: Instant, silence: Duration) -> Option<End> {
        if let Some(idle) = self.terms.idle.filter(|idle| silence >= *idle) {
            return Some(End::Silent(idle));
        }
        // Held packets do not come from the senders that stopped.
        let silence = self.window.silence().unwrap_or(silence);
        if self.terms.senders == 0 || silence < AFTER_STOP {
            return None;
        }
        let stopped = self.window.senders().stopped(now);
        (stopped.len() >= self.terms.senders).then_some(End::Stopped(stopped))
    }

    fn restarted(&self, samples: i64) -> BlockError {
        let side = if samples < 0 { "back" } else { "ahead" };
        let samples = samples.unsigned_abs();
        let seconds = samples as f64 / self.terms.adc_sample_rate_hz;
        BlockError::new(format!(
            "the sender restarted with another sync time: its timestamps jumped {side} by {samples} samples \
             ({seconds:.1} s) and stayed there; start again with the new `sync_time_seconds`, or set \
             `on_restart: resync`"
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::common::link::Lender;
    use crate::io::spead_source::layout::{Layout, Stream};
    use crate::io::spead_source::window::Options;
    use std::sync::mpsc::channel;

    #[test]
    fn stream_ends_only_if_a_second_look_finds_no_data() {
        let (env, long) = (Env::detached("source"), Duration::from_secs(10));
        let stream = Stream::Digitiser { pol: None };
        let layout = Layout { stream, heap_bytes: 8, samples_per_heap: 8, heaps_per_frame: 1 };
        let window = Window::new(layout, Options::new(2, 1e3), &env);
        let terms = Terms { idle: Some(long), senders: 0, is_live: false, adc_sample_rate_hz: 1e3 };
        let (sender, looks) = channel();
        let env_of_thread = env.clone();
        // The thread is only needed for its link.
        let lender = Lender::start(&env, 1, move |link| {
            let mut receiving = Receiving::new(window, link, terms, env_of_thread);
            let before = || Instant::now().checked_sub(long).unwrap();
            receiving.window.tick(before());
            receiving.last_data = Some(before());
            let mut look = |is_alive: bool, pause: Duration| {
                std::thread::sleep(pause);
                let end = receiving.after(Notes { is_alive, restarted: None });
                sender.send(end.is_some()).unwrap();
                if is_alive {
                    receiving.last_data = Some(before());
                }
            };
            look(false, Duration::ZERO);
            // After a pause of the program, its sockets had data.
            look(true, TICK);
            look(false, Duration::ZERO);
            look(false, TICK);
        });
        let looks: Vec<bool> = looks.iter().collect();
        assert_eq!(looks, [false, false, false, true]);
        drop(lender);
    }
}
