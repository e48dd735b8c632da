//! The forms on matrix units, in half precision.
#![allow(unsafe_code)] // launches on memory that the caller vouches for

use super::cuda::{defines, refusal};
use super::gains::Gains;
use super::phases::{self, FEEDS, POINTS, halves};
use super::sizes::{Integrated, Sizes};
use super::weights::weights;
use super::{RADIX8, Stages};
use crate::gpu;
use fxgraph::cuda::{CudaError, Device, DeviceArray, Grid, Kernel, Lane, Properties};
use fxgraph::{At, BlockError, Dtype, Refusal};
use num_complex::Complex32;
use std::sync::Arc;

/// Beams of a row are a multiple of this, where they are chosen.
const BEAMS_STEP: usize = 64;
/// Warps of a block for intensities.
const WARPS: usize = 16;
/// Warps of a block for voltages.
const VOLTAGE_WARPS: usize = 4;
/// Transforms that a warp makes with the weights or the map that it has loaded.
const PER_WARP: usize = 16;
/// Largest sum of weighted feeds that is let come: half of what halves hold.
const LARGEST_SUM: f64 = 32768.0;
/// The same where sums of beams come after it, up to 16 times as large.
const LARGEST_SUMMAND: f64 = 2048.0;
/// Spectra of a batch of the kernel for intensities, and words from the feeds of one to those of the next.
const BATCH: usize = 16;
const PITCH: usize = FEEDS + 16;

/// Kernel and tables.
pub(super) struct Matrix {
    kernel: Kernel,
    grid: Grid,
    phases: DeviceArray<u32>,
    time_phases: DeviceArray<u32>,
    weights: DeviceArray<u32>,
    map: DeviceArray<u16>,
    /// What results are multiplied with.
    scale: f32,
}

/// Why this form cannot do these stages, on `gpu` if there is one.
pub(super) fn refusals(stages: &Stages, form: &str, gpu: Option<&Properties>) -> Vec<Refusal> {
    let sizes = stages.sizes;
    let mut refusals = Vec::new();
    if sizes.feeds != FEEDS {
        let message = format!("`{form}` transforms 256 feeds, not {}", sizes.feeds);
        let at = At::InputAxis(0, "north_south");
        refusals.push(refusal(at, message, "`fp32` takes any number"));
    } else if stages.points != Some(POINTS) {
        let at = At::Parameter("north_south");
        let message = format!("`{form}` transforms feeds to 512 points");
        refusals.push(refusal(at, message, "give `north_south: {points: 512}`, or take `fp32`"));
    }
    let is_clamped = !stages.index_map.is_empty();
    if is_clamped && !sizes.row_beams.is_multiple_of(BEAMS_STEP) {
        let message = format!("`{form}` keeps no {} beams", sizes.row_beams);
        refusals.push(refusal(At::Parameter("clamp.beams"), message, "64, 128, 192 or 256"));
    }
    match (sizes.fine_channels, sizes.integrate) {
        (1, None) => {}
        (32 | 64 | 128, Some(_)) if is_clamped => {
            let needed = shared_bytes(stages);
            if let Some(gpu) = gpu
                && gpu.shared_bytes_per_block < needed
            {
                let message = format!(
                    "intensities take {needed} bytes of shared memory, {} has {}",
                    gpu.name, gpu.shared_bytes_per_block
                );
                let help = "a shorter `upchannelise`, fewer beams, or `fp32`";
                refusals.push(refusal(At::Parameter("upchannelise"), message, help));
            }
        }
        _ => {
            let message = format!("`{form}` does not do these stages together");
            let help = "`upchannelise` of 32, 64 or 128 with `clamp` and `integrate`, or none of the later stages; \
                        `fp32` does any";
            refusals.push(refusal(At::Parameter("upchannelise"), message, help));
        }
    }
    refusals
}

/// Cylinders that a row is made of.
fn combined(stages: &Stages) -> usize {
    if stages.east_west.is_empty() { 1 } else { stages.sizes.cylinders }
}

/// Shared memory of a block that makes intensities.
fn shared_bytes(stages: &Stages) -> usize {
    let (sizes, combined) = (stages.sizes, combined(stages));
    let words = sizes.fine_channels * sizes.row_beams + WARPS * POINTS + 2 * BATCH * PITCH;
    // Rows on their way in, which have room there if they are short.
    let is_staged = sizes.dtype == Dtype::Ci4 && combined <= 4;
    4 * words + if is_staged { 2 * BATCH * combined * FEEDS } else { 0 }
}

/// Device memory of the tables.
pub(super) fn device_bytes(stages: &Stages) -> usize {
    let Sizes { channels, pols, rows, row_beams, .. } = stages.sizes;
    let combined = combined(stages);
    4 * channels * pols * rows * combined * FEEDS
        + 2 * channels * row_beams
        + 128 * (phases::REGISTERS_MOST + phases::TIME_REGISTERS)
}

/// By what weights are divided, a power of two, and by what the kernel's sums come out divided then.
///
/// Voltages: so that no sum of `feeds` of them times the largest voltage is too large. Intensities: integers come
/// as their bits, as subnormal halves times 2^-24 (times 2^-20 both parts of 4 bits, whose imaginary parts' weights
/// are 16 times as large); so weights are as large as can be.
fn divisors(
    weights: &[Complex32],
    dtype: Dtype,
    feeds: usize,
    makes_intensities: bool,
) -> [f64; 2] {
    let largest = weights.iter().map(|weight| f64::from(weight.norm())).fold(0.0, f64::max);
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
        form: &str,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
        let sizes = stages.sizes;
        let is_radix8 = form == RADIX8;
        let weights = weights(stages, gains);
        let sums = sizes.integrate.unwrap_or(Integrated { channels: 1, spectra: 1 });
        let is_clamped = !stages.index_map.is_empty();
        let makes_intensities = sizes.integrate.is_some();
        let is_weighted =
            makes_intensities || weights.iter().any(|weight| *weight != Complex32::ONE);
        let combined = combined(stages);
        let [divisor, divided] = if is_weighted {
            divisors(&weights, sizes.dtype, combined * FEEDS, makes_intensities)
        } else {
            [1.0; 2]
        };
        let (warps, per_warp) = match (makes_intensities, is_weighted || is_clamped) {
            (true, _) => (WARPS, 1),
            // Order in memory counts for more than what is loaded again.
            (false, false) => (VOLTAGE_WARPS, 1),
            (false, true) => (VOLTAGE_WARPS, PER_WARP),
        };
        let more = gpu::numbers([
            ("RADIX8", usize::from(is_radix8)),
            ("WEIGHTED", usize::from(is_weighted)),
            ("CLAMP", usize::from(is_clamped)),
            ("SUM_CHANNELS", sums.channels),
            ("SUM_SPECTRA", sums.spectra),
            ("WARPS", warps),
            ("PER_WARP", per_warp),
        ]);
        let program = gpu::program(device, "frb_beamformer.cu", [defines(stages), more].concat())?;
        let lines = sizes.channels * sizes.pols * sizes.rows;
        let (kernel, blocks) = if makes_intensities {
            let kernel = program.kernel("frb_intensities", shared_bytes(stages))?;
            (kernel, [sizes.channels, sizes.rows, sizes.output_spectra()])
        } else {
            let blocks = lines.div_ceil(warps) * sizes.spectra.div_ceil(per_warp);
            (program.kernel("frb_voltages", 0)?, [blocks, 1, 1])
        };
        let rounded = |weight: &Complex32| {
            halves(f64::from(weight.re) / divisor, f64::from(weight.im) / divisor)
        };
        // Without a map the array has something in it, which nothing reads.
        let map: Vec<u16> = if is_clamped {
            stages.index_map.iter().map(|point| *point as u16).collect()
        } else {
            vec![0]
        };
        let scale = if makes_intensities { divided.powi(2) } else { divided };
        Ok(Self {
            kernel,
            grid: Grid::new(blocks, 32 * warps),
            phases: DeviceArray::from_slice(
                device,
                &if is_radix8 { phases::of_radix8() } else { phases::of_feeds() },
            )?,
            time_phases: DeviceArray::from_slice(device, &phases::of_spectra(sizes.fine_channels))?,
            weights: DeviceArray::from_slice(
                device,
                &weights.iter().map(rounded).collect::<Vec<_>>(),
            )?,
            map: DeviceArray::from_slice(device, &map)?,
            scale: scale as f32,
        })
    }

    /// Queues the kernel.
    ///
    /// # Safety
    /// `from` and `to` are a frame of the input and one of the output, `units` the counts of the input's validity; they
    /// stay until the kernel has run.
    pub(super) unsafe fn launch<J>(
        &mut self,
        lane: &Lane<J>,
        from: u64,
        to: u64,
        units: u64,
    ) -> Result<(), BlockError> {
        let arguments = [
            from.into(),
            to.into(),
            self.phases.address().into(),
            self.weights.address().into(),
            self.map.address().into(),
            units.into(),
            self.time_phases.address().into(),
            self.scale.into(),
        ];
        // SAFETY: the kernel's arguments; tables live as long as the block.
        unsafe { self.kernel.launch(lane.stream(), self.grid, &arguments) }?;
        Ok(())
    }
}
