//! SigMF: samples of radio signals, with their description in JSON.
//!
//! A recording is two files: `x.sigmf-data` has the samples and nothing else, `x.sigmf-meta` their description. Samples
//! of several channels alternate: `[sample][channel]`. An archive, `x.sigmf`, has both files.

mod archive;
mod datatype;
mod layout;
mod meta;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use archive::{Archive, ArchiveError};
pub use datatype::{Datatype, Number, UnknownDatatype};
pub use layout::{Layout, LayoutError, Segment};
pub use meta::{
    Annotation, Capture, Extension, Global, MAX_BYTES, MISSING, Meta, NotMeta, VERSION,
};
