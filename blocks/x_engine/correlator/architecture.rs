//! Kernels of the GPU implementations, and the GPUs that run them.

use fxgraph::cuda::Properties;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, Rejection};

/// Compute capability that `hopper` needs.
const HOPPER: (usize, usize) = (9, 0);

/// Kernels of the GPU implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// Warpgroup matrix instructions and the tensor memory accelerator (TMA).
    Hopper,
    /// Matrix instructions of warps.
    TensorCore,
}

impl Architecture {
    /// Returns the faster kernel for voltages of `dtype` on a GPU of this compute capability.
    pub(super) fn best(dtype: Dtype, capability: (usize, usize)) -> Self {
        match (dtype, capability) {
            (Dtype::Cf16, _) => Self::TensorCore,
            (_, HOPPER) => Self::Hopper,
            _ => Self::TensorCore,
        }
    }
}

/// Diagnostic for `hopper` with unsupported voltages, or on a GPU without its instructions.
pub(super) fn reject_hopper(dtype: Dtype, gpu: Option<&Properties>) -> Option<Rejection> {
    let reject = |message: String, help: &str| {
        Some(Rejection::new(codes::IMPLEMENTATION, At::Implementation, message).help(help))
    };
    if dtype == Dtype::Cf16 {
        let help = "set `implementation: tensor_core`, or `cuda`, which selects it";
        return reject(format!("`hopper` needs 8-bit or 4-bit integers, got `{dtype}`"), help);
    }
    let Properties { name, capability: (major, minor), .. } =
        gpu.filter(|gpu| gpu.capability != HOPPER)?;
    let message =
        format!("`hopper` needs a GPU of compute capability 9.0, {name} has {major}.{minor}");
    reject(message, "set `implementation: cuda`, which selects the kernel for the installed GPU")
}
