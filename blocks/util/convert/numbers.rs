//! Conversion of numbers of every type, through floats.

use bytemuck::{Pod, Zeroable};
use fxgraph::Dtype;
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::{Add, Mul, Sub};

/// Numbers processed at a time, so that they stay in the first-level cache.
const BLOCK: usize = 512;

/// Converts the elements of the first slice, with real and imaginary parts times these scales, to those of the second.
/// Returns the number of elements that did not fit.
pub type Convert = fn(&[u8], &mut [u8], [f64; 2]) -> u64;

/// Float type of the calculation.
trait Work:
    Copy + Default + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>
{
    /// Constant that rounds a number in an integer's range to the nearest integer, half to even, when it is
    /// added and subtracted.
    const ROUNDER: Self;

    fn of(number: f64) -> Self;
}

impl Work for f32 {
    const ROUNDER: Self = 12_582_912.0; // 1.5 x 2^23

    fn of(number: f64) -> Self {
        number as Self
    }
}

impl Work for f64 {
    const ROUNDER: Self = 6_755_399_441_055_744.0; // 1.5 x 2^52

    fn of(number: f64) -> Self {
        number
    }
}

/// Stored number type; `W` represents every value.
trait Number<W: Work>: Pod {
    /// Numbers stored in one value of the type.
    const COUNT: usize = 1;
    /// Whether numbers are rounded to integers.
    const WHOLE: bool;
    /// Smallest and largest number in the output.
    const RANGE: [W; 2];

    fn read(from: &[Self], to: &mut [W]);
    /// Writes numbers, which must be within the range, and integers if `WHOLE`.
    fn write(from: &[W], to: &mut [Self]);
}

/// Numbers that `as` converts.
macro_rules! plain {
    ($number:ty, $work:ty, $whole:literal, $lowest:expr) => {
        impl Number<$work> for $number {
            const WHOLE: bool = $whole;
            const RANGE: [$work; 2] = [$lowest as $work, <$number>::MAX as $work];

            fn read(from: &[Self], to: &mut [$work]) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as $work);
            }

            fn write(from: &[$work], to: &mut [Self]) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as Self);
            }
        }
    };
}

// The most negative integer has no conjugate in the same type, so it is never written.
plain!(u8, f32, true, 0);
plain!(u8, f64, true, 0);
plain!(i8, f32, true, -Self::MAX);
plain!(i8, f64, true, -Self::MAX);
plain!(i16, f32, true, -Self::MAX);
plain!(i16, f64, true, -Self::MAX);
plain!(i32, f64, true, -Self::MAX);
plain!(f32, f32, false, -Self::MAX);
plain!(f32, f64, false, -Self::MAX);
plain!(f64, f64, false, -Self::MAX);

impl Number<f32> for f16 {
    const WHOLE: bool = false;
    const RANGE: [f32; 2] = [-65_504.0, 65_504.0];

    fn read(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn write(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Number<f64> for f16 {
    const WHOLE: bool = false;
    const RANGE: [f64; 2] = [-65_504.0, 65_504.0];

    fn read(from: &[Self], to: &mut [f64]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(f32::from(*from)));
    }

    /// Converts through single precision, so that every CPU rounds alike.
    fn write(from: &[f64], to: &mut [Self]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Self::from_f32(*from as f32));
    }
}

/// Two 4-bit integers, the first one in the upper half.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Nibbles(i8);

macro_rules! nibbles {
    ($work:ty) => {
        impl Number<$work> for Nibbles {
            const COUNT: usize = 2;
            const WHOLE: bool = true;
            const RANGE: [$work; 2] = [-7.0, 7.0];

            fn read(from: &[Self], to: &mut [$work]) {
                for (to, from) in to.as_chunks_mut::<2>().0.iter_mut().zip(from) {
                    *to = [from.0 >> 4, from.0 << 4 >> 4].map(<$work>::from);
                }
            }

            fn write(from: &[$work], to: &mut [Self]) {
                for (to, from) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                    *to = Self((from[0] as i8) << 4 | from[1] as i8 & 0x0f);
                }
            }
        }
    };
}

nibbles!(f32);
nibbles!(f64);

/// Converts elements of `PARTS` numbers.
fn convert<I: Number<W>, O: Number<W>, W: Work, const PARTS: usize>(
    input: &[u8],
    output: &mut [u8],
    scales: [f64; 2],
) -> u64 {
    let input: &[I] = bytemuck::cast_slice(input);
    let output: &mut [O] = bytemuck::cast_slice_mut(output);
    let mut numbers = [W::default(); BLOCK];
    let mut saturated = 0;
    let blocks = input.chunks(BLOCK / I::COUNT).zip(output.chunks_mut(BLOCK / O::COUNT));
    for (from, to) in blocks {
        let numbers = &mut numbers[..from.len() * I::COUNT];
        I::read(from, numbers);
        saturated += fit::<O, W, PARTS>(numbers, scales);
        O::write(numbers, to);
    }
    saturated
}

/// Converts real numbers to complex ones with the imaginary part 0.
fn embed<I: Number<W>, O: Number<W>, W: Work>(
    input: &[u8],
    output: &mut [u8],
    scales: [f64; 2],
) -> u64 {
    let input: &[I] = bytemuck::cast_slice(input);
    let output: &mut [O] = bytemuck::cast_slice_mut(output);
    let mut reals = [W::default(); BLOCK / 2];
    let mut numbers = [W::default(); BLOCK];
    let mut saturated = 0;
    for (from, to) in input.chunks(BLOCK / 2).zip(output.chunks_mut(BLOCK / O::COUNT)) {
        let (reals, numbers) = (&mut reals[..from.len()], &mut numbers[..2 * from.len()]);
        I::read(from, reals);
        saturated += fit::<O, W, 1>(reals, scales);
        // The imaginary parts stay 0.
        numbers.iter_mut().step_by(2).zip(reals).for_each(|(to, real)| *to = *real);
        O::write(numbers, to);
    }
    saturated
}

/// Scales numbers and clamps them to the range of `O`. Returns the number of elements beyond the range.
fn fit<O: Number<W>, W: Work, const PARTS: usize>(numbers: &mut [W], scales: [f64; 2]) -> u64 {
    let [lowest, largest] = O::RANGE;
    let scales: [W; PARTS] = std::array::from_fn(|part| W::of(scales[part]));
    let mut saturated = 0;
    for element in numbers.as_chunks_mut::<PARTS>().0 {
        let mut fits = true;
        for (number, scale) in element.iter_mut().zip(scales) {
            let scaled = *number * scale;
            fits &= scaled >= lowest && scaled <= largest;
            let clamped = if scaled > largest { largest } else { scaled };
            let clamped = if clamped < lowest { lowest } else { clamped };
            // NaN stays NaN, and becomes 0 if it is written as an integer.
            *number = if O::WHOLE { (clamped + W::ROUNDER) - W::ROUNDER } else { clamped };
        }
        saturated += u64::from(!fits);
    }
    saturated
}

/// Evaluates to `Some($body)` with `$number` as the number type if single precision represents the type,
/// otherwise to `None`.
macro_rules! narrow {
    ($dtype:expr, $number:ident => $body:expr) => {
        match $dtype {
            Dtype::Ci4 => {
                type $number = Nibbles;
                $body
            }
            Dtype::U8 => {
                type $number = u8;
                $body
            }
            Dtype::I8 | Dtype::Ci8 => {
                type $number = i8;
                $body
            }
            Dtype::I16 | Dtype::Ci16 => {
                type $number = i16;
                $body
            }
            Dtype::F16 | Dtype::Cf16 => {
                type $number = f16;
                $body
            }
            Dtype::F32 | Dtype::Cf32 => {
                type $number = f32;
                $body
            }
            _ => None,
        }
    };
}

/// The same for types that double precision represents.
macro_rules! wide {
    ($dtype:expr, $number:ident => $body:expr) => {
        match $dtype {
            Dtype::I32 | Dtype::Ci32 => {
                type $number = i32;
                $body
            }
            Dtype::F64 | Dtype::Cf64 => {
                type $number = f64;
                $body
            }
            narrow => narrow!(narrow, $number => $body),
        }
    };
}

/// Returns the numbers per element, if the type can be converted.
#[must_use]
pub fn parts(dtype: Dtype) -> Option<usize> {
    match dtype {
        Dtype::Packed(_) | Dtype::I64 => None,
        Dtype::U8 | Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::F16 | Dtype::F32 | Dtype::F64 => {
            Some(1)
        }
        Dtype::Ci4
        | Dtype::Ci8
        | Dtype::Ci16
        | Dtype::Ci32
        | Dtype::Cf16
        | Dtype::Cf32
        | Dtype::Cf64 => Some(2),
    }
}

/// Whether the conversion needs double precision.
#[must_use]
pub fn is_double(from: Dtype, to: Dtype) -> bool {
    let wide = [Dtype::I32, Dtype::Ci32, Dtype::F64, Dtype::Cf64];
    wide.contains(&from) || wide.contains(&to)
}

/// Returns the conversion from one type to another, if there is one: between real types, between complex ones, and
/// from a real to a complex one.
#[must_use]
pub fn converter(from: Dtype, to: Dtype) -> Option<Convert> {
    match (parts(from)?, parts(to)?, is_double(from, to)) {
        (1, 1, false) => narrow!(from, I => narrow!(to, O => Some(convert::<I, O, f32, 1>))),
        (2, 2, false) => narrow!(from, I => narrow!(to, O => Some(convert::<I, O, f32, 2>))),
        (1, 2, false) => narrow!(from, I => narrow!(to, O => Some(embed::<I, O, f32>))),
        (1, 2, true) => wide!(from, I => wide!(to, O => Some(embed::<I, O, f64>))),
        (1, 1, true) => wide!(from, I => wide!(to, O => Some(convert::<I, O, f64, 1>))),
        (2, 2, true) => wide!(from, I => wide!(to, O => Some(convert::<I, O, f64, 2>))),
        _ => None,
    }
}
