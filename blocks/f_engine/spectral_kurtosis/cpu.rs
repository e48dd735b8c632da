//! The block on the CPU.

use super::statistics::{State, Statistics};
use super::{Settings, Shape, SpectralKurtosis};
use fxgraph::changes::Change;
use fxgraph::{BlockError, Configured, Env, Frame, FrameMut, Map};

/// The running block.
pub(super) struct Cpu {
    shape: Shape,
    settings: Settings,
    /// State of each unit of the frame, `[heap][antenna][channel][pol]`.
    states: Vec<u8>,
    statistics: Statistics,
}

impl Cpu {
    pub(super) fn new(block: &Configured<SpectralKurtosis>, env: &Env) -> Self {
        let shape = block.shape;
        Self {
            settings: Settings::new(block),
            states: vec![State::Passed as u8; shape.units()],
            statistics: Statistics::new(shape, env),
            shape,
        }
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let Self { shape, settings, states, statistics } = self;
        let from = input.as_slice::<u8>()?;
        let (header, to) = output.parts_mut::<u8>()?;
        let timestamp = header.timestamp;
        settings.begin(timestamp, shape.samples_per_frame);
        let rows_of_heap = shape.antennas * shape.channels;
        let of_rows = states.chunks_exact_mut(shape.pols);
        let of_rows = of_rows.zip(header.validity.chunks_exact(shape.pols));
        let rows = from.chunks_exact(shape.row_bytes());
        let rows = rows.zip(to.chunks_exact_mut(shape.row_bytes())).zip(of_rows);
        let mut of_heap = settings.at(timestamp);
        for (number, ((from, to), (states, valid))) in rows.enumerate() {
            if number % rows_of_heap == 0 {
                of_heap = settings.at(shape.heap_timestamp(timestamp, number / rows_of_heap));
            }
            let is_always = of_heap.always[number % shape.channels];
            let before = |valid: u32| State::before(valid, of_heap.enabled, is_always);
            let is_tested = valid.iter().any(|valid| before(*valid) == State::Untested);
            let sums = if is_tested { shape.sums(from) } else { Default::default() };
            to.copy_from_slice(from);
            for (pol, (state, valid)) in states.iter_mut().zip(valid).enumerate() {
                let after = match before(*valid) {
                    State::Untested => of_heap.test.judge(&sums[pol]).into(),
                    other => other,
                };
                if after.is_cleared() {
                    shape.clear(to, pol);
                }
                *state = after as u8;
            }
        }
        statistics.add(states, header);
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.shape.expand(input, output);
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.settings.offer(change)
    }
}
