//! Primary and secondary codes from the interface specifications.

pub(super) mod beidou;
#[allow(clippy::unreadable_literal, reason = "written as in the specification")]
mod beidou_tables;
pub(super) mod galileo;
#[allow(clippy::unreadable_literal, reason = "written as in the specification")]
mod galileo_tables;
pub(super) mod gps;
#[allow(clippy::unreadable_literal, reason = "written as in the specification")]
mod gps_tables;
mod registers;

use super::System;
pub use gps::AUGMENTATION_DELAY_CHIPS;

/// Returns the chips of satellite `prn`, each 1 (logic 0) or -1 (logic 1); `None` if the satellite does not exist.
#[must_use]
pub fn chips(system: System, prn: usize) -> Option<Vec<i8>> {
    if system.prns().contains(&prn) { (system.signal().code)(prn) } else { None }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::gps::gold;
    use super::*;
    use num_complex::Complex64;
    use rustfft::FftPlanner;
    use sha2::{Digest as _, Sha256};

    /// First ten chips of each satellite in octal (IS-GPS-200, table 3-I).
    const FIRST_CHIPS: [u32; 37] = [
        0o1440, 0o1620, 0o1710, 0o1744, 0o1133, 0o1455, 0o1131, 0o1454, 0o1626, 0o1504, 0o1642,
        0o1750, 0o1764, 0o1772, 0o1775, 0o1776, 0o1156, 0o1467, 0o1633, 0o1715, 0o1746, 0o1763,
        0o1063, 0o1706, 0o1743, 0o1761, 0o1770, 0o1774, 0o1127, 0o1453, 0o1625, 0o1712, 0o1745,
        0o1713, 0o1134, 0o1456, 0o1713,
    ];

    /// Returns the circular correlations of two codes at all lags.
    fn correlations(a: &[i8], b: &[i8]) -> Vec<i64> {
        let n = a.len();
        let mut planner = FftPlanner::new();
        let transform = |code: &[i8], planner: &mut FftPlanner<f64>| {
            let mut values: Vec<_> = code.iter().map(|&c| Complex64::from(f64::from(c))).collect();
            planner.plan_fft_forward(n).process(&mut values);
            values
        };
        let (a, b) = (transform(a, &mut planner), transform(b, &mut planner));
        let mut product: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b.conj()).collect();
        planner.plan_fft_inverse(n).process(&mut product);
        product.iter().map(|value| (value.re / n as f64).round() as i64).collect()
    }

    #[test]
    fn gps_codes_begin_as_published() {
        for (index, expected) in FIRST_CHIPS.iter().enumerate() {
            let chips = chips(System::GpsL1Ca, index + 1).unwrap();
            let first = chips[..10].iter().fold(0, |word, &c| word << 1 | u32::from(c < 0));
            assert_eq!(first, *expected, "satellite {}", index + 1);
        }
    }

    #[test]
    fn augmentation_codes_begin_as_published() {
        let codes = AUGMENTATION_DELAY_CHIPS.map(gold);
        let first = |place: usize| {
            codes[place][..10].iter().fold(0, |word, &chip| word << 1 | u32::from(chip < 0))
        };
        // Satellites 120, 138, 183, 193 and 202 (IS-GPS-200, tables 6-I and 6-II).
        assert_eq!([0, 18, 39, 49, 58].map(first), [0o0671, 0o1327, 0o1562, 0o0727, 0o0732]);
    }

    #[test]
    fn gps_codes_are_gold_codes() {
        let codes: Vec<_> = (1..=32).map(|prn| chips(System::GpsL1Ca, prn).unwrap()).collect();
        for (i, a) in codes.iter().enumerate() {
            assert_eq!(a.iter().filter(|&&chip| chip < 0).count(), 512, "ones less than zeros");
            for (j, b) in codes.iter().enumerate().skip(i) {
                let all = correlations(a, b);
                let side = if i == j { &all[1..] } else { &all[..] };
                assert!(side.iter().all(|value| [-1, -65, 63].contains(value)), "{i} {j}");
                assert!(i != j || all[0] == 1023);
            }
        }
    }

    #[test]
    fn galileo_codes_begin_and_end_as_published() {
        let hex = |chips: &[i8]| {
            let digit = |four: &[i8]| {
                char::from_digit(four.iter().fold(0, |d, &c| d << 1 | u32::from(c < 0)), 16)
            };
            chips.chunks(4).filter_map(digit).collect::<String>().to_uppercase()
        };
        for (prn, first, last) in [
            (1, "F5D710130573541B9DBD4FD9E9B20A0D59D144C54BC79355", "6699421A"),
            (2, "96B856A629F581D1", "05A18204"),
            (3, "E57DE19A3E4A8C12", "014B7F8E"),
            (50, "97051FC67ACA30E8", "DE493020"),
        ] {
            let chips = chips(System::GalileoE1b, prn).unwrap();
            assert_eq!(hex(&chips[..4 * first.len()]), first);
            assert_eq!(hex(&chips[chips.len() - 32..]), last);
        }
    }

    #[test]
    fn galileo_codes_are_balanced_and_nearly_orthogonal() {
        let codes: Vec<_> = (1..=50).map(|prn| chips(System::GalileoE1b, prn).unwrap()).collect();
        for (i, a) in codes.iter().enumerate() {
            assert_eq!(a.len(), 4092);
            assert_eq!(
                a.iter().map(|&chip| i64::from(chip)).sum::<i64>(),
                0,
                "satellite {}",
                i + 1
            );
            for (j, b) in codes.iter().enumerate().skip(i) {
                let all = correlations(a, b);
                let side = if i == j { &all[1..] } else { &all[..] };
                let worst = side.iter().map(|value| value.abs()).max().unwrap();
                assert!(worst < 4092 / 10, "{i} {j}: {worst}");
            }
        }
    }

    /// Signal, satellite, first 24 chips in octal, digest, and digest of the secondary code, by two independent
    /// generators; `digests.py` describes them.
    const DIGESTS: &str = include_str!("digests.txt");

    /// First 16 digits of the SHA-256 of logic values.
    fn digest(chips: &[i8]) -> String {
        let bytes: Vec<u8> = chips.iter().map(|chip| u8::from(*chip < 0)).collect();
        let digest = Sha256::digest(bytes);
        format!("{:016x}", u64::from_be_bytes(digest[..8].try_into().unwrap()))
    }

    #[test]
    fn every_code_of_every_satellite_is_that_of_independent_generators() {
        let mut lines = DIGESTS.lines();
        let mut by_name: Vec<(&str, Vec<&str>)> = Vec::new();
        lines.by_ref().for_each(|line| {
            let name = line.split(' ').next().unwrap();
            match by_name.last_mut() {
                Some((last, of_signal)) if *last == name => of_signal.push(line),
                _ => by_name.push((name, vec![line])),
            }
        });
        assert_eq!(by_name.len(), System::ALL.len());
        for system in System::ALL {
            let (_, lines) = by_name.iter().find(|(name, _)| *name == system.name()).unwrap();
            assert_eq!(lines.len(), system.prns().count(), "{}", system.name());
            for (prn, line) in system.prns().zip(lines) {
                let chips = chips(system, prn).unwrap();
                assert_eq!(chips.len(), system.chips(), "{line}");
                let first = chips[..24].iter().fold(0, |word, c| word << 1 | u32::from(*c < 0));
                let mut found = format!("{} {prn} {first:08o} {}", system.name(), digest(&chips));
                if let Some((length, code)) = system.signal().secondary {
                    let secondary = code(prn).unwrap();
                    assert_eq!(secondary.len(), length, "{line}");
                    found = format!("{found} {}", digest(&secondary));
                }
                assert_eq!(found, **line);
            }
        }
    }

    #[test]
    fn periods_of_secondary_codes_and_symbols_are_multiples() {
        for system in System::ALL {
            let signal = system.signal();
            let Some((length, _)) = signal.secondary else { continue };
            // A symbol is a period of the secondary code, or several.
            if let Some(periods) = signal.periods_per_symbol {
                assert_eq!(periods % length as u64, 0, "{}", signal.name);
            }
        }
    }

    #[test]
    fn other_satellites_have_no_chips() {
        for system in System::ALL {
            let [before, after] = [*system.prns().start() - 1, *system.prns().end() + 1];
            assert!(chips(system, before).is_none() && chips(system, after).is_none());
        }
    }
}
