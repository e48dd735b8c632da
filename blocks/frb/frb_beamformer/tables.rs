//! Constant tables and the program of the kernels for tensor cores.

use super::method::{Job, Method, defines};
use super::{Integrate, Stages};
use crate::common::gpu;
use fxgraph::cuda::{Arg, CudaError, Device, DeviceArray, Program};
use std::sync::Arc;

/// Constant tables.
pub(super) struct Tables {
    pub phases: DeviceArray<u32>,
    pub map: DeviceArray<u16>,
}

impl Tables {
    /// Arguments of a kernel: the common ones, with these `weights`, then its `own` ones.
    pub(super) fn arguments<'a>(
        &self,
        job: &Job<'_>,
        weights: Arg<'a>,
        own: [Arg<'a>; 3],
    ) -> [Arg<'a>; 9] {
        let [a, b, c] = own;
        [
            job.from.into(),
            job.to.into(),
            self.phases.address().into(),
            weights,
            self.map.address().into(),
            job.units.into(),
            a,
            b,
            c,
        ]
    }
}

/// Program of these stages, with `warps` per block and `per_warp` transforms per warp.
pub(super) fn program(
    stages: &Stages,
    method: Method,
    is_weighted: bool,
    [warps, per_warp]: [usize; 2],
    device: &Arc<Device>,
) -> Result<Arc<Program>, CudaError> {
    let sums = stages.sizes.integrate.unwrap_or(Integrate { channels: 1, spectra: 1 });
    let more = gpu::numbers([
        ("RADIX8", usize::from(method == Method::Radix8)),
        ("WEIGHTED", usize::from(is_weighted)),
        ("CLAMP", usize::from(!stages.index_map.is_empty())),
        ("SUM_CHANNELS", sums.channels),
        ("SUM_SPECTRA", sums.spectra),
        ("WARPS", warps),
        ("PER_WARP", per_warp),
    ]);
    gpu::program(device, "frb_beamformer.cu", [defines(stages), more].concat())
}
