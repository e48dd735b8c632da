//! Tiling of the beams among thread blocks, and the layout of the weights for
//! `kernels/x_engine/beamformer.cu`.

use num_complex::Complex32;

/// Beams per tile, from the number of columns of a matrix instruction.
const TILE_BEAMS: usize = 4;
/// Antennas per matrix instruction.
const STEP_ANTENNAS: usize = 8;
/// Largest number of tiles per thread block; a warp computes one dither key per beam.
const MOST_TILES: usize = 8;
/// Shared memory of the weights of one tile and one step, in bytes.
const FRAGMENT_BYTES: usize = 32 * 16;
/// Weights are scaled such that the largest real or imaginary part is in 2^9 .. 2^10. Then the remainder after
/// rounding to `f16` is no subnormal number either.
const LARGEST_EXPONENT: i32 = 9;

/// Tiles of beams of one polarisation, in groups that one thread block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Tiles per group, `[pol]`.
    pub per_group: [usize; 2],
    pub groups: usize,
    /// Matrix instructions in sequence over all antennas.
    pub steps: usize,
}

impl Tiles {
    /// Tiling for `beams` `[pol]`, in the fewest groups that take at most `shared_bytes` of shared memory each.
    /// `None` if there are too many antennas.
    pub fn new(beams: [usize; 2], antennas: usize, shared_bytes: usize) -> Option<Self> {
        let tiles = beams.map(|beams| beams.div_ceil(TILE_BEAMS));
        let steps = antennas.div_ceil(STEP_ANTENNAS);
        let of_groups = |groups: usize| Self {
            per_group: tiles.map(|tiles| tiles.div_ceil(groups)),
            groups,
            steps,
        };
        let fits =
            |tiles: &Self| tiles.per_group() <= MOST_TILES && tiles.shared_bytes() <= shared_bytes;
        (1..=tiles[0].max(tiles[1])).map(of_groups).find(fits)
    }

    /// Tiles per group.
    pub fn per_group(&self) -> usize {
        self.per_group.iter().sum()
    }

    /// Shared memory per thread block in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.steps * self.per_group() * FRAGMENT_BYTES
    }

    /// Number of antennas, padded to whole steps.
    pub fn padded_antennas(&self) -> usize {
        self.steps * STEP_ANTENNAS
    }

    /// Words of the `Slots` of all groups.
    pub fn slot_words(&self) -> usize {
        self.groups * 2 * self.per_group() * TILE_BEAMS
    }

    /// Words of the `Slots` of each group: the beam of each slot, then the scale of each slot.
    pub fn slots(&self, pols: &[usize], scales: &[f32]) -> Vec<u32> {
        let placed = place(pols, self.per_group.map(|tiles| tiles * TILE_BEAMS), self.groups);
        let words = |beams: &[Option<usize>]| {
            let index = |beam: &Option<usize>| beam.map_or(u32::MAX, |beam| beam as u32);
            let scale = |beam: &Option<usize>| beam.map_or(0, |beam| scales[beam].to_bits());
            beams.iter().map(index).chain(beams.iter().map(scale)).collect::<Vec<_>>()
        };
        placed.chunks_exact(self.per_group() * TILE_BEAMS).flat_map(words).collect()
    }
}

/// Gives each beam, in order, a slot of its polarisation: the beam of each slot, `[group][slot]`. Each group has `slots`
/// `[pol]`.
pub fn place(pols: &[usize], slots: [usize; 2], groups: usize) -> Vec<Option<usize>> {
    let of_group = slots[0] + slots[1];
    let mut beams = vec![None; groups * of_group];
    let mut taken = [0; 2];
    for (beam, &pol) in pols.iter().enumerate() {
        let group = taken[pol] / slots[pol];
        beams[group * of_group + pol * slots[0] + taken[pol] % slots[pol]] = Some(beam);
        taken[pol] += 1;
    }
    beams
}

/// Divides `weights` `[channel][beam][antenna]` by a power of two for each beam. Returns these scales, `[beam]`.
pub fn scale(weights: &mut [Complex32], beams: usize, antennas: usize) -> Vec<f32> {
    let parts = |weight: &Complex32| weight.re.abs().max(weight.im.abs());
    let mut largest = vec![0.0_f32; beams];
    for channel in weights.chunks_exact(beams * antennas) {
        for (largest, weights) in largest.iter_mut().zip(channel.chunks_exact(antennas)) {
            *largest = weights.iter().map(parts).fold(*largest, f32::max);
        }
    }
    let power = |largest: f32| {
        // Exponent field of an IEEE number, which is the exponent plus 127.
        let exponent = (largest.to_bits() >> 23) as i32 - 127 - LARGEST_EXPONENT;
        2.0_f32.powi(exponent.max(f32::MIN_EXP))
    };
    let scales: Vec<f32> = largest.into_iter().map(power).collect();
    for channel in weights.chunks_exact_mut(beams * antennas) {
        for (scale, weights) in scales.iter().zip(channel.chunks_exact_mut(antennas)) {
            weights.iter_mut().for_each(|weight| *weight /= *scale);
        }
    }
    scales
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_beam_has_one_slot_of_its_polarisation() {
        for (beams, shared_bytes) in [([1, 0], 1 << 16), ([0, 9], 1 << 16), ([37, 64], 1 << 14)] {
            let tiles = Tiles::new(beams, 17, shared_bytes).unwrap();
            assert!(tiles.shared_bytes() <= shared_bytes && tiles.per_group() <= MOST_TILES);
            // The polarisations alternate, as long as there are beams of both.
            let turn = |beam: usize| {
                if beam < 2 * beams[0].min(beams[1]) {
                    beam % 2
                } else {
                    usize::from(beams[1] > beams[0])
                }
            };
            let pols: Vec<usize> = (0..beams[0] + beams[1]).map(turn).collect();
            let scales: Vec<f32> = (0..pols.len()).map(|beam| beam as f32 + 0.5).collect();
            let words = tiles.slots(&pols, &scales);
            let slots = tiles.per_group() * TILE_BEAMS;
            let mut seen = vec![0; pols.len()];
            for group in words.chunks_exact(2 * slots) {
                for (slot, &beam) in group[..slots].iter().enumerate() {
                    if let Some(seen) = seen.get_mut(beam as usize) {
                        *seen += 1;
                        let pol = usize::from(slot >= tiles.per_group[0] * TILE_BEAMS);
                        assert_eq!(pols[beam as usize], pol);
                        assert_eq!(group[slots + slot], (beam as f32 + 0.5).to_bits());
                    } else {
                        assert_eq!(beam, u32::MAX);
                    }
                }
            }
            assert!(seen.iter().all(|&seen| seen == 1));
        }
        assert_eq!(Tiles::new([1, 1], 4000, 1 << 16), None);
    }

    #[test]
    fn scaling_normalises_weights_without_rounding() {
        let all = [1e-30, 0.0, 3.0, 1e30, 511.9, f32::MAX];
        let before: Vec<_> = all.iter().map(|&w| Complex32::new(w, -0.3 * w)).collect();
        let mut weights = before.clone();
        let scales = scale(&mut weights, all.len(), 1);
        for ((before, after), scale) in before.iter().zip(&weights).zip(scales) {
            assert_eq!(after * scale, *before);
            assert!(after.re == 0.0 || (512.0..1024.0).contains(&after.re), "{after}");
        }
    }
}
