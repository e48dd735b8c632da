//! The axis names that streams between blocks use.

/// Every name, in the order of a signal's way through the chain.
pub const NAMES: &[&str] = &[
    "sample", "heap", "pol", "spectrum", "unzip", "channel", "antenna", "baseline", "product",
    "beam",
];

/// The name as axes keep it, if it is one of [`NAMES`].
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|known| **known == name).copied()
}
