//! From formulas to one packed period of samples, in double precision.

use super::language::{Expression, NoiseSeed, Program, Signal};
use fxgraph_dsp::fourier::RealTransforms;
use fxgraph_dsp::random::Random;
use num_complex::Complex64;
use std::f64::consts::TAU;

/// The transforms and sizes of one period.
pub struct Generator {
    period: usize,
    adc_sample_rate_hz: f64,
    /// Seed of the noise that differs between antennas.
    own_seed: u64,
    transforms: RealTransforms,
}

impl Generator {
    /// Creates a generator of periods of `period` samples; `own_seed` is the seed of noise without a seed.
    #[must_use]
    pub fn new(period: usize, adc_sample_rate_hz: f64, own_seed: u64) -> Self {
        Self { period, adc_sample_rate_hz, own_seed, transforms: RealTransforms::new() }
    }

    /// Returns one period of each variable of `program`.
    pub fn variables(&mut self, program: &Program, polarisation: u64) -> Vec<Vec<f64>> {
        let mut values: Vec<Vec<f64>> = Vec::new();
        for variable in &program.variables {
            let value = self.expression(variable, &values, polarisation);
            values.push(value);
        }
        values
    }

    /// Returns one period of `expression`.
    pub fn expression(
        &mut self,
        expression: &Expression,
        variables: &[Vec<f64>],
        polarisation: u64,
    ) -> Vec<f64> {
        match expression {
            Expression::Constant(value) => vec![*value; self.period],
            Expression::Tones(tones) => self.tones(tones),
            Expression::Comb(amplitude, frequency_hz) => self.comb(*amplitude, *frequency_hz),
            Expression::Noise(std, seed) => {
                let seed = match seed {
                    NoiseSeed::Given(seed) => *seed,
                    NoiseSeed::Own(n) => Random::of(self.own_seed, *n << 1 | polarisation).bits(),
                };
                noise(*std, seed, self.period)
            }
            Expression::Delay(signal, samples) => {
                let mut signal = self.expression(signal, variables, polarisation);
                self.delay(&mut signal, *samples);
                signal
            }
            Expression::Variable(index) => variables[*index].clone(),
            Expression::Add(a, b) => self.both(a, b, variables, polarisation, |a, b| a + b),
            Expression::Subtract(a, b) => self.both(a, b, variables, polarisation, |a, b| a - b),
            Expression::Multiply(a, b) => self.both(a, b, variables, polarisation, |a, b| a * b),
        }
    }

    fn both(
        &mut self,
        a: &Expression,
        b: &Expression,
        variables: &[Vec<f64>],
        polarisation: u64,
        combine: impl Fn(f64, f64) -> f64,
    ) -> Vec<f64> {
        let mut left = self.expression(a, variables, polarisation);
        let right = self.expression(b, variables, polarisation);
        left.iter_mut().zip(right).for_each(|(left, right)| *left = combine(*left, right));
        left
    }

    /// Returns the number of whole cycles per period nearest to a frequency, so that periods repeat
    /// seamlessly.
    fn cycles(&self, frequency_hz: f64) -> usize {
        let cycles = frequency_hz / self.adc_sample_rate_hz * self.period as f64;
        cycles.round().rem_euclid(self.period as f64) as usize % self.period
    }

    /// Returns `sum a cos(2 pi f t)`, all lines in one inverse transform.
    fn tones(&mut self, tones: &[(f64, f64)]) -> Vec<f64> {
        let half = self.period / 2;
        let mut spectrum = vec![Complex64::ZERO; half + 1];
        for (amplitude, frequency_hz) in tones {
            let cycles = self.cycles(*frequency_hz);
            let alias = cycles.min(self.period - cycles);
            // A cosine has half its amplitude at f and at -f, except where both coincide.
            let both_sides = alias == 0 || alias == half;
            spectrum[alias] += if both_sides { *amplitude } else { amplitude / 2.0 };
        }
        self.inverse(&mut spectrum)
    }

    /// Returns impulses at the first sample at or after the beginning of each cycle.
    fn comb(&self, amplitude: f64, frequency_hz: f64) -> Vec<f64> {
        let (period, cycles) = (self.period as u64, self.cycles(frequency_hz) as u64);
        let at = |t: u64| if t * cycles % period < cycles { amplitude } else { 0.0 };
        (0..period).map(at).collect()
    }

    /// Delays `signal` cyclically by `samples`; fractions are exact, because the phase of each frequency is
    /// turned by `-2 pi f tau`.
    pub fn delay(&mut self, signal: &mut [f64], samples: f64) {
        if samples.fract() == 0.0 {
            let whole = samples.rem_euclid(self.period as f64) as usize % self.period;
            signal.rotate_right(whole);
            return;
        }
        let mut spectrum = vec![Complex64::ZERO; self.period / 2 + 1];
        let forward = self.transforms.forward(self.period);
        forward.process(signal, &mut spectrum).expect("lengths fit the plan");
        for (k, value) in spectrum.iter_mut().enumerate() {
            let turns = k as f64 * (samples / self.period as f64);
            *value *= Complex64::cis(-TAU * turns.fract()) / self.period as f64;
        }
        signal.copy_from_slice(&self.inverse(&mut spectrum));
    }

    /// Delays `signal` by `late + rate t` samples, as received with a local oscillator of `oscillator_hz`:
    /// `Re(z(t - late - rate t) exp(-2 pi i oscillator (late + rate t)))`, z the analytic signal.
    ///
    /// The delay in the middle of the period is applied exactly; the deviation from that delay, a small
    /// fraction of a sample, by a power series.
    pub fn receive(&mut self, signal: &mut [f64], late: f64, rate: f64, oscillator_hz: f64) {
        let (period, middle) = (self.period as f64, self.period as f64 / 2.0);
        let turns_per_sample = oscillator_hz / self.adc_sample_rate_hz;
        let mut spectrum = vec![Complex64::ZERO; self.period / 2 + 1];
        let forward = self.transforms.forward(self.period);
        forward.process(signal, &mut spectrum).expect("lengths fit the plan");
        for (k, value) in spectrum.iter_mut().enumerate() {
            let turns = k as f64 * ((late + rate * middle) / period);
            *value *= Complex64::cis(-TAU * turns.fract()) / period;
        }
        signal.fill(0.0);
        let mut quadrature = vec![0.0; self.period];
        let most_radians = TAU / 2.0 * (rate * middle).abs();
        let (mut power, mut term) = (0, 1.0);
        while power == 0 || term > 1e-5 {
            let add = |sum: &mut [f64], part: &[f64]| {
                for (t, (sum, part)) in sum.iter_mut().zip(part).enumerate() {
                    *sum += (rate * (t as f64 - middle)).powi(power) * part;
                }
            };
            add(signal, &self.inverse(&mut spectrum.clone()));
            let mut turned: Vec<Complex64> = spectrum.iter().map(|v| v * -Complex64::I).collect();
            add(&mut quadrature, &self.inverse(&mut turned));
            power += 1;
            term *= most_radians / f64::from(power);
            let next = -TAU / period / f64::from(power);
            for (k, value) in spectrum.iter_mut().enumerate() {
                *value *= Complex64::new(0.0, k as f64 * next);
            }
        }
        for (t, (value, quadrature)) in signal.iter_mut().zip(&quadrature).enumerate() {
            let turns = turns_per_sample * (late + rate * t as f64);
            let (sin, cos) = (TAU * turns.fract()).sin_cos();
            *value = *value * cos + quadrature * sin;
        }
    }

    /// Returns the samples of a spectrum whose lines have the amplitudes of the time domain.
    fn inverse(&mut self, spectrum: &mut [Complex64]) -> Vec<f64> {
        let last = spectrum.len() - 1;
        // The spectrum of a real signal is real there.
        spectrum[0].im = 0.0;
        spectrum[last].im = 0.0;
        let mut signal = vec![0.0; self.period];
        let inverse = self.transforms.inverse(self.period);
        inverse.process(spectrum, &mut signal).expect("lengths fit the plan");
        signal
    }
}

/// Returns `len` samples of white Gaussian noise with standard deviation `std`.
#[must_use]
pub fn noise(std: f64, seed: u64, len: usize) -> Vec<f64> {
    let mut random = Random::new(seed);
    let pairs = (0..len.div_ceil(2)).flat_map(|_| random.normal_pair());
    pairs.take(len).map(|value| value * std).collect()
}

/// Writes `round(clip(x full + dither, -full, full))`, packed most significant bit first. Returns the
/// number of clipped samples.
pub fn quantise(
    signal: &[f64],
    bits: u32,
    mut dither: Option<&mut Random>,
    packed: &mut [u8],
) -> u64 {
    let full = f64::from((1u32 << (bits - 1)) - 1);
    let mask = (1u64 << bits) - 1;
    let (mut held, mut held_bits, mut clipped) = (0u64, 0u32, 0u64);
    let mut bytes = packed.iter_mut();
    for sample in signal {
        let dither = dither.as_mut().map_or(0.0, |random| random.uniform() - 0.5);
        let scaled = sample * full + dither;
        clipped += u64::from(scaled.abs() > full);
        // NaN becomes 0.
        let value = scaled.clamp(-full, full).round_ties_even() as i64;
        held = held << bits | (value as u64 & mask);
        held_bits += bits;
        while held_bits >= 8 {
            held_bits -= 8;
            if let Some(byte) = bytes.next() {
                *byte = (held >> held_bits) as u8;
            }
        }
    }
    clipped
}

/// Returns the signal of one polarisation and the number that selects its noise: both polarisations of a
/// text with one signal have different noise.
#[must_use]
pub fn signal_of(program: &Program, polarisation: usize) -> Option<(&Signal, u64)> {
    let shared = program.signals.len() == 1;
    let signal = program.signals.get(if shared { 0 } else { polarisation })?;
    Some((signal, if shared { polarisation as u64 } else { 0 }))
}
