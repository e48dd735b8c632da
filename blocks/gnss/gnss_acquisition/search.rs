//! Search of one system, by Fourier transforms of the samples and of the codes.

use super::{Acquired, GnssAcquisition};
use crate::gnss::samples::Samples;
use fxgraph_dsp::gnss::phase::code_rate_hz;
use fxgraph_dsp::gnss::{Planes, Replica, System};
use num_complex::Complex32;
use rustfft::{Fft, FftPlanner};
use std::sync::Arc;

/// Grid of the cells searched for one system.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    system: System,
    rate_hz: f64,
    intermediate_hz: f64,
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
    threshold: f64,
}

impl Grid {
    /// Creates the grid for frames of `samples` and valid parameters; `None` if the frames are shorter than two
    /// periods, or too long.
    pub fn new(parameters: &GnssAcquisition, system: System, samples: &Samples) -> Option<Self> {
        const MAX_LENGTH: usize = 1 << 26;
        let period = system.period_seconds() * samples.rate_hz;
        if !(period >= 2.0 && 2.0 * period.ceil() <= samples.samples as f64) {
            return None;
        }
        let lags = period.ceil() as usize;
        let length = smooth(2 * lags);
        let periods = ((samples.samples - 2 * lags) as f64 / period) as usize + 1;
        if length.checked_mul(periods).is_none_or(|points| points > 4 * MAX_LENGTH)
            || length > MAX_LENGTH
        {
            return None;
        }
        let step_hz = samples.rate_hz / length as f64;
        let bin = |hz: f64| (hz / step_hz).round() as i64;
        let first_bin = bin(parameters.intermediate_hz - parameters.max_doppler_hz);
        let last_bin = bin(parameters.intermediate_hz + parameters.max_doppler_hz);
        let bins = (last_bin - first_bin + 1) as usize;
        let cells = (lags * bins) as f64;
        Some(Self {
            system,
            rate_hz: samples.rate_hz,
            intermediate_hz: parameters.intermediate_hz,
            period,
            lags,
            periods,
            length,
            first_bin,
            bins,
            threshold: threshold(periods, parameters.false_alarm_probability / cells),
        })
    }

    /// Returns the approximate memory of a search in bytes.
    pub fn host_bytes(&self, satellites: usize, threads: usize) -> usize {
        let of_thread = 2 * size_of::<Complex32>() * self.length + size_of::<f32>() * self.lags;
        size_of::<Complex32>() * self.length * (self.periods + satellites) + threads * of_thread
    }
}

/// Returns the smallest number of at least `least` with no prime factors but 2, 3 and 5.
fn smooth(least: usize) -> usize {
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

/// Returns the value that the mean of `count` exponential variables of mean 1 exceeds with `probability`.
fn threshold(count: usize, probability: f64) -> f64 {
    let passed = |mean: f64| {
        let x = mean * count as f64;
        // exp(-x) sum of x^k / k! for k < count, without overflow.
        let mut term_log = -x;
        let mut sum = 0.0;
        for k in 0..count {
            sum += term_log.exp();
            term_log += (x / (k + 1) as f64).ln();
        }
        sum
    };
    let (mut low, mut high) = (1e-9, 1.0);
    while passed(high) > probability {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if passed(middle) > probability { low = middle } else { high = middle }
    }
    high
}

/// Search of one system.
pub struct Search {
    grid: Grid,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// For each candidate: index in the block's list, satellite number, and conjugated transform of its code.
    codes: Vec<(usize, usize, Vec<Complex32>)>,
    /// Spectra of the periods of the frame, `[period][point]`.
    spectra: Vec<Complex32>,
}

/// Working memory of one thread.
pub struct Scratch {
    product: Vec<Complex32>,
    transform: Vec<Complex32>,
    /// Power at each lag.
    power: Vec<f32>,
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
    pub fn statistic(&self) -> f64 {
        if self.mean > 0.0 { self.power / self.mean } else { 0.0 }
    }
}

impl Search {
    /// Creates a search for satellites, each given by its index in the block's list and its number.
    pub fn new(grid: Grid, satellites: &[(usize, usize)]) -> Self {
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(grid.length);
        let inverse = planner.plan_fft_inverse(grid.length);
        let code = |&(place, prn): &(usize, usize)| {
            let replica = Replica::new(grid.system, prn)?;
            let entries = replica.entries();
            let mut code = vec![Complex32::ZERO; grid.length];
            for (n, value) in code.iter_mut().take(grid.period as usize).enumerate() {
                let entry = n as f64 / grid.period * entries.len() as f64;
                value.re = f32::from(entries[entry as usize]);
            }
            forward.process(&mut code);
            code.iter_mut().for_each(|value| *value = value.conj());
            Some((place, prn, code))
        };
        Self {
            codes: satellites.iter().filter_map(code).collect(),
            spectra: vec![Complex32::ZERO; grid.length * grid.periods],
            grid,
            forward,
            inverse,
        }
    }

    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the number of candidates.
    pub fn candidates(&self) -> usize {
        self.codes.len()
    }

    /// Returns the working memory of a thread.
    pub fn scratch(&self) -> Scratch {
        let transform =
            self.forward.get_inplace_scratch_len().max(self.inverse.get_inplace_scratch_len());
        Scratch {
            product: vec![Complex32::ZERO; self.grid.length],
            transform: vec![Complex32::ZERO; transform],
            power: vec![0.0; self.grid.lags],
        }
    }

    /// Transforms the samples of a frame.
    pub fn take(&mut self, planes: &Planes, scratch: &mut Scratch) {
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

    /// Returns the largest power of a candidate at frequency number `bin`; the powers at all lags stay in
    /// `scratch`.
    pub fn peak(&self, candidate: usize, bin: i64, scratch: &mut Scratch) -> Peak {
        let Grid { lags, length, .. } = self.grid;
        let Scratch { product, transform, power } = scratch;
        let shift = (self.grid.first_bin + bin).rem_euclid(length as i64) as usize;
        power.fill(0.0);
        for spectrum in self.spectra.chunks_exact(length) {
            let shifted = spectrum[shift..].iter().chain(&spectrum[..shift]);
            for ((product, sample), code) in
                product.iter_mut().zip(shifted).zip(&self.codes[candidate].2)
            {
                *product = sample * code;
            }
            self.inverse.process_with_scratch(product, transform);
            power.iter_mut().zip(&*product).for_each(|(power, value)| *power += value.norm_sqr());
        }
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
        Peak { lag, power: largest, mean: sum / f64::from(count.max(1)) }
    }

    /// Returns the index of a candidate in the output, and its result: the best of its `peaks`, interpolated.
    pub fn conclude(
        &self,
        candidate: usize,
        peaks: &[Peak],
        scratch: &mut Scratch,
    ) -> (usize, Acquired) {
        let grid = &self.grid;
        let (place, prn, _) = &self.codes[candidate];
        let best =
            peaks.iter().enumerate().max_by(|a, b| a.1.statistic().total_cmp(&b.1.statistic()));
        let (bin, best) = best.map_or((0, Peak::default()), |(bin, peak)| (bin as i64, *peak));
        let mut at = |bin: i64, lag: usize| {
            self.peak(candidate, bin, scratch);
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
        let doppler_hz = hz - grid.intermediate_hz;
        // The peak is at the lag in the middle of the periods, because the code rate is Doppler-shifted.
        let middle = ((grid.periods - 1) / 2) as f64 * grid.period;
        let seconds = (middle + lag) / grid.rate_hz;
        let chips = grid.system.chips() as f64;
        let code_phase_chips = (-code_rate_hz(doppler_hz) * seconds).rem_euclid(chips);
        let acquired = Acquired {
            system: grid.system,
            prn: *prn,
            statistic: best.statistic(),
            threshold: grid.threshold,
            doppler_hz,
            code_phase_chips,
        };
        (*place, acquired)
    }

    /// Returns index and output of each candidate for a frame that is not searched.
    pub fn unsearched(&self) -> impl Iterator<Item = (usize, Acquired)> + '_ {
        self.codes.iter().map(|(place, prn, _)| {
            let acquired = Acquired {
                system: self.grid.system,
                prn: *prn,
                statistic: 0.0,
                threshold: self.grid.threshold,
                doppler_hz: 0.0,
                code_phase_chips: 0.0,
            };
            (*place, acquired)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph_dsp::random::Random;

    #[test]
    fn thresholds_are_exceeded_with_the_given_probability() {
        assert!((threshold(1, 1e-6) - 1e6_f64.ln()).abs() < 1e-9);
        let mut random = Random::new(3);
        for count in [2, 5, 19] {
            let most = threshold(count, 0.01);
            let passes = (0..40_000)
                .filter(|_| {
                    let sum: f64 = (0..count).map(|_| -random.uniform().ln()).sum();
                    sum / count as f64 > most
                })
                .count();
            assert!((340..460).contains(&passes), "{count}: {passes}");
        }
    }

    #[test]
    fn transforms_have_small_factors() {
        assert_eq!([smooth(10_000), smooth(8191), smooth(32_735)], [10_000, 8192, 32_768]);
    }
}
