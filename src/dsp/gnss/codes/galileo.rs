//! Codes of Galileo (open service signal-in-space interface control document).
#![allow(clippy::unnecessary_wraps, reason = "functions of the table of signals have one type")]

use super::galileo_tables::{E5A_I_STATE, E5A_Q_STATE, E5B_I_STATE, E5B_Q_STATE};
use super::registers::{chips, of_hex, specified};

/// Memory codes, satellite 1 first, four chips per digit, earliest first: the published tables of annex C.
const E1B: &str = include_str!("galileo_e1b.hex");
const E1C: &str = include_str!("galileo_e1c.hex");
/// Secondary codes of 100 chips, number 1 first.
const CS100: &str = include_str!("galileo_cs100.hex");

/// Polynomials of the first and the second register.
const E5A_I: [u32; 2] = [0o40503, 0o50661];
const E5A_Q: [u32; 2] = [0o40503, 0o50661];
const E5B_I: [u32; 2] = [0o64021, 0o51445];
const E5B_Q: [u32; 2] = [0o64021, 0o43143];

fn line(of: &str, prn: usize) -> Option<Vec<i8>> {
    of.lines().nth(prn.checked_sub(1)?).map(of_hex)
}

/// Returns the E1-B code of a satellite.
pub fn e1b(prn: usize) -> Option<Vec<i8>> {
    line(E1B, prn)
}

/// Returns the E1-C code of a satellite.
pub fn e1c(prn: usize) -> Option<Vec<i8>> {
    line(E1C, prn)
}

/// Returns the secondary code of E1-C.
pub fn e1c_secondary(_prn: usize) -> Option<Vec<i8>> {
    let mut code = of_hex("380AD90");
    code.truncate(25);
    Some(code)
}

fn e5([first, second]: [u32; 2], states: &[u16], prn: usize) -> Option<Vec<i8>> {
    let state = *states.get(prn.checked_sub(1)?)?;
    let first = specified(14, first, (1 << 14) - 1);
    let second = specified(14, second, state.into());
    Some(chips(first.zip(second).map(|(a, b)| a ^ b).take(10_230)))
}

/// Returns the E5a-I code of a satellite.
pub fn e5a_i(prn: usize) -> Option<Vec<i8>> {
    e5(E5A_I, &E5A_I_STATE, prn)
}

/// Returns the E5a-Q code of a satellite.
pub fn e5a_q(prn: usize) -> Option<Vec<i8>> {
    e5(E5A_Q, &E5A_Q_STATE, prn)
}

/// Returns the E5b-I code of a satellite.
pub fn e5b_i(prn: usize) -> Option<Vec<i8>> {
    e5(E5B_I, &E5B_I_STATE, prn)
}

/// Returns the E5b-Q code of a satellite.
pub fn e5b_q(prn: usize) -> Option<Vec<i8>> {
    e5(E5B_Q, &E5B_Q_STATE, prn)
}

/// Returns the secondary code of E5a-I.
pub fn e5a_i_secondary(_prn: usize) -> Option<Vec<i8>> {
    Some(of_hex("842E9"))
}

/// Returns the secondary code of E5b-I.
pub fn e5b_i_secondary(_prn: usize) -> Option<Vec<i8>> {
    Some(of_hex("E"))
}

/// Returns the secondary code of E5a-Q.
pub fn e5a_q_secondary(prn: usize) -> Option<Vec<i8>> {
    line(CS100, prn)
}

/// Returns the secondary code of E5b-Q.
pub fn e5b_q_secondary(prn: usize) -> Option<Vec<i8>> {
    line(CS100, prn + 50)
}
