//! One polarisation: its delays, and the samples of its input that have arrived.

use super::history::{History, Move};
use super::input::{Sizes, is_complex, ticks};
use super::power::INPUTS;
use crate::common::delay::show_group_delay;
use fxgraph::changes::MAX_TIMESTAMP;
use fxgraph::event::{BlockEvents, EventKind};
use fxgraph::{Counter, Counters, Env, Frame, Gauge, Input, PortType, Ports};
use fxgraph_dsp::delay::{Delay, DelayModel, Piece, Timing};
use std::ops::Range;
use std::sync::Arc;

/// Counters and metrics of the block.
pub struct Count {
    pub spectra_missing: Counter,
    pub delays_out_of_range: Counter,
    pub samples_clipped: Counter,
    pub frames_misplaced: Counter,
    /// Delay of each input, in seconds.
    pub delays: Vec<Gauge>,
    /// Number of inputs whose delay model has expired.
    pub expired: Gauge,
    /// Events of the block.
    pub events: BlockEvents,
}

impl Count {
    /// Counters of a filter bank with these sizes.
    pub fn new(env: &Env, sizes: &Sizes, ports: &Ports) -> Self {
        let counters = &env.counters;
        let rate_hz = ports.inputs[0].clock.adc_sample_rate_hz;
        show_group_delay(counters, sizes.window, sizes.ticks, rate_hz);
        let delay = |name: &&'static str| {
            counters.measurement_of(
                "applied_delay_seconds",
                "delay of an input for the first spectrum of the newest frame, from its delay model",
                "input",
                *name,
            )
        };
        Self {
            delays: INPUTS.iter().take(ports.inputs.len()).map(delay).collect(),
            expired: counters.measurement(
                "delay_models_expired",
                "inputs whose delay model starts before the sender's last change of its sync time, so that its rates are not applied; send new delay models",
            ),
            spectra_missing: counters.loss(
                "spectra_missing",
                "spectra of one polarisation that touch missing samples; look for missing heaps upstream",
            ),
            delays_out_of_range: counters.loss(
                "spectra_delay_out_of_range",
                "spectra whose delay exceeds max_delay_seconds; send newer delay models",
            ),
            samples_clipped: counters.count(
                "samples_clipped",
                "samples at the limits of the digitiser; lower the level at its input",
            ),
            events: env.events.clone(),
            ..Self::of_misplaced(counters)
        }
    }

    /// Shows which delay models have expired at timestamp `start`; the first frame with an expired model is an event.
    pub fn show_expired<S>(&self, pols: &mut [Pol<S>], start: u64) {
        let mut expired = 0;
        for (pol, name) in pols.iter_mut().zip(INPUTS) {
            let Some(model) = &pol.model else { continue };
            let has_expired = model.has_expired(start);
            expired += u32::from(has_expired);
            if has_expired && !pol.is_expired {
                self.events.add(
                    EventKind::Warning,
                    format!(
                        "delay model of {name} expired: it starts before the sender's new sync time, and its rates are \
                         not applied; send a new delay model"
                    ),
                );
            }
            // Frames of the base before may follow its end.
            if start >= model.base() {
                pol.is_expired = has_expired;
            }
        }
        self.expired.set(f64::from(expired));
    }

    /// Counters of which only `frames_misplaced` is registered.
    pub fn of_misplaced(counters: &Counters) -> Self {
        Self {
            spectra_missing: Counter::default(),
            delays_out_of_range: Counter::default(),
            samples_clipped: Counter::default(),
            delays: Vec::new(),
            expired: Gauge::default(),
            events: BlockEvents::default(),
            frames_misplaced: counters.loss(
                "frames_misplaced",
                "input frames that were late, not at a multiple of 8 samples, or beyond the range of timestamps; look for a faulty source",
            ),
        }
    }
}

/// Sample storage of one polarisation, for one implementation. Counts and places are in samples. For packed samples
/// they are multiples of 8, so that samples start at whole bytes.
pub trait Store {
    /// Moves samples to the front of the buffer.
    fn move_to_front(&mut self, samples: Move);
    /// Stores `count` samples of `frame`, from sample `first` on, at place `at`.
    fn write(&mut self, frame: &Arc<Frame>, first: usize, count: usize, at: usize);
    /// Drops samples outside these places.
    fn keep(&mut self, _places: Range<usize>) {}
}

/// Missing spectra, a step apart, that are not counted yet. They are counted when a later sample arrives; otherwise
/// the stream has ended before them.
#[derive(Default)]
pub struct Missing {
    /// Time after the window of the first missing spectrum.
    first_end: i64,
    count: u64,
}

impl Missing {
    /// Adds `count` spectra; the window of the first one ends at time `end`.
    pub fn add(&mut self, end: i64, count: u64) {
        if self.count == 0 {
            self.first_end = end;
        }
        self.count += count;
    }

    /// Returns the number of missing spectra and resets it.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.count)
    }

    /// Returns and removes the number of spectra whose windows end at time `reached` or before.
    pub fn take_until(&mut self, reached: i64, step: i64) -> u64 {
        let behind = (reached - self.first_end).div_euclid(step) + 1;
        let taken = behind.clamp(0, self.count as i64);
        self.first_end += taken * step;
        self.count -= taken as u64;
        taken as u64
    }
}

/// One polarisation.
pub struct Pol<S> {
    /// `None` for blocks without delays.
    model: Option<DelayModel>,
    /// Whether the model of the last output frame had expired.
    is_expired: bool,
    /// Ticks of the clock from one sample to the next. Times in this struct are in samples.
    ticks: u64,
    frame_samples: usize,
    heap_samples: usize,
    /// Spectra of an output frame.
    spectra: usize,
    pub history: History,
    pub store: S,
    /// The frame being stored, and the number of its samples already stored.
    frame: Option<(Arc<Frame>, usize)>,
    /// Start of the first frame; `None` before it.
    first_time: Option<i64>,
    /// Earliest start of the next frame.
    next_time: i64,
    ended: bool,
    /// Number of finished spectra of the output frame.
    pub done: usize,
    /// Missing spectra since the last whole one, also of earlier frames, that were expected.
    pub missing: Missing,
    /// Delay of each spectrum of the output frame; empty without a model.
    pub delays: Vec<Delay>,
    /// Delay of all spectra of the output frame if it is constant. This is the common case, and avoids
    /// tens of thousands of evaluations per frame.
    pub constant_delay: Option<Delay>,
}

impl<S: Store> Pol<S> {
    /// Creates a polarisation whose `store` has a buffer of `capacity` samples.
    pub fn new(
        input: &PortType,
        pieces: Option<&[Piece]>,
        store: S,
        capacity: usize,
        sizes: Sizes,
    ) -> Self {
        let timing = Timing {
            tick_rate_hz: input.clock.adc_sample_rate_hz,
            ticks: ticks(input),
            is_complex: is_complex(input),
        };
        Self {
            model: pieces.map(|pieces| {
                DelayModel::of(timing, pieces).with_phase_sign(sizes.sideband.sign())
            }),
            is_expired: false,
            ticks: timing.ticks as u64,
            frame_samples: input.elements(),
            heap_samples: input.elements() / input.validity.units(),
            spectra: sizes.spectra,
            history: History::new(capacity, 0),
            store,
            frame: None,
            first_time: None,
            next_time: 0,
            ended: false,
            done: 0,
            missing: Missing::default(),
            delays: Vec::with_capacity(sizes.spectra),
            constant_delay: None,
        }
    }

    /// Schedules another delay model for the effective timestamp `from`.
    pub fn update(&mut self, from: u64, pieces: &[Piece]) {
        if let Some(model) = &mut self.model {
            model.replace(from, pieces);
        }
    }

    /// Begins an output frame whose first spectrum is at timestamp `start`, with spectra `step` ticks apart.
    pub fn begin(&mut self, start: u64, step: u64) {
        self.done = 0;
        let Some(model) = &mut self.model else { return };
        model.forget_before(start);
        let spectra = self.spectra;
        let constant = model.constant(start, start + step * spectra as u64);
        if constant.is_some() && constant == self.constant_delay {
            return;
        }
        self.constant_delay = constant;
        self.delays.clear();
        self.delays.extend(model.each(start, step, spectra));
    }

    /// Delay of the first spectrum of the output frame, in seconds.
    pub fn delay_seconds(&self) -> f64 {
        let model = self.model.as_ref().zip(self.delays.first());
        model.map_or(0.0, |(model, delay)| model.seconds(delay))
    }

    /// Coarse delay of spectrum `n` in samples; `None` if its magnitude is above `most`.
    pub fn coarse(&self, n: usize, most: usize) -> Option<i64> {
        let coarse = self.delays.get(n).map_or(0, |delay| delay.coarse_samples);
        (coarse.unsigned_abs() <= most as u64).then_some(coarse)
    }

    /// Number of spectra from `first` on, at most `most`, with the coarse delay of `first`.
    pub fn same_coarse(&self, first: usize, most: usize) -> usize {
        if self.constant_delay.is_some() {
            return most;
        }
        let Some(Delay { coarse_samples: coarse, .. }) = self.delays.get(first).copied() else {
            return most;
        };
        let same = self.delays[first..].iter().take(most);
        same.take_while(|delay| delay.coarse_samples == coarse).count()
    }

    /// Returns whether samples from `from` to `to` are expected: after the start and before the end of the stream.
    pub fn expects(&self, from: i64, to: i64) -> bool {
        let had_begun = self.first_time.is_some_and(|first| from >= first);
        had_begun && (!self.ended || to <= self.next_time)
    }

    /// Counts those of `count` skipped spectra as missing that are expected. Their windows, of `window` samples, would
    /// begin at `start`, shifted by the delay, and each `step` later.
    pub fn skip_spectra(&mut self, start: i64, count: i64, step: i64, window: i64) {
        let Some(first) = self.first_time else { return };
        let coarse = self.delays.last().map_or(0, |delay| delay.coarse_samples);
        let from = start - coarse;
        let begin = ((first - from).max(0) + step - 1) / step;
        let end = (self.next_time - window - from).div_euclid(step) + 1;
        let end = if self.ended { end.min(count) } else { count };
        if begin < end {
            self.missing.add(from + begin * step + window, (end - begin) as u64);
        }
    }

    /// Drops samples before `time`.
    pub fn forget_before(&mut self, time: i64) {
        self.history.forget_before(time);
        self.store.keep(self.history.places());
    }

    /// Reserves space for samples up to `time`. Places do not change until samples after `time` are stored.
    pub fn reserve_until(&mut self, time: i64) {
        self.reserve((time - self.history.end()).max(0) as usize);
    }

    fn reserve(&mut self, count: usize) {
        if let Some(samples) = self.history.reserve(count) {
            self.store.move_to_front(samples);
        }
    }

    /// Time of the first sample that is stored or in a received frame; `i64::MAX` if the stream has ended without
    /// one; `None` if not known yet.
    pub fn first_present(&mut self, input: &mut Input, count: &Count) -> Option<i64> {
        let in_history = self.history.first_present(i64::MIN);
        in_history.or_else(|| self.pending(input, count)).or(self.ended.then_some(i64::MAX))
    }

    /// Time of the next sample to store.
    fn pending(&mut self, input: &mut Input, count: &Count) -> Option<i64> {
        loop {
            if let Some((frame, consumed)) = &mut self.frame {
                let start = (frame.header().timestamp / self.ticks).cast_signed();
                let behind = self.history.end() - start;
                *consumed = (*consumed).max(behind.clamp(0, self.frame_samples as i64) as usize);
                if *consumed < self.frame_samples {
                    return Some(start + *consumed as i64);
                }
                self.frame = None;
            }
            // Read the flag first: once it is set, no more frames can arrive.
            let ended = input.ended();
            let Some(frame) = input.pop() else {
                self.ended |= ended;
                return None;
            };
            let timestamp = frame.header().timestamp;
            let time = (timestamp / self.ticks).cast_signed();
            // Within this range of timestamps no arithmetic here overflows.
            let is_placed = timestamp < MAX_TIMESTAMP
                && timestamp.is_multiple_of(8 * self.ticks)
                && time >= self.next_time;
            if !is_placed {
                count.frames_misplaced.add(1);
                continue;
            }
            self.begin_base(frame.header().base.from);
            self.first_time.get_or_insert(time);
            self.next_time = time + self.frame_samples as i64;
            self.frame = Some((frame, 0));
        }
    }

    fn begin_base(&mut self, from: u64) {
        if let Some(model) = &mut self.model {
            model.begin_base(from);
        }
    }

    /// Stores samples until the history reaches `to`. Returns `false` if frames have not arrived yet.
    pub fn fetch(&mut self, to: i64, input: &mut Input, count: &Count) -> bool {
        while self.history.end() < to {
            let end = self.history.end();
            // Frames start at multiples of 8, and packed samples are stored in groups of 8.
            let wanted = ((to - end) as usize).next_multiple_of(8);
            match self.pending(input, count) {
                None if self.ended => self.skip(wanted),
                None => return false,
                Some(time) if time > end => self.skip(wanted.min((time - end) as usize)),
                Some(_) => self.store(wanted),
            }
        }
        true
    }

    /// Appends `count` missing samples.
    fn skip(&mut self, count: usize) {
        let from = self.history.end();
        self.reserve(count);
        self.history.push(count);
        self.history.mark_missing(from, from + count as i64);
    }

    /// Stores up to `wanted` samples of the current frame.
    fn store(&mut self, wanted: usize) {
        let Some((frame, first)) = self.frame.take() else { return };
        let end = (first + wanted).min(self.frame_samples);
        let start = self.history.end() - first as i64;
        self.reserve(end - first);
        let at = self.history.push(end - first);
        self.store.write(&frame, first, end - first, at);
        for heap in first / self.heap_samples..end.div_ceil(self.heap_samples) {
            if frame.header().validity[heap] == 0 {
                let from = (heap * self.heap_samples).max(first) as i64;
                let to = ((heap + 1) * self.heap_samples).min(end) as i64;
                self.history.mark_missing(start + from, start + to);
            }
        }
        self.frame = Some((frame, end));
    }
}
