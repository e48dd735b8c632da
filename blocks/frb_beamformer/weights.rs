//! What feeds are weighted with: gains and the transform across the cylinders, in one factor.

use super::Stages;
use super::gains::Gains;
use super::sizes::Sizes;
use num_complex::Complex32;

/// Factors `[channel][pol][row][cylinder of a row][feed]`: of gains and of the transform across the cylinders.
pub(super) fn weights(stages: &Stages, gains: &Gains) -> Vec<Complex32> {
    let Sizes { channels, pols, cylinders, feeds, rows, .. } = stages.sizes;
    let is_sum = !stages.east_west.is_empty();
    let combined = if is_sum { cylinders } else { 1 };
    let mut weights = Vec::with_capacity(channels * pols * rows * combined * feeds);
    for channel in 0..channels {
        for pol in 0..pols {
            let gains = gains.of(channel, pol);
            for row in 0..rows {
                for n in 0..combined * feeds {
                    let (cylinder, feed) = if is_sum { (n / feeds, n % feeds) } else { (row, n) };
                    let gain = gains.get(cylinder * feeds + feed).unwrap_or(&gains[0]);
                    let factor =
                        stages.east_west.get((channel * rows + row) * cylinders + cylinder);
                    weights.push(factor.map_or(*gain, |factor| factor * gain));
                }
            }
        }
    }
    weights
}
