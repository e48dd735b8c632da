//! Receivers of navigation satellites.

#[cfg(test)]
mod array;
pub mod gnss_acquisition;
pub mod gnss_check;
pub mod gnss_correlator;
pub mod gnss_position;
pub mod gnss_signal_simulator;
pub mod gnss_tracker;
#[cfg(test)]
mod low_rate;
mod navigation;
#[cfg(test)]
mod recordings;
pub mod samples;
pub mod satellites;
pub mod weights;
