//! Sources and sinks: SPEAD streams, files, simulated digitisers.

pub mod digitiser_simulator;
pub mod file_sink;
pub mod file_source;
pub mod image_sink;
pub(crate) mod pace;
pub mod recorder;
pub mod spead;
pub mod spead_sink;
pub mod spead_source;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<digitiser_simulator::DigitiserSimulator>(),
        KindEntry::of::<file_sink::FileSink>(),
        KindEntry::of::<file_source::FileSource>(),
        KindEntry::of::<image_sink::ImageSink>(),
        KindEntry::of::<recorder::Recorder>(),
        KindEntry::of::<spead_sink::SpeadSink>(),
        KindEntry::of::<spead_source::SpeadSource>(),
    ]
}
