//! Channel of one satellite: phases, sums over a period of the code or over parts of it, and loops.

use super::{GnssTracker, PROMPT_VALUES, VALUES};
use crate::gnss::gnss_acquisition::Acquired;
use crate::gnss::samples::Samples;
use crate::gnss::satellites::outside_band;
use fxgraph_dsp::gnss::correlate::Rotors;
use fxgraph_dsp::gnss::phase::{ENTRY, tap};
use fxgraph_dsp::gnss::{BLOCK_SAMPLES, Correlator, Nco, Planes, Replica, Satellite, System};
use num_complex::Complex64;
use std::f64::consts::TAU;

/// Approximate memory of one satellite in bytes, that of TMBOC; the long code of L2C has 1.5 MB.
pub const BYTES: usize = 122_760 + 24 * BLOCK_SAMPLES;

/// Time over which the frequency is measured before the carrier loop starts.
const PULL_IN_SECONDS: f64 = 0.2;
/// Frequencies of that measurement for each prompt sum: they are apart by an eighth of the width of the peak.
const FREQUENCIES: i32 = 4;
/// Noise bandwidth of the code loop at the start of a track, in Hz: the search is accurate to a fraction of a sample.
const FIRST_CODE_BANDWIDTH_HZ: f64 = 2.0;
/// Time over which power and lock are averaged.
const MEMORY_SECONDS: f64 = 0.5;
/// Length of the pieces of a part whose power is averaged: the more of them, the better is the power of noise known.
const PIECE_SECONDS: f64 = 1e-3;
/// Mean of cos 2 phi above which the carrier is locked, and below which the satellite is dropped.
const LOCKED: f64 = 0.4;
const LOST: f64 = 0.2;
/// Time without samples over which the phases are extrapolated. The Doppler shift of a satellite changes by up to 1 Hz
/// per second, and the carrier loop pulls in from several Hz.
const COAST_SECONDS: f64 = 5.0;
/// Standard deviations of the mean of cos 2 phi of noise, whose variance is 1 / 2, that a lock exceeds too: after few
/// periods the mean of noise is often above [`LOCKED`].
const LOCK_DEVIATIONS: f64 = 5.0;

/// Settings of all loops.
#[derive(Clone, Copy, Debug)]
pub struct Loops {
    samples: Samples,
    code_bandwidth_hz: f64,
    /// Natural frequency of the carrier loop, in radians per second.
    natural: f64,
}

impl Loops {
    pub fn new(parameters: &GnssTracker, samples: &Samples) -> Self {
        Self {
            samples: *samples,
            code_bandwidth_hz: parameters.code_bandwidth_hz,
            // Noise bandwidth of a second-order loop with a damping of 1 / sqrt(2).
            natural: parameters.carrier_bandwidth_hz * 4.0 * std::f64::consts::SQRT_2 / 3.0,
        }
    }

    /// Noise bandwidth of the code loop after `samples` of a track. It averages over half of the time since the start until
    /// it has its final width.
    fn code_bandwidth_hz(&self, samples: u64) -> f64 {
        let seconds = samples as f64 / self.samples.rate_hz;
        (0.5 / seconds).min(FIRST_CODE_BANDWIDTH_HZ).max(self.code_bandwidth_hz)
    }
}

/// A tracked satellite.
pub struct Channel {
    system: System,
    prn: usize,
    replica: Replica,
    taps: [u64; 3],
    rotors: Rotors,
    nco: Nco,
    /// Gain of the code discriminator, in chips.
    gain_chips: f64,
    /// Integrator of the carrier loop.
    doppler_hz: f64,
    /// Early, prompt and late sum since the start of the part of the period.
    sums: [Complex64; 3],
    /// Samples until the end of the part.
    left: u64,
    /// Samples of a piece of the part, samples until its end, and the prompt sum at its start.
    piece: (u64, u64, Complex64),
    /// Prompt sum of the first parts of the period, and their number; more than there are after missing samples.
    gathered: (Complex64, usize),
    /// Whether the sums cover the whole part.
    is_whole: bool,
    periods: u64,
    prompt: Complex64,
    /// Squares of the prompt sums, divided by their magnitudes, until the frequency is measured.
    pull_in: Option<Vec<Complex64>>,
    /// Means of |P|^2 and |P|^4 of pieces, and their number.
    means: [f64; 2],
    pieces: f64,
    /// Mean of cos 2 phi of parts of periods, and their number.
    cosine: f64,
    averaged: f64,
    /// Samples that were missing since the last complete period.
    coasted: u64,
    /// Number of the acquisition among those of the satellite.
    track: u64,
    /// Number of the period in progress. The first one is 1: the code loop may move the phase back to the one before.
    period: u64,
    /// Phase of the carrier since the start of tracking in units of 2^-64 turns.
    carrier: i128,
    /// Samples since the start of tracking.
    samples: u64,
}

/// Prompt sums of the periods that end in a frame: their slots in the output.
pub struct Slots<'a> {
    slots: &'a mut [[f64; PROMPT_VALUES]],
    used: usize,
}

impl<'a> Slots<'a> {
    /// Marks all slots as unused.
    pub fn new(slots: &'a mut [[f64; PROMPT_VALUES]]) -> Self {
        slots.fill([f64::NAN; PROMPT_VALUES]);
        Self { slots, used: 0 }
    }

    fn push(&mut self, values: [f64; PROMPT_VALUES]) {
        if let Some(slot) = self.slots.get_mut(self.used) {
            *slot = values;
            self.used += 1;
        }
    }
}

impl Channel {
    /// Creates the channel of a satellite found in a frame, whose samples follow; `track` counts these channels.
    pub fn new(acquired: &Acquired, loops: &Loops, track: u64) -> Option<Self> {
        let system = acquired.system;
        if outside_band(system, acquired.doppler_hz, &loops.samples).is_some() {
            return None;
        }
        let satellite = Satellite {
            system,
            prn: acquired.prn,
            doppler_hz: acquired.doppler_hz,
            code_phase_chips: acquired.code_phase_chips,
            carrier_turns: 0.0,
            at_timestamp: 0,
        };
        let replica = Replica::of(&satellite)?;
        let spacing = system.signal().subcarrier.spacing_chips();
        let slope = (replica.autocorrelation(spacing - 0.01)
            - replica.autocorrelation(spacing + 0.01))
            / 0.02;
        let carrier_hz = loops.samples.carrier_hz(system);
        let nco = Nco::new(&satellite, &replica, carrier_hz, loops.samples.rate_hz, 0);
        let mut channel = Self {
            system,
            prn: acquired.prn,
            taps: [spacing, 0.0, -spacing].map(|chips| tap(chips, &replica)),
            gain_chips: replica.autocorrelation(spacing) / slope,
            replica,
            rotors: Rotors::default(),
            nco,
            doppler_hz: acquired.doppler_hz,
            sums: [Complex64::ZERO; 3],
            left: 0,
            piece: (0, 0, Complex64::ZERO),
            is_whole: false,
            periods: 0,
            gathered: (Complex64::ZERO, usize::MAX),
            prompt: Complex64::ZERO,
            pull_in: Some(Vec::new()),
            means: [0.0; 2],
            pieces: 0.0,
            cosine: 0.0,
            averaged: 0.0,
            coasted: 0,
            track,
            period: 1,
            carrier: 0,
            samples: 0,
        };
        channel.begin_part();
        // The samples of the period before this frame are not available.
        channel.is_whole = false;
        Some(channel)
    }

    /// Begins the part of a period of the code at the phase nearest to its start.
    fn begin_part(&mut self) {
        self.sums = [Complex64::ZERO; 3];
        self.is_whole = true;
        let code = u128::from(self.nco.code);
        let part = u128::from(self.nco.code_wrap) / self.system.parts() as u128;
        // The loop may have moved the phase back across the start of the part.
        let end = part * ((code + part / 2) / part + 1);
        let samples = (end - code).div_ceil(u128::from(self.nco.code_step));
        self.left = u64::try_from(samples).unwrap_or(u64::MAX);
        let of_piece = (self.left / self.pieces_of_part()).max(1);
        self.piece = (of_piece, of_piece, Complex64::ZERO);
    }

    fn pieces_of_part(&self) -> u64 {
        (self.part_seconds() / PIECE_SECONDS).round().max(1.0) as u64
    }

    /// Adds the prompt sum of a part that has ended; returns whether the period is complete.
    fn gather(&mut self) -> bool {
        let parts = self.system.parts();
        let next = self.nco.code / (self.nco.code_wrap / parts as u64);
        let ended = (next as usize + parts - 1) % parts;
        if ended == 0 {
            self.gathered = (Complex64::ZERO, 0);
        }
        let (sum, count) = &mut self.gathered;
        if *count == ended {
            *sum += self.sums[1];
            *count += 1;
        }
        let is_complete = ended + 1 == parts && *count == parts;
        if is_complete {
            self.prompt = *sum;
            self.periods += 1;
        }
        is_complete
    }

    fn part_seconds(&self) -> f64 {
        self.system.period_seconds() / self.system.parts() as f64
    }

    /// Advances the phases, and counts periods of the code and turns of the carrier.
    fn advance(&mut self, samples: u64) {
        let wrap = u128::from(self.nco.code_wrap);
        let ahead =
            u128::from(self.nco.code) + u128::from(samples) * u128::from(self.nco.code_step);
        self.period = self.period.saturating_add(match ahead {
            // Most steps are short, and divisions of 128-bit numbers are slow.
            ahead if ahead < wrap => 0,
            ahead if ahead < 2 * wrap => 1,
            ahead => u64::try_from(ahead / wrap).unwrap_or(u64::MAX),
        });
        let turned = i128::from(self.nco.carrier_step.cast_signed()) * i128::from(samples);
        self.carrier = self.carrier.wrapping_add(turned);
        self.samples = self.samples.saturating_add(samples);
        self.nco.advance(samples);
    }

    /// Sets the phase of the code in entries, which may be in the period before or after.
    fn set_code(&mut self, entries: f64) {
        let before = self.nco.code;
        self.nco.set_code(entries);
        let half = self.nco.code_wrap / 2;
        if self.nco.code > before && self.nco.code - before > half {
            self.period -= 1;
        } else if before > self.nco.code && before - self.nco.code > half {
            self.period += 1;
        }
    }

    /// Processes a frame's samples, and adds the prompt sums to `slots`; returns whether the satellite is still tracked.
    pub fn follow(
        &mut self,
        planes: &Planes,
        correlator: &mut Correlator,
        loops: &Loops,
        slots: &mut Slots<'_>,
    ) -> bool {
        let mut at = 0;
        while at < planes.len() {
            let until = self.left.min(self.piece.1);
            let len = (planes.len() - at).min(BLOCK_SAMPLES).min(until as usize);
            self.rotors.set(self.nco.carrier_step);
            let signal = (&self.replica, &self.nco);
            correlator.add(
                (planes, at..at + len),
                signal,
                &self.taps,
                &self.rotors,
                &mut self.sums,
            );
            self.advance(len as u64);
            self.left -= len as u64;
            at += len;
            self.end_piece(len as u64);
            if self.left == 0 {
                if self.is_whole {
                    if self.gather() {
                        let since = self.nco.code as f64 / self.nco.code_step as f64;
                        let Complex64 { re, im } = self.prompt;
                        let period = self.period.saturating_sub(1) as f64;
                        let end = at as f64 - since;
                        slots.push([self.track as f64, period, end, re, im]);
                    }
                    if !self.steer(loops) {
                        return false;
                    }
                }
                self.begin_part();
            }
        }
        true
    }

    /// Counts samples of a piece of a part; at its end, its power is averaged.
    fn end_piece(&mut self, samples: u64) {
        let (of_piece, left, start) = &mut self.piece;
        *left -= samples;
        if *left == 0 {
            *left = *of_piece;
            let sum = self.sums[1] - std::mem::replace(start, self.sums[1]);
            // The first part of a track, and one after missing samples, is shorter.
            if self.is_whole && self.pull_in.is_none() {
                self.average_power(sum);
            }
        }
    }

    /// Adds the prompt sum of a piece to the means.
    fn average_power(&mut self, prompt: Complex64) {
        let power = prompt.norm_sqr();
        self.pieces += 1.0;
        let seconds = self.part_seconds() / self.pieces_of_part() as f64;
        let weight = (1.0 / self.pieces).max(seconds / MEMORY_SECONDS);
        for (mean, value) in self.means.iter_mut().zip([power, power.powi(2)]) {
            *mean += weight * (value - *mean);
        }
    }

    /// Extrapolates the phases over missing samples; returns whether the satellite is still tracked.
    pub fn coast(&mut self, samples: u64, loops: &Loops) -> bool {
        self.advance(samples);
        self.begin_part();
        self.is_whole = false;
        self.gathered.1 = usize::MAX;
        self.prompt = Complex64::ZERO;
        // The turn from sum to sum measures the frequency, but not across a gap.
        if let Some(squares) = &mut self.pull_in {
            squares.clear();
        }
        self.coasted = self.coasted.saturating_add(samples);
        self.coasted as f64 <= COAST_SECONDS * loops.samples.rate_hz
    }

    /// Corrects the phases from the sums of a part of a period; returns whether the satellite is still tracked.
    fn steer(&mut self, loops: &Loops) -> bool {
        let seconds = self.part_seconds();
        let [early, prompt, late] = self.sums;
        if !self.sums.iter().all(|sum| sum.is_finite()) {
            // NaN would stay in the loops for ever.
            return false;
        }
        self.coasted = 0;
        let mut frequency_hz = self.doppler_hz;
        if let Some(squares) = &mut self.pull_in {
            squares.push(if prompt.norm() > 0.0 {
                prompt * prompt / prompt.norm()
            } else {
                prompt
            });
            if squares.len() as f64 * seconds >= PULL_IN_SECONDS {
                frequency_hz += 0.5 * turns_per_element(squares) / seconds;
                self.doppler_hz = frequency_hz;
                self.pull_in = None;
            }
        } else {
            if prompt.re != 0.0 {
                let error_turns = (prompt.im / prompt.re).atan() / TAU;
                self.doppler_hz += loops.natural.powi(2) * seconds * error_turns;
                frequency_hz =
                    self.doppler_hz + std::f64::consts::SQRT_2 * loops.natural * error_turns;
            }
            self.average(prompt, seconds);
        }
        let rate_hz = loops.samples.rate_hz;
        // Keeps the frequency within the band, even without a signal.
        self.doppler_hz = self.doppler_hz.clamp(-0.5 * rate_hz, 0.5 * rate_hz);
        let per_chip = self.replica.per_chip() as f64;
        let carrier_hz = loops.samples.carrier_hz(self.system);
        self.nco.set_frequency((carrier_hz + frequency_hz) / rate_hz);
        // The code takes each step of the carrier, so that accelerations leave no error to its narrow loop.
        self.nco.set_code_rate(self.system.code_rate_hz(frequency_hz) * per_chip / rate_hz);
        let (early, late) = (early.norm(), late.norm());
        if early + late > 0.0 {
            let error_chips = self.gain_chips * (early - late) / (early + late);
            let bandwidth_hz = loops.code_bandwidth_hz(self.samples);
            let part = (4.0 * bandwidth_hz * seconds).min(0.5);
            self.set_code(self.nco.entries() + part * error_chips * per_chip);
        }
        let is_settled = self.averaged * seconds > MEMORY_SECONDS;
        let is_held = self.cosine >= LOST;
        is_held || !is_settled
    }

    /// Adds a part of a period to the mean of cos 2 phi. A part of zeros has no phase: its cos 2 phi is 0, the mean of noise, so that the lock
    /// ends.
    fn average(&mut self, prompt: Complex64, seconds: f64) {
        let power = prompt.norm_sqr();
        self.averaged += 1.0;
        let weight = (1.0 / self.averaged).max(seconds / MEMORY_SECONDS);
        let cosine =
            if power > 0.0 { (prompt.re.powi(2) - prompt.im.powi(2)) / power } else { 0.0 };
        self.cosine += weight * (cosine - self.cosine);
    }

    /// Returns the ratio of carrier power to noise power density in dB Hz; 0 if not known yet.
    fn cn0_db_hz(&self) -> f64 {
        let [second, fourth] = self.means;
        let signal = (2.0 * second.powi(2) - fourth).max(0.0).sqrt();
        let noise = second - signal;
        if signal <= 0.0 || noise <= 0.0 {
            return 0.0;
        }
        let seconds = self.part_seconds() / self.pieces_of_part() as f64;
        10.0 * (signal / noise / seconds).log10()
    }

    fn is_locked(&self) -> bool {
        let of_noise = (0.5 / self.averaged.max(1.0)).sqrt();
        self.cosine > LOCKED.max(LOCK_DEVIATIONS * of_noise)
    }

    /// Returns the row of the output.
    pub fn values(&self, loops: &Loops) -> [f64; VALUES] {
        let carrier_hz = loops.samples.carrier_hz(self.system);
        let turns = self.carrier as f64 / 2.0_f64.powi(64);
        [
            self.system.number() as f64,
            self.prn as f64,
            f64::from(u8::from(self.is_locked())),
            self.cn0_db_hz(),
            self.doppler_hz,
            self.nco.code as f64 / ENTRY as f64 / self.replica.per_chip() as f64,
            self.nco.carrier_turns(),
            self.prompt.re,
            self.prompt.im,
            self.periods as f64,
            self.track as f64,
            self.period as f64,
            turns - carrier_hz * self.samples as f64 / loops.samples.rate_hz,
        ]
    }
}

/// Returns the frequency in turns per element at which the Fourier transform of `values` is largest, between -1/2 and 1/2.
fn turns_per_element(values: &[Complex64]) -> f64 {
    let count = FREQUENCIES * values.len() as i32;
    let power = |n: i32| {
        let rotor = Complex64::cis(-TAU * f64::from(n) / f64::from(count));
        let horner = |sum: Complex64, value: &Complex64| sum * rotor + value;
        // From the last value on: the powers of the rotor are those of the places.
        values.iter().rev().fold(Complex64::ZERO, horner).norm_sqr()
    };
    let all = (-count / 2..count / 2).map(|n| (n, power(n)));
    let largest = all.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(n, _)| n);
    f64::from(largest) / f64::from(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn channel() -> (Channel, Loops) {
        channel_of(System::GpsL1Ca)
    }

    fn channel_of(system: System) -> (Channel, Loops) {
        let samples = Samples::complex(fxgraph::Dtype::Ci8, 1, 5000, 5e6);
        let loops = Loops::new(&serde_json::from_str("{}").unwrap(), &samples);
        let acquired = Acquired {
            system,
            prn: 7,
            statistic: 2.0,
            threshold: 1.0,
            doppler_hz: 1000.0,
            code_phase_chips: 10.0,
        };
        (Channel::new(&acquired, &loops, 1).unwrap(), loops)
    }

    #[test]
    fn frequency_is_measured_over_200_periods_without_a_gap_and_with_data() {
        let (mut channel, loops) = channel();
        let steer = |channel: &mut Channel, period: i32, turns: f64| {
            let data = if period / 20 % 3 == 0 { 1.0 } else { -1.0 };
            let sum = data * Complex64::cis(TAU * turns * f64::from(period));
            channel.sums = [0.5 * sum, sum, 0.5 * sum];
            assert!(channel.steer(&loops));
            channel.doppler_hz
        };
        // The frequency before the gap does not count.
        (0..150)
            .for_each(|period| assert!((steer(&mut channel, period, 0.11) - 1000.0).abs() < 1e-9));
        assert!(channel.coast(1234, &loops));
        (0..199)
            .for_each(|period| assert!((steer(&mut channel, period, -0.23) - 1000.0).abs() < 1e-9));
        let measured = steer(&mut channel, 199, -0.23);
        assert!((measured - 770.0).abs() < 0.4, "{measured}");
    }

    #[test]
    fn carrier_keeps_its_cycle_for_10_minutes_at_35_db_hz() {
        for (system, periods) in [(System::GpsL1Ca, 600_000_u32), (System::GalileoE1b, 150_000)] {
            let (mut channel, loops) = channel_of(system);
            let period_seconds = system.period_seconds();
            let samples = (period_seconds * loops.samples.rate_hz) as u64;
            let noise = (0.5 / 10_f64.powf(3.5) / period_seconds).sqrt();
            let mut random = fxgraph_dsp::random::Random::new(11);
            // Carrier of the satellite since the start in turns, its frequency, and how fast that changes.
            let (mut carrier, mut frequency_hz, rate_hz) = (0.0, 1017.0, -0.7);
            let symbol_periods = system.signal().periods_per_symbol.unwrap();
            let (mut cycles, mut data) = (Vec::new(), 1.0);
            for period in 0..periods {
                let nco_hz = channel.nco.carrier_step as f64 / 2.0_f64.powi(64) * 5e6;
                let error = carrier - channel.carrier as f64 / 2.0_f64.powi(64);
                let middle = error + 0.5 * (frequency_hz - nco_hz) * period_seconds;
                if u64::from(period).is_multiple_of(symbol_periods) {
                    data = if random.bits() & 1 == 1 { -1.0 } else { 1.0 };
                }
                channel.sums = [0.5, 1.0, 0.5].map(|part| {
                    let [re, im] = random.normal_pair();
                    data * part * Complex64::cis(TAU * middle) + noise * Complex64::new(re, im)
                });
                channel.advance(samples);
                assert!(channel.steer(&loops), "period {period}");
                carrier += frequency_hz * period_seconds;
                frequency_hz += rate_hz * period_seconds;
                if f64::from(period) * period_seconds > 1.0 {
                    cycles.push((2.0 * error).round() as i64);
                }
            }
            assert!(channel.is_locked() && cycles.iter().all(|cycle| *cycle == cycles[0]));
        }
    }

    #[test]
    fn noise_is_never_locked_and_a_signal_after_a_tenth_of_a_second() {
        let mut random = fxgraph_dsp::random::Random::new(1);
        for _ in 0..50 {
            let (mut channel, loops) = channel();
            for _ in 0..650 {
                channel.sums = [(); 3].map(|()| {
                    let [re, im] = random.normal_pair();
                    Complex64::new(re, im)
                });
                channel.steer(&loops);
                assert!(!channel.is_locked(), "{} {}", channel.cosine, channel.averaged);
            }
        }
        let (mut channel, loops) = channel();
        for period in 0..300 {
            channel.sums = [0.5, 1.0, 0.5].map(Complex64::from);
            assert!(channel.steer(&loops));
            assert!(channel.is_locked() || period < 260);
        }
    }

    #[test]
    fn zeros_end_the_lock_within_half_a_second_and_the_channel_within_a_second() {
        for phase in [0.0, 0.2] {
            let (mut channel, loops) = channel();
            for _ in 0..2000 {
                let sum = Complex64::cis(phase);
                channel.sums = [0.5 * sum, sum, 0.5 * sum];
                channel.average_power(sum);
                assert!(channel.steer(&loops));
            }
            assert!(channel.is_locked());
            let (mut locked, mut tracked) = (0, 0);
            loop {
                channel.sums = [Complex64::ZERO; 3];
                channel.average_power(Complex64::ZERO);
                let is_tracked = channel.steer(&loops);
                locked += usize::from(channel.is_locked());
                if !is_tracked {
                    break;
                }
                tracked += 1;
                assert!(tracked < 1000, "{}", channel.cosine);
            }
            assert!((100..500).contains(&locked), "{locked} ms");
            assert!(tracked > locked, "{tracked} ms");
            assert!(channel.cn0_db_hz().abs() < 1e-9, "{}", channel.cn0_db_hz());
        }
    }

    #[test]
    fn phases_are_extrapolated_over_5_seconds_since_the_last_complete_period() {
        let (mut channel, loops) = channel();
        let second = 5_000_000;
        for _ in 0..3 {
            for _ in 0..5 {
                assert!(channel.coast(second, &loops));
            }
            channel.sums = [0.5, 1.0, 0.5].map(Complex64::from);
            assert!(channel.steer(&loops));
        }
        assert!(channel.coast(5 * second, &loops));
        assert!(!channel.coast(1, &loops));
        assert!(!channel.coast(u64::MAX, &loops));
    }

    #[test]
    fn nan_sums_end_the_channel() {
        for part in [f64::NAN, f64::INFINITY] {
            for place in 0..3 {
                let (mut channel, loops) = channel();
                channel.sums = [Complex64::ONE; 3];
                channel.sums[place].im = part;
                assert!(!channel.steer(&loops));
            }
        }
    }
}
