//! The X-engine: packed spectra of all antennas to visibilities and beams.

pub mod antenna_stack;
pub mod average;
pub mod beamformer;
pub mod correlator;
pub mod fringe_check;
pub mod gain_solver;
