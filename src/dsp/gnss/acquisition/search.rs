//! Search of one system, by Fourier transforms of the samples and of the codes.

use super::tail::{Cells, Tail, level, quantile};
use super::{Acquired, Settings};
use crate::fourier::{Fft, forward_f32, inverse_f32};
use crate::gnss::{Planes, Replica, System};
use num_complex::Complex32;
use std::sync::Arc;

/// Grid of the cells searched for one system.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    system: System,
    rate_hz: f64,
    carrier_hz: f64,
    /// Samples in a period of the code, not an integer.
    period: f64,
    /// Number of code phases.
    pub lags: usize,
    /// Number of periods added.
    pub periods: usize,
    /// Points of the transforms.
    pub length: usize,
    /// First frequency, in bins of a transform.
    first_bin: i64,
    /// Number of frequencies.
    pub bins: usize,
    false_alarm_probability: f64,
}

impl Grid {
    /// Creates the grid for frames of `samples` and valid parameters; `None` if the frames are shorter than two
    /// periods, or too long.
    #[must_use]
    pub fn new(settings: &Settings, system: System) -> Option<Self> {
        const MAX_LENGTH: usize = 1 << 26;
        let Settings { samples, rate_hz, carriers, max_doppler_hz, .. } = *settings;
        let carrier_hz = carriers.hz(system);
        let period = system.period_seconds() * rate_hz;
        if !(period >= 2.0 && 2.0 * period.ceil() <= samples as f64) {
            return None;
        }
        let lags = period.ceil() as usize;
        let length = smooth(2 * lags);
        let periods = ((samples - 2 * lags) as f64 / period) as usize + 1;
        if length.checked_mul(periods).is_none_or(|points| points > 4 * MAX_LENGTH)
            || length > MAX_LENGTH
        {
            return None;
        }
        let step_hz = rate_hz / length as f64;
        let bin = |hz: f64| (hz / step_hz).round() as i64;
        let first_bin = bin(carrier_hz - max_doppler_hz);
        let last_bin = bin(carrier_hz + max_doppler_hz);
        let bins = (last_bin - first_bin + 1) as usize;
        Some(Self {
            system,
            rate_hz,
            carrier_hz,
            period,
            lags,
            periods,
            length,
            first_bin,
            bins,
            false_alarm_probability: settings.false_alarm_probability,
        })
    }

    /// Number of the period in the middle.
    fn middle(&self) -> usize {
        (self.periods - 1) / 2
    }

    /// Returns by how many samples the code of frequency number `bin` begins later from period to period: less than 0
    /// for a positive Doppler shift.
    fn code_drift(&self, bin: i64) -> f64 {
        let hz = (self.first_bin + bin) as f64 * self.rate_hz / self.length as f64;
        -self.period * (hz - self.carrier_hz) / self.system.carrier_hz()
    }

    /// Number of cells.
    fn cells(&self) -> f64 {
        (self.lags * self.bins) as f64
    }

    /// Duration of a period of the code.
    #[must_use]
    pub fn period_seconds(&self) -> f64 {
        self.system.period_seconds()
    }

    /// Samples of a period of the code, rounded up.
    #[must_use]
    pub fn period_samples(&self) -> usize {
        self.lags
    }

    /// Returns the approximate memory of a search in bytes.
    #[must_use]
    pub fn host_bytes(&self, satellites: usize, threads: usize) -> usize {
        let of_thread =
            2 * size_of::<Complex32>() * self.length + size_of::<f32>() * self.lags + Cells::BYTES;
        size_of::<Complex32>() * self.length * (self.periods + 1)
            + satellites * Replica::bytes(self.system)
            + Cells::BYTES
            + threads * of_thread
    }
}

/// Returns the smallest number of at least `least` with no prime factors but 2, 3 and 5.
pub(super) fn smooth(least: usize) -> usize {
    let is_smooth = |number: &usize| {
        let rest = [2, 3, 5].iter().fold(*number, |mut rest, prime| {
            while rest % prime == 0 {
                rest /= prime;
            }
            rest
        });
        rest == 1
    };
    (least..=2 * least).find(is_smooth).unwrap_or(least)
}

impl Candidate {
    /// A satellite that is only searched for in order to remove it.
    #[must_use]
    pub fn other(replica: Replica) -> Self {
        let acquired = Acquired::none(System::GpsL1Ca, 0);
        Self { place: None, replica, acquired, is_removed: false }
    }
}

/// Part of a frame's periods that a search adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// Every fourth period: enough for strong satellites.
    Quick,
    /// All periods.
    Full,
}

/// Fewest periods of a quick search.
const QUICK_PERIODS: usize = 4;

/// A satellite that is searched for.
pub struct Candidate {
    /// Index in the block's list; `None` for a satellite that is only searched for in order to remove it.
    pub place: Option<usize>,
    /// Its code.
    pub replica: Replica,
    /// Result of the last search.
    pub acquired: Acquired,
    /// Whether it was found and removed from the samples.
    pub is_removed: bool,
}

/// Search of one system.
pub struct Search {
    grid: Grid,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// Satellites that are searched for.
    pub candidates: Vec<Candidate>,
    /// Conjugated transform of the code of the candidate being searched.
    code: Vec<Complex32>,
    /// Spectra of the periods of the frame, `[period][point]`.
    spectra: Vec<Complex32>,
    depth: Depth,
    /// Statistics of the candidates that were not found.
    cells: Cells,
    level: f32,
    /// Correlation of neighbouring lags in white noise.
    correlation: f64,
}

/// Working memory of one thread.
pub struct Scratch {
    product: Vec<Complex32>,
    transform: Vec<Complex32>,
    /// Power at each lag.
    power: Vec<f32>,
    /// Statistics of the current candidate.
    cells: Cells,
}

/// The largest power at one frequency.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    lag: usize,
    power: f64,
    /// Mean power at the other lags.
    mean: f64,
}

impl Peak {
    /// Returns the power of the peak divided by the mean.
    #[must_use]
    pub fn statistic(&self) -> f64 {
        if self.mean > 0.0 { self.power / self.mean } else { 0.0 }
    }
}

impl Search {
    /// Creates a search for `satellites`, each given by its index in the block's list and its number, and for `others`
    /// with these replicas.
    pub fn new(
        grid: Grid,
        satellites: &[(usize, usize)],
        others: impl IntoIterator<Item = Replica>,
    ) -> Self {
        let searched = satellites.iter().filter_map(|&(place, prn)| {
            let replica = Replica::new(grid.system, prn)?;
            let acquired = Acquired::none(grid.system, prn);
            Some(Candidate { place: Some(place), acquired, ..Candidate::other(replica) })
        });
        let others = others.into_iter().map(Candidate::other);
        let candidates: Vec<_> = searched.chain(others).collect();
        let apart_chips = grid.system.chips() as f64 / grid.period;
        let replica = candidates.first().map(|candidate| &candidate.replica);
        Self {
            correlation: replica.map_or(0.0, |replica| replica.autocorrelation(apart_chips)),
            candidates,
            code: vec![Complex32::ZERO; grid.length],
            spectra: vec![Complex32::ZERO; grid.length * grid.periods],
            forward: forward_f32(grid.length),
            inverse: inverse_f32(grid.length),
            depth: Depth::Full,
            cells: Cells::new(),
            level: 0.0,
            grid,
        }
    }

    /// Returns the grid.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the working memory of a thread.
    #[must_use]
    pub fn scratch(&self) -> Scratch {
        let transform =
            self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len());
        Scratch {
            product: vec![Complex32::ZERO; self.grid.length],
            transform: vec![Complex32::ZERO; transform],
            power: vec![0.0; self.grid.lags],
            cells: Cells::new(),
        }
    }

    /// Forgets the results of the frame before.
    pub fn begin_frame(&mut self) {
        for candidate in &mut self.candidates {
            candidate.acquired = Acquired::none(self.grid.system, candidate.acquired.prn);
            candidate.is_removed = false;
        }
    }

    /// Whether a quick search adds enough periods.
    #[must_use]
    pub fn has_quick(&self) -> bool {
        self.grid.periods.div_ceil(4) >= QUICK_PERIODS
    }

    /// Number of periods that the search adds.
    fn periods(&self) -> usize {
        if self.depth == Depth::Quick { self.grid.periods.div_ceil(4) } else { self.grid.periods }
    }

    /// Starts a search of the samples of a frame.
    pub fn take(&mut self, planes: &Planes, depth: Depth, scratch: &mut Scratch) {
        self.depth = depth;
        self.level = level(self.periods()) as f32;
        self.cells.clear();
        let Grid { period, lags, length, .. } = self.grid;
        for (m, spectrum) in self.spectra.chunks_exact_mut(length).enumerate() {
            let start = (m as f64 * period).round() as usize;
            let end = planes.len().min(start + 2 * lags);
            let (re, im) = planes.parts(0, start..end);
            spectrum.fill(Complex32::ZERO);
            for (to, (re, im)) in spectrum.iter_mut().zip(re.iter().zip(im)) {
                *to = Complex32::new(*re, *im);
            }
            self.forward.process_with_scratch(spectrum, &mut scratch.transform);
        }
    }

    /// Prepares the search for a candidate.
    pub fn load(&mut self, candidate: usize, scratches: &mut [Scratch]) {
        let entries = self.candidates[candidate].replica.entries();
        self.code.fill(Complex32::ZERO);
        for (n, value) in self.code.iter_mut().take(self.grid.period as usize).enumerate() {
            let entry = n as f64 / self.grid.period * entries.len() as f64;
            value.re = f32::from(entries[entry as usize]);
        }
        self.forward.process_with_scratch(&mut self.code, &mut scratches[0].transform);
        self.code.iter_mut().for_each(|value| *value = value.conj());
        scratches.iter_mut().for_each(|scratch| scratch.cells.clear());
    }

    /// Computes the powers of the loaded candidate at all lags of frequency number `bin`. A lag is that in the middle of
    /// the periods; the Doppler shift of the code moves it from period to period.
    fn powers(&self, bin: i64, scratch: &mut Scratch) {
        let Grid { length, lags, .. } = self.grid;
        let later = self.grid.code_drift(bin);
        let Scratch { product, transform, power, .. } = scratch;
        let shift = (self.grid.first_bin + bin).rem_euclid(length as i64) as usize;
        power.fill(0.0);
        let step = self.grid.periods.div_ceil(self.periods());
        for (m, spectrum) in self.spectra.chunks_exact(length).enumerate().step_by(step) {
            let shifted = spectrum[shift..].iter().chain(&spectrum[..shift]);
            for ((product, sample), code) in product.iter_mut().zip(shifted).zip(&self.code) {
                *product = sample * code;
            }
            self.inverse.process_with_scratch(product, transform);
            let periods = m as f64 - self.grid.middle() as f64;
            let moved = (periods * later).round().rem_euclid(lags as f64) as usize % lags;
            let values = product[moved..lags].iter().chain(&product[..moved]);
            power.iter_mut().zip(values).for_each(|(power, value)| *power += value.norm_sqr());
        }
    }

    /// Returns the largest power of the loaded candidate at frequency number `bin`.
    pub fn peak(&self, bin: i64, scratch: &mut Scratch) -> Peak {
        self.powers(bin, scratch);
        let lags = self.grid.lags;
        let Scratch { power, cells, .. } = scratch;
        let largest = power.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let (lag, largest) = largest.map_or((0, 0.0), |(lag, power)| (lag, f64::from(*power)));
        // The mean leaves out the lags of the peak itself.
        let near = (lags / self.grid.system.chips() + 1).min(lags / 4);
        let is_far = |at: &usize| {
            let apart = at.abs_diff(lag);
            apart.min(lags - apart) > near
        };
        let far = power.iter().enumerate().filter(|(at, _)| is_far(at)).map(|(_, p)| f64::from(*p));
        let (count, sum) = far.fold((0, 0.0), |(count, sum), power| (count + 1, sum + power));
        let mean = sum / f64::from(count.max(1));
        if mean > 0.0 {
            let scale = 1.0 / mean as f32;
            cells.add(power.iter().map(|power| power * scale), self.level);
        }
        Peak { lag, power: largest, mean }
    }

    /// Stores the result of the loaded candidate: the best of its `peaks`, interpolated.
    pub fn conclude(&mut self, candidate: usize, peaks: &[Peak], scratches: &mut [Scratch]) {
        let grid = self.grid;
        let best =
            peaks.iter().enumerate().max_by(|a, b| a.1.statistic().total_cmp(&b.1.statistic()));
        let (bin, best) = best.map_or((0, Peak::default()), |(bin, peak)| (bin as i64, *peak));
        // The side lobes of a strong satellite's own code are no noise.
        let white =
            quantile(self.periods() as f64, (grid.cells() / grid.false_alarm_probability).ln());
        if best.statistic() < 2.0 * white {
            scratches.iter().for_each(|scratch| self.cells.merge(&scratch.cells));
        }
        let scratch = &mut scratches[0];
        let mut at = |bin: i64, lag: usize| {
            self.powers(bin, scratch);
            let amplitude = |lag: usize| {
                let power = f64::from(scratch.power[lag % grid.lags]);
                (power - best.mean).max(0.0).sqrt()
            };
            [lag + grid.lags - 1, lag, lag + 1].map(amplitude)
        };
        let (below, [early, here, late], above) =
            (at(bin - 1, best.lag)[1], at(bin, best.lag), at(bin + 1, best.lag)[1]);
        let ratio = |difference: f64, bend: f64| {
            if bend > 0.0 { (0.5 * difference / bend).clamp(-0.5, 0.5) } else { 0.0 }
        };
        // The correlation over the lags is a triangle, over the frequencies nearly a parabola.
        let lag = best.lag as f64 + ratio(late - early, here - early.min(late));
        let bin = bin as f64 + ratio(above - below, 2.0 * here - above - below);
        let hz = (grid.first_bin as f64 + bin) * grid.rate_hz / grid.length as f64;
        let doppler_hz = hz - grid.carrier_hz;
        let middle = grid.middle() as f64 * grid.period;
        let seconds = (middle + lag) / grid.rate_hz;
        let chips = grid.system.chips() as f64;
        let code_phase_chips = (-grid.system.code_rate_hz(doppler_hz) * seconds).rem_euclid(chips);
        let candidate = &mut self.candidates[candidate];
        candidate.acquired = Acquired {
            statistic: best.statistic(),
            doppler_hz,
            code_phase_chips,
            ..candidate.acquired
        };
    }

    /// Returns the threshold that the cells of this search give, and whether they are wider than white noise.
    #[must_use]
    pub fn threshold(&self) -> (f64, bool) {
        (self.threshold_of(1.0), self.cells.is_wide(self.periods()))
    }

    /// Returns the threshold of a search of this part of the cells.
    pub(super) fn threshold_of(&self, part: f64) -> f64 {
        let tail = Tail::new(&self.cells, self.periods());
        let probability = self.grid.false_alarm_probability;
        tail.threshold(part * self.grid.cells(), self.correlation, probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_have_small_factors() {
        assert_eq!([smooth(10_000), smooth(8191), smooth(32_735)], [10_000, 8192, 32_768]);
    }
}
