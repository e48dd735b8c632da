//! Levels of samples: a type or byte order that is declared wrongly shows in them.

use crate::types::SampleType;
use std::time::{Duration, Instant};

/// Bytes that are looked at together.
const LOOKED_AT: usize = 32 << 10;
/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(10);
/// Ratio of powers from which the numbers of the other type or byte order are the right ones: 12 dB.
const FAR_LESS: f64 = 16.0;
/// Floats beyond these are no samples.
const HUGE: f32 = 1e9;
const TINY: f32 = 1e-30;
/// Part of floats that may be no samples.
const FEW: f64 = 0.01;

/// Looks at samples now and then.
pub struct Levels {
    of: SampleType,
    bytes: Vec<u8>,
    /// Time of the next look; `None` before the first one.
    next: Option<Instant>,
    is_told: bool,
}

impl Levels {
    /// Looks at samples of type `of`.
    pub fn new(of: SampleType) -> Self {
        Self { of, bytes: Vec::with_capacity(LOOKED_AT), next: None, is_told: false }
    }

    /// Looks at whole samples. Returns a warning that names the likely cause, once.
    pub fn look(&mut self, raw: &[u8], now: Instant) -> Option<String> {
        if self.is_told || self.next.is_some_and(|next| now < next) {
            return None;
        }
        let room = LOOKED_AT - self.bytes.len();
        self.bytes.extend_from_slice(&raw[..room.min(raw.len())]);
        if self.bytes.len() < LOOKED_AT {
            return None;
        }
        let found = judge(self.of, &self.bytes);
        self.bytes.clear();
        self.next = Some(now + INTERVAL);
        self.is_told = found.is_some();
        found.map(|why| format!("the samples are no plausible {}: {why}", self.of))
    }
}

/// Returns the reason if samples of type `of` are not plausible.
fn judge(of: SampleType, raw: &[u8]) -> Option<String> {
    use SampleType as T;
    let sample = &raw[..of.bytes()];
    if raw.chunks_exact(of.bytes()).all(|other| other == sample) {
        return Some("all are the same; check that the receiver runs".to_owned());
    }
    match of {
        T::Cu8 | T::U8 | T::Ci8 | T::I8 => {
            let power = |mask: u8| {
                let square = |byte: &u8| f64::from((byte ^ mask).cast_signed()).powi(2);
                raw.iter().map(square).sum::<f64>()
            };
            let (mask, other) = match of {
                T::Cu8 => (0x80, T::Ci8),
                T::U8 => (0x80, T::I8),
                T::Ci8 => (0, T::Cu8),
                _ => (0, T::U8),
            };
            let is_other = power(mask) > FAR_LESS * power(mask ^ 0x80);
            is_other.then(|| format!("they look like {other}; correct `type`"))
        }
        T::Ci16 | T::Ci16Be | T::I16 | T::I16Be => {
            let (pairs, _) = raw.as_chunks::<2>();
            let power = |number: fn([u8; 2]) -> i16| {
                pairs.iter().map(|pair| f64::from(number(*pair)).powi(2)).sum::<f64>()
            };
            let (little, big) = (power(i16::from_le_bytes), power(i16::from_be_bytes));
            let (own, swapped, low, other) = match of {
                T::Ci16 => (little, big, 0, T::Ci16Be),
                T::I16 => (little, big, 0, T::I16Be),
                T::Ci16Be => (big, little, 1, T::Ci16),
                _ => (big, little, 1, T::I16),
            };
            // Numbers of 8 bits that were shifted up have no low bits.
            let is_shifted = pairs.iter().all(|pair| pair[low] == 0);
            let is_other = !is_shifted && own > FAR_LESS * swapped;
            is_other
                .then(|| format!("they look like {other}, of the other byte order; correct `type`"))
        }
        T::Cf32 | T::F32 => {
            let (words, _) = raw.as_chunks::<4>();
            let is_wrong = |bytes: &&[u8; 4]| {
                let size = f32::from_le_bytes(**bytes).abs();
                !(size == 0.0 || (TINY..=HUGE).contains(&size))
            };
            let part = words.iter().filter(is_wrong).count() as f64 / words.len() as f64;
            (part > FEW).then(|| {
                format!(
                    "{:.0} % of the numbers are NaN, huge or tiny; are they integers, or of the other byte order?",
                    100.0 * part
                )
            })
        }
        T::Ci12p => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers like noise, with a standard deviation of about `rms`.
    fn noise(rms: f64) -> impl Iterator<Item = f64> {
        let mut state = 1_u64;
        std::iter::from_fn(move || {
            let mut sum = -6.0;
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                sum += (state >> 40) as f64 / f64::from(1 << 24);
            }
            Some(sum * rms)
        })
    }

    fn raw(of: SampleType, rms: f64) -> Vec<u8> {
        let floats: Vec<f32> = noise(rms).map(|value| value as f32).take(LOOKED_AT).collect();
        let mut raw = vec![0; LOOKED_AT];
        of.quantise(&floats, 1.0, &mut raw);
        raw
    }

    #[test]
    fn noise_of_any_level_is_plausible_as_its_own_type() {
        for of in SampleType::all() {
            for rms in [0.02, 0.1, 0.3] {
                assert_eq!(judge(of, &raw(of, rms)), None, "{of} {rms}");
            }
        }
    }

    #[test]
    fn other_signs_and_byte_orders_are_named() {
        use SampleType as T;
        for (sent, declared) in [
            (T::Cu8, T::Ci8),
            (T::Ci8, T::Cu8),
            (T::Ci16, T::Ci16Be),
            (T::Ci16Be, T::Ci16),
            (T::I16Be, T::I16),
        ] {
            let why = judge(declared, &raw(sent, 0.05)).unwrap_or_default();
            assert!(why.contains(&format!("look like {sent}")), "{sent} as {declared}: {why}");
        }
        for sent in [T::Ci16, T::Cu8] {
            let why = judge(T::Cf32, &raw(sent, 0.1)).unwrap_or_default();
            assert!(why.contains("NaN, huge or tiny"), "{why}");
        }
        // 8 bits in the upper half of 16.
        let shifted: Vec<u8> = raw(T::Ci8, 0.1).into_iter().flat_map(|byte| [0, byte]).collect();
        assert_eq!(judge(T::Ci16, &shifted), None);
    }

    #[test]
    fn warning_comes_once() {
        let mut levels = Levels::new(SampleType::Cu8);
        let silent = vec![128; 2 * LOOKED_AT];
        let now = Instant::now();
        let told = |levels: &mut Levels, seconds| {
            levels.look(&silent, now + Duration::from_secs(seconds)).is_some()
        };
        assert_eq!(
            [0, 1, 20, 40].map(|seconds| told(&mut levels, seconds)),
            [true, false, false, false]
        );
    }
}
