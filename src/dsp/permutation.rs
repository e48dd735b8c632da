//! Permutation of axes, reduced to the fewest and longest contiguous runs of memory.

/// Largest element that is moved as a unit, in bytes.
const MOST_ELEMENT_BYTES: usize = 16;
/// Desired side of a matrix in bytes: longer sides are not faster.
const LONG_BYTES: usize = 256;

/// An axis, with its strides in input and output, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements along the axis.
    pub len: usize,
    /// Stride in the input.
    pub from: usize,
    /// Stride in the output.
    pub to: usize,
}

/// Permutation of the elements of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Size of the unit that is moved in bytes: an element, or several that stay adjacent.
    pub element_bytes: usize,
    /// Method of the permutation.
    pub way: Way,
}

/// Method of a permutation, with its axes, merged if they stay adjacent. In every list the fastest axis comes first;
/// lengths and strides count elements of `element_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Runs that are copied: the first axis is contiguous in input and output.
    Copy(Vec<Axis>),
    /// Matrices that are transposed.
    Matrices {
        /// Axes that are together contiguous in the output.
        rows: Vec<Axis>,
        /// Axes that are together contiguous in the input; empty only if there are none.
        columns: Vec<Axis>,
        /// The other axes, which count the matrices.
        batch: Vec<Axis>,
    },
}

/// Returns the axes of the output, slowest first, for an input with these lengths; input axis `order[i]` becomes
/// output axis `i`.
#[must_use]
pub fn axes(lengths: &[usize], order: &[usize]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::with_capacity(order.len());
    let mut to = 1;
    for &axis in order.iter().rev() {
        let from = lengths[axis + 1..].iter().product();
        axes.push(Axis { len: lengths[axis], from, to });
        to *= lengths[axis];
    }
    axes.reverse();
    axes
}

/// Returns the number of elements of all these axes.
#[inline]
#[must_use]
pub fn elements(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.len).product()
}

/// Returns the offsets of element `index` of these axes in input and output.
#[inline]
#[must_use]
pub fn offsets(axes: &[Axis], mut index: usize) -> [usize; 2] {
    let mut sums = [0; 2];
    for axis in axes {
        sums[0] += index % axis.len * axis.from;
        sums[1] += index % axis.len * axis.to;
        index /= axis.len;
    }
    sums
}

impl Permutation {
    /// Creates the permutation for these axes of the output, slowest first.
    #[must_use]
    pub fn new(axes: &[Axis], element_bytes: usize) -> Self {
        let mut merged = merge(axes);
        let Some(fastest) = merged.first().copied() else {
            let one = Axis { len: 1, from: 1, to: 1 };
            return Self { element_bytes, way: Way::Copy(vec![one]) };
        };
        if fastest.from != 1 {
            return Self { element_bytes, way: matrices(merged, LONG_BYTES / element_bytes) };
        }
        let run_bytes = fastest.len * element_bytes;
        if merged.len() == 1 || !run_bytes.is_power_of_two() || run_bytes > MOST_ELEMENT_BYTES {
            return Self { element_bytes, way: Way::Copy(merged) };
        }
        // Elements that stay adjacent are moved as one element.
        merged.remove(0);
        for axis in &mut merged {
            axis.from /= fastest.len;
            axis.to /= fastest.len;
        }
        Self { element_bytes: run_bytes, way: matrices(merged, LONG_BYTES / run_bytes) }
    }
}

/// Returns the axes, fastest first, without axes of length 1; axes adjacent in both orders are merged.
fn merge(axes: &[Axis]) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for axis in axes.iter().rev().filter(|axis| axis.len > 1) {
        match merged.last_mut() {
            Some(last) if axis.from == last.from * last.len && axis.to == last.to * last.len => {
                last.len *= axis.len;
            }
            _ => merged.push(*axis),
        }
    }
    merged
}

/// Assigns axes to rows and columns: each side takes the next contiguous axis until it is `long`, the shorter side
/// first.
fn matrices(mut batch: Vec<Axis>, long: usize) -> Way {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    loop {
        let (height, width) = (elements(&rows), elements(&columns));
        let row = batch.iter().position(|axis| axis.to == height && height < long);
        let column = batch.iter().position(|axis| axis.from == width && width < long);
        let (side, next) = match (row, column) {
            (Some(row), Some(_)) if height <= width => (&mut rows, row),
            (_, Some(column)) => (&mut columns, column),
            (Some(row), None) => (&mut rows, row),
            (None, None) => break Way::Matrices { rows, columns, batch },
        };
        side.push(batch.remove(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_merged_to_the_fewest_and_longest() {
        let permutation = |lengths: &[usize], order: &[usize], bytes: usize| {
            Permutation::new(&axes(lengths, order), bytes)
        };
        let axis = |len, from, to| Axis { len, from, to };
        // Identity.
        let same = permutation(&[3, 1, 5], &[1, 0, 2], 2);
        assert_eq!(same.way, Way::Copy(vec![axis(15, 1, 1)]));
        // Both polarisations of a spectrum stay adjacent: 4 bytes.
        let heaps = permutation(&[64, 256, 2], &[1, 0, 2], 2);
        assert_eq!(heaps.element_bytes, 4);
        let (rows, columns) = (vec![axis(64, 256, 1)], vec![axis(256, 1, 64)]);
        assert_eq!(heaps.way, Way::Matrices { rows, columns, batch: vec![] });
        // The polarisations alone would be a narrow matrix, so the channels join them.
        let wide = permutation(&[256, 1024, 2], &[2, 1, 0], 2);
        let (rows, columns) =
            (vec![axis(256, 2048, 1)], vec![axis(2, 1, 256 * 1024), axis(1024, 2, 256)]);
        assert_eq!(wide.way, Way::Matrices { rows, columns, batch: vec![] });
    }
}
