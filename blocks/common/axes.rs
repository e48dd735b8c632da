//! What streams between blocks have in common: the names of axes, and how large frames are at most.

use fxgraph::diagnostic::codes;
use fxgraph::{At, PortType, Refusal};

/// Largest frame: larger ones are surely a mistake.
pub const MAX_FRAME_BYTES: usize = 4 << 30;

/// Every name, in the order of a signal's way through the chain.
pub const NAMES: &[&str] = &[
    "sample",
    "heap",
    "pol",
    "spectrum",
    "unzip",
    "channel",
    "antenna",
    "baseline",
    "product",
    "beam",
    "east_west",
    "north_south",
    "epoch",
    "satellite",
    "tap",
    "value",
];

/// Refuses input `index` of a block unless its validity has exactly these axes.
#[must_use]
pub fn refuse_validity(index: usize, port: &PortType, wanted: &[(&str, usize)]) -> Option<Refusal> {
    let units = |axes: &[(&str, usize)]| {
        let axes: Vec<String> = axes.iter().map(|(name, len)| format!("[{name} {len}]")).collect();
        if axes.is_empty() { "one flag".to_owned() } else { axes.concat() }
    };
    let found: Vec<_> = port.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    (found != wanted).then(|| {
        let message = format!("validity has to be {}, here it is {}", units(wanted), units(&found));
        Refusal::new(codes::INPUT_AXIS, At::Input(index), message)
            .help("the flags say what of a frame is missing; the block before decides on them")
    })
}

/// The name as axes keep it, if it is one of [`NAMES`].
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|known| **known == name).copied()
}
