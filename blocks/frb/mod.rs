//! Beams of intensities for the search of fast radio bursts.

pub mod frb_beamformer;
pub mod frb_simulator;
