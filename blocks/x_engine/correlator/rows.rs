//! Samples in device memory as the GPU kernels read them: rows of (antenna, polarisation), in stages of 128 bytes. With
//! one polarisation the rows of two antennas are those of one antenna with two.

use super::architecture::Architecture;
use super::sum_bound::SAMPLES_IN_32_BITS;
use crate::common::stacked::Stacked;
use fxgraph::Dtype;
use std::ops::Range;

/// Bytes of a stage of a row, equal to the constant in `kernels/x_engine/voltages.cuh`.
pub(super) const STAGE_BYTES: usize = 128;
/// Largest number of half-precision samples before the sums are added to the total in memory. Matrix instructions
/// round towards zero for every eight samples, so their error grows with the number of samples.
const SAMPLES_OF_HALVES: usize = 4096;
/// Alignment of addresses and strides that the kernels need, in bytes.
const ALIGNMENT: usize = 16;

/// Consecutive samples that one launch sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Heap of the first sample.
    pub heap: usize,
    /// Index of the first sample in its heap, at the start of a stage.
    pub first: usize,
    /// Number of samples, across heaps: whole heaps, or a part of one heap.
    pub samples: usize,
}

/// Samples per stage of a row; integers take one byte for each part.
pub(super) fn stage_samples(shape: &Stacked) -> usize {
    STAGE_BYTES / if shape.dtype == Dtype::Cf16 { 4 } else { 2 }
}

/// Largest number of samples of a piece, for frames of this shape.
pub(super) fn longest_piece(shape: &Stacked) -> usize {
    let most = match shape.dtype {
        Dtype::Cf16 => SAMPLES_OF_HALVES,
        _ => SAMPLES_IN_32_BITS,
    };
    if shape.spectra > most {
        return most - most % stage_samples(shape);
    }
    shape.heaps.min(most / shape.spectra) * shape.spectra
}

/// Splits heaps into pieces.
pub(super) fn pieces(shape: &Stacked, heaps: Range<usize>) -> impl Iterator<Item = Piece> + use<> {
    let (spectra, longest) = (shape.spectra, longest_piece(shape));
    // Whole heaps if they fit, else parts of each heap.
    let heaps_of_piece = (longest / spectra).max(1);
    let end = heaps.end;
    heaps.step_by(heaps_of_piece).flat_map(move |heap| {
        let samples = spectra * heaps_of_piece.min(end - heap);
        (0..samples).step_by(longest).map(move |first| Piece {
            heap,
            first,
            samples: longest.min(samples - first),
        })
    })
}

/// Memory layout of the rows. A run is a contiguous part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Address of the first sample of the first row.
    pub address: u64,
    /// Whether the polarisations of an antenna alternate, as in frames that are not K-major.
    pub alternating: bool,
    /// Bytes of a run of one polarisation.
    pub run_bytes: usize,
    /// Runs of each row.
    pub runs: usize,
    /// Bytes from one row of a pair, pair of rows, channel and run to the next.
    pub strides: [usize; 4],
}

impl Rows {
    /// Rows of a frame at `address`, where each heap is a run; `None` if the kernels of `architecture` cannot read them
    /// directly, or only inefficiently.
    pub(super) fn of_frame(
        architecture: Architecture,
        shape: &Stacked,
        address: u64,
    ) -> Option<Self> {
        let run_bytes = shape.row_bytes() / shape.pols;
        let alternating = !shape.k_major;
        let unit = if alternating { STAGE_BYTES / 2 } else { ALIGNMENT };
        if shape.dtype == Dtype::Ci4
            || !run_bytes.is_multiple_of(unit)
            || !shape.inputs().is_multiple_of(2)
            || alternating && architecture != Architecture::Hopper
        {
            return None;
        }
        let channel = shape.row_bytes();
        let antenna = shape.channels * channel;
        let (pol, pair) = match (shape.pols, alternating) {
            (1, _) => (antenna, 2 * antenna),
            (_, true) => (STAGE_BYTES / stage_samples(shape), antenna),
            (_, false) => (run_bytes, antenna),
        };
        let strides = [pol, pair, channel, shape.antennas * antenna];
        let rows = Self { address, alternating, run_bytes, runs: shape.heaps, strides };
        // A kernel processes whole stages, so short heaps waste time on padding. If this is more than a third of
        // the time, it is faster to join the heaps first.
        let useful = shape.spectra.saturating_mul(3);
        (useful >= 2 * rows.stages_per_run() * stage_samples(shape)).then_some(rows)
    }

    /// Rows that `correlator_rows.cu` writes to `address`, with space for `stages`, where each stage is a run.
    pub(super) fn joined(shape: &Stacked, address: u64, stages: usize) -> Self {
        let run = 2 * shape.pairs() * STAGE_BYTES;
        let strides = [STAGE_BYTES, 2 * STAGE_BYTES, stages * run, run];
        Self { address, alternating: false, run_bytes: STAGE_BYTES, runs: stages, strides }
    }

    /// Stages per run, including a partial last one.
    pub(super) fn stages_per_run(&self) -> usize {
        self.run_bytes.div_ceil(STAGE_BYTES)
    }

    /// Range of the stages that contain `piece` of a frame.
    pub(super) fn stages(&self, shape: &Stacked, piece: &Piece) -> Range<usize> {
        let stage = stage_samples(shape);
        let first = piece.heap * self.stages_per_run() + piece.first / stage;
        let whole = piece.samples / shape.spectra;
        let count = match whole {
            0 => piece.samples.div_ceil(stage),
            _ => whole * self.stages_per_run(),
        };
        first..first + count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::units::Units;
    use proptest::prelude::*;
    use proptest::sample::select;

    const SHAPE: Stacked = Stacked {
        heaps: 4,
        antennas: 3,
        channels: 2,
        pols: 2,
        spectra: 256,
        samples_per_spectrum: 8,
        k_major: true,
        dtype: Dtype::Ci8,
        units: Units::Heap,
    };

    proptest! {
        #[test]
        fn pieces_cover_all_samples_once_within_length_limit(
            heaps in 1..300_usize,
            spectra in prop_oneof![1..2000_usize, 60_000..200_000_usize],
            first in 0..300_usize,
            dtype in select(vec![Dtype::Ci8, Dtype::Ci4, Dtype::Cf16]),
        ) {
            let shape = Stacked { heaps, spectra, dtype, ..SHAPE };
            let first = first % heaps;
            let mut next = first * spectra;
            for piece in pieces(&shape, first..heaps) {
                prop_assert_eq!(piece.heap * spectra + piece.first, next);
                prop_assert!(piece.first.is_multiple_of(stage_samples(&shape)));
                prop_assert!((1..=longest_piece(&shape)).contains(&piece.samples));
                prop_assert!(piece.samples <= SAMPLES_IN_32_BITS);
                next += piece.samples;
            }
            prop_assert_eq!(next, heaps * spectra);
        }

        #[test]
        fn stages_of_pieces_cover_all_stages_once(
            heaps in 1..300_usize,
            spectra in prop_oneof![6..250_usize, 8000..20_000_usize],
            dtype in select(vec![Dtype::Ci8, Dtype::Cf16]),
            k_major in any::<bool>(),
        ) {
            let shape = Stacked { heaps, spectra: 8 * spectra, dtype, k_major, ..SHAPE };
            let Some(rows) = Rows::of_frame(Architecture::Hopper, &shape, 0) else { return Ok(()) };
            let mut next = 0;
            for piece in pieces(&shape, 0..heaps) {
                let stages = rows.stages(&shape, &piece);
                prop_assert_eq!(stages.start, next);
                next = stages.end;
            }
            prop_assert_eq!(next, heaps * rows.stages_per_run());
        }
    }

    #[test]
    fn rows_of_a_frame_address_its_samples() {
        for (k_major, sample_bytes) in [(true, 2), (false, 4)] {
            let shape = Stacked { k_major, ..SHAPE };
            let rows = Rows::of_frame(Architecture::Hopper, &shape, 0).unwrap();
            let payload: Vec<u8> = (0..shape.frame_bytes()).map(|i| (i % 251) as u8).collect();
            let [pol, antenna, channel, run] = rows.strides;
            for (heap, a, c, p) in [(0, 0, 0, 1), (3, 2, 1, 0), (1, 2, 0, 1)] {
                let at = heap * run + a * antenna + c * channel + p * pol + 5 * sample_bytes;
                let row = shape.row(&payload, heap, a, c);
                let value = shape.value(row, 5, p).map(i8::cast_unsigned);
                assert_eq!(payload[at..at + 2], value);
            }
            assert_eq!((rows.alternating, rows.run_bytes), (!k_major, 512));
        }
    }

    #[test]
    fn rows_of_antennas_with_one_polarisation_are_those_of_pairs() {
        let shape = Stacked { antennas: 4, pols: 1, ..SHAPE };
        let rows = Rows::of_frame(Architecture::TensorCore, &shape, 0).unwrap();
        let payload: Vec<u8> = (0..shape.frame_bytes()).map(|i| (i % 251) as u8).collect();
        let [pol, pair, channel, run] = rows.strides;
        for (heap, a, c) in [(0, 0, 0), (3, 2, 1), (1, 3, 1)] {
            let at = heap * run + a / 2 * pair + a % 2 * pol + c * channel + 5 * 2;
            let row = shape.row(&payload, heap, a, c);
            assert_eq!(payload[at..at + 2], shape.value(row, 5, 0).map(i8::cast_unsigned));
        }
        assert_eq!((rows.alternating, rows.run_bytes), (false, 512));
        // An odd number of rows has no frame, but space where the rows are joined.
        let odd = Stacked { antennas: 3, ..shape };
        assert_eq!(Rows::of_frame(Architecture::TensorCore, &odd, 0), None);
        assert_eq!(Rows::joined(&odd, 0, 5).strides[3], 4 * 128);
    }

    #[test]
    fn rows_of_frame_rejects_unsupported_shapes() {
        let alternating = Stacked { k_major: false, ..SHAPE };
        assert!(Rows::of_frame(Architecture::TensorCore, &SHAPE, 0).is_some());
        assert!(Rows::of_frame(Architecture::TensorCore, &alternating, 0).is_none());
        for (shape, readable) in [
            (SHAPE, true),
            (alternating, true),
            (Stacked { spectra: 96, ..alternating }, true),
            (Stacked { spectra: 32, ..alternating }, false),
            (Stacked { spectra: 248, ..alternating }, false),
            (Stacked { dtype: Dtype::Ci4, ..alternating }, false),
            (Stacked { dtype: Dtype::Ci4, ..SHAPE }, false),
            (Stacked { dtype: Dtype::Cf16, ..SHAPE }, true),
            (Stacked { dtype: Dtype::Cf16, spectra: 36, ..SHAPE }, false),
            (Stacked { dtype: Dtype::Cf16, spectra: 24, ..SHAPE }, true),
            (Stacked { dtype: Dtype::Cf16, spectra: 30, ..SHAPE }, false),
            (Stacked { spectra: 252, ..SHAPE }, false),
            (Stacked { spectra: 16, ..SHAPE }, false),
            (Stacked { spectra: 48, ..SHAPE }, true),
        ] {
            let rows = Rows::of_frame(Architecture::Hopper, &shape, 0);
            assert_eq!(rows.is_some(), readable, "{shape:?}");
        }
    }

    #[test]
    fn joined_rows_fill_their_reserved_memory() {
        let rows = Rows::joined(&SHAPE, 0, 5);
        let [_, _, channel, run] = rows.strides;
        assert_eq!(channel * SHAPE.channels, 2 * 3 * 128 * 5 * 2);
        assert_eq!(run, 2 * 3 * 128);
        assert_eq!(rows.stages_per_run(), 1);
    }
}
