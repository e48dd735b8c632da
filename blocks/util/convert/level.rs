//! Level of integers of at most 16 bits: the first numbers of each stretch of a frame are measured.

use crate::common::output_level::OutputLevels;
use fxgraph::{Dtype, Env, Header, PortType};
use fxgraph_dsp::power::sum_of_squares;

/// Numbers of a stretch, and its first numbers that are measured; as in `kernels/util/convert.cu`.
const STRETCH: usize = 16384;
const MEASURED: usize = 256;

/// Level of an output.
pub struct Level {
    dtype: Dtype,
    levels: OutputLevels,
}

impl Level {
    /// Creates the level of `output`; `None` if numbers of its type do not lose their level.
    pub fn new(output: &PortType, env: &Env) -> Option<Self> {
        let dtype = output.dtype;
        let bits = number_bits(dtype)?;
        let numbers = output.elements() * dtype.bits() / bits;
        let measured = numbers / STRETCH * MEASURED + (numbers % STRETCH).min(MEASURED);
        let (names, rate) = (["output"], output.clock.frames_per_second());
        let names = names.into_iter().map(str::to_owned);
        Some(Self { dtype, levels: OutputLevels::new(names, measured, rate, "raise `scale`", env) })
    }

    /// Notes the sum of squares of the measured numbers of a frame, and annotates the frame.
    pub fn annotate(&mut self, header: &mut Header, squares: u64) {
        let has_data = |validity: &[u32], _| validity.iter().any(|count| *count > 0);
        self.levels.annotate(header, std::iter::once(squares), has_data, |_, _| false);
    }

    /// Sum of squares of the measured numbers of a payload.
    pub fn squares(&self, payload: &[u8]) -> u64 {
        let bits = number_bits(self.dtype).unwrap_or(8);
        let measured = MEASURED * bits / 8;
        let stretches = payload.chunks(STRETCH * bits / 8);
        stretches.map(|numbers| self.sum(&numbers[..measured.min(numbers.len())])).sum()
    }

    fn sum(&self, numbers: &[u8]) -> u64 {
        let square = |number: i32| u64::from(number.unsigned_abs().pow(2));
        match self.dtype {
            Dtype::U8 => numbers.iter().map(|number| square(i32::from(*number))).sum(),
            Dtype::Ci4 => {
                let nibbles = |byte: &u8| [byte.cast_signed() >> 4, (byte << 4).cast_signed() >> 4];
                numbers.iter().flat_map(nibbles).map(|number| square(i32::from(number))).sum()
            }
            Dtype::I16 | Dtype::Ci16 => {
                let numbers = numbers.as_chunks().0.iter();
                numbers.map(|number| square(i32::from(i16::from_ne_bytes(*number)))).sum()
            }
            _ => sum_of_squares(bytemuck::cast_slice(numbers)),
        }
    }
}

/// Bits of a number of the types that are measured.
fn number_bits(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::Ci4 => Some(4),
        Dtype::U8 | Dtype::I8 | Dtype::Ci8 => Some(8),
        Dtype::I16 | Dtype::Ci16 => Some(16),
        _ => None,
    }
}
