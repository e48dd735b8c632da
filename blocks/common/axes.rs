//! Names of axes of all streams between blocks, and the largest size of a frame.

use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, PortType, Rejection};

/// Largest frame in bytes: a larger frame is surely a mistake.
pub const MAX_FRAME_BYTES: usize = 4 << 30;

/// All names of axes, in the order of the signal chain.
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
    "slot",
    "tap",
    "value",
    MEAN,
];

/// Axis, of length 1, of the validity of visibilities that are means over the data that the counts count. The values of
/// visibilities without it are sums.
pub const MEAN: &str = "mean";

/// Returns a diagnostic if input `index` has visibilities that are means.
#[must_use]
pub fn reject_means(index: usize, port: &PortType) -> Option<Rejection> {
    port.validity.axes.iter().any(|axis| axis.name == MEAN).then(|| {
        let message = "the visibilities of the input must be sums, got means";
        Rejection::new(codes::INPUT_AXIS, At::Input(index), message)
            .help("set `values: sum` of the `average` upstream")
    })
}

/// Returns a diagnostic unless the validity of input `index` of a block has exactly these axes.
#[must_use]
pub fn reject_validity(
    index: usize,
    port: &PortType,
    wanted: &[(&str, usize)],
) -> Option<Rejection> {
    let units = |axes: &[(&str, usize)]| {
        let axes: Vec<String> = axes.iter().map(|(name, len)| format!("[{name} {len}]")).collect();
        if axes.is_empty() { "one flag".to_owned() } else { axes.concat() }
    };
    let found: Vec<_> = port.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    (found != wanted).then(|| {
        let message =
            format!("the input's validity must be {}, got {}", units(wanted), units(&found));
        Rejection::new(codes::INPUT_AXIS, At::Input(index), message).help(
            "set the validity axes in the block upstream, such as `validity_axes` of `null_source`",
        )
    })
}

/// Returns the name with static lifetime, if it is one of [`NAMES`].
#[must_use]
pub fn known(name: &str) -> Option<&'static str> {
    NAMES.iter().find(|known| **known == name).copied()
}

/// Returns the product of the lengths, if it is at most `limit`.
#[must_use]
pub fn checked_elements(axes: &[Axis], limit: usize) -> Option<usize> {
    let product = axes.iter().try_fold(1usize, |product, axis| product.checked_mul(axis.len))?;
    (product <= limit).then_some(product)
}
