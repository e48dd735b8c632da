//! The block: gives frames to the shares, and sends descriptors and stop heaps.

use super::share::{Job, Share, Step, Terms};
use super::threads::Threads;
use crate::io::spead::control::Control;
use crate::io::spead::item;
use crate::io::spead::packet::Pointer;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::{Block, BlockError, Counter, Env, Io, Next};
use std::time::{Duration, Instant};

/// Longest duration of one call of `work`.
const WORK_TIME: Duration = Duration::from_millis(20);
/// Time to wait for room in the socket buffer.
pub const RETRY: Duration = Duration::from_micros(500);
/// Longest time that the end of the block waits for room for the stop heaps.
const STOP_TIME: Duration = Duration::from_millis(10);

/// State of the stop heaps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopHeaps {
    /// None are sent.
    None,
    /// They end the stream.
    Due,
    /// They are being sent, or are sent.
    Begun,
}

/// A running sink.
pub struct Sink {
    terms: Terms,
    env: Env,
    /// The share that the block sends itself.
    share: Share,
    /// The other shares, until they have threads.
    others: Vec<Share>,
    threads: Option<Threads>,
    /// The next frame, until all threads have it.
    next: Option<Job>,
    enabled: Timed<bool>,
    changes: Changes<bool>,
    /// Whether heaps of the newest frame are sent, or would be if they were valid.
    is_sending: bool,
    /// Whether any frame was sent, in full or in part.
    has_sent: bool,
    descriptors: (Vec<Pointer>, Vec<u8>),
    descriptors_due: Option<Instant>,
    descriptor_pause: Duration,
    /// The heap without data being sent.
    control: Option<Control>,
    stop_heaps: StopHeaps,
    stops_lost: Counter,
}

impl Sink {
    pub(super) fn new(
        parameters: &super::SpeadSink,
        terms: Terms,
        (share, others): (Share, Vec<Share>),
        env: &Env,
    ) -> Self {
        Self {
            share,
            others,
            threads: None,
            next: None,
            enabled: Timed::new(parameters.enabled),
            changes: Changes::default(),
            is_sending: parameters.enabled,
            has_sent: false,
            descriptors: terms.heaps.descriptors(),
            descriptors_due: None,
            descriptor_pause: Duration::from_secs_f64(parameters.descriptor_seconds),
            control: None,
            stop_heaps: if parameters.stop_heaps { StopHeaps::Due } else { StopHeaps::None },
            stops_lost: env.counters.loss(
                "heaps_stop_not_sent",
                "stop heaps not sent because the network took no packets",
            ),
            env: env.clone(),
            terms,
        }
    }

    fn begin_control(&mut self, items: Vec<Pointer>, payload: Vec<u8>) {
        self.control = Some(Control::new(items, payload, &mut self.share.counter));
    }

    /// Sends as much of a heap without data as fits the socket buffer; returns whether all of it is sent.
    fn send_control(&mut self) -> Result<bool, BlockError> {
        let Some(mut control) = self.control.take() else { return Ok(true) };
        let is_out = self.share.send_control(&mut control)?;
        self.has_sent |= control.has_begun();
        if is_out && self.stop_heaps == StopHeaps::Begun {
            self.count_stops(&control);
        }
        self.control = (!is_out).then_some(control);
        Ok(is_out)
    }

    /// Counts the destinations that did not get all of a stop heap.
    fn count_stops(&self, stop: &Control) {
        self.stops_lost.add((self.terms.destinations.len() - stop.told()) as u64);
    }

    fn begin_descriptors(&mut self, now: Instant) {
        if self.stop_heaps != StopHeaps::Begun
            && self.is_sending
            && self.control.is_none()
            && self.descriptors_due.is_none_or(|due| now >= due)
        {
            let (items, payload) = self.descriptors.clone();
            self.begin_control(items, payload);
            self.descriptors_due = Some(now + self.descriptor_pause);
        }
    }

    /// Sends the stop heaps, once; returns whether all of them are sent.
    fn send_stop(&mut self) -> Result<bool, BlockError> {
        let is_told = self.stop_heaps != StopHeaps::None && (self.has_sent || self.is_sending);
        if !self.share.is_started() || !is_told {
            return Ok(true);
        }
        if self.stop_heaps == StopHeaps::Due {
            // Descriptors that are being sent are completed first.
            if !self.send_control()? {
                return Ok(false);
            }
            self.stop_heaps = StopHeaps::Begun;
            let items = [Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)];
            self.begin_control(items.to_vec(), vec![0]);
        }
        self.send_control()
    }

    /// Takes the next frame of the input, with the times at which its heaps are sent.
    fn take(&mut self, io: &mut Io<'_>) -> bool {
        let Some(frame) = io.inputs[0].pop() else { return false };
        let (timestamp, heaps) = (frame.header().timestamp, &self.terms.heaps);
        let samples = heaps.samples_per_heap * heaps.times as u64;
        for (from, enabled) in self.changes.begin(timestamp, samples) {
            self.enabled.set(from, enabled);
        }
        self.enabled.advance(timestamp);
        let mut indices = 0..heaps.per_frame();
        let is_sending = indices.any(|i| *self.enabled.at(heaps.timestamp(timestamp, i)));
        if is_sending && !std::mem::replace(&mut self.is_sending, is_sending) {
            // Descriptors go before the first heap.
            self.descriptors_due = None;
        }
        self.is_sending = is_sending;
        self.next = Some(Job { frame, enabled: self.enabled.clone() });
        true
    }

    fn until_descriptors(&self, now: Instant) -> Duration {
        self.descriptors_due.map_or(RETRY, |due| due.saturating_duration_since(now)).max(RETRY)
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        let sender = self.share.open(&self.env)?;
        for share in &mut self.others {
            share.start(sender.duplicate()?);
        }
        self.share.start(sender);
        let others = std::mem::take(&mut self.others);
        self.threads = Some(Threads::start(others, &self.env)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            self.begin_descriptors(now);
            if !self.send_control()? {
                return Ok(Next::After(RETRY));
            }
            if self.share.is_idle() {
                if self.next.is_none() {
                    if self.take(io) {
                        continue;
                    }
                    if !io.inputs[0].ended() {
                        self.share.pace.wait_for_input();
                        return Ok(Next::After(self.until_descriptors(now)));
                    }
                    let has_ended = self.threads.as_mut().map_or(Ok(true), Threads::end)?;
                    let is_out = has_ended && self.send_stop()?;
                    return Ok(if is_out { Next::Finished } else { Next::After(RETRY) });
                }
                if let (Some(threads), Some(job)) = (&mut self.threads, &self.next)
                    && !threads.give(job)?
                {
                    return Ok(Next::After(RETRY));
                }
                let Some(job) = self.next.take() else { continue };
                self.share.begin(job, now);
            }
            match self.share.send(now)? {
                Step::Again => {}
                Step::Wait(wait) => return Ok(Next::After(wait.min(self.until_descriptors(now)))),
                Step::Full => return Ok(Next::After(RETRY)),
            }
            if began.elapsed() > WORK_TIME {
                return Ok(Next::Again);
            }
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        // After a failure, heaps that are not sent yet are given up.
        self.threads = None;
        // Stop heaps are sent also after a failure.
        let began = Instant::now();
        while !self.send_stop()? {
            if began.elapsed() > STOP_TIME {
                match self.control.take().filter(|_| self.stop_heaps == StopHeaps::Begun) {
                    Some(stop) => self.count_stops(&stop),
                    None => self.stops_lost.add(self.terms.destinations.len() as u64),
                }
                break;
            }
            std::thread::sleep(RETRY);
        }
        Ok(())
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
