//! The reference implementation.

use super::{KurtosisFlagger, Shape};
use fxgraph::changes::{Change, Changes};
use fxgraph::{Block, BlockError, Configured, Counter, Counters, Env, Io, Next};
use num_complex::Complex32;

/// The running block.
pub struct Flagger {
    sigmas: f64,
    changes: Changes<f64>,
    shape: Shape,
    samples_per_frame: u64,
    full: u32,
    /// `S1` and `S2` of each channel of one polarisation.
    sums: Vec<(f64, f64)>,
    counts: Counts,
}

/// The counters of both implementations.
pub struct Counts {
    pub flagged: Counter,
    pub incomplete: Counter,
}

impl Counts {
    pub fn new(counters: &Counters) -> Self {
        Self {
            flagged: counters
                .count("channels_flagged", "channels set to zero, per polarisation and frame"),
            incomplete: counters
                .count("frames_incomplete", "frames with missing data, passed on unchanged"),
        }
    }
}

/// Returns the distance from 1 beyond which the kurtosis of `spectra` spectra is flagged.
pub fn limit(sigmas: f64, spectra: usize) -> f64 {
    let m = spectra as f64;
    sigmas * (4.0 * m * m / ((m - 1.0) * (m + 2.0) * (m + 3.0))).sqrt()
}

impl Flagger {
    pub fn new(block: &Configured<KurtosisFlagger>, env: &Env) -> Self {
        let (shape, input) = (block.shape, &block.ports.inputs[0]);
        Self {
            sigmas: block.parameters.sigmas,
            changes: Changes::default(),
            shape,
            samples_per_frame: input.clock.samples_per_frame,
            full: input.validity.full,
            sums: vec![(0.0, 0.0); shape.channels],
            counts: Counts::new(&env.counters),
        }
    }

    /// Flags the spectra of one polarisation, and writes the kurtosis of each channel.
    fn flag(&mut self, spectra: &mut [Complex32], kurtosis: &mut [f32]) {
        let m = self.shape.spectra as f64;
        let limit = limit(self.sigmas, self.shape.spectra);
        self.sums.fill((0.0, 0.0));
        for spectrum in spectra.chunks_exact(self.shape.channels) {
            for (value, (s1, s2)) in spectrum.iter().zip(&mut self.sums) {
                let power = f64::from(value.norm_sqr());
                *s1 += power;
                *s2 += power * power;
            }
        }
        for (channel, ((s1, s2), kurtosis)) in self.sums.iter().zip(kurtosis).enumerate() {
            // Without power there is no kurtosis: NaN, which is not beyond the limit.
            let sk = (m + 1.0) / (m - 1.0) * (m * s2 / (s1 * s1) - 1.0);
            *kurtosis = sk as f32;
            if (sk - 1.0).abs() > limit {
                spectra.iter_mut().skip(channel).step_by(self.shape.channels).for_each(|value| {
                    *value = Complex32::ZERO;
                });
                self.counts.flagged.add(1);
            }
        }
    }
}

impl Block for Flagger {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        // Output frames first: an input frame is consumed only if it can be processed.
        let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let Some(mut kurtosis) = io.outputs[1].take() else { return Ok(Next::Wait) };
        let Some(frame) = input.pop() else { return Ok(Next::Wait) };
        let from = frame.header();

        for (_, sigmas) in self.changes.begin(from.timestamp, self.samples_per_frame) {
            self.sigmas = sigmas;
        }
        let is_complete = from.validity.iter().all(|count| *count == self.full);
        let (header, values) = kurtosis.parts_mut::<f32>()?;
        header.continue_from(from);
        header.validity.fill(u32::from(is_complete));
        let (header, spectra) = output.parts_mut::<Complex32>()?;
        header.continue_from(from);
        header.validity.copy_from_slice(&from.validity);
        spectra.copy_from_slice(frame.as_slice()?);
        if is_complete {
            let len = self.shape.spectra * self.shape.channels;
            let pols =
                spectra.chunks_exact_mut(len).zip(values.chunks_exact_mut(self.shape.channels));
            pols.for_each(|(spectra, values)| self.flag(spectra, values));
        } else {
            values.fill(0.0);
            self.counts.incomplete.add(1);
        }
        io.outputs[0].push(output);
        io.outputs[1].push(kurtosis);
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
