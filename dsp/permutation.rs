//! A permutation of axes, brought to the fewest and longest runs of memory it can be done with.

/// Bytes of the longest element that is moved as a whole.
const MOST_ELEMENT_BYTES: usize = 16;
/// Bytes that the sides of a matrix should have: longer ones gain nothing.
const LONG_BYTES: usize = 256;

/// An axis, and how many elements apart its elements lie in input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Elements along the axis.
    pub len: usize,
    /// Stride in the input.
    pub from: usize,
    /// Stride in the output.
    pub to: usize,
}

/// Where the elements of a frame go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    /// Bytes of what is moved as a whole: an element, or several that stay together.
    pub element_bytes: usize,
    /// How they are moved.
    pub way: Way,
}

/// The axes, merged where they stay neighbours. In every list the fastest comes first; lengths and
/// strides count elements of `element_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Runs that are copied: the first axis is contiguous in input and output.
    Copy(Vec<Axis>),
    /// Matrices that are transposed.
    Matrices {
        /// Together contiguous in the output.
        rows: Vec<Axis>,
        /// Together contiguous in the input; empty only if no axis is.
        columns: Vec<Axis>,
        /// The others: so many matrices.
        batch: Vec<Axis>,
    },
}

/// The axes of the output, slowest first, for an input of these lengths of which axis `order[i]`
/// becomes axis `i`.
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

/// Elements along all these axes.
#[inline]
#[must_use]
pub fn elements(axes: &[Axis]) -> usize {
    axes.iter().map(|axis| axis.len).product()
}

/// Where element `index` along these axes lies in input and output.
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
    /// The same for these axes of the output, slowest first.
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
        // What stays together is one element.
        merged.remove(0);
        for axis in &mut merged {
            axis.from /= fastest.len;
            axis.to /= fastest.len;
        }
        Self { element_bytes: run_bytes, way: matrices(merged, LONG_BYTES / run_bytes) }
    }
}

/// The axes, fastest first, without those of length 1, neighbours in both orders joined.
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

/// Shares the axes out: each side takes the next one that is contiguous with it until it is
/// `long`, the shorter side first.
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
    fn axes_become_as_few_and_as_long_as_they_can() {
        let permutation = |lengths: &[usize], order: &[usize], bytes: usize| {
            Permutation::new(&axes(lengths, order), bytes)
        };
        let axis = |len, from, to| Axis { len, from, to };
        // Nothing changes.
        let same = permutation(&[3, 1, 5], &[1, 0, 2], 2);
        assert_eq!(same.way, Way::Copy(vec![axis(15, 1, 1)]));
        // Both polarisations of a spectrum stay together: 4 bytes.
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
