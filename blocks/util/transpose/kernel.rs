//! Selection of the kernel for a permutation on a GPU, and its possible launch configurations.

use fxgraph::cuda::{Defines, Grid, Tunable};
use fxgraph_dsp::permutation::{self, Axis, Permutation, elements};

/// Bytes of the widest memory access.
const WIDEST: usize = 16;
/// Desired length of the rows of a tile in bytes, on both sides.
const LONG_BYTES: usize = 256;
/// Size of a tile with one short side, in bytes.
const NARROW_TILE_BYTES: usize = 16 << 10;
/// Largest number of vectors in the registers of a thread, and their largest size in bytes.
const MOST_RUNS: usize = 16;
const MOST_RUN_BYTES: usize = 256;
/// Threads of a block of `strided_copy`.
const COPY_THREADS: usize = 256;
/// Least number of elements of a matrix for which a tile is worthwhile.
const LEAST_ELEMENTS: usize = 1024;
/// Largest number of elements: fewer than 2^32, so that there are fewer than 2^31 blocks, too.
const MOST_ELEMENTS: usize = (1 << 32) - 1;

/// Tile configuration of `kernels/util/transpose.cuh`: sides in elements, vector in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: usize,
    columns: usize,
    vector: usize,
    threads: usize,
}

impl Tile {
    /// Returns the number of vectors in the registers of each thread.
    fn runs(&self, element_bytes: usize) -> usize {
        self.rows * self.columns * element_bytes / self.vector / self.threads
    }
}

/// Kernel that permutes a frame.
pub struct Kernel {
    /// Name in the CUDA program.
    pub name: &'static str,
    pub tunable: Tunable,
    /// Launch configurations, the default first.
    pub launches: Vec<Launch>,
}

/// Launch configuration of a kernel.
#[derive(Clone, Copy)]
pub struct Launch {
    pub grid: Grid,
    pub shared_bytes: usize,
}

/// Returns the kernel with all launch configurations, the default first; `None` if the frame has too many
/// elements.
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

/// Returns the largest power of two of bytes, at least one element, of which all these numbers of elements
/// are multiples.
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
    // Runs contiguous on both sides are cut into the longest units that all strides allow.
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

/// Equal matrices to transpose. The fastest axes come first.
struct Matrices {
    rows: Vec<Axis>,
    columns: Vec<Axis>,
    batch: Vec<Axis>,
    element_bytes: usize,
    /// Largest side of a square in elements, a power of two, such that no row extends beyond a contiguous run.
    square: usize,
    /// Alignment of all rows in bytes, on both sides.
    aligned: usize,
}

impl Matrices {
    /// Groups matrices smaller than a tile, side by side along their longer side.
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

    /// Returns the number of elements of one matrix.
    fn elements(&self) -> usize {
        elements(&self.rows) * elements(&self.columns)
    }

    /// Returns the tiles worth trying, the default first.
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
        // (rows and columns of the tile as fractions of the default side, vector, threads)
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

/// Returns the lengths and strides of the axes in the input, and in the output, with contiguous axes joined.
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
