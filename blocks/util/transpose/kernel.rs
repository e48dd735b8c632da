//! Which kernel does a permutation on a GPU, and in which geometries it could.

use fxgraph::cuda::{Defines, Grid, Tunable};
use fxgraph_dsp::permutation::{self, Axis, Permutation, elements};

/// Bytes of the widest memory access.
const WIDEST: usize = 16;
/// Bytes that the rows of a tile should have, on both sides.
const LONG_BYTES: usize = 256;
/// Bytes of a tile of which one side is short.
const NARROW_TILE_BYTES: usize = 16 << 10;
/// Vectors that a thread may hold in its registers, and bytes of them.
const MOST_RUNS: usize = 16;
const MOST_RUN_BYTES: usize = 256;
/// Threads of a block of `strided_copy`.
const COPY_THREADS: usize = 256;
/// Matrices of fewer elements in all are not worth a tile.
const LEAST_ELEMENTS: usize = 1024;
/// Elements that the kernels count: fewer than 2^32, so that there are fewer than 2^31 blocks too.
const MOST_ELEMENTS: usize = (1 << 32) - 1;

/// How `kernels/util/transpose.cuh` cuts a tile, its sides in elements, the vector in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    columns: usize,
    vector: usize,
    threads: usize,
}

impl Tile {
    /// Vectors that each thread holds in its registers.
    fn runs(&self, element_bytes: usize) -> usize {
        self.rows * self.columns * element_bytes / self.vector / self.threads
    }
}

/// What moves a frame.
pub struct Kernel {
    /// Its name in the program.
    pub name: &'static str,
    pub tunable: Tunable,
    /// For each way to cut it.
    pub launches: Vec<Launch>,
}

/// How a kernel is launched.
#[derive(Clone, Copy)]
pub struct Launch {
    pub grid: Grid,
    pub shared_bytes: usize,
}

/// The kernel with all ways to cut it, the one that suits most cases first; none if there is too
/// much to move.
pub fn kernel(permutation: &Permutation) -> Option<Kernel> {
    let bytes = permutation.element_bytes;
    let (rows, columns, others) = match &permutation.way {
        permutation::Way::Copy(axes) => (&[][..], &[][..], axes),
        permutation::Way::Matrices { rows, columns, batch } => (&rows[..], &columns[..], batch),
    };
    let all = elements(rows) * elements(columns) * elements(others);
    if all > MOST_ELEMENTS {
        return None;
    }
    let matrices = Matrices::new(rows, columns, others, bytes);
    if elements(rows) == 1 || matrices.elements() < LEAST_ELEMENTS {
        return Some(copy(&[rows, columns, others].concat(), bytes));
    }
    Some(matrices.transpose())
}

/// The widest power of two of bytes, from one element up, that all these numbers of elements are
/// multiples of.
fn alignment(counts: impl Iterator<Item = usize>, element_bytes: usize) -> usize {
    let common = counts.fold(WIDEST, |bits, count| bits | (count * element_bytes));
    1 << common.trailing_zeros()
}

fn list(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

fn copy(axes: &[Axis], element_bytes: usize) -> Kernel {
    let mut axes = axes.to_vec();
    axes.sort_by_key(|axis| axis.to);
    // What is contiguous on both sides is cut into units as long as all strides allow.
    let is_run = |axis: &Axis| (axis.from, axis.to) == (1, 1);
    let counts = axes
        .iter()
        .flat_map(|axis| if is_run(axis) { [axis.len; 2] } else { [axis.from, axis.to] });
    let unit = alignment(counts, element_bytes);
    for axis in &mut axes {
        if is_run(axis) {
            axis.len = axis.len * element_bytes / unit;
        } else {
            axis.from = axis.from * element_bytes / unit;
            axis.to = axis.to * element_bytes / unit;
        }
    }
    let tunable = Tunable {
        program: "strided_copy.cu",
        shape: vec![
            ("UNIT_BYTES", unit.to_string()),
            ("LENGTHS", list(axes.iter().map(|axis| axis.len))),
            ("INPUT_STRIDES", list(axes.iter().map(|axis| axis.from))),
            ("OUTPUT_STRIDES", list(axes.iter().map(|axis| axis.to))),
        ],
        ways: vec![vec![]],
    };
    let blocks = elements(&axes).div_ceil(COPY_THREADS);
    let launch = Launch { grid: Grid::new([blocks, 1, 1], COPY_THREADS), shared_bytes: 0 };
    Kernel { name: "strided_copy", tunable, launches: vec![launch] }
}

/// Equal matrices to be transposed. The fastest axes come first.
struct Matrices {
    rows: Vec<Axis>,
    columns: Vec<Axis>,
    batch: Vec<Axis>,
    element_bytes: usize,
    /// Largest power of two of elements that a square may have, so that none of its rows reaches
    /// over the end of what is contiguous.
    square: usize,
    /// Bytes that all rows are aligned to, on both sides.
    aligned: usize,
}

impl Matrices {
    /// Matrices that are smaller than a tile lie together in it, side by side along their longer
    /// side.
    fn new(rows: &[Axis], columns: &[Axis], batch: &[Axis], element_bytes: usize) -> Self {
        let strides = rows.iter().map(|axis| axis.from).chain(columns.iter().map(|axis| axis.to));
        let strides = strides.chain(batch.iter().flat_map(|axis| [axis.from, axis.to]));
        let mut matrices = Self {
            rows: rows.to_vec(),
            columns: columns.to_vec(),
            batch: batch.to_vec(),
            element_bytes,
            square: WIDEST,
            aligned: alignment(strides, element_bytes),
        };
        while matrices.elements() * element_bytes < NARROW_TILE_BYTES && !matrices.batch.is_empty()
        {
            let is_tall = elements(&matrices.rows) >= elements(&matrices.columns);
            let contiguous = elements(if is_tall { rows } else { columns });
            matrices.square = matrices.square.min(1 << contiguous.trailing_zeros());
            let side = if is_tall { &mut matrices.rows } else { &mut matrices.columns };
            side.push(matrices.batch.remove(0));
        }
        matrices
    }

    /// Elements of one matrix.
    fn elements(&self) -> usize {
        elements(&self.rows) * elements(&self.columns)
    }

    /// The tiles worth trying, the usual one first.
    fn tiles(&self) -> Vec<Tile> {
        let bytes = self.element_bytes;
        let [height, width] =
            [&self.rows, &self.columns].map(|axes| elements(axes).next_power_of_two());
        let (vector, threads) = match bytes {
            1 | 2 => (8, 512),
            4 => (8, 128),
            _ => (16, 256),
        };
        let other_vector = if vector == 8 { 16 } else { 8 };
        let mut tiles: Vec<Tile> = Vec::new();
        // (rows and columns of the tile in shares of the usual side, vector, threads)
        for (tall, wide, vector, threads) in [
            ((1, 1), (1, 1), vector, threads),
            ((1, 1), (1, 1), vector, threads / 2),
            ((1, 1), (1, 1), other_vector, threads / 2),
            ((1, 1), (1, 1), other_vector, 128),
            ((1, 1), (1, 2), vector, threads / 2),
            ((1, 2), (1, 1), vector, threads / 2),
            ((1, 2), (1, 2), vector, 128),
            ((2, 1), (1, 1), vector, threads),
            ((1, 1), (2, 1), vector, threads),
        ] {
            let side = |share: (usize, usize)| LONG_BYTES / bytes * share.0 / share.1;
            let narrow = |other: usize| NARROW_TILE_BYTES / bytes / other;
            let (tall, wide) = (side(tall), side(wide));
            let rows = if width < wide { tall.max(narrow(width)) } else { tall }.min(height);
            let columns = if height < tall { wide.max(narrow(height)) } else { wide }.min(width);
            let square = (vector.min(self.aligned) / bytes).clamp(1, self.square);
            let square = square.min(rows).min(columns);
            let threads = threads.min(rows * columns / (square * square));
            let mut tile = Tile { rows, columns, vector: square * bytes, threads };
            while tile.runs(bytes) > MOST_RUNS || tile.runs(bytes) * tile.vector > MOST_RUN_BYTES {
                let longer =
                    if tile.rows > tile.columns { &mut tile.rows } else { &mut tile.columns };
                *longer /= 2;
            }
            if !tiles.contains(&tile) {
                tiles.push(tile);
            }
        }
        tiles
    }

    fn geometry(tile: &Tile) -> Defines {
        let block = 16.min(tile.rows).min(tile.columns);
        let geometry = [
            ("BLOCK", block),
            ("VTX", tile.columns / block),
            ("VTY", tile.rows / block),
            ("VECTOR", tile.vector),
            ("THREADS", tile.threads),
        ];
        geometry.map(|(name, number)| (name, number.to_string())).to_vec()
    }

    fn launch(&self, tile: &Tile) -> Launch {
        let down = elements(&self.rows).div_ceil(tile.rows);
        let across = elements(&self.columns).div_ceil(tile.columns);
        let blocks = down * across * elements(&self.batch);
        Launch {
            grid: Grid::new([blocks, 1, 1], tile.threads),
            shared_bytes: tile.rows * tile.columns * self.element_bytes,
        }
    }

    fn transpose(&self) -> Kernel {
        let none = [Axis { len: 1, from: 0, to: 0 }];
        let batch = if self.batch.is_empty() { &none[..] } else { &self.batch };
        let [row_from, row_to] = sides(&self.rows);
        let [column_from, column_to] = sides(&self.columns);
        let tiles = self.tiles();
        let tunable = Tunable {
            program: "transpose.cu",
            shape: vec![
                ("ELEMENT_BYTES", self.element_bytes.to_string()),
                ("ROW_INPUT_LENGTHS", list(row_from.iter().map(|axis| axis.0))),
                ("ROW_INPUT_STRIDES", list(row_from.iter().map(|axis| axis.1))),
                ("ROW_OUTPUT_LENGTHS", list(row_to.iter().map(|axis| axis.0))),
                ("ROW_OUTPUT_STRIDES", list(row_to.iter().map(|axis| axis.1))),
                ("COLUMN_INPUT_LENGTHS", list(column_from.iter().map(|axis| axis.0))),
                ("COLUMN_INPUT_STRIDES", list(column_from.iter().map(|axis| axis.1))),
                ("COLUMN_OUTPUT_LENGTHS", list(column_to.iter().map(|axis| axis.0))),
                ("COLUMN_OUTPUT_STRIDES", list(column_to.iter().map(|axis| axis.1))),
                ("BATCH_LENGTHS", list(batch.iter().map(|axis| axis.len))),
                ("BATCH_INPUT_STRIDES", list(batch.iter().map(|axis| axis.from))),
                ("BATCH_OUTPUT_STRIDES", list(batch.iter().map(|axis| axis.to))),
            ],
            ways: tiles.iter().map(Self::geometry).collect(),
        };
        let launches = tiles.iter().map(|tile| self.launch(tile)).collect();
        Kernel { name: "transpose", tunable, launches }
    }
}

/// Lengths and strides of the axes in the input, and in the output, joined where they are one there.
fn sides(axes: &[Axis]) -> [Vec<(usize, usize)>; 2] {
    let strides: [fn(&Axis) -> usize; 2] = [|axis| axis.from, |axis| axis.to];
    strides.map(|stride| {
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for axis in axes {
            match joined.last_mut() {
                Some((len, step)) if stride(axis) == *len * *step => *len *= axis.len,
                _ => joined.push((axis.len, stride(axis))),
            }
        }
        joined
    })
}
