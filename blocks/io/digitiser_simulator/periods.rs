//! Packed signals of both polarisations: one period, which repeats.

use super::DigitiserSimulator;
use super::generate::{Generator, noise, quantise, signal_of};
use super::language::{Expression, Program, Signal};
use fxgraph_dsp::random::Random;

/// One period of each polarisation.
pub struct Periods {
    packed: [Vec<u8>; 2],
    /// Clipped samples of both polarisations together.
    pub clipped: u64,
}

impl Periods {
    /// Computes the periods of `program`, which takes time and memory; `begins` is called before each polarisation.
    pub fn new(parameters: &DigitiserSimulator, program: &Program, begins: impl Fn(usize)) -> Self {
        let mut clipped = 0;
        // One after the other: computing a period needs many times the memory of the result.
        let packed = [0, 1].map(|polarisation| {
            begins(polarisation);
            let (packed, of_this) = period(parameters, program, polarisation);
            clipped += of_this;
            packed
        });
        Self { packed, clipped }
    }

    /// Returns periods without samples.
    pub fn silent() -> Self {
        Self { packed: [Vec::new(), Vec::new()], clipped: 0 }
    }

    /// Writes the samples of a frame that starts `offset` bytes into the period, from bit `first_bit` of the
    /// frame on to its end.
    pub fn copy(&self, polarisation: usize, offset: usize, first_bit: usize, frame: &mut [u8]) {
        let period = &self.packed[polarisation];
        let first = first_bit / 8;
        let before = frame.get(first).copied().filter(|_| !period.is_empty());
        let Some(before) = before else { return };
        let mut offset = (offset + first) % period.len();
        // One of period and frame is a multiple of the other, so the pieces fit.
        let mut rest = &mut frame[first..];
        while !rest.is_empty() {
            let piece = rest.len().min(period.len() - offset);
            rest[..piece].copy_from_slice(&period[offset..offset + piece]);
            rest = &mut rest[piece..];
            offset = 0;
        }
        // A sample may begin within a byte, the most significant bit first.
        let kept = !(u8::MAX >> (first_bit % 8));
        frame[first] = before & kept | frame[first] & !kept;
    }
}

/// Returns one packed period of `polarisation`, and the number of clipped samples.
fn period(
    parameters: &DigitiserSimulator,
    program: &Program,
    polarisation: usize,
) -> (Vec<u8>, u64) {
    let period = parameters.period_samples;
    let own_seed = Random::of(parameters.seed, parameters.antenna as u64).bits();
    let mut generator = Generator::new(period, parameters.adc_sample_rate_hz, own_seed);
    let silence = Signal { expression: Expression::Constant(0.0), dither: true };
    let (signal, noise_part) = signal_of(program, polarisation).unwrap_or((&silence, 0));
    let mut samples = {
        let variables = generator.variables(program, noise_part);
        generator.expression(&signal.expression, &variables, noise_part)
    };
    if parameters.source.is_some() {
        let source = source_period(parameters, &mut generator, polarisation as u64);
        samples.iter_mut().zip(source).for_each(|(sample, source)| *sample += source);
    }
    let bits = u32::from(parameters.bits);
    let mut packed = vec![0u8; period * bits as usize / 8];
    let mut dither = Random::of(own_seed, u64::MAX - polarisation as u64);
    let dither = signal.dither.then_some(&mut dither);
    let clipped = quantise(&samples, bits, dither, &mut packed);
    (packed, clipped)
}

/// Returns one period of the point source as this antenna receives it.
fn source_period(
    parameters: &DigitiserSimulator,
    generator: &mut Generator,
    polarisation: u64,
) -> Vec<f64> {
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
    let turning_hz = parameters.turning_hz();
    if rate == 0.0 && turning_hz == 0.0 {
        generator.delay(&mut samples, late_samples);
    } else {
        generator.receive(&mut samples, late_samples, rate, turning_hz);
    }
    samples
}
