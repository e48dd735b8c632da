//! The F-engine: digitised samples to packed spectra.

pub mod ddc;
pub mod detect;
// A kind's directory has the kind's name.
#[allow(clippy::module_inception)]
pub mod f_engine;
pub mod fft;
pub mod pfb;
pub mod pol_aligner;
pub mod postproc;
pub(crate) mod samples;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<ddc::Ddc>(),
        KindEntry::of::<detect::Detect>(),
        KindEntry::of::<f_engine::FEngine>(),
        KindEntry::of::<fft::Fft>(),
        KindEntry::of::<pfb::Pfb>(),
        KindEntry::of::<pol_aligner::PolAligner>(),
        KindEntry::of::<postproc::Postproc>(),
    ]
}
