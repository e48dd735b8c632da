//! Layout of the sums of a channel during the summation.

use super::kernel::Geometry;

/// Division of the products of a channel into tiles: for each panel of columns, the rows up to
/// the end of that panel.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// Sizes of a tile.
    pub geometry: Geometry,
    inputs: usize,
}

impl Tiles {
    /// Creates the tiles for `inputs` inputs.
    #[must_use]
    pub fn new(geometry: Geometry, inputs: usize) -> Self {
        Self { geometry, inputs }
    }

    /// Returns the number of panels of columns.
    #[inline]
    #[must_use]
    pub fn panels(&self) -> usize {
        self.inputs.div_ceil(self.geometry.lanes)
    }

    /// Returns the index of the first sum of the tile of panel `panel` and row block `block`.
    #[inline]
    #[must_use]
    pub fn start(&self, panel: usize, block: usize) -> usize {
        let Geometry { lanes, rows, .. } = self.geometry;
        (panel * (panel + 1) / 2 * (lanes / rows) + block) * self.geometry.tile_len()
    }

    /// Returns the number of sums of one channel.
    #[inline]
    #[must_use]
    pub fn sums(&self) -> usize {
        self.start(self.panels(), 0)
    }

    /// Returns the number of row blocks of panel `panel`; the last panel need not be full.
    #[inline]
    #[must_use]
    pub fn blocks(&self, panel: usize) -> usize {
        ((panel + 1) * self.geometry.lanes).min(self.inputs).div_ceil(self.geometry.rows)
    }

    /// Returns the indices of the real and the imaginary sum of row input `i` and column input `j`.
    #[inline]
    fn place(&self, i: usize, j: usize) -> [usize; 2] {
        let Geometry { lanes, rows, .. } = self.geometry;
        let tile = self.start(j / lanes, i / rows);
        let real = tile + i % rows * 2 * lanes + j % lanes;
        [real, real + lanes]
    }

    /// Returns the indices of the products of each baseline, all in the order of the output: `PRODUCTS` is 4 for antennas
    /// with two inputs, 1 for antennas with one.
    #[inline]
    pub fn baselines<const PRODUCTS: usize>(self) -> impl Iterator<Item = [[usize; 2]; PRODUCTS]> {
        let pols = PRODUCTS.isqrt();
        (0..self.inputs / pols).flat_map(move |a2| {
            (0..=a2).map(move |a1| {
                std::array::from_fn(|n| self.place(pols * a1 + n % pols, pols * a2 + n / pols))
            })
        })
    }
}
