//! The block: puts frames in the order of their times, encodes them, and hands them to the readers.

use super::chunks::{Chunk, Chunks};
use super::datagrams::Datagrams;
use super::encode::{Encoder, Layout};
use super::readers::Readers;
use fxgraph::event::{BlockEvents, EventKind};
use fxgraph::{Block, BlockError, Counter, Env, Frame, Io, Next, TimeBase};
use fxgraph_common::gaps::Gaps;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest duration of one call of `work`.
const WORK_TIME: Duration = Duration::from_millis(20);
/// Time to wait for room in a socket or a pipe.
const FULL: Duration = Duration::from_micros(500);
/// Time to wait for readers and for what they say, if no bytes wait.
const QUIET: Duration = Duration::from_millis(10);
/// Least time between two events about the clock.
const EVENT_PAUSE: Duration = Duration::from_secs(1);

/// Place where raw samples go.
pub enum Outlet {
    Readers(Readers),
    Datagrams(Datagrams),
}

impl Outlet {
    fn open(&mut self) -> Result<(), BlockError> {
        match self {
            Self::Readers(readers) => readers.open(),
            Self::Datagrams(datagrams) => datagrams.open(),
        }
    }

    /// Moves bytes; returns whether it moved any, and otherwise the time to the next attempt.
    fn serve(&mut self, now: Instant) -> Result<Option<Duration>, BlockError> {
        match self {
            Self::Datagrams(datagrams) => Ok(datagrams.serve(now)),
            Self::Readers(readers) => {
                let bytes = readers.serve(now)?;
                let pause = if readers.is_idle(now) { QUIET } else { FULL };
                Ok((bytes == 0).then_some(pause))
            }
        }
    }

    fn has_room(&self) -> bool {
        match self {
            Self::Readers(readers) => readers.has_room(),
            Self::Datagrams(datagrams) => datagrams.has_room(),
        }
    }

    /// Takes samples whose first one has this timestamp.
    fn push(&mut self, chunk: Chunk, timestamp: u64) {
        match self {
            Self::Readers(readers) => readers.push(&chunk),
            Self::Datagrams(datagrams) => datagrams.push(chunk, timestamp),
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        match self {
            Self::Readers(readers) => readers.is_idle(now),
            Self::Datagrams(datagrams) => datagrams.is_idle(),
        }
    }

    /// Whether samples wait for nobody.
    fn lacks_reader(&self) -> bool {
        matches!(self, Self::Readers(readers) if !readers.has_reader())
    }

    fn is_over(&self) -> bool {
        matches!(self, Self::Readers(readers) if readers.is_over())
    }
}

struct Count {
    missing: Counter,
    clipped: Counter,
    jumps: Counter,
    not_sent: Counter,
}

/// A running sink.
pub struct Sink {
    layout: Layout,
    encoder: Encoder,
    chunks: Chunks,
    outlet: Outlet,
    gaps: Gaps,
    /// Timestamp of the next sample.
    next: Option<u64>,
    base: TimeBase,
    /// A frame that waits until the gap before it is filled, and the samples of the gap.
    held: Option<(Arc<Frame>, u64)>,
    told: Option<Instant>,
    count: Count,
    statement: String,
    env: Env,
    events: BlockEvents,
}

impl Sink {
    /// A sink of frames of `layout`; `statement` says what readers get.
    pub fn new(
        layout: Layout,
        encoder: Encoder,
        outlet: Outlet,
        statement: String,
        env: &Env,
    ) -> Self {
        let counters = &env.counters;
        let count = Count {
            missing: counters.count(
                "samples_missing",
                "samples that are missing in frames and between them, written as zeros; look for missing data upstream",
            ),
            clipped: counters.count(
                "samples_clipped",
                "real or imaginary parts clipped to the range of the type; set a lower `scale`",
            ),
            jumps: counters.count(
                "clock_jumps",
                "jumps of the timestamps, back or by more than 60 s, and new sync times, which readers cannot see",
            ),
            not_sent: counters.loss(
                "frames_dropped_at_stop",
                "frames that waited for a reader when the flowgraph was stopped",
            ),
        };
        Self {
            gaps: Gaps::new(layout.clock.adc_sample_rate_hz),
            layout,
            encoder,
            chunks: Chunks::default(),
            outlet,
            next: None,
            base: TimeBase::default(),
            held: None,
            told: None,
            count,
            statement,
            env: env.clone(),
            events: env.events.clone(),
        }
    }

    /// Takes the next frame, with the samples of the gap before it.
    fn take(&mut self, io: &mut Io<'_>) -> Option<(Arc<Frame>, u64)> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        let frame = io.inputs[0].pop()?;
        let timestamp = frame.header().timestamp;
        let expected =
            self.next.replace(timestamp.saturating_add(self.layout.clock.samples_per_frame));
        let base = std::mem::replace(&mut self.base, frame.header().base);
        let gap = match expected {
            // Timestamps of two bases have no difference.
            Some(_) if !base.is(&self.base) => {
                self.note_jump("the stream began again with another sync time");
                0
            }
            Some(expected) if timestamp < expected => {
                self.note_jump(&self.jumped("back", expected - timestamp));
                0
            }
            Some(expected) if timestamp > expected => {
                let ticks = self.gaps.missing(timestamp - expected, 1);
                if ticks == 0 {
                    self.note_jump(&self.jumped("ahead", timestamp - expected));
                }
                self.layout.samples_in(ticks)
            }
            _ => 0,
        };
        self.count.missing.add(gap);
        Some((frame, gap))
    }

    fn jumped(&self, way: &str, ticks: u64) -> String {
        let seconds = ticks as f64 / self.layout.clock.adc_sample_rate_hz;
        format!("the timestamps jumped {way} by {seconds:.6} s")
    }

    fn note_jump(&mut self, why: &str) {
        self.count.jumps.add(1);
        if self.told.is_none_or(|told| told.elapsed() >= EVENT_PAUSE) {
            self.told = Some(Instant::now());
            let text = format!("{why}; readers get the samples after the jump next");
            self.events.add(EventKind::TimeJumped, text);
        }
    }

    /// Hands on the next frame, or zeros for a part of the gap before it; `false` if there is none.
    fn advance(&mut self, io: &mut Io<'_>) -> Result<bool, BlockError> {
        let Some((frame, gap)) = self.take(io) else { return Ok(false) };
        let Self { encoder, chunks, outlet, .. } = self;
        let timestamp = frame.header().timestamp;
        let (bytes, samples) = (encoder.frame_bytes(), self.layout.samples as u64);
        if gap > 0 {
            let filled = gap.min(samples);
            let len = bytes / self.layout.samples * filled as usize;
            let chunk = chunks.fill(len, |raw| encoder.silence(raw));
            // The gap ends at the frame.
            let ticks = gap as f64 * self.layout.clock.samples_per_frame as f64 / samples as f64;
            outlet.push(chunk, timestamp.saturating_sub(ticks.round() as u64));
            self.held = Some((frame, gap - filled));
            return Ok(true);
        }
        let mut encoded = Ok(super::encode::Encoded::default());
        let chunk = chunks.fill(bytes, |raw| encoded = encoder.encode(&frame, raw));
        let encoded = encoded?;
        self.count.missing.add(encoded.missing);
        self.count.clipped.add(encoded.clipped);
        outlet.push(chunk, timestamp);
        Ok(true)
    }

    /// Drops what waits for a reader that is not there.
    fn give_up(&mut self, io: &mut Io<'_>) {
        while self.take(io).is_some() {
            self.count.not_sent.add(1);
        }
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        tracing::info!("{}: {}", self.env.name, self.statement);
        self.env.summary.set(format!("{}\n", self.statement));
        self.outlet.open()
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let pause = self.outlet.serve(now)?;
            if self.outlet.is_over() {
                self.events.add(EventKind::StreamEnded, "the reader of stdout has gone");
                return Ok(Next::Finished);
            }
            let has_room = self.outlet.has_room();
            let has_moved = has_room && self.advance(io)?;
            if !has_room && io.stopping && self.outlet.lacks_reader() {
                self.give_up(io);
            }
            if let Some(pause) = pause.filter(|_| !has_moved) {
                let is_done = self.held.is_none() && io.inputs[0].ended();
                let is_over = is_done && self.outlet.is_idle(now);
                return Ok(if is_over { Next::Finished } else { Next::After(pause) });
            }
            if began.elapsed() > WORK_TIME {
                return Ok(Next::Again);
            }
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        match &mut self.outlet {
            Outlet::Readers(readers) => readers.close(),
            Outlet::Datagrams(datagrams) => datagrams.end(),
        }
        Ok(())
    }
}
