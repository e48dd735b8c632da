//! The CPU implementation, which is the reference: small squares through a buffer in the cache.

use super::{Layout, Transpose};
use crate::common::parallel::Threads;
use bytemuck::Pod;
use fxgraph::{BlockError, Frame, FrameMut, Map};
use fxgraph_dsp::permutation::{Axis, Permutation, Way, elements, offsets};

/// Length of a row of a square in bytes.
const SQUARE_BYTES: usize = 128;

/// The running block.
pub struct Cpu {
    layout: Layout,
    threads: Threads,
    slabs: Vec<Slab>,
    /// Bytes of one element of the output's slowest axis.
    unit_bytes: usize,
}

/// Part of the output, along its slowest axis, written by one thread.
struct Slab {
    permutation: Permutation,
    /// Offset of its part of the input, in bytes.
    from: usize,
    /// Offset of each row of a matrix in the input.
    rows_from: Vec<usize>,
    /// Offset of each column in the output.
    columns_to: Vec<usize>,
    square: Vec<u128>,
}

/// Returns the size of the tables and buffers of `threads` threads, in bytes.
pub fn bytes(layout: &Layout, threads: usize) -> usize {
    let slabs = slabs(layout, threads.max(1));
    let table = |slab: &Slab| size_of::<usize>() * (slab.rows_from.len() + slab.columns_to.len());
    slabs.iter().map(|slab| table(slab) + size_of_val(slab.square.as_slice())).sum()
}

/// Divides the output into equal parts, except for the last one.
fn slabs(layout: &Layout, threads: usize) -> Vec<Slab> {
    let (slowest, faster) = match layout.axes.split_first() {
        Some((slowest, faster)) => (*slowest, faster),
        None => (Axis { len: 1, from: 1, to: 1 }, &[][..]),
    };
    let per_slab = slowest.len.div_ceil(threads.min(slowest.len));
    let slab = |first: usize| {
        let part = Axis { len: per_slab.min(slowest.len - first), ..slowest };
        let axes: Vec<Axis> = std::iter::once(part).chain(faster.iter().copied()).collect();
        Slab::new(&axes, layout.element_bytes, first * slowest.from * layout.element_bytes)
    };
    (0..slowest.len).step_by(per_slab).map(slab).collect()
}

impl Slab {
    fn new(axes: &[Axis], element_bytes: usize, from: usize) -> Self {
        let permutation = Permutation::new(axes, element_bytes);
        let (rows_from, columns_to) = match &permutation.way {
            Way::Copy(_) => (vec![], vec![]),
            Way::Matrices { rows, columns, .. } => (
                (0..elements(rows)).map(|row| offsets(rows, row)[0]).collect(),
                (0..elements(columns)).map(|column| offsets(columns, column)[1]).collect(),
            ),
        };
        let edge = SQUARE_BYTES / permutation.element_bytes;
        let square = vec![0; edge * SQUARE_BYTES / size_of::<u128>()];
        Self { permutation, from, rows_from, columns_to, square }
    }

    fn permute(&mut self, input: &[u8], output: &mut [u8]) {
        let input = &input[self.from..];
        match self.permutation.element_bytes {
            1 => self.permute_elements::<u8>(input, output),
            2 => self.permute_elements::<u16>(input, output),
            4 => self.permute_elements::<u32>(input, output),
            8 => self.permute_elements::<u64>(input, output),
            _ => self.permute_elements::<u128>(input, output),
        }
    }

    fn permute_elements<T: Pod>(&mut self, input: &[u8], output: &mut [u8]) {
        let whole = input.len() / size_of::<T>() * size_of::<T>();
        let input: &[T] = bytemuck::cast_slice(&input[..whole]);
        let output: &mut [T] = bytemuck::cast_slice_mut(output);
        match &self.permutation.way {
            Way::Copy(axes) => {
                let Some((run, others)) = axes.split_first() else { return };
                for index in 0..elements(others) {
                    let [from, to] = offsets(others, index);
                    output[to..][..run.len].copy_from_slice(&input[from..][..run.len]);
                }
            }
            Way::Matrices { batch, .. } => {
                let square = bytemuck::cast_slice_mut(&mut self.square);
                let (rows, columns) = (&self.rows_from, &self.columns_to);
                for index in 0..elements(batch) {
                    let [from, to] = offsets(batch, index);
                    transpose(rows, columns, &input[from..], &mut output[to..], square);
                }
            }
        }
    }
}

/// Transposes a matrix square by square: its rows begin at `rows` in `input`, its columns at `columns` in
/// `output`.
fn transpose<T: Copy>(
    rows: &[usize],
    columns: &[usize],
    input: &[T],
    output: &mut [T],
    square: &mut [T],
) {
    let edge = SQUARE_BYTES / size_of::<T>();
    for (x, columns) in columns.chunks(edge).enumerate() {
        for (y, rows) in rows.chunks(edge).enumerate() {
            // Rows are far apart, often by powers of two: each of their cache lines is used completely
            // before it is evicted.
            for (row, square) in rows.iter().zip(square.chunks_exact_mut(edge)) {
                let from = &input[row + x * edge..][..columns.len()];
                square[..columns.len()].copy_from_slice(from);
            }
            for (i, column) in columns.iter().enumerate() {
                let to = &mut output[column + y * edge..][..rows.len()];
                for (to, row) in to.iter_mut().zip(square.chunks_exact(edge)) {
                    *to = row[i];
                }
            }
        }
    }
}

impl Cpu {
    pub fn new(parameters: &Transpose, layout: Layout) -> Result<Self, BlockError> {
        let threads = Threads::new(parameters.threads)?;
        let slabs = slabs(&layout, threads.count());
        let unit = layout.axes.first().map_or(1, |slowest| slowest.to);
        let unit_bytes = unit * layout.element_bytes;
        Ok(Self { layout, threads, slabs, unit_bytes })
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let (input, payload) = (input.as_slice::<u8>()?, output.as_mut_slice::<u8>()?);
        self.threads.each(payload, self.unit_bytes, &mut self.slabs, |_, run, slab| {
            slab.permute(input, run);
        });
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.layout.validity(input, output);
    }
}
