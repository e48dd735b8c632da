//! Frames out of nothing.

use super::{NullSource, Pattern};
use crate::random::Random;
use fxgraph::{Block, BlockError, Dtype, Io, Next, PortType, async_trait};

/// The running block.
pub struct Source {
    dtype: Dtype,
    pattern: Pattern,
    seed: u64,
    timestamp: u64,
    step: u64,
    full: u32,
    frame: u64,
    frames: u64,
}

impl Source {
    /// A source with these parameters for `port`.
    pub fn new(parameters: &NullSource, port: &PortType) -> Self {
        Self {
            dtype: port.dtype,
            pattern: parameters.pattern,
            seed: parameters.seed,
            timestamp: parameters.first_timestamp,
            step: port.clock.samples_per_frame,
            full: port.validity.full,
            frame: 0,
            frames: parameters.frames.unwrap_or(u64::MAX),
        }
    }

    fn fill(&self, bytes: &mut [u8]) {
        match self.pattern {
            Pattern::Zeros => bytes.fill(0),
            Pattern::Untouched => {}
            Pattern::Counter => {
                let first = self.frame.wrapping_mul(bytes.len() as u64) % 251;
                let mut value = first as u8;
                for byte in bytes {
                    *byte = value;
                    value = if value == 250 { 0 } else { value + 1 };
                }
            }
            Pattern::Random => {
                fill_random(self.dtype, &mut Random::of(self.seed, self.frame), bytes);
            }
        }
    }
}

/// Fills `bytes` with elements of `dtype`.
fn fill_random(dtype: Dtype, random: &mut Random, bytes: &mut [u8]) {
    match dtype {
        Dtype::F32 | Dtype::Cf32 => {
            for value in bytes.chunks_exact_mut(4) {
                value.copy_from_slice(&((2.0 * random.uniform() - 1.0) as f32).to_ne_bytes());
            }
        }
        Dtype::F64 => {
            for value in bytes.chunks_exact_mut(8) {
                value.copy_from_slice(&(2.0 * random.uniform() - 1.0).to_ne_bytes());
            }
        }
        _ => {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&random.bits().to_ne_bytes()[..chunk.len()]);
            }
        }
    }
    // The most negative value has no conjugate in the same type, so no block ever sends it.
    match dtype {
        Dtype::Ci8 => bytes.iter_mut().filter(|b| **b == 0x80).for_each(|b| *b = 0x81),
        Dtype::Ci4 => {
            for byte in bytes {
                *byte |= u8::from(*byte & 0x0f == 0x08);
                *byte |= u8::from(*byte & 0xf0 == 0x80) << 4;
            }
        }
        _ => {}
    }
}

#[async_trait]
impl Block for Source {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(frame.as_mut_slice());
        frame.header_mut().timestamp = self.timestamp;
        frame.fill_validity(self.full);
        io.outputs[0].push(frame);
        self.timestamp = self.timestamp.wrapping_add(self.step);
        self.frame += 1;
        Ok(Next::Again)
    }
}
