//! The blocks of fxgraph, one folder each. They use the framework's public API only, as
//! anyone's own blocks would.
//!
//! Adding a block: its folder, and a `pub mod` and an entry of the list below.

pub mod antenna_stack;
mod axes;
pub mod beamformer;
pub mod benchmarks;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod chain;
pub mod conformance;
pub mod convert;
pub mod correlator;
pub mod ddc;
pub mod delay;
pub mod digitiser_simulator;
pub mod dither;
pub mod f_engine;
pub mod fault_injector;
pub mod fft;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod file_parameters;
pub mod file_sink;
pub mod file_source;
pub mod frb_beamformer;
pub mod frb_simulator;
pub mod fringe_check;
mod geometry;
pub mod gnss;
pub mod gnss_acquisition;
pub mod gnss_check;
pub mod gnss_correlator;
pub mod gnss_signal_simulator;
pub mod gnss_tracker;
pub mod gpu;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod hostile_ports;
pub mod image_sink;
mod live;
pub mod null_sink;
pub mod null_source;
mod pace;
pub mod packed;
pub mod parallel;
pub mod pfb;
pub mod pol_aligner;
pub mod postproc;
mod random;
pub mod real_fft;
pub mod recorder;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod retune_tests;
mod simd;
pub mod spead;
pub mod spead_sink;
pub mod spead_source;
mod spectra;
pub mod stacked;
pub mod steady;
pub mod transpose;
mod versions;

use fxgraph::KindEntry;

/// All kinds in this crate.
#[must_use]
pub fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<antenna_stack::AntennaStack>(),
        KindEntry::of::<beamformer::Beamformer>(),
        KindEntry::of::<convert::Convert>(),
        KindEntry::of::<correlator::Correlator>(),
        KindEntry::of::<ddc::Ddc>(),
        KindEntry::of::<digitiser_simulator::DigitiserSimulator>(),
        KindEntry::of::<f_engine::FEngine>(),
        KindEntry::of::<fault_injector::FaultInjector>(),
        KindEntry::of::<fft::Fft>(),
        KindEntry::of::<file_sink::FileSink>(),
        KindEntry::of::<file_source::FileSource>(),
        KindEntry::of::<frb_beamformer::FrbBeamformer>(),
        KindEntry::of::<frb_simulator::FrbSimulator>(),
        KindEntry::of::<fringe_check::FringeCheck>(),
        KindEntry::of::<gnss_acquisition::GnssAcquisition>(),
        KindEntry::of::<gnss_check::GnssCheck>(),
        KindEntry::of::<gnss_correlator::GnssCorrelator>(),
        KindEntry::of::<gnss_signal_simulator::GnssSignalSimulator>(),
        KindEntry::of::<gnss_tracker::GnssTracker>(),
        KindEntry::of::<image_sink::ImageSink>(),
        KindEntry::of::<null_sink::NullSink>(),
        KindEntry::of::<null_source::NullSource>(),
        KindEntry::of::<pfb::Pfb>(),
        KindEntry::of::<pol_aligner::PolAligner>(),
        KindEntry::of::<postproc::Postproc>(),
        KindEntry::of::<recorder::Recorder>(),
        KindEntry::of::<spead_sink::SpeadSink>(),
        KindEntry::of::<spead_source::SpeadSource>(),
        KindEntry::of::<transpose::Transpose>(),
    ]
}
