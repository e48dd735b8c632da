//! What is measured on the digitiser's samples.
#![allow(unsafe_code)] // Calls of functions compiled for AVX2 and AVX-512.

use crate::simd::Form;

/// Sum of the squares of `samples`, and how many of them are `limit` or more from 0.
pub fn power(samples: &[i16], limit: i16, form: Form) -> (u64, u64) {
    match form {
        Form::Portable => power_any(samples, limit),
        // SAFETY: a form is chosen only if the processor has it.
        #[cfg(target_arch = "x86_64")]
        Form::Avx2 => unsafe { power_avx2(samples, limit) },
        // SAFETY: likewise.
        #[cfg(target_arch = "x86_64")]
        Form::Avx512 => unsafe { power_avx512(samples, limit) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn power_avx2(samples: &[i16], limit: i16) -> (u64, u64) {
    power_any(samples, limit)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn power_avx512(samples: &[i16], limit: i16) -> (u64, u64) {
    power_any(samples, limit)
}

#[inline(always)]
fn power_any(samples: &[i16], limit: i16) -> (u64, u64) {
    // So many squares fit 32 bits, and their number 16 bits; then vectors hold more of them.
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
    fn every_form_counts_exactly_whatever_the_width() {
        let mut random = Random::new(2);
        for bits in [2, 8, 10, 12, 16] {
            let mut samples: Vec<i16> =
                (0..40_003).map(|_| random.bits() as i16 >> (16 - bits)).collect();
            // The worst for sums of squares.
            samples[..20_000].fill(i16::MIN >> (16 - bits));
            let limit = i16::MAX >> (16 - bits);
            let squares: i64 = samples.iter().map(|x| i64::from(*x).pow(2)).sum();
            let over = samples.iter().filter(|x| x.unsigned_abs() >= limit.unsigned_abs()).count();
            for form in Form::available() {
                let got = power(&samples, limit, form);
                assert_eq!(got, (squares as u64, over as u64), "{form:?}, {bits} bits");
            }
        }
    }
}
