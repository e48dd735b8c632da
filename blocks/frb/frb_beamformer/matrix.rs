//! The implementations `radix8` and `tensor_core`: matrix instructions in half precision.
#![allow(unsafe_code)] // launches on memory that the caller guarantees

use super::Stages;
use super::gains::Gains;
use super::intensities::{self, IntensityKernels};
use super::method::{Job, Method, MethodKernels, rejection};
use super::phases::{self, FEEDS, POINTS, packed_half2};
use super::sizes::Sizes;
use super::tables::Tables;
use super::voltages::VoltageKernels;
use super::weights::{Scaling, combined, weights};
use fxgraph::cuda::{CudaError, Device, DeviceArray, Frames, Pipeline, Properties};
use fxgraph::{At, BlockError, Dtype, Rejection};
use num_complex::Complex32;
use std::sync::Arc;

/// `clamp.beams` must be a multiple of this.
const BEAMS_STEP: usize = 64;
/// Largest sum of weighted feeds after scaling: half of the range of `f16`.
const LARGEST_SUM: f64 = 32768.0;
/// Largest sum of weighted feeds after scaling, if sums of beams follow, which are up to 16 times as large.
const LARGEST_SUMMAND: f64 = 2048.0;
/// Number of words per weight: real and imaginary part in `f16`.
pub(super) const WEIGHT_WORDS: usize = 1;

/// Kernels and tables.
pub(super) struct Matrix {
    kernels: Kernels,
    tables: Tables,
    dtype: Dtype,
}

enum Kernels {
    Voltages(VoltageKernels),
    Intensities(IntensityKernels),
}

/// Diagnostics for stages that `method` does not support, on `gpu` if there is one.
pub(super) fn rejections(
    stages: &Stages,
    method: Method,
    gpu: Option<&Properties>,
) -> Vec<Rejection> {
    let sizes = stages.sizes;
    let mut rejections = Vec::new();
    if sizes.feeds != FEEDS {
        let message = format!("`{method}` needs {FEEDS} feeds per cylinder, got {}", sizes.feeds);
        let at = At::InputAxis(0, "north_south");
        rejections.push(rejection(at, message, "set `implementation: fp32`"));
    } else if stages.points != Some(POINTS) {
        let at = At::Parameter("north_south");
        let message = format!("`{method}` needs a transform of {POINTS} points");
        let help = "set `north_south: {points: 512}`, or `implementation: fp32`";
        rejections.push(rejection(at, message, help));
    }
    let is_clamped = !stages.index_map.is_empty();
    if is_clamped && !sizes.row_beams.is_multiple_of(BEAMS_STEP) {
        let message = format!(
            "`{method}` needs a multiple of {BEAMS_STEP} as `clamp.beams`, got {}",
            sizes.row_beams
        );
        let help = "set 64, 128, 192 or 256";
        rejections.push(rejection(At::Parameter("clamp.beams"), message, help));
    }
    match (sizes.fine_channels, sizes.integrate) {
        (1, None) => {}
        (32 | 64 | 128, Some(_)) if is_clamped => {
            let needed = intensities::shared_bytes(stages);
            if let Some(gpu) = gpu
                && gpu.shared_bytes_per_block < needed
            {
                let message = format!(
                    "`{method}` needs {needed} bytes of shared memory for intensities, {} has {}",
                    gpu.name, gpu.shared_bytes_per_block
                );
                let help = "reduce `upchannelise` or the beams, or set `implementation: fp32`";
                rejections.push(rejection(At::Parameter("upchannelise"), message, help));
            }
        }
        _ => {
            let message = format!("`{method}` does not support this combination of stages");
            let help = "set `upchannelise` to 32, 64 or 128 with `clamp` and `integrate`, omit the later stages, \
                        or set `implementation: fp32`";
            rejections.push(rejection(At::Parameter("upchannelise"), message, help));
        }
    }
    rejections
}

/// Device memory of the tables in bytes.
pub(super) fn device_bytes(stages: &Stages) -> usize {
    let Sizes { channels, row_beams, .. } = stages.sizes;
    2 * channels * row_beams + 128 * (phases::REGISTERS_MOST + phases::TIME_REGISTERS)
}

/// Divisor of the weights, a power of two, and the resulting divisor of the kernel's sums.
///
/// For voltages, no sum of `feeds` weights times the largest voltage may overflow. For intensities, integers are used
/// by their bit pattern, as subnormal `f16`: their value times 2^-24, or times 2^-20 for both parts with 4 bits, where
/// the weights of the imaginary parts are 16 times as large. Therefore weights are as large as possible.
fn divisors(largest: f64, dtype: Dtype, feeds: usize, makes_intensities: bool) -> [f64; 2] {
    let power = |ratio: f64| if largest == 0.0 { 1.0 } else { ratio.log2().ceil().exp2() };
    let voltage = if dtype == Dtype::Ci4 { 8.0 } else { 128.0 } * 2.0_f64.sqrt();
    let sum = largest * voltage * feeds as f64;
    match (makes_intensities, dtype) {
        (true, Dtype::Ci4) => {
            let divisor = power(largest / 2048.0);
            [divisor, divisor * 20.0_f64.exp2()]
        }
        (true, Dtype::Ci8) => {
            let divisor = power(largest / 32768.0);
            [divisor, divisor * 24.0_f64.exp2()]
        }
        (true, _) => [power(sum / LARGEST_SUMMAND); 2],
        (false, _) => [power(sum / LARGEST_SUM); 2],
    }
}

impl Matrix {
    pub(super) fn new(
        stages: &Stages,
        gains: &Gains,
        method: Method,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
        let kernels = if stages.sizes.integrate.is_some() {
            Kernels::Intensities(IntensityKernels::new(stages, method, device)?)
        } else {
            let all_one = weights(stages, gains).all(|weight| weight == Complex32::ONE);
            Kernels::Voltages(VoltageKernels::new(stages, all_one, method, device)?)
        };
        // Without a map the array has one element, which no kernel reads.
        let map: Vec<u16> = if stages.index_map.is_empty() {
            vec![0]
        } else {
            stages.index_map.iter().map(|point| *point as u16).collect()
        };
        let phases =
            if method == Method::Radix8 { phases::of_radix8() } else { phases::of_feeds() };
        let phases = DeviceArray::from_slice(device, &phases)?;
        let tables = Tables { phases, map: DeviceArray::from_slice(device, &map)? };
        Ok(Self { kernels, tables, dtype: stages.sizes.dtype })
    }
}

impl MethodKernels for Matrix {
    fn write(&self, stages: &Stages, gains: &Gains, words: &mut [u32]) -> Scaling {
        let all = || weights(stages, gains);
        let largest = all().map(|weight| f64::from(weight.norm())).fold(0.0, f64::max);
        let feeds = combined(stages) * FEEDS;
        let makes_intensities = matches!(self.kernels, Kernels::Intensities(_));
        let [divisor, divided] = divisors(largest, self.dtype, feeds, makes_intensities);
        for (word, weight) in words.iter_mut().zip(all()) {
            *word = packed_half2(f64::from(weight.re) / divisor, f64::from(weight.im) / divisor);
        }
        Scaling { divided, all_one: all().all(|weight| weight == Complex32::ONE) }
    }

    unsafe fn launch(
        &mut self,
        pipeline: &Pipeline<Frames>,
        job: &Job<'_>,
    ) -> Result<(), BlockError> {
        // SAFETY: guaranteed by the caller; tables live as long as the block.
        unsafe {
            match &mut self.kernels {
                Kernels::Voltages(kernels) => kernels.launch(pipeline, job, &self.tables),
                Kernels::Intensities(kernels) => kernels.launch(pipeline, job, &self.tables),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_as_large_as_f16_and_sums_allow() {
        let dtypes = [Dtype::Ci4, Dtype::Ci8, Dtype::Cf16];
        for (dtype, makes_intensities) in dtypes.into_iter().flat_map(|d| [(d, false), (d, true)]) {
            for largest in [1e-6, 0.7, 1.0, 3.0, 1e6] {
                let [divisor, divided] = divisors(largest, dtype, 1024, makes_intensities);
                assert!(divisor.log2().fract().abs() < 1e-12, "no power of two");
                assert!(divided.log2().fract().abs() < 1e-12, "no power of two");
                // The weights fit in `f16`.
                assert!(largest / divisor < 65504.0, "{dtype} {largest}");
                // Internal sums of the largest integers.
                let voltage = if dtype == Dtype::Ci4 { 8.0 } else { 128.0 };
                let sum = largest / divided * voltage * 2.0_f64.sqrt() * 1024.0;
                assert!(sum <= 65504.0 && sum > 1.0, "{dtype} {largest}: {sum}");
            }
        }
    }
}
