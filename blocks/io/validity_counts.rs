//! Places of the validity counts of elements.

use fxgraph::PortType;

/// Place of an axis of the payload among elements and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Elements from one index of the axis to the next.
    pub stride: usize,
    /// Indices of the axis that share a count.
    pub shared: usize,
    /// Counts from one part of the axis to the next; 0 if all indices share them.
    pub counts: usize,
}

impl Place {
    /// Place of an axis that the payload lacks.
    pub const NONE: Self = Self { stride: 0, shared: 1, counts: 0 };

    /// Offset of the count of index `n`.
    pub fn count(&self, n: usize) -> usize {
        n / self.shared * self.counts
    }
}

/// Returns the place of each axis of the payload. An axis of the counts divides the axis of the payload with its name;
/// one that the payload lacks divides the axis `divided`. The error says which axis does not fit.
pub fn places(port: &PortType, divided: &str) -> Result<Vec<Place>, String> {
    let mut places = vec![Place::NONE; port.axes.len()];
    let mut stride = 1;
    for (place, axis) in places.iter_mut().zip(&port.axes).rev() {
        place.stride = stride;
        stride *= axis.len;
    }
    let mut counts = 1;
    for axis in port.validity.axes.iter().rev() {
        let named = |name: &str| port.axes.iter().position(|of_payload| of_payload.name == name);
        let n = named(axis.name).or_else(|| named(divided)).filter(|n| places[*n].counts == 0);
        let n = n.filter(|n| port.axes[*n].len.is_multiple_of(axis.len));
        let misfit =
            || format!("[{} {}] does not divide an axis of the payload", axis.name, axis.len);
        let n = n.ok_or_else(misfit)?;
        (places[n].shared, places[n].counts) = (port.axes[n].len / axis.len, counts);
        counts *= axis.len;
    }
    Ok(places)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::{Axis, Clock, Dtype, ValidityType};

    fn port(axes: &[(&'static str, usize)], counts: &[(&'static str, usize)]) -> PortType {
        let list = |axes: &[(&'static str, usize)]| {
            axes.iter().map(|(name, len)| Axis::new(name, *len)).collect()
        };
        PortType {
            dtype: Dtype::F32,
            axes: list(axes),
            clock: Clock::new(1.0, 8),
            band: None,
            validity: ValidityType::flags(list(counts)),
        }
    }

    #[test]
    fn counts_divide_the_axes_with_their_names_or_the_given_one() {
        let place = |stride, shared, counts| Place { stride, shared, counts };
        let port_a = port(&[("pol", 2), ("sample", 12)], &[("heap", 4), ("pol", 2)]);
        let found = places(&port_a, "sample").unwrap();
        assert_eq!(found, [place(12, 1, 1), place(1, 3, 2)]);
        assert_eq!([found[1].count(2), found[1].count(3), found[1].count(11)], [0, 2, 6]);
        let port_b = port(
            &[("spectrum", 3), ("channel", 4), ("beam", 5)],
            &[("spectrum", 3), ("channel", 2)],
        );
        let found = places(&port_b, "spectrum").unwrap();
        assert_eq!(found, [place(20, 1, 2), place(5, 2, 1), place(1, 1, 0)]);
    }

    #[test]
    fn counts_that_divide_no_axis_are_an_error() {
        let error = |counts: &[(&'static str, usize)]| {
            places(&port(&[("pol", 2), ("sample", 12)], counts), "sample").unwrap_err()
        };
        assert!(error(&[("heap", 5)]).contains("[heap 5]"));
        assert!(error(&[("heap", 3), ("sample", 2)]).contains("[heap 3]"));
    }
}
