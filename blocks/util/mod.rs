//! Blocks that test, adapt or end a flowgraph.

pub mod convert;
pub mod fault_injector;
pub mod null_sink;
pub mod null_source;
pub mod transpose;

use fxgraph::KindEntry;

/// The kinds of this family.
pub(crate) fn kinds() -> Vec<KindEntry> {
    vec![
        KindEntry::of::<convert::Convert>(),
        KindEntry::of::<fault_injector::FaultInjector>(),
        KindEntry::of::<null_sink::NullSink>(),
        KindEntry::of::<null_source::NullSource>(),
        KindEntry::of::<transpose::Transpose>(),
    ]
}
