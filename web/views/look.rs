//! A frame with the selected indices, and iteration over its elements.

use fxgraph::PortType;
use fxgraph::control::TapFrame;
use fxgraph::elements::{Elements, Pick};
use fxgraph_api::views::Selected;
use num_complex::Complex;

/// Maximum number of elements that a view reads (or its number of points, if larger): about ten milliseconds of CPU
/// time.
pub(super) const MOST_ELEMENTS: usize = 1 << 20;

/// A frame with the selected indices.
pub(crate) struct Look<'a> {
    pub port: &'a PortType,
    pub frame: &'a TapFrame,
    /// An index on each axis that the view neither shows nor averages over.
    pub selected: &'a [Selected],
    /// Maximum number of points on the longest axis.
    pub points: usize,
    elements: Elements,
}

impl<'a> Look<'a> {
    pub fn new(
        port: &'a PortType,
        frame: &'a TapFrame,
        selected: &'a [Selected],
        points: usize,
    ) -> Self {
        Self { port, frame, selected, points, elements: Elements::new(port) }
    }

    /// Position of the axis `name` in the payload.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.port.axes.iter().position(|axis| axis.name == name)
    }

    /// Length of the axis `name`; 1 where the payload has none.
    pub fn len(&self, name: &str) -> usize {
        self.port.axis_len(name).unwrap_or(1)
    }

    /// Selected index on the axis `name`.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.selected.iter().find(|selected| selected.axis == name).map(|selected| selected.index)
    }

    /// The selected index on each selected axis, all indices on the others.
    pub fn picks(&self) -> Vec<Pick> {
        let pick = |axis: &fxgraph::Axis| match self.index(axis.name) {
            Some(index) => Pick::one(index),
            None => Pick::of(0..axis.len),
        };
        self.port.axes.iter().map(pick).collect()
    }

    /// Like [`Self::picks`], but subsampled along the longest axes other than `shown` if there are too many.
    pub fn thinned(&self, shown: &[&str]) -> Vec<Pick> {
        let mut picks = self.picks();
        loop {
            let total: usize = picks.iter().map(Pick::count).product();
            let others = self.port.axes.iter().zip(&mut picks);
            let others =
                others.filter(|(axis, pick)| !shown.contains(&axis.name) && pick.count() > 1);
            let longest = others.map(|(_, pick)| pick).max_by_key(|pick| pick.count());
            match longest {
                Some(longest) if total > MOST_ELEMENTS => {
                    longest.step *= total.div_ceil(MOST_ELEMENTS);
                }
                _ => return picks,
            }
        }
    }

    /// Calls `see` with index and value of each element in `picks` that is at least partially valid.
    pub fn each(&self, picks: &[Pick], see: impl FnMut(&[usize], Complex<f64>)) {
        self.elements.picked(&self.frame.payload, &self.frame.header.validity, picks, see);
    }

    /// Returns a visibility on the sky, of which values of an inverted spectrum are the conjugates.
    pub fn on_sky(&self, visibility: Complex<f64>) -> Complex<f64> {
        if self.port.sideband().is_inverted() { visibility.conj() } else { visibility }
    }

    /// Sums `of` over the elements along the axis `name` in at most `points` groups of equal length. Returns sum and
    /// number of elements of each group, and the length of the groups.
    pub fn sums<T: Copy + Default + std::ops::AddAssign>(
        &self,
        name: &str,
        points: usize,
        of: impl Fn(Complex<f64>) -> T,
    ) -> (Vec<(T, u64)>, usize) {
        let len = self.len(name);
        let group = len.div_ceil(points.max(1));
        let mut sums = vec![(T::default(), 0); len.div_ceil(group)];
        let Some(axis) = self.axis(name) else { return (sums, group) };
        self.each(&self.thinned(&[name]), |index, value| {
            let (sum, count) = &mut sums[index[axis] / group];
            *sum += of(value);
            *count += 1;
        });
        (sums, group)
    }
}
