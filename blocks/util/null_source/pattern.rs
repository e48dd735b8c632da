//! Content of the frames.

use super::Pattern;
use fxgraph::Dtype;
use fxgraph_dsp::random::Random;
use half::f16;
use rayon::prelude::*;

impl Pattern {
    /// Fills frame number `frame`, of elements of `dtype`.
    pub(super) fn fill(self, dtype: Dtype, seed: u64, frame: u64, bytes: &mut [u8]) {
        match self {
            Self::Zeros => bytes.fill(0),
            Self::Untouched => {}
            Self::Counter => {
                let first = frame.wrapping_mul(bytes.len() as u64) % 251;
                let mut value = first as u8;
                for byte in bytes {
                    *byte = value;
                    value = if value == 250 { 0 } else { value + 1 };
                }
            }
            Self::Random => {
                let random = Random::of(seed, frame);
                // Bytes per random number: each stretch computes where its numbers begin.
                let bytes_of_number = match dtype {
                    Dtype::F16 | Dtype::Cf16 => 2,
                    Dtype::F32 | Dtype::Cf32 => 4,
                    _ => 8,
                };
                bytes.par_chunks_mut(STRETCH_BYTES).enumerate().for_each(|(index, bytes)| {
                    let skipped = index * (STRETCH_BYTES / bytes_of_number);
                    fill_random(dtype, &mut random.after(skipped as u64), bytes);
                });
            }
        }
    }
}

/// Number of bytes that a thread fills at a time.
const STRETCH_BYTES: usize = 1 << 20;

/// Fills `bytes` with elements of `dtype`.
fn fill_random(dtype: Dtype, random: &mut Random, bytes: &mut [u8]) {
    match dtype {
        Dtype::F16 | Dtype::Cf16 => {
            for value in bytes.chunks_exact_mut(2) {
                let half = f16::from_f32((2.0 * random.uniform() - 1.0) as f32);
                value.copy_from_slice(&half.to_ne_bytes());
            }
        }
        Dtype::F32 | Dtype::Cf32 => {
            for value in bytes.chunks_exact_mut(4) {
                value.copy_from_slice(&((2.0 * random.uniform() - 1.0) as f32).to_ne_bytes());
            }
        }
        Dtype::F64 | Dtype::Cf64 => {
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
    // The most negative value has no conjugate in the same type, so blocks never send it.
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
