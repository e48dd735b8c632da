//! Kernels, compiled for the installed GPU, and their constant tables.

use super::FEngine;
use super::launch::{self, Cut};
use super::matrix::{self, MatrixCut};
use super::shape::KernelShape;
use crate::common::dither::Dither;
use crate::common::gpu;
use crate::f_engine::postproc::device_settings::{GainKernels, differ};
use crate::f_engine::samples::input::Sizes;
use fxgraph::cuda::{self, Device, DeviceArray, Kernel, Properties};
use fxgraph::{BlockError, Ports};
use num_complex::Complex32;
use std::sync::Arc;

/// Kernels of `two_pass`.
pub struct Kernels {
    pub rows: Kernel,
    pub filter: Kernel,
    pub finish: GainKernels,
    pub measure: Kernel,
}

/// Tables that are the same for all jobs.
pub struct Constants {
    pub weights: DeviceArray<f32>,
    pub filter_roots: DeviceArray<Complex32>,
    pub finish_roots: DeviceArray<Complex32>,
}

/// First pass with the filter on the matrix units.
pub struct Matrix {
    pub cut: MatrixCut,
    pub kernel: Kernel,
    pub weights: DeviceArray<u32>,
    /// Factor of the weights.
    pub scale: f32,
}

/// Kernels, launch configuration and tables for one GPU.
pub struct Program {
    pub gpu: Properties,
    pub cut: Cut,
    /// Used instead of the filter of `kernels`, if there is one.
    pub matrix: Option<Matrix>,
    pub kernels: Kernels,
    pub constants: Constants,
    /// Inverse of the scale of the intermediate values.
    pub unscale: f32,
}

impl Matrix {
    /// The kernel, if it supports the shape, the weights and the device.
    fn new(
        shape: &KernelShape,
        weights: &[f32],
        device: &Arc<Device>,
    ) -> Result<Option<Self>, BlockError> {
        let Some(cut) = MatrixCut::new(shape, device.properties()) else { return Ok(None) };
        let Some(matrix::Weights { table, scale }) = cut.fit(weights) else { return Ok(None) };
        let macros = gpu::numbers([
            ("CHANNELS", shape.channels),
            ("POLS", shape.pols),
            ("TAPS", shape.taps),
            ("SAMPLE_BITS", shape.sample_bits),
        ]);
        let program = gpu::program(device, "f_engine_matrix.cu", macros)?;
        let kernel = program.kernel("f_engine_matrix_filter", cut.shared_bytes)?;
        let weights = DeviceArray::from_slice(device, &table)?;
        Ok(Some(Self { cut, kernel, weights, scale }))
    }
}

impl Program {
    pub fn new(
        f_engine: &FEngine,
        ports: &Ports,
        sizes: &Sizes,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let shape = KernelShape::new(f_engine, ports);
        let gpu = device.properties().clone();
        let cut = Cut::new(&shape, &gpu)?;
        let gains = f_engine.gains.of_shape(&f_engine.shape(&ports.inputs));
        let program = |differ| {
            let macros = gpu::numbers([
                ("CHANNELS", shape.channels),
                ("POLS", shape.pols),
                ("TAPS", shape.taps),
                ("SAMPLE_BITS", shape.sample_bits),
                ("NATIVE_SAMPLES", usize::from(shape.native_samples)),
                ("VALUE_BITS", shape.value_bits),
                ("K_MAJOR", usize::from(shape.k_major)),
                ("SPECTRA_PER_HEAP", shape.spectra_per_heap),
                ("DITHER", usize::from(f_engine.dither == Dither::Uniform)),
                ("CHANNEL_GAINS", usize::from(differ)),
                ("TILE_BYTES", cut.tile_bytes),
                ("FINISH_THREADS", cut.finish_threads),
            ]);
            gpu::program(device, "f_engine.cu", macros)
        };
        let finish = |program: &Arc<cuda::Program>| {
            program.kernel("f_engine_finish", cut.finish_shared_bytes)
        };
        let first = program(differ(&gains))?;
        let kernels = Kernels {
            rows: first.kernel("f_engine_rows", 0)?,
            filter: first.kernel("f_engine_filter", cut.filter_shared_bytes)?,
            finish: GainKernels::new(finish(&first)?, &gains, || Ok(finish(&program(true)?)?))?,
            measure: first.kernel("f_engine_measure", 0)?,
        };
        let FEngine { taps, window, w_cutoff, .. } = *f_engine;
        let mut weights = fxgraph_dsp::polyphase::weights(sizes.step, taps, window, w_cutoff);
        let scales = cut.scales(&weights, shape.sample_bits);
        weights.iter_mut().for_each(|w| *w *= scales.weights);
        let constants = Constants {
            weights: DeviceArray::from_slice(device, &weights)?,
            filter_roots: DeviceArray::from_slice(device, &cut.filter_roots(scales.roots))?,
            finish_roots: DeviceArray::from_slice(device, &cut.finish_roots())?,
        };
        let matrix = Matrix::new(&shape, &weights, device)?;
        Ok(Self { gpu, cut, matrix, kernels, constants, unscale: scales.inverse })
    }

    /// Spectra per run, for stretches of `counts` spectra.
    pub fn run_length(&self, counts: impl Iterator<Item = usize> + Clone) -> usize {
        let (blocks, columns) = match &self.matrix {
            Some(matrix) => (1, matrix.cut.column_blocks()),
            None => (self.cut.filter_blocks, self.cut.column_blocks()),
        };
        launch::run_length(counts, blocks * self.gpu.multiprocessors / columns)
    }
}
