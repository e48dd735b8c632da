//! Additional sums for integers on a GPU: the real parts that the kernels leave out, and 64-bit sums to which the
//! 32-bit sums are moved before they overflow.
#![allow(unsafe_code)] // launches

use super::sum_bound::{Bound, SAMPLES_IN_32_BITS};
use super::sums::{Dump, THREADS, dump_grid, sizes};
use crate::common::stacked::Stacked;
use fxgraph::BlockError;
use fxgraph::cuda::{Device, DeviceArray, Grid, Kernel, Pinned, Pipeline, Program};
use std::sync::Arc;

/// Number of words of the kernels' `State`.
const STATE: usize = 2;

/// Sums of one dump in addition to the 32-bit ones.
pub(super) struct Whole {
    shape: Stacked,
    watch: Kernel,
    widen: Kernel,
    settle: Kernel,
    dump: Kernel,
    /// Correction of the imaginary parts, `[channel][row]`, see `kernels/x_engine/voltages.cuh`.
    real_parts: DeviceArray<i32>,
    /// `[channel][baseline][product][re, im]`, for dumps whose sums can exceed 32 bits.
    wide: Option<DeviceArray<i64>>,
    /// Number of products of the dump that did not fit 32 bits.
    saturated: DeviceArray<u64>,
    /// `State` of the kernels.
    state: DeviceArray<u32>,
    /// Upper bound of the 32-bit sums.
    bound: Bound,
}

/// Lengths of `real_parts` and `wide`.
fn lengths(shape: &Stacked, spectra_per_dump: u64) -> [usize; 2] {
    let fits = spectra_per_dump <= SAMPLES_IN_32_BITS as u64;
    let products = shape.products() * shape.baselines() * shape.channels;
    let wide = if fits { 0 } else { 2 * products };
    [sizes(shape).rows() * shape.channels, wide]
}

impl Whole {
    /// Device memory in bytes.
    pub(super) fn bytes(shape: &Stacked, spectra_per_dump: u64) -> usize {
        let [real_parts, wide] = lengths(shape, spectra_per_dump);
        4 * real_parts + 8 * wide
    }

    /// Creates sums of 0, with the kernels of `correlator_dump.cu`.
    pub(super) fn new(
        device: &Arc<Device>,
        dumping: &Arc<Program>,
        shape: Stacked,
        spectra_per_dump: u64,
    ) -> Result<Self, BlockError> {
        let [real_parts, wide] = lengths(&shape, spectra_per_dump);
        let wide = if wide == 0 { None } else { Some(DeviceArray::zeros(device, wide)?) };
        Ok(Self {
            shape,
            watch: dumping.kernel("watch", 0)?,
            widen: dumping.kernel("widen", 0)?,
            settle: dumping.kernel("settle", 0)?,
            dump: dumping.kernel("dump", 0)?,
            real_parts: DeviceArray::zeros(device, real_parts)?,
            wide,
            saturated: DeviceArray::new(device, 1)?,
            state: DeviceArray::zeros(device, STATE)?,
            bound: Bound::default(),
        })
    }

    /// Address of the sums of real parts.
    pub(super) fn real_parts(&self) -> u64 {
        self.real_parts.address()
    }

    /// Prepares the sums at `visibilities` for `samples` more samples. If the sums could exceed 32 bits, queues kernels
    /// that check them and move them to the 64-bit sums if they are too large.
    pub(super) fn make_room<J>(
        &mut self,
        pipeline: &Pipeline<J>,
        visibilities: u64,
        samples: usize,
    ) -> Result<(), BlockError> {
        let Some(most) = self.bound.add(samples) else { return Ok(()) };
        // Without 64-bit sums the dump is too short to overflow.
        let Some(wide) = &self.wide else { return Ok(()) };
        let int = |n: usize| n as i32;
        let (channels, n) = (self.shape.channels, sizes(&self.shape).rows());
        let rows = Grid::new([(n * channels).div_ceil(THREADS), 1, 1], THREADS);
        let (grid, one) = (dump_grid(&self.shape), Grid::new([1, 1, 1], THREADS));
        let visibilities = visibilities.into();
        let real_parts = self.real_parts.address().into();
        let state = self.state.address().into();
        let [n, baselines, channels] = [n, self.shape.baselines(), channels].map(|n| int(n).into());
        let watched = [visibilities, state, n, channels];
        let wide = wide.address().into();
        let widened = [visibilities, real_parts, wide, state, most.into(), n, baselines, channels];
        let settled = [real_parts, state, most.into(), n, channels];
        // SAFETY: the arguments match the kernels; the arrays belong to `self` and have the lengths that the
        // kernels expect; `visibilities` belongs to the `Sums` that own `self`.
        unsafe {
            self.watch.launch(pipeline.stream(), rows, &watched)?;
            self.widen.launch(pipeline.stream(), grid, &widened)?;
            self.settle.launch(pipeline.stream(), one, &settled)?;
        }
        Ok(())
    }

    /// Queues the dump and resets the sums to 0. After the job, `saturated` is the number of products that did not fit
    /// 32 bits.
    ///
    /// # Safety
    /// The addresses of `dump` must stay valid until the job is done.
    pub(super) unsafe fn put_out<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        dump: &Dump,
        saturated: &mut Pinned<u64>,
    ) -> Result<(), BlockError> {
        self.bound = Bound::default();
        let arguments = [
            dump.visibilities.into(),
            self.real_parts.address().into(),
            self.wide.as_ref().map_or(0, DeviceArray::address).into(),
            self.state.address().into(),
            dump.missing_baselines.into(),
            dump.missing_products.into(),
            dump.payload.into(),
            self.saturated.address().into(),
            (sizes(&self.shape).rows() as i32).into(),
            (self.shape.baselines() as i32).into(),
            (self.shape.channels as i32).into(),
        ];
        pipeline.zero(&self.saturated)?;
        // SAFETY: the arguments match the kernel; the arrays belong to `self` and have the lengths that the kernel
        // expects; the caller guarantees the addresses of `dump`.
        unsafe { self.dump.launch(pipeline.stream(), dump_grid(&self.shape), &arguments) }?;
        pipeline.zero(&self.real_parts)?;
        pipeline.zero(&self.state)?;
        pipeline.fetch(&self.saturated, saturated)
    }
}
