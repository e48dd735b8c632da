//! Phase factors of the channels of one spectrum.
//!
//! The factor of channel k is exp(j 2 pi (phase - fine (k - N/2) / 2N)), phase in turns. Within
//! blocks of 64 channels it is a table of rotations (computed in double precision for each spectrum) times the
//! factor of the block's first channel, which is advanced from block to block in double precision and
//! recomputed every 16 blocks.

use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;

/// Channels that share a block factor.
pub const BLOCK: usize = 64;
/// Blocks after which the block factor is recomputed.
const ANCHOR: usize = 16;

/// Factors of the channels of a block relative to the first channel. Each number is stored twice, for vectors of
/// interleaved complex numbers, and aligned to their loads.
#[repr(align(64))]
pub struct Table {
    pub re: [f32; 2 * BLOCK],
    pub im: [f32; 2 * BLOCK],
}

/// Factors of one spectrum.
pub struct Phases {
    pub table: Table,
    turns_per_channel: f64,
    at_zero_turns: f64,
    /// Rotation from one block to the next.
    by_block: Complex64,
    /// Gain of all channels.
    gain: Complex64,
    /// Factor of the present block.
    factor: Complex64,
}

/// Returns exp(j 2 pi turns).
fn phasor(turns: f64) -> Complex64 {
    // Reduced first, so that the precision does not depend on the number of whole turns.
    let (sin, cos) = (TAU * (turns - turns.round())).sin_cos();
    Complex64::new(cos, sin)
}

impl Phases {
    /// Creates the factors of a spectrum of `channels` channels, with `phase_turns` at the centre and `gain` for all
    /// channels.
    #[inline(always)]
    pub fn new(
        channels: usize,
        phase_turns: f64,
        fine_delay_samples: f64,
        gain: Complex64,
    ) -> Self {
        let turns_per_channel = -fine_delay_samples / (2 * channels) as f64;
        let (mut re, mut im) = ([0.0_f64; BLOCK], [0.0_f64; BLOCK]);
        re[0] = 1.0;
        // Squaring doubles the angle; the error of six squarings in double is negligible in single precision.
        let (mut known, mut by) = (1, phasor(turns_per_channel));
        while known < BLOCK {
            for i in 0..known {
                re[known + i] = re[i] * by.re - im[i] * by.im;
                im[known + i] = re[i] * by.im + im[i] * by.re;
            }
            (known, by) = (2 * known, by * by);
        }
        Self {
            table: Table {
                re: std::array::from_fn(|i| re[i / 2] as f32),
                im: std::array::from_fn(|i| im[i / 2] as f32),
            },
            turns_per_channel,
            at_zero_turns: phase_turns - turns_per_channel * (channels / 2) as f64,
            by_block: by,
            gain,
            factor: Complex64::default(),
        }
    }

    /// Returns the factor of the first channel of block `number`; must be called in the order of the blocks.
    #[inline(always)]
    pub fn block(&mut self, number: usize) -> Complex32 {
        if number.is_multiple_of(ANCHOR) {
            let turns = self.at_zero_turns + self.turns_per_channel * (number * BLOCK) as f64;
            self.factor = phasor(turns) * self.gain;
        } else {
            self.factor *= self.by_block;
        }
        Complex32::new(self.factor.re as f32, self.factor.im as f32)
    }
}
