//! The X-engine: packed spectra of all antennas to visibilities and beams.

pub mod antenna_stack;
pub mod beamformer;
pub mod correlator;
pub mod fringe_check;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<antenna_stack::AntennaStack>(),
        KindEntry::of::<beamformer::Beamformer>(),
        KindEntry::of::<correlator::Correlator>(),
        KindEntry::of::<fringe_check::FringeCheck>(),
    ]
}
