//! Names of satellites for views with a line per satellite.

use super::Look;

/// Largest number of lines that one plot can show; later satellites are left out.
pub(super) const MOST_SATELLITES: usize = 64;

/// Label of satellite `index`, or `satellite` with the index.
pub(super) fn name(look: &Look, index: usize) -> String {
    let axis = look.axis("satellite").map(|axis| &look.port.axes[axis]);
    let label = axis.and_then(|axis| axis.labels.get(index));
    label.cloned().unwrap_or_else(|| format!("satellite {index}"))
}
