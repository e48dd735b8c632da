//! Power and clipping of a digitiser's samples, and power of quantised values.

use crate::simd::InstructionSet;

/// Returns the sum of the squares of `samples`, in units of their least significant bit, and the number of samples
/// with a magnitude of at least `limit`.
#[must_use]
#[allow(unsafe_code, reason = "calls an implementation that the CPU supports")]
pub fn power(samples: &[i16], limit: i16, instructions: InstructionSet) -> (u64, u64) {
    match instructions {
        InstructionSet::Portable => power_any(samples, limit),
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { x86::avx2(samples, limit) },
        // SAFETY: an implementation is chosen only if the CPU supports it.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { x86::avx512(samples, limit) },
    }
}

/// Returns the sum of the squares of quantised numbers, real and imaginary parts alike.
#[must_use]
pub fn sum_of_squares(parts: &[i8]) -> u64 {
    // As many squares as fit 32 bits, so that vectors hold more of them.
    const RUN: usize = 1 << 16;
    let square = |x: &i8| i32::from(*x).pow(2).cast_unsigned();
    parts.chunks(RUN).map(|parts| u64::from(parts.iter().map(square).sum::<u32>())).sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::power_any;

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2(samples: &[i16], limit: i16) -> (u64, u64) {
        power_any(samples, limit)
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn avx512(samples: &[i16], limit: i16) -> (u64, u64) {
        power_any(samples, limit)
    }
}

#[inline(always)]
fn power_any(samples: &[i16], limit: i16) -> (u64, u64) {
    // Number of squares whose sum fits 32 bits, and whose count fits 16 bits, so that vectors hold more of them.
    let largest = (i64::from(limit) + 1).pow(2);
    let run = (i64::from(u32::MAX) / largest).min(i64::from(u16::MAX)) as usize;
    let (run, is_wide) = if run < 64 { (usize::from(u16::MAX), true) } else { (run, false) };
    let (mut power, mut clipped) = (0, 0);
    for samples in samples.chunks(run) {
        let square = |x: i16| (i32::from(x) * i32::from(x)).cast_unsigned();
        let over = |x: i16| u16::from(x >= limit) | u16::from(x <= -limit);
        power += if is_wide {
            samples.iter().map(|x| u64::from(square(*x))).sum::<u64>()
        } else {
            u64::from(samples.iter().map(|x| square(*x)).sum::<u32>())
        };
        clipped += u64::from(samples.iter().map(|x| over(*x)).sum::<u16>());
    }
    (power, clipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn sum_of_squares_of_the_largest_parts_does_not_overflow() {
        let len = if cfg!(miri) { 300 } else { 1 << 18 };
        let parts = vec![i8::MIN; len + 1];
        assert_eq!(sum_of_squares(&parts), (len as u64 + 1) << 14);
        assert_eq!(sum_of_squares(&[3, -4, 0, 127]), 25 + 127 * 127);
    }

    #[test]
    fn every_implementation_is_exact_for_every_width() {
        let mut random = Random::new(2);
        let len = if cfg!(miri) { 403 } else { 40_003 };
        for bits in [2, 8, 10, 12, 16] {
            let mut samples: Vec<i16> =
                (0..len).map(|_| random.bits() as i16 >> (16 - bits)).collect();
            // Largest squares.
            samples[..len / 2].fill(i16::MIN >> (16 - bits));
            let limit = i16::MAX >> (16 - bits);
            let squares: i64 = samples.iter().map(|x| i64::from(*x).pow(2)).sum();
            let over = samples.iter().filter(|x| x.unsigned_abs() >= limit.unsigned_abs()).count();
            for instructions in InstructionSet::available() {
                let got = power(&samples, limit, instructions);
                assert_eq!(got, (squares as u64, over as u64), "{instructions:?}, {bits} bits");
            }
        }
    }
}
