//! Units of validity of F-engine heaps: whole heaps of an antenna, or, after a flagger, each channel and polarisation of
//! a heap.

use super::axes;
use fxgraph::{Axis, PortType, Rejection};

/// Units of validity of a stream of heaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    /// A flag for each heap of an antenna.
    #[default]
    Heap,
    /// A flag for each channel and polarisation of a heap of an antenna. All samples of a missing unit are 0.
    Channel,
}

impl Units {
    /// Reads the units of input `index`, whose validity has the axes `heap`, as for `[heap][antenna]`, or these followed
    /// by `[channel][pol]`.
    ///
    /// # Errors
    /// A diagnostic for any other axes.
    pub fn of_port(
        index: usize,
        port: &PortType,
        heap: &[(&str, usize)],
    ) -> Result<Self, Box<Rejection>> {
        let len = |name| port.axis_len(name).unwrap_or(0);
        let channel = [heap, &[("channel", len("channel")), ("pol", len("pol"))]].concat();
        let found = port.validity.axes.iter().map(|axis| (axis.name, axis.len));
        if found.eq(channel) {
            return Ok(Self::Channel);
        }
        axes::reject_validity(index, port, heap)
            .map_or(Ok(Self::Heap), |rejection| Err(Box::new(rejection)))
    }

    /// Returns the axes of the validity of a stream with the payload axes of `port`, after the axes `heap`.
    #[must_use]
    pub fn axes(self, port: &PortType, heap: Vec<Axis>) -> Vec<Axis> {
        let axis = |name| port.axes.iter().find(|axis| axis.name == name).cloned();
        let of_channel = match self {
            Self::Heap => [None, None],
            Self::Channel => [axis("channel"), axis("pol")],
        };
        heap.into_iter().chain(of_channel.into_iter().flatten()).collect()
    }

    /// Returns the number of units of a heap of one antenna.
    #[must_use]
    pub const fn per_heap(self, channels: usize, pols: usize) -> usize {
        match self {
            Self::Heap => 1,
            Self::Channel => channels * pols,
        }
    }
}

/// Writes to `present`, one flag for each heap of an antenna, whether any of the units of that heap is there.
pub fn reduce(units: &[u32], present: &mut [u32]) {
    let per_heap = units.len() / present.len().max(1);
    for (units, present) in units.chunks_exact(per_heap.max(1)).zip(present) {
        *present = u32::from(units.iter().any(|unit| *unit != 0));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::{Clock, Dtype, ValidityType};

    fn port(validity: &[(&'static str, usize)]) -> PortType {
        let axes = |list: &[(&'static str, usize)]| {
            list.iter().map(|(name, len)| Axis::new(name, *len)).collect::<Vec<_>>()
        };
        PortType {
            dtype: Dtype::Ci8,
            axes: axes(&[("heap", 2), ("channel", 8), ("spectrum", 32), ("pol", 2)]),
            clock: Clock::new(1e6, 1),
            band: None,
            validity: ValidityType::flags(axes(validity)),
        }
    }

    #[test]
    fn units_are_heaps_or_channels_and_nothing_else() {
        let heap = [("heap", 2)];
        let units = |validity: &[(&'static str, usize)]| Units::of_port(0, &port(validity), &heap);
        assert_eq!(units(&heap).unwrap(), Units::Heap);
        let of_channel = [("heap", 2), ("channel", 8), ("pol", 2)];
        assert_eq!(units(&of_channel).unwrap(), Units::Channel);
        for wrong in [
            &[][..],
            &[("heap", 1)],
            &[("heap", 2), ("channel", 8)],
            &[("heap", 2), ("channel", 8), ("pol", 1)],
            &[("heap", 2), ("pol", 2), ("channel", 8)],
        ] {
            assert!(units(wrong).is_err(), "{wrong:?}");
        }
        let axes = Units::Channel.axes(&port(&heap), vec![Axis::new("heap", 2)]);
        assert_eq!(axes, port(&of_channel).validity.axes);
    }

    #[test]
    fn heap_with_any_unit_is_present() {
        let mut present = [7; 3];
        reduce(&[0, 0, 0, 1, 1, 1], &mut present);
        assert_eq!(present, [0, 1, 1]);
        reduce(&[0, 3, 0], &mut present);
        assert_eq!(present, [0, 1, 0]);
    }
}
