//! The kernels, compiled for the GPU at hand, and what they read that does not change.

use super::FEngine;
use super::geometry::{Geometry, Shape};
use crate::dither::Dither;
use crate::gpu;
use crate::pfb::schedule::Sizes;
use fxgraph::cuda::{Device, DeviceArray, Kernel, Properties};
use fxgraph::{BlockError, Ports};
use num_complex::Complex32;
use std::sync::Arc;

/// The kernels.
pub struct Kernels {
    pub rows: Kernel,
    pub filter: Kernel,
    pub finish: Kernel,
    pub measure: Kernel,
}

/// What does not change from job to job.
pub struct Constants {
    pub weights: DeviceArray<f32>,
    pub filter_roots: DeviceArray<Complex32>,
    pub finish_roots: DeviceArray<Complex32>,
    /// Those that all channels share, \[pol\]\[re, im\].
    pub common_gains: DeviceArray<f64>,
    /// Those of each channel, in the order of the second pass; empty if they are the same.
    pub channel_gains: DeviceArray<Complex32>,
}

/// What runs on the GPU.
pub struct Program {
    pub gpu: Properties,
    pub geometry: Geometry,
    pub kernels: Kernels,
    pub constants: Constants,
}

impl Program {
    pub fn new(
        f_engine: &FEngine,
        ports: &Ports,
        sizes: &Sizes,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let shape = Shape::new(f_engine, ports);
        let pols = shape.pols;
        let gpu = device.properties().clone();
        let geometry = Geometry::new(&shape, &gpu)?;
        let (common_gains, channel_gains) = gains(f_engine, pols, &geometry);
        let defines = [
            ("CHANNELS", shape.channels),
            ("POLS", pols),
            ("TAPS", shape.taps),
            ("SAMPLE_BITS", shape.sample_bits),
            ("NATIVE_SAMPLES", usize::from(shape.native_samples)),
            ("VALUE_BITS", shape.value_bits),
            ("K_MAJOR", usize::from(shape.k_major)),
            ("SPECTRA_PER_HEAP", shape.spectra_per_heap),
            ("DITHER", usize::from(f_engine.dither == Dither::Uniform)),
            ("CHANNEL_GAINS", usize::from(!channel_gains.is_empty())),
            ("TILE_BYTES", geometry.tile_bytes),
        ];
        let defines = defines.map(|(name, value)| (name, value.to_string()));
        let program = gpu::program(device, "f_engine.cu", defines.into())?;
        let kernels = Kernels {
            rows: program.kernel("f_engine_rows", 0)?,
            filter: program.kernel("f_engine_filter", geometry.filter_shared_bytes)?,
            finish: program.kernel("f_engine_finish", geometry.finish_shared_bytes)?,
            measure: program.kernel("f_engine_measure", 0)?,
        };
        let FEngine { taps, window, w_cutoff, .. } = *f_engine;
        let weights = crate::pfb::weights(sizes.step, taps, window, w_cutoff);
        let constants = Constants {
            weights: DeviceArray::from_slice(device, &weights)?,
            filter_roots: DeviceArray::from_slice(device, &geometry.filter_roots())?,
            finish_roots: DeviceArray::from_slice(device, &geometry.finish_roots())?,
            common_gains: DeviceArray::from_slice(device, &common_gains)?,
            channel_gains: match channel_gains.as_slice() {
                [] => DeviceArray::new(device, 0)?,
                gains => DeviceArray::from_slice(device, gains)?,
            },
        };
        Ok(Self { gpu, geometry, kernels, constants })
    }

    /// Spectra of a run, if there are `spectra` in all to be filtered.
    pub fn run_length(&self, spectra: usize) -> usize {
        self.geometry.run_length(spectra, &self.gpu)
    }
}

/// The gains that all channels share, \[pol\]\[re, im\]; and those of each channel in the order of the
/// second pass, unless all channels of each polarisation have the same.
fn gains(f_engine: &FEngine, pols: usize, geometry: &Geometry) -> (Vec<f64>, Vec<Complex32>) {
    let of_pol = |pol| f_engine.gains.of_pol(pol, f_engine.channels);
    let pols: Vec<(Vec<Complex32>, bool)> = (0..pols).map(of_pol).collect();
    if pols.iter().all(|(_, all_equal)| *all_equal) {
        let parts = pols.iter().flat_map(|(gains, _)| [gains[0].re, gains[0].im]);
        return (parts.map(f64::from).collect(), Vec::new());
    }
    let order = geometry.gain_order();
    let ordered = pols.iter().flat_map(|(gains, _)| order.iter().flatten().map(|k| gains[*k]));
    ([1.0, 0.0].repeat(pols.len()), ordered.collect())
}
