//! The packed period, and the clock that hands it out.

use super::generate::{Generator, noise, quantise, signal_of};
use super::language::{Expression, Program, Signal};
use super::{DigitiserSimulator, FirstTimestamp};
use crate::random::Random;
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next, async_trait};
use std::time::{Duration, Instant, SystemTime};

/// How much faster than real time a paced stream catches up.
const CATCH_UP: f64 = 1.1;
/// Paced frames may leave together up to this long: timers are no finer.
const BURST: Duration = Duration::from_millis(4);
/// A paced frame this much behind counts as late.
const LATE: Duration = Duration::from_millis(100);

/// Timestamps beyond this are too large for the blocks behind.
const MAX_TIMESTAMP: f64 = (1_u64 << 62) as f64;

/// The running block.
pub struct Digitiser {
    parameters: DigitiserSimulator,
    program: Program,
    /// One period of each polarisation, packed; empty before the start.
    periods: [Vec<u8>; 2],
    /// Clipped samples in one period.
    clipped_per_period: u64,
    /// Timestamp of the first frame.
    first: u64,
    frame: u64,
    frames: u64,
    /// The first polarisation's frame while the second one's is waited for.
    held: Option<FrameMut>,
    /// Whether `first` and `pace` are known.
    begun: bool,
    pace: Option<Pace>,
    clipped: Counter,
    late: Counter,
}

impl Digitiser {
    /// A digitiser with these parameters.
    pub fn new(parameters: DigitiserSimulator, program: Program, env: &Env) -> Self {
        let frames = parameters.frame_limit().unwrap_or(u64::MAX);
        Self {
            parameters,
            program,
            periods: [Vec::new(), Vec::new()],
            clipped_per_period: 0,
            first: 0,
            frame: 0,
            frames,
            held: None,
            begun: false,
            pace: None,
            clipped: env
                .counters
                .count("samples_clipped", "Samples beyond full scale: lower the amplitudes."),
            late: env.counters.count(
                "frames_late",
                "Paced frames more than 100 ms late: the flowgraph cannot keep up.",
            ),
        }
    }

    /// One period of `polarisation`, packed, and its clipped samples.
    fn make_period(&self, polarisation: usize) -> (Vec<u8>, u64) {
        let parameters = &self.parameters;
        let period = parameters.period_samples;
        let own_seed = Random::of(parameters.seed, parameters.antenna as u64).bits();
        let mut generator = Generator::new(period, parameters.adc_sample_rate_hz, own_seed);
        let silence = Signal { expression: Expression::Constant(0.0), dither: true };
        let (signal, noise_part) = signal_of(&self.program, polarisation).unwrap_or((&silence, 0));
        let mut samples = {
            let variables = generator.variables(&self.program, noise_part);
            generator.expression(&signal.expression, &variables, noise_part)
        };
        if parameters.source.is_some() {
            let source = self.source_period(&mut generator, polarisation as u64);
            samples.iter_mut().zip(source).for_each(|(sample, source)| *sample += source);
        }
        let bits = u32::from(parameters.bits);
        let mut packed = vec![0u8; period * bits as usize / 8];
        let mut dither = Random::of(own_seed, u64::MAX - polarisation as u64);
        let dither = signal.dither.then_some(&mut dither);
        let clipped = quantise(&samples, bits, dither, &mut packed);
        (packed, clipped)
    }

    /// The point source as this antenna sees it.
    fn source_period(&self, generator: &mut Generator, polarisation: u64) -> Vec<f64> {
        let parameters = &self.parameters;
        let Some(source) = parameters.source else { return Vec::new() };
        let common = source.amplitude * source.polarised_fraction.sqrt();
        let own = source.amplitude * (1.0 - source.polarised_fraction).sqrt();
        let seed = |part| Random::of(source.seed, part).bits();
        let mut samples = noise(own, seed(1 + polarisation), parameters.period_samples);
        if common > 0.0 {
            let both = noise(common, seed(0), parameters.period_samples);
            samples.iter_mut().zip(both).for_each(|(sample, both)| *sample += both);
        }
        let place = parameters.antennas_enu_metres[parameters.antenna];
        let late_samples = source.direction().delay_seconds(place) * parameters.adc_sample_rate_hz;
        let rate = source.delay_rate(place);
        if rate == 0.0 && parameters.local_oscillator_hz == 0.0 {
            generator.delay(&mut samples, late_samples);
        } else {
            generator.receive(&mut samples, late_samples, rate, parameters.local_oscillator_hz);
        }
        samples
    }

    /// The first timestamp, and in how long the time has come that it stands for.
    fn beginning(&self) -> Result<(u64, Duration), BlockError> {
        let parameters = &self.parameters;
        if let FirstTimestamp::At(first) = parameters.first_timestamp {
            return Ok((first, Duration::ZERO));
        }
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let elapsed_seconds = unix.as_secs_f64() - parameters.sync_time_seconds;
        let rate = parameters.adc_sample_rate_hz;
        if !(0.0..=MAX_TIMESTAMP).contains(&(elapsed_seconds * rate)) {
            let message = if elapsed_seconds < 0.0 {
                "`first_timestamp: now` cannot be: sync_time_seconds is in the future"
            } else {
                "`first_timestamp: now` would be too large a number: give a later sync_time_seconds"
            };
            return Err(BlockError::new(message));
        }
        let step = parameters.samples_per_frame as u64;
        let first = ((elapsed_seconds * rate / step as f64).ceil() as u64).saturating_mul(step);
        let wait_seconds = (first as f64 / rate - elapsed_seconds).max(0.0);
        Ok((first, Duration::try_from_secs_f64(wait_seconds).unwrap_or_default()))
    }

    fn timestamp(&self) -> u64 {
        let step = self.parameters.samples_per_frame as u64;
        self.first.wrapping_add(self.frame.wrapping_mul(step))
    }

    fn fill(&self, polarisation: usize, frame: &mut FrameMut) {
        let period = &self.periods[polarisation];
        let offset_samples = self.timestamp() % self.parameters.period_samples as u64;
        let bits = u64::from(self.parameters.bits);
        let mut offset = (offset_samples * bits / 8) as usize;
        // Period and frame are multiples of each other, so the pieces come out even.
        let mut rest = frame.as_mut_slice::<u8>();
        while !rest.is_empty() {
            let piece = rest.len().min(period.len() - offset);
            rest[..piece].copy_from_slice(&period[offset..offset + piece]);
            rest = &mut rest[piece..];
            offset = 0;
        }
        frame.fill_validity(1);
        frame.header_mut().timestamp = self.timestamp();
    }

    /// Clipped samples, spread evenly over the frames of a period.
    fn count_clipped(&self) {
        let part = |frames: u64| {
            let samples = u128::from(frames) * self.parameters.samples_per_frame as u128;
            let all = samples * u128::from(self.clipped_per_period);
            (all / self.parameters.period_samples as u128) as u64
        };
        self.clipped.add(part(self.frame + 1) - part(self.frame));
    }
}

#[async_trait]
impl Block for Digitiser {
    async fn start(&mut self) -> Result<(), BlockError> {
        // One after the other: what making one needs is many times what it leaves.
        for polarisation in 0..2 {
            let (packed, clipped) = self.make_period(polarisation);
            self.periods[polarisation] = packed;
            self.clipped_per_period += clipped;
        }
        Ok(())
    }

    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            self.held = None;
            return Ok(Next::Finished);
        }
        if !self.begun {
            self.begun = true;
            let (first, wait) = self.beginning()?;
            self.first = first;
            let parameters = &self.parameters;
            let seconds = parameters.samples_per_frame as f64 / parameters.adc_sample_rate_hz;
            self.pace = parameters.paced.then(|| Pace::new(seconds, Instant::now() + wait));
        }
        if let Some(pace) = &self.pace {
            let wait = pace.wait(self.frame, Instant::now());
            if !wait.is_zero() {
                return Ok(Next::After(wait));
            }
        }
        let [first, second] = io.outputs else {
            return Err(BlockError::new("the digitiser simulator has two outputs"));
        };
        // Kept from call to call: a frame that goes back would wake this block again at once.
        if self.held.is_none() {
            self.held = first.take();
        }
        let Some(mut pol1) = self.held.as_ref().and_then(|_| second.take()) else {
            return Ok(Next::Wait);
        };
        let Some(mut pol0) = self.held.take() else { return Ok(Next::Wait) };
        self.fill(0, &mut pol0);
        self.fill(1, &mut pol1);
        first.push(pol0);
        second.push(pol1);
        self.count_clipped();
        if let Some(pace) = &mut self.pace {
            let late = pace.sent(self.frame, Instant::now());
            self.late.add(u64::from(late));
        }
        self.frame += 1;
        Ok(Next::Again)
    }
}

/// Real time: when frame `n` may leave.
pub struct Pace {
    start: Instant,
    seconds: f64,
    /// When the next frame may leave by the catch-up rate alone.
    allowed: Instant,
}

impl Pace {
    /// Frames of `seconds`, the first of them complete that long after `start`.
    pub fn new(seconds: f64, start: Instant) -> Self {
        Self { start, seconds, allowed: start }
    }

    /// A frame leaves when its last sample has been taken.
    fn due(&self, frame: u64) -> Instant {
        let seconds = self.seconds * (frame as f64 + 1.0);
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1 << 40));
        self.start.checked_add(span).unwrap_or(self.start)
    }

    /// How long frame number `frame` must still wait.
    pub fn wait(&self, frame: u64, now: Instant) -> Duration {
        self.due(frame).max(self.allowed).saturating_duration_since(now)
    }

    /// Frame number `frame` left; whether it was late.
    pub fn sent(&mut self, frame: u64, now: Instant) -> bool {
        // A leaky bucket: no credit older than `BURST` is kept.
        let since = now.checked_sub(BURST).unwrap_or(now);
        let spacing = Duration::try_from_secs_f64(self.seconds / CATCH_UP).unwrap_or_default();
        self.allowed = self.allowed.max(since) + spacing;
        now.saturating_duration_since(self.due(frame)) > LATE
    }
}
