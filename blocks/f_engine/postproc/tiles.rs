//! Tiling of the kernel `postproc` on a GPU; it must match `postproc.cu`.

use super::heaps::Piece;
use super::{Layout, Postproc};
use crate::common::spectra::Shape;
use fxgraph::cuda::Grid;

/// Largest number of tiles per thread block, and number of rounds of resident blocks to aim for.
const MOST_IN_TURN: usize = 4;
const ROUNDS: usize = 4;
/// Bytes per channel that a thread writes.
const THREAD_BYTES: usize = 16;

/// Tile sizes and launch configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    spectra_per_heap: usize,
    /// Spectra per tile; each half-warp processes half of them.
    spectra: usize,
    /// Number of separate polarisations; 1 if polarisations are interleaved.
    pols_apart: usize,
    channel_blocks: usize,
    /// Threads per block, half of which are for different channels.
    threads: usize,
}

impl Tiles {
    /// Tiling for blocks of `threads`.
    pub fn new(postproc: &Postproc, shape: Shape, threads: usize) -> Self {
        let values = THREAD_BYTES / if postproc.bits == 8 { 2 } else { 1 };
        let (mixed_pols, pols_apart) = match postproc.layout {
            Layout::Standard => (shape.pols, 1),
            Layout::KMajor => (1, shape.pols),
        };
        let places = match shape.unzip {
            1 => shape.channels / 2,
            unzip => shape.channels / unzip / 2 + 1,
        };
        Self {
            spectra_per_heap: postproc.spectra_per_heap,
            spectra: 2 * values / mixed_pols,
            pols_apart,
            channel_blocks: places.div_ceil(threads / 2),
            threads,
        }
    }

    /// Index of the tile of a spectrum, from its place among the spectra of all heaps.
    pub fn of(&self, place: usize) -> usize {
        let (heap, in_heap) = (place / self.spectra_per_heap, place % self.spectra_per_heap);
        heap * self.spectra_per_heap.div_ceil(self.spectra) + in_heap / self.spectra
    }

    fn of_piece(&self, piece: &Piece) -> usize {
        self.of(piece.place + piece.count - 1) - self.of(piece.place) + 1
    }

    /// Number of consecutive tiles of a piece per thread block. More tiles share the values that are the same for
    /// all spectra, but fewer keep all multiprocessors busy to the end.
    pub fn in_turn(&self, piece: &Piece, blocks_at_once: usize) -> usize {
        let blocks = self.of_piece(piece) * self.channel_blocks * self.pols_apart;
        (blocks / (blocks_at_once * ROUNDS).max(1)).clamp(1, MOST_IN_TURN)
    }

    /// Grid for blocks with `in_turn` tiles each.
    pub fn grid(&self, piece: &Piece, in_turn: usize) -> Grid {
        let blocks = self.of_piece(piece).div_ceil(in_turn);
        Grid::new([blocks, self.channel_blocks, self.pols_apart], self.threads)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tests::chain::kind;
    use serde_json::json;

    #[test]
    fn grid_covers_all_tiles_of_a_piece() {
        let postproc: Postproc = kind(json!({"spectra_per_heap": 21, "heaps_per_frame": 3}));
        let shape = Shape {
            pols: 2,
            spectra: 10,
            unzip: 1,
            channels: 4096,
            pitch: 4096,
            step: 8192,
            adc_sample_rate_hz: 1e9,
            sideband: fxgraph::Sideband::Upper,
        };
        let tiles = Tiles::new(&postproc, shape, 256);
        // Tiles of 8 spectra: three for each heap.
        assert_eq!([0, 7, 8, 20, 21, 62].map(|place| tiles.of(place)), [0, 0, 1, 2, 3, 8]);
        let piece = |place, count| Piece { from: 0, place, count };
        assert_eq!(tiles.grid(&piece(6, 3), 1).blocks, [2, 16, 1]);
        assert_eq!(tiles.grid(&piece(20, 2), 1).blocks, [2, 16, 1]);
        // 9 tiles and 16 parts of the channels: 144 blocks.
        assert_eq!([1, 10, 36, 400].map(|n| tiles.in_turn(&piece(0, 63), n)), [4, 3, 1, 1]);
        assert_eq!(tiles.grid(&piece(0, 63), 4).blocks, [3, 16, 1]);
    }
}
