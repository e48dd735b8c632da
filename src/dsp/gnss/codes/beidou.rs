//! Codes of BeiDou (interface control documents of B1C and B2a).
#![allow(clippy::unnecessary_wraps, reason = "functions of the table of signals have one type")]

use super::beidou_tables::{
    B1C_D_WEIL, B1C_P_WEIL, B1C_SECONDARY_WEIL, B2A_D_STATE, B2A_P_STATE, B2A_SECONDARY_WEIL,
};
use super::registers::{Register, bits, chips, legendre, weil};

/// Chips of the codes of B1C and B2a.
const CHIPS: usize = 10_230;

fn row<T: Copy>(table: &[T], prn: usize) -> Option<T> {
    table.get(prn.checked_sub(1)?).copied()
}

/// Returns a part of a Weil code, from the truncation point of a row on, counted from 1.
fn truncated(length: usize, [index, first]: [u16; 2], count: usize) -> Vec<i8> {
    let squares = legendre(length);
    chips(weil(&squares, index.into(), usize::from(first) - 1).take(count))
}

/// Returns the code of the data component of B1C.
pub fn b1c_d(prn: usize) -> Option<Vec<i8>> {
    Some(truncated(10_243, row(B1C_D_WEIL.as_chunks().0, prn)?, CHIPS))
}

/// Returns the code of the pilot component of B1C.
pub fn b1c_p(prn: usize) -> Option<Vec<i8>> {
    Some(truncated(10_243, row(B1C_P_WEIL.as_chunks().0, prn)?, CHIPS))
}

/// Returns the secondary code of the pilot component of B1C.
pub fn b1c_p_secondary(prn: usize) -> Option<Vec<i8>> {
    Some(truncated(3607, row(B1C_SECONDARY_WEIL.as_chunks().0, prn)?, 1800))
}

/// Combines two registers of 13 stages with feedback from these stages.
fn b2a(first: &[u32], second: &[u32], state: u16) -> Vec<i8> {
    // The first register restarts one chip before its period.
    let first = Register::ones(13, first).take(8190);
    let second = Register::new(13, state.into(), bits(13, second));
    chips(first.cycle().zip(second).map(|(a, b)| a ^ b).take(CHIPS))
}

/// Returns the code of the data component of B2a.
pub fn b2a_d(prn: usize) -> Option<Vec<i8>> {
    Some(b2a(&[1, 5, 11, 13], &[3, 5, 9, 11, 12, 13], row(&B2A_D_STATE, prn)?))
}

/// Returns the code of the pilot component of B2a.
pub fn b2a_p(prn: usize) -> Option<Vec<i8>> {
    Some(b2a(&[3, 6, 7, 13], &[1, 5, 7, 8, 12, 13], row(&B2A_P_STATE, prn)?))
}

/// Returns the secondary code of the data component of B2a.
pub fn b2a_d_secondary(_prn: usize) -> Option<Vec<i8>> {
    Some(vec![1, 1, 1, -1, 1])
}

/// Returns the secondary code of the pilot component of B2a.
pub fn b2a_p_secondary(prn: usize) -> Option<Vec<i8>> {
    Some(truncated(1021, row(B2A_SECONDARY_WEIL.as_chunks().0, prn)?, 100))
}
