//! The form on matrix units, in half precision.
#![allow(unsafe_code)] // launches on memory that the caller vouches for

use super::Stages;
use super::cuda::{defines, refusal};
use super::fp32::weights;
use super::gains::Gains;
use super::phases::{self, FEEDS, POINTS, halves};
use super::sizes::{Integrated, Sizes};
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
    /// Bytes of the output that sums are added to.
    sums_bytes: usize,
}

/// Why this form cannot do these stages, on `gpu` if there is one.
pub(super) fn refusals(stages: &Stages, gpu: Option<&Properties>) -> Vec<Refusal> {
    let sizes = stages.sizes;
    let mut refusals = Vec::new();
    if sizes.feeds != FEEDS {
        let message = format!("`tensor_core` transforms 256 feeds, not {}", sizes.feeds);
        let at = At::InputAxis(0, "north_south");
        refusals.push(refusal(at, message, "`fp32` takes any number"));
    } else if stages.points != Some(POINTS) {
        let at = At::Parameter("north_south");
        let message = "`tensor_core` transforms feeds to 512 points".to_owned();
        refusals.push(refusal(at, message, "give `north_south: {points: 512}`, or take `fp32`"));
    }
    let is_clamped = !stages.index_map.is_empty();
    if is_clamped && !sizes.row_beams.is_multiple_of(BEAMS_STEP) {
        let message = format!("`tensor_core` keeps no {} beams", sizes.row_beams);
        refusals.push(refusal(At::Parameter("clamp.beams"), message, "64, 128, 192 or 256"));
    }
    match (sizes.fine_channels, sizes.integrate) {
        (1, None) => {}
        (32 | 64 | 128, Some(_)) if is_clamped => {
            let needed = shared_bytes(&sizes);
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
            let message = "`tensor_core` does not do these stages together".to_owned();
            let help = "`upchannelise` of 32, 64 or 128 with `clamp` and `integrate`, or none of the later stages; \
                        `fp32` does any";
            refusals.push(refusal(At::Parameter("upchannelise"), message, help));
        }
    }
    refusals
}

/// Shared memory of a block that makes intensities.
fn shared_bytes(sizes: &Sizes) -> usize {
    let words = sizes.fine_channels * sizes.row_beams + 4 * sizes.fine_channels + WARPS * POINTS;
    4 * words
}

/// Device memory of the tables.
pub(super) fn device_bytes(stages: &Stages) -> usize {
    let Sizes { channels, pols, rows, cylinders, row_beams, fine_channels, .. } = stages.sizes;
    let combined = if stages.east_west.is_empty() { 1 } else { cylinders };
    4 * channels * pols * rows * combined * FEEDS
        + 2 * channels * row_beams
        + 16 * fine_channels
        + 1280
}

/// By what weights are divided, a power of two, so that no sum of `feeds` of them times the largest voltage
/// is too large.
fn divisor(weights: &[Complex32], dtype: Dtype, feeds: usize) -> f64 {
    let largest = weights.iter().map(|weight| f64::from(weight.norm())).fold(0.0, f64::max);
    let voltage = if dtype == Dtype::Ci4 { 8.0 } else { 128.0 } * 2.0_f64.sqrt();
    let sum = largest * voltage * feeds as f64;
    if sum == 0.0 { 1.0 } else { (sum / LARGEST_SUM).log2().ceil().exp2() }
}

impl Matrix {
    pub(super) fn new(
        stages: &Stages,
        gains: &Gains,
        device: &Arc<Device>,
    ) -> Result<Self, CudaError> {
        let sizes = stages.sizes;
        let is_sum = !stages.east_west.is_empty();
        let weights = weights(stages, gains);
        let sums = sizes.integrate.unwrap_or(Integrated { channels: 1, spectra: 1 });
        let is_clamped = !stages.index_map.is_empty();
        let makes_intensities = sizes.integrate.is_some();
        let is_weighted =
            makes_intensities || weights.iter().any(|weight| *weight != Complex32::ONE);
        let combined = if is_sum { sizes.cylinders } else { 1 };
        let divisor =
            if is_weighted { divisor(&weights, sizes.dtype, combined * FEEDS) } else { 1.0 };
        let is_bare = !is_weighted && !is_clamped;
        let (warps, per_warp) = match (makes_intensities, is_bare) {
            (true, _) => (WARPS, 1),
            // Order in memory counts for more than what is loaded again.
            (false, true) => (VOLTAGE_WARPS, 1),
            (false, false) => (VOLTAGE_WARPS, PER_WARP),
        };
        let more = gpu::numbers([
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
            let kernel = program.kernel("frb_intensities", shared_bytes(&sizes))?;
            (kernel, [sizes.channels, sizes.rows, sizes.output_spectra()])
        } else {
            let (transforms, lines) =
                if is_bare { (sizes.spectra * lines, 1) } else { (sizes.spectra, lines) };
            (program.kernel("frb_voltages", 0)?, [transforms.div_ceil(warps * per_warp), lines, 1])
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
        let scale = if makes_intensities {
            (divisor * sizes.fine_channels as f64).powi(2)
        } else {
            divisor
        };
        Ok(Self {
            kernel,
            grid: Grid::new(blocks, 32 * warps),
            phases: DeviceArray::from_slice(device, &phases::of_feeds())?,
            time_phases: DeviceArray::from_slice(
                device,
                &phases::of_spectra(sizes.fine_channels.max(8)),
            )?,
            weights: DeviceArray::from_slice(
                device,
                &weights.iter().map(rounded).collect::<Vec<_>>(),
            )?,
            map: DeviceArray::from_slice(device, &map)?,
            scale: scale as f32,
            sums_bytes: if makes_intensities {
                sizes.output_spectra() * sizes.output_spectrum() * size_of::<f32>()
            } else {
                0
            },
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
        if self.sums_bytes > 0 {
            // SAFETY: the output has as many bytes.
            unsafe { lane.clear(to, self.sums_bytes) }?;
        }
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
