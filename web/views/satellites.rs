//! A line for each satellite.

use super::Look;

/// More lines in one picture tell nothing; later satellites are left out.
pub(super) const MOST_SATELLITES: usize = 32;

/// What receivers call satellite `index`, or its number among those of the port.
pub(super) fn name(look: &Look, index: usize) -> String {
    let axis = look.axis("satellite").map(|axis| &look.port.axes[axis]);
    let label = axis.and_then(|axis| axis.labels.get(index));
    label.cloned().unwrap_or_else(|| format!("satellite {index}"))
}
