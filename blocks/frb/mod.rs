//! Beams of intensities for the search of fast radio bursts.

pub mod frb_beamformer;
pub mod frb_simulator;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<frb_beamformer::FrbBeamformer>(),
        KindEntry::of::<frb_simulator::FrbSimulator>(),
    ]
}
