//! The thread that reads the device, which blocks until samples are there.

use super::MAX_CHANNELS;
use super::arrivals::Arrivals;
use super::device::{Radio, Setting};
use fxgraph::changes::Changes;
use fxgraph::runtime::EventKind;
use fxgraph::{
    BlockError, Clock, Counter, Counters, Env, FrameMut, Gauge, Time, TimeBase, host_clock,
};
use fxgraph_common::link::{Frames, Link, Report, TICK};
use num_complex::Complex32;
use seify::{DynRxStreamer, Error};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which frames are lent to the thread: later blocks may pause for so long.
const LENT_SECONDS: f64 = 0.25;
/// Time after an overrun whose samples are discarded, to find out by their arrival how many samples are missing.
const RESYNCHRONISING: Duration = Duration::from_millis(50);
/// Least number of reads in this time: any of them may be delayed by the host.
const LEAST_READS: u32 = 4;
/// Pause after a read without samples and without an error.
const PAUSE: Duration = Duration::from_millis(1);
/// Least time between two events of the same kind.
const QUIET: Duration = Duration::from_secs(10);

/// Sizes of a frame, in samples of each channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Number of channels.
    pub channels: usize,
    /// Samples of a frame.
    pub samples: usize,
    /// Samples of a heap, a divisor of `samples`.
    pub heap: usize,
    /// Samples that are flagged after a setting.
    pub settling: u64,
    /// Samples per second.
    pub rate_hz: f64,
}

impl Sizes {
    /// Heaps of a frame.
    #[must_use]
    pub fn heaps(&self) -> usize {
        self.samples / self.heap
    }

    /// Time for which samples are flagged after a setting.
    fn settling_time(&self) -> Duration {
        Duration::from_secs_f64(self.settling as f64 / self.rate_hz)
    }

    /// Frames that the thread may have at once.
    #[must_use]
    pub fn lent_frames(&self) -> usize {
        ((LENT_SECONDS * self.rate_hz / self.samples as f64).ceil() as usize).clamp(4, 64)
    }
}

/// Counters and gauges of a source.
#[derive(Clone)]
pub(super) struct Causes {
    missing: Counter,
    overruns: Counter,
    settling: Counter,
    dropped: Counter,
    pub opened: Counter,
    pub centre_hz: Gauge,
    pub rate_hz: Gauge,
    measured_hz: Gauge,
    sync_time: Gauge,
    uncertainty: Gauge,
}

impl Causes {
    pub fn new(counters: &Counters) -> Self {
        Self {
            missing: counters.loss(
                "samples_missing",
                "samples of each channel that the device or its driver did not deliver; lower `adc_sample_rate_hz`, or give the \
                 program more CPU",
            ),
            overruns: counters.count(
                "overruns",
                "overruns that the device reported; their samples are in samples_missing",
            ),
            settling: counters.count(
                "samples_settling",
                "samples of each channel flagged after a new setting; `settle_seconds` sets their number",
            ),
            dropped: counters.held_up(
                "frames_dropped",
                "frames dropped because later blocks did not take the ones before; use faster blocks or a lower rate",
            ),
            opened: counters.count("device_opened", "times that the device was opened"),
            centre_hz: counters
                .state("centre_hz", "frequency in Hz to which the device says that it is tuned"),
            rate_hz: counters
                .state("sample_rate_hz", "sample rate in Hz at which the device says that it samples"),
            measured_hz: counters.measurement(
                "sample_rate_measured_hz",
                "samples per second since the start by the clock of the host; check `adc_sample_rate_hz` if it differs by \
                 more than 0.02 %",
            ),
            sync_time: counters
                .state("sync_time_seconds", "Unix time of the first sample, from its arrival"),
            uncertainty: counters.state(
                "sync_time_uncertainty_seconds",
                "largest error of sync_time_seconds; synchronise the clock of the host if it is unknown",
            ),
        }
    }
}

/// Settings that wait for their timestamps, shared with the block.
pub(super) type Pending = Arc<Mutex<Changes<Setting>>>;

/// The pending settings.
pub(super) fn lock(pending: &Pending) -> MutexGuard<'_, Changes<Setting>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clock of the host.
pub(super) type HostClock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// State of the reading thread.
pub(super) struct Reader {
    radio: Radio,
    stream: DynRxStreamer,
    sizes: Sizes,
    pending: Pending,
    env: Env,
    causes: Causes,
    clock: HostClock,
    base: TimeBase,
    /// Timestamp of the next sample.
    position: u64,
    /// Timestamp from which on the last settings are in force.
    settled: u64,
    /// Time when the stream began, by both clocks.
    began: (Instant, Time),
    /// Arrivals, of a device in real time.
    arrivals: Option<Arrivals>,
    /// Samples that were discarded before the first one of the stream, and those received since.
    discarded: u64,
    received: u64,
    /// Whether each heap of the frame lacks samples.
    flags: Vec<bool>,
    /// Samples for which there is no frame, `[channel][sample]`.
    spare: Vec<Complex32>,
    /// Time of the last event about missing samples.
    told: Option<Instant>,
}

impl Reader {
    pub fn new(
        (radio, stream): (Radio, DynRxStreamer),
        sizes: Sizes,
        pending: Pending,
        (env, causes, clock): (Env, Causes, HostClock),
        base: TimeBase,
    ) -> Self {
        let began = (clock(), Time::now());
        Self {
            radio,
            stream,
            sizes,
            pending,
            env,
            causes,
            clock,
            base,
            position: base.from,
            settled: base.from,
            began,
            arrivals: None,
            discarded: 0,
            received: 0,
            flags: vec![false; sizes.heaps()],
            spare: vec![Complex32::default(); sizes.channels * sizes.samples],
            told: None,
        }
    }

    /// Streams up to `frames` frames, until the thread must stop.
    pub fn run(mut self, mut link: Link, frames: Option<u64>) {
        link.wait_for_first();
        if self.radio.is_real() {
            // The buffers of the device are not known, but the frames that are lent last as long: without one, the
            // flowgraph is too slow, and the thread does not wait.
            link.live = Some(Box::new(|| 1.0));
        }
        let result = self.activate(&link).and_then(|()| self.stream(&mut link, frames));
        // A device that was disconnected cannot be stopped.
        let _ = self.stream.deactivate();
        link.report(match result {
            Ok(()) => Report::Ended,
            Err(error) => Report::Failed(error),
        });
    }

    /// Starts the device. Discards the samples of the first `settle_seconds`: older ones may be in buffers.
    fn activate(&mut self, link: &Link) -> Result<(), BlockError> {
        self.began = ((self.clock)(), Time::now());
        self.stream.activate().map_err(|error| self.radio.fault("cannot start", error))?;
        if !self.radio.is_real() {
            return Ok(());
        }
        // The start itself may take as long, over a network.
        let until = (self.clock)() + self.sizes.settling_time();
        let mut arrivals = Arrivals::new(self.sizes.rate_hz, self.began.0);
        let mut spare = std::mem::take(&mut self.spare);
        while (self.clock)() < until && !link.stopping() {
            match self.read(&mut spare, 0..self.sizes.samples) {
                Ok(samples) => self.discarded += samples as u64,
                Err(Error::Overrun) => {
                    // The first sample is one after the overrun.
                    self.causes.overruns.add(1);
                    self.began = ((self.clock)(), Time::now());
                    arrivals = Arrivals::new(self.sizes.rate_hz, self.began.0);
                    self.discarded = 0;
                }
                Err(Error::Timeout) => {}
                Err(error) => return Err(self.radio.read_fault(error)),
            }
            arrivals.note(self.discarded, (self.clock)());
        }
        (self.arrivals, self.spare) = (Some(arrivals), spare);
        Ok(())
    }

    fn stream(&mut self, link: &mut Link, frames: Option<u64>) -> Result<(), BlockError> {
        let mut spare = std::mem::take(&mut self.spare);
        let mut pushed = 0;
        while frames.is_none_or(|frames| pushed < frames) {
            let step = self.sizes.samples as u64;
            let start = self.base.from + (self.position - self.base.from) / step * step;
            let mut frame = link.take();
            self.flags.fill(false);
            self.flag(start, start, self.position.max(self.settled));
            let payload = match &mut frame {
                Some(frame) => frame.as_mut_slice()?,
                None => &mut spare[..],
            };
            if link.stopping() || !self.fill(payload, start, link)? {
                // Part of a frame.
                return Ok(());
            }
            self.set_time();
            match frame {
                Some(mut frame) => {
                    self.complete(&mut frame, start)?;
                    link.push(frame);
                    pushed += 1;
                }
                None => self.causes.dropped.add(1),
            }
        }
        Ok(())
    }

    /// Fills the frame that starts at `start`, `[channel][sample]`. Returns whether it was filled before the thread must
    /// stop.
    fn fill(
        &mut self,
        payload: &mut [Complex32],
        start: u64,
        link: &Link,
    ) -> Result<bool, BlockError> {
        let end = start + self.sizes.samples as u64;
        let due = lock(&self.pending).begin(start, self.sizes.samples as u64);
        let mut due = due.peekable();
        while self.position < end {
            if link.stopping() {
                return Ok(false);
            }
            while let Some((_, setting)) = due.next_if(|(from, _)| *from <= self.position) {
                self.apply(&setting)?;
                self.flag(start, self.position, self.settled);
            }
            let until = due.peek().map_or(end, |(from, _)| end.min(*from));
            let place = (self.position - start) as usize..(until - start) as usize;
            let missing = match self.read(payload, place.clone()) {
                Ok(samples) => {
                    self.position += samples as u64;
                    self.received += samples as u64;
                    self.unreported()
                }
                Err(Error::Overrun) => self.overrun(payload, place, link)?,
                Err(Error::Timeout) => None,
                Err(error) => return Err(self.radio.read_fault(error)),
            };
            if let Some(missing) = missing {
                self.flag(start, self.position, self.position + missing);
                self.skip(missing);
            }
        }
        // Those of a time that was skipped.
        for (_, setting) in due {
            self.apply(&setting)?;
            self.flag(start, self.position, self.settled);
        }
        Ok(true)
    }

    /// Reads samples of each channel to `place` of its part of `payload`. Returns their number.
    fn read(
        &mut self,
        payload: &mut [Complex32],
        place: std::ops::Range<usize>,
    ) -> Result<usize, Error> {
        let mut parts: [&mut [Complex32]; MAX_CHANNELS] = Default::default();
        let channels = payload.chunks_exact_mut(self.sizes.samples);
        for (part, channel) in parts.iter_mut().zip(channels) {
            *part = &mut channel[place.clone()];
        }
        let parts = &mut parts[..self.sizes.channels];
        let read = self.stream.read(parts, TICK.as_micros() as i64)?.min(place.len());
        if read == 0 {
            std::thread::sleep(PAUSE);
        }
        Ok(read)
    }

    /// Samples since the device was started, missing ones included.
    fn arrived(&self) -> u64 {
        self.discarded + (self.position - self.base.from)
    }

    /// Returns the number of samples that are missing without a report of the device, if the arrivals show a gap.
    fn unreported(&mut self) -> Option<u64> {
        let (now, samples) = ((self.clock)(), self.arrived());
        let arrivals = self.arrivals.as_mut()?;
        arrivals.note(samples, now);
        let missing = arrivals.missing(now);
        if let Some(measured_hz) = arrivals.measured_hz(self.discarded + self.received, now) {
            self.causes.measured_hz.set(measured_hz);
        }
        missing
    }

    /// Discards samples after an overrun until the arrivals show how many samples are missing. Returns their number with those
    /// discarded; `None` if the device has no clock to tell.
    fn overrun(
        &mut self,
        payload: &mut [Complex32],
        place: std::ops::Range<usize>,
        link: &Link,
    ) -> Result<Option<u64>, BlockError> {
        self.causes.overruns.add(1);
        let now = (self.clock)();
        let Some(arrivals) = &mut self.arrivals else { return Ok(None) };
        arrivals.overrun(now);
        let (mut discarded, mut reads, mut until) = (0, 0, now + RESYNCHRONISING);
        while (reads < LEAST_READS || (self.clock)() < until) && !link.stopping() {
            match self.read(payload, place.clone()) {
                Ok(samples) => {
                    // A read that waited for the device counts from its end.
                    if discarded == 0 {
                        until = (self.clock)() + RESYNCHRONISING;
                    }
                    discarded += samples as u64;
                    reads += 1;
                }
                Err(Error::Overrun) => self.causes.overruns.add(1),
                Err(Error::Timeout) => {}
                Err(error) => return Err(self.radio.read_fault(error)),
            }
            let (now, samples) = ((self.clock)(), self.arrived() + discarded);
            self.arrivals.iter_mut().for_each(|arrivals| arrivals.note(samples, now));
        }
        self.received += discarded;
        let now = (self.clock)();
        let missing = self.arrivals.as_mut().map(|arrivals| arrivals.missing_in_overrun(now));
        Ok(missing.map(|missing| discarded + missing))
    }

    /// Counts `missing` samples at the present place, and goes on behind them.
    fn skip(&mut self, missing: u64) {
        self.causes.missing.add(missing);
        let now = (self.clock)();
        if self.told.is_none_or(|told| now.saturating_duration_since(told) > QUIET) {
            self.told = Some(now);
            let uncertainty = self.arrivals.as_ref().map_or(0.0, Arrivals::scatter_seconds);
            let text = format!(
                "samples of `{}` are missing: {:.1} ms from timestamp {} on, by the clock of the host and uncertain by \
                 {:.1} ms; lower the sample rate, or give the program more CPU",
                self.radio.name(),
                1e3 * missing as f64 / self.sizes.rate_hz,
                self.position,
                1e3 * uncertainty,
            );
            self.env.events.add(EventKind::Warning, text);
        }
        self.position = self.position.saturating_add(missing);
    }

    /// Applies `setting` from the present place on.
    fn apply(&mut self, setting: &Setting) -> Result<(), BlockError> {
        let rounding = self.radio.apply(setting)?;
        if let Setting::CentreHz(hz) = setting {
            self.causes.centre_hz.set(rounding.map_or(*hz, |rounding| rounding.actual));
        }
        if let Some(rounding) = rounding.filter(super::device::Rounding::is_large) {
            self.env.events.add(EventKind::Warning, self.radio.tuned_elsewhere(rounding));
        }
        self.settle();
        Ok(())
    }

    /// Flags the samples from the present place on until a setting is in force.
    fn settle(&mut self) {
        let until = self.position.saturating_add(self.sizes.settling);
        self.causes.settling.add(until.saturating_sub(self.settled.max(self.position)));
        self.settled = self.settled.max(until);
    }

    /// Flags the heaps with samples from timestamp `from` to `until` of the frame that starts at `start`.
    fn flag(&mut self, start: u64, from: u64, until: u64) {
        let heap = |timestamp: u64| (timestamp - start) / self.sizes.heap as u64;
        if until <= from {
            return;
        }
        let last = heap(until - 1).min(self.flags.len() as u64 - 1);
        let first = heap(from).min(last + 1);
        self.flags[first as usize..=last as usize].fill(true);
    }

    /// Writes header and validity of a filled frame, and zeros to the flagged heaps.
    fn complete(&self, frame: &mut FrameMut, start: u64) -> Result<(), BlockError> {
        let (header, payload) = frame.parts_mut::<Complex32>()?;
        header.timestamp = start;
        header.base = self.base;
        for (valid, is_flagged) in header.validity.iter_mut().zip(&self.flags) {
            *valid = u32::from(!is_flagged);
        }
        let heaps = payload.chunks_exact_mut(self.sizes.heap);
        let flagged = heaps.zip(self.flags.iter().cycle()).filter(|(_, flagged)| **flagged);
        flagged.for_each(|(heap, _)| heap.fill(Complex32::default()));
        Ok(())
    }

    /// Sets the time of the first sample from the arrivals so far, once.
    fn set_time(&mut self) {
        if self.base.sync_time.is_some() {
            return;
        }
        let (seconds, error) = self.arrivals.as_ref().map_or((0.0, 0.0), Arrivals::first);
        let seconds = seconds + self.discarded as f64 / self.sizes.rate_hz;
        let time = self.began.1.plus_seconds(seconds).unwrap_or(self.began.1);
        self.base.sync_time = Some(time);
        self.base.uncertainty_seconds =
            error + host_clock::error_seconds().unwrap_or(f64::INFINITY);
        self.causes.sync_time.set(time.to_unix_f64());
        self.causes.uncertainty.set(self.base.uncertainty_seconds);
        if self.radio.is_real() {
            let clock = Clock::new(self.sizes.rate_hz, 1).in_base(&self.base);
            self.env.counters.real_time().set_sync_time(clock.sync_time);
        }
        if self.base.from > 0 {
            let text = format!(
                "`{}` was opened again: timestamps go on at {} with the sync time {time}",
                self.radio.name(),
                self.base.from,
            );
            self.env.events.add(EventKind::Resynchronised, text);
        }
    }
}
