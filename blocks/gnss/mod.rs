//! Receivers of navigation satellites.

pub mod gnss_acquisition;
pub mod gnss_check;
pub mod gnss_correlator;
pub mod gnss_signal_simulator;
pub mod gnss_tracker;
pub mod samples;
pub mod satellites;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<gnss_acquisition::GnssAcquisition>(),
        KindEntry::of::<gnss_check::GnssCheck>(),
        KindEntry::of::<gnss_correlator::GnssCorrelator>(),
        KindEntry::of::<gnss_signal_simulator::GnssSignalSimulator>(),
        KindEntry::of::<gnss_tracker::GnssTracker>(),
    ]
}
