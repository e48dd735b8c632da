//! Codes of GPS and QZSS.
#![allow(clippy::unnecessary_wraps, reason = "functions of the table of signals have one type")]

use super::gps_tables::{
    L1C_D_WEIL, L1C_OVERLAY, L1C_OVERLAY_SECOND, L1C_P_WEIL, L2_CL_STATE, L2_CM_STATE,
    L5_I_ADVANCE, L5_Q_ADVANCE,
};
use super::registers::{Register, chips, legendre, specified, weil};

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
/// Place of satellite 193 in that list.
const FIRST_QZSS: usize = 49;

/// Chips of the codes of L1C, L2 CM and L5.
const CHIPS: usize = 10_230;

/// Returns the C/A code of a satellite of GPS.
pub fn gps_l1_ca(prn: usize) -> Option<Vec<i8>> {
    Some(gold(*G2_DELAY_CHIPS.get(prn.checked_sub(1)?)?))
}

/// Returns the C/A code of a satellite of QZSS.
pub fn qzss_l1_ca(prn: usize) -> Option<Vec<i8>> {
    Some(gold(*AUGMENTATION_DELAY_CHIPS.get(FIRST_QZSS + prn.checked_sub(193)?)?))
}

/// Combines the sequences of two registers with 10 stages, the second one delayed by `delay` chips.
pub fn gold(delay: usize) -> Vec<i8> {
    const LENGTH: usize = 1023;
    let first = Register::ones(10, &[3, 10]);
    let second = Register::ones(10, &[2, 3, 6, 8, 9, 10]).skip(LENGTH - delay % LENGTH);
    chips(first.zip(second).map(|(a, b)| a ^ b).take(LENGTH))
}

/// Returns the row of a satellite in the tables.
fn row<T: Copy>(table: &[T], prn: usize) -> Option<T> {
    let row = match prn {
        1..=63 => prn - 1,
        193..=202 => prn - 130,
        _ => return None,
    };
    table.get(row).copied()
}

/// Returns the code of the data component of L1C.
pub fn l1c_d(prn: usize) -> Option<Vec<i8>> {
    Some(l1c(row(L1C_D_WEIL.as_chunks().0, prn)?))
}

/// Returns the code of the pilot component of L1C.
pub fn l1c_p(prn: usize) -> Option<Vec<i8>> {
    Some(l1c(row(L1C_P_WEIL.as_chunks().0, prn)?))
}

/// Returns a Weil code of 10223 chips, with 7 chips inserted before the one with this index, counted from 1.
fn l1c([index, insertion]: [u16; 2]) -> Vec<i8> {
    const INSERTED: [bool; 7] = [false, true, true, false, true, false, false];
    let squares = legendre(10_223);
    let before = usize::from(insertion) - 1;
    let code = || weil(&squares, usize::from(index), 0);
    chips(code().take(before).chain(INSERTED).chain(code().skip(before)).take(CHIPS))
}

/// Returns the overlay code of the pilot component of L1C.
pub fn l1c_overlay(prn: usize) -> Option<Vec<i8>> {
    const LENGTH: usize = 1800;
    let register = |polynomial: u16, state: u16| specified(11, polynomial.into(), state.into());
    let [polynomial, state] = row(L1C_OVERLAY.as_chunks().0, prn)?;
    let first = register(polynomial, state);
    let Some(place) = prn.checked_sub(193) else { return Some(chips(first.take(LENGTH))) };
    let second = register(0o5001, *L1C_OVERLAY_SECOND.get(place)?);
    Some(chips(first.zip(second).map(|(a, b)| a ^ b).take(LENGTH)))
}

/// Returns the moderate code of L2C.
pub fn l2c_m(prn: usize) -> Option<Vec<i8>> {
    Some(l2c(row(&L2_CM_STATE, prn)?, CHIPS))
}

/// Returns the long code of L2C.
pub fn l2c_l(prn: usize) -> Option<Vec<i8>> {
    Some(l2c(row(&L2_CL_STATE, prn)?, 75 * CHIPS))
}

/// Returns the chips of a register whose output is added to several stages.
fn l2c(state: u32, count: usize) -> Vec<i8> {
    const STAGES: u32 = 0o445_112_474;
    let mut state = state;
    let step = |_| {
        let output = state & 1;
        state = (state >> 1) ^ (STAGES * output);
        output == 1
    };
    chips((0..count).map(step))
}

/// Returns the code of the in-phase component of L5.
pub fn l5_i(prn: usize) -> Option<Vec<i8>> {
    Some(l5(row(&L5_I_ADVANCE, prn)?))
}

/// Returns the code of the quadrature component of L5.
pub fn l5_q(prn: usize) -> Option<Vec<i8>> {
    Some(l5(row(&L5_Q_ADVANCE, prn)?))
}

fn l5(advance: u16) -> Vec<i8> {
    // The first register restarts one chip before its period.
    let first = Register::ones(13, &[9, 10, 12, 13]).take(8190);
    let second = Register::ones(13, &[1, 3, 4, 6, 7, 8, 12, 13]).skip(advance.into());
    chips(first.cycle().zip(second).map(|(a, b)| a ^ b).take(CHIPS))
}

/// Returns the Neuman-Hofman code of the in-phase component of L5.
pub fn l5_i_secondary(_prn: usize) -> Option<Vec<i8>> {
    Some(vec![1, 1, 1, 1, -1, -1, 1, -1, 1, -1])
}

/// Returns the Neuman-Hofman code of the quadrature component of L5.
pub fn l5_q_secondary(_prn: usize) -> Option<Vec<i8>> {
    Some(vec![1, 1, 1, 1, 1, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1, 1, -1, -1, -1, 1])
}
