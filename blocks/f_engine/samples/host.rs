//! Decoded samples of all polarisations, contiguous in host memory.

use super::history::Move;
use super::input::Sizes;
use super::pol::{Count, Store};
use super::power::Measured;
use super::schedule::Schedule;
use fxgraph::{Dtype, Frame, PortType, Ports};
use fxgraph_dsp::delay::Piece;
use fxgraph_dsp::packed::Decoder;
use fxgraph_dsp::power::power;
use fxgraph_dsp::simd::InstructionSet;
use std::sync::Arc;

/// Capacity of the history of a polarisation in samples.
pub fn capacity(sizes: &Sizes, batch: usize) -> usize {
    // The samples of one batch, plus the samples that stay from batch to batch a second time, so that moves to
    // the front are rare.
    let kept = sizes.window + 2 * sizes.max_delay;
    2 * kept + batch * sizes.step + 64
}

/// Samples of one polarisation.
pub trait Series: Store + Send {
    /// Type of the decoded numbers.
    type Number: Number;

    /// Allocates a buffer for `capacity` samples of `input`.
    fn with_room(input: &PortType, capacity: usize) -> Self;

    /// Decoded numbers from the sample at `place` on.
    fn numbers(&self, place: usize) -> &[Self::Number];
}

/// Creates a schedule of the inputs with runs of up to `batch` spectra. `delays` has one list for each input, or is
/// empty for blocks without delays.
pub fn schedule<S: Series>(
    sizes: Sizes,
    ports: &Ports,
    delays: &[Vec<Piece>],
    batch: usize,
    count: Count,
) -> Schedule<S> {
    let capacity = capacity(&sizes, batch);
    let stores = ports.inputs.iter().map(|input| S::with_room(input, capacity));
    Schedule::new(sizes, &ports.inputs, delays, batch, capacity, stores, count)
}

/// Samples of an ADC.
pub struct Decoded {
    samples: Vec<i16>,
    /// `None` for samples that are 16-bit integers already.
    decoder: Option<Decoder>,
}

impl Series for Decoded {
    type Number = i16;

    fn with_room(input: &PortType, capacity: usize) -> Self {
        let decoder = match input.dtype {
            Dtype::Packed(bits) => Decoder::new(bits),
            _ => None,
        };
        Self { samples: vec![0; capacity], decoder }
    }

    fn numbers(&self, place: usize) -> &[i16] {
        &self.samples[place..]
    }
}

impl Store for Decoded {
    fn move_to_front(&mut self, Move { from, samples }: Move) {
        self.samples.copy_within(from..from + samples, 0);
    }

    fn write(&mut self, frame: &Arc<Frame>, first: usize, count: usize, at: usize) {
        let samples = &mut self.samples[at..at + count];
        match &self.decoder {
            Some(decoder) => {
                decoder.decode(frame.as_slice().expect(fxgraph::ON_HOST), first, samples);
            }
            None => samples
                .copy_from_slice(&frame.as_slice().expect(fxgraph::ON_HOST)[first..first + count]),
        }
    }
}

/// Complex samples, `[sample][re, im]`.
pub struct Baseband(Vec<f32>);

impl Series for Baseband {
    type Number = f32;

    fn with_room(_input: &PortType, capacity: usize) -> Self {
        Self(vec![0.0; 2 * capacity])
    }

    fn numbers(&self, place: usize) -> &[f32] {
        &self.0[2 * place..]
    }
}

impl Store for Baseband {
    fn move_to_front(&mut self, Move { from, samples }: Move) {
        self.0.copy_within(2 * from..2 * (from + samples), 0);
    }

    fn write(&mut self, frame: &Arc<Frame>, first: usize, count: usize, at: usize) {
        let samples =
            &frame.as_slice::<f32>().expect(fxgraph::ON_HOST)[2 * first..2 * (first + count)];
        self.0[2 * at..2 * (at + count)].copy_from_slice(samples);
    }
}

/// A number that filters read.
pub trait Number: Copy + Into<f32> + Send + Sync {
    /// Measures power, and clipping at a magnitude of `limit`. Returns zeros for numbers that are not samples of
    /// the digitiser.
    fn measured(samples: &[Self], limit: i16, instructions: InstructionSet) -> Measured;
}

impl Number for i16 {
    fn measured(samples: &[Self], limit: i16, instructions: InstructionSet) -> Measured {
        let (power, clipped) = power(samples, limit, instructions);
        Measured { power, samples: samples.len() as u64, clipped }
    }
}

impl Number for f32 {
    fn measured(_samples: &[Self], _limit: i16, _instructions: InstructionSet) -> Measured {
        Measured::default()
    }
}
