//! Primary codes from the interface specifications.

use super::System;

/// Delay of the second register's sequence in chips, satellite 1 first (IS-GPS-200, table 3-I).
const G2_DELAY_CHIPS: [usize; 37] = [
    5, 6, 7, 8, 17, 18, 139, 140, 141, 251, 252, 254, 255, 256, 257, 258, 469, 470, 471, 472, 473,
    474, 509, 512, 513, 514, 515, 516, 859, 860, 861, 862, 863, 950, 947, 948, 950,
];

/// Delays of the codes 120 to 158 (satellite-based augmentation systems) and 183 to 202 (QZSS): codes of the same
/// family on the same frequency (IS-GPS-200, tables 6-I and 6-II).
pub const AUGMENTATION_DELAY_CHIPS: [usize; 59] = [
    145, 175, 52, 21, 237, 235, 886, 657, 634, 762, 355, 1012, 176, 603, 130, 359, 595, 68, 386,
    797, 456, 499, 883, 307, 127, 211, 121, 118, 163, 628, 853, 484, 289, 811, 202, 1021, 463, 568,
    904, 144, 476, 193, 109, 445, 291, 87, 399, 292, 901, 339, 208, 711, 189, 263, 537, 663, 942,
    173, 900,
];

/// Memory codes of E1-B, satellite 1 first, four chips per digit, earliest first: the published table
/// of the Galileo interface control document, annex C.
const GALILEO_E1B: &str = include_str!("galileo_e1b.hex");

/// Returns the chips of satellite `prn`, each 1 (logic 0) or -1 (logic 1); `None` if the satellite does not exist.
#[must_use]
pub fn chips(system: System, prn: usize) -> Option<Vec<i8>> {
    if system.prns().contains(&prn) { (system.signal().code)(prn) } else { None }
}

/// Returns the C/A code of a satellite.
pub(super) fn gps_l1_ca(prn: usize) -> Option<Vec<i8>> {
    Some(gold(*G2_DELAY_CHIPS.get(prn.checked_sub(1)?)?))
}

/// Combines the sequences of two registers with 10 stages, the second one delayed by `delay` chips.
pub(super) fn gold(delay: usize) -> Vec<i8> {
    let g1 = register(&[3, 10]);
    let g2 = register(&[2, 3, 6, 8, 9, 10]);
    let length = g1.len();
    (0..length).map(|i| if g1[i] ^ g2[(i + length - delay) % length] { -1 } else { 1 }).collect()
}

/// Returns the output of a shift register, initially all ones, with feedback from these stages, counted from 1.
fn register(stages: &[usize]) -> Vec<bool> {
    let mut state = [true; 10];
    let step = |_| {
        let output = state[9];
        let fed_back = stages.iter().fold(false, |sum, stage| sum ^ state[stage - 1]);
        state.rotate_right(1);
        state[0] = fed_back;
        output
    };
    (0..1023).map(step).collect()
}

/// Returns the E1-B code of a satellite.
pub(super) fn galileo_e1b(prn: usize) -> Option<Vec<i8>> {
    let digits = GALILEO_E1B.lines().nth(prn.checked_sub(1)?)?;
    let chip = |digit: u32, bit: u32| if digit >> bit & 1 == 1 { -1 } else { 1 };
    let of_digit = |digit: u32| [3, 2, 1, 0].map(|bit| chip(digit, bit));
    Some(digits.chars().filter_map(|digit| digit.to_digit(16)).flat_map(of_digit).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use num_complex::Complex64;
    use rustfft::FftPlanner;

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

    #[test]
    fn other_satellites_have_no_chips() {
        for system in System::ALL {
            let [before, after] = [*system.prns().start() - 1, *system.prns().end() + 1];
            assert!(chips(system, before).is_none() && chips(system, after).is_none());
        }
    }
}
