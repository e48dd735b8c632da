//! The block on the CPU: computes the voltages spectrum by spectrum.

use super::{FrbSimulator, Voltages};
use crate::common::parallel::Threads;
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next};
use fxgraph_dsp::random::Random;
use num_complex::Complex64;

/// Stream number of the source's noise, which no spectrum number reaches.
const OF_SOURCE: u64 = u64::MAX;

/// The running block.
pub struct Simulator {
    parameters: FrbSimulator,
    channels_hz: Vec<f64>,
    highest_hz: f64,
    threads: Threads,
    /// Number of clipped voltages, for each thread.
    clipped: Vec<u64>,
    frame: u64,
    values_clipped: Counter,
}

impl Simulator {
    /// Creates the block from its parameters.
    pub fn new(parameters: FrbSimulator, env: &Env) -> Result<Self, BlockError> {
        let band = parameters.whole_band();
        let channels_hz: Vec<f64> =
            (0..parameters.channels).map(|channel| band.channel_hz(channel)).collect();
        let threads = Threads::new(parameters.threads())?;
        Ok(Self {
            highest_hz: channels_hz.iter().copied().fold(0.0, f64::max),
            channels_hz,
            clipped: vec![0; threads.count()],
            threads,
            frame: 0,
            values_clipped: env.counters.count(
                "values_clipped",
                "voltages whose real or imaginary part was beyond full scale; lower noise and amplitudes",
            ),
            parameters,
        })
    }

    fn fill(&mut self, frame: &mut FrameMut) {
        let Self { parameters, channels_hz, highest_hz, threads, clipped, .. } = self;
        let spectra = parameters.spectra_per_frame;
        let first = self.frame.wrapping_mul(spectra as u64);
        frame.header_mut().timestamp = first.wrapping_mul(parameters.samples_per_spectrum);
        frame.fill_validity(1);
        let payload = frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST);
        let unit = payload.len() / spectra;
        threads.each(payload, unit, clipped, |start, run, clipped| {
            for (n, spectrum) in run.chunks_exact_mut(unit).enumerate() {
                let number = first.wrapping_add((start + n) as u64);
                *clipped += fill_spectrum(parameters, channels_hz, *highest_hz, number, spectrum);
            }
        });
        self.values_clipped.add(self.clipped.iter_mut().map(std::mem::take).sum());
    }
}

/// Computes spectrum `number`. Returns the number of clipped voltages.
fn fill_spectrum(
    parameters: &FrbSimulator,
    channels_hz: &[f64],
    highest_hz: f64,
    number: u64,
    spectrum: &mut [u8],
) -> u64 {
    let FrbSimulator { feeds, noise, seed, dtype, source, pulse, .. } = parameters;
    let seconds =
        number as f64 * parameters.samples_per_spectrum as f64 / parameters.adc_sample_rate_hz;
    let mut of_receivers = Random::of(*seed, number);
    let mut of_source = Random::of(Random::of(*seed, OF_SOURCE).bits(), number);
    let mut clipped = 0;
    let rows = spectrum.chunks_exact_mut(spectrum.len() / channels_hz.len());
    for (hz, channel) in channels_hz.iter().zip(rows) {
        let [by_cylinder, by_feed] =
            source.map_or([Complex64::ONE; 2], |source| source.turns(parameters, seconds, *hz));
        let of_pulse = pulse.map_or(0.0, |pulse| pulse.amplitude(seconds, *hz, highest_hz));
        let amplitude = source.map_or(0.0, |source| source.amplitude.hypot(of_pulse));
        let pol_bytes = channel.len() / 2;
        for pol in channel.chunks_exact_mut(pol_bytes) {
            let [re, im] = of_source.normal_pair();
            let mut first_feed = amplitude * Complex64::new(re, im);
            for cylinder in pol.chunks_exact_mut(pol_bytes / parameters.cylinders) {
                let mut wave = first_feed;
                let value_bytes = cylinder.len() / feeds;
                for value in cylinder.chunks_exact_mut(value_bytes) {
                    let own = of_receivers.normal_pair();
                    let parts = [wave.re + noise * own[0], wave.im + noise * own[1]];
                    clipped += u64::from(write(*dtype, parts, value));
                    wave *= by_feed;
                }
                first_feed *= by_cylinder;
            }
        }
    }
    clipped
}

/// Rounds and clamps a voltage. Returns whether its real or imaginary part was clamped.
fn write(dtype: Voltages, parts: [f64; 2], value: &mut [u8]) -> bool {
    let limit = match dtype {
        Voltages::Ci4 => 7.0,
        Voltages::Ci8 => 127.0,
    };
    let [re, im] = parts.map(|part| part.round_ties_even().clamp(-limit, limit) as i8);
    match dtype {
        Voltages::Ci4 => value[0] = ((re << 4) | (im & 15)).cast_unsigned(),
        Voltages::Ci8 => value.copy_from_slice(&[re.cast_unsigned(), im.cast_unsigned()]),
    }
    parts.iter().any(|part| part.abs() > limit + 0.5)
}

impl Block for Simulator {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.parameters.frames.is_some_and(|frames| self.frame >= frames) {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame);
        io.outputs[0].push(frame);
        self.frame += 1;
        Ok(Next::Again)
    }
}
