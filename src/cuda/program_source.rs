//! CUDA programs that a crate carries as text.

use super::{CudaError, Defines, Device, Program, Source};
use std::sync::Arc;

/// Compute capability that a program needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// 8.0 or later.
    Ampere,
    /// 9.0 exactly: `wgmma` exists on Hopper only.
    Hopper,
}

impl Needs {
    fn fits(self, capability: (usize, usize)) -> bool {
        match self {
            Self::Ampere => capability.0 >= 8,
            Self::Hopper => capability == (9, 0),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Ampere => "8.0 or later",
            Self::Hopper => "9.0",
        }
    }
}

/// A CUDA program as text: one or several `extern "C"` kernels, compiled by NVRTC for the GPU at hand when a block is
/// built, with the block's parameters as macros. A crate hands its programs to
/// [`Registry::with_programs`](crate::Registry::with_programs), so that `fxgraph kernels` compiles them without a GPU.
///
/// ```
/// use fxgraph::cuda::{Needs, ProgramSource, Source};
///
/// static SCALE: ProgramSource = ProgramSource {
///     // In a crate: `Source::embedded("scale.cu", include_str!("scale.cu"))`.
///     source: Source::embedded(
///         "scale.cu",
///         r#"extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }"#,
///     ),
///     headers: &[],
///     needs: Needs::Ampere,
///     cases: &["FACTOR=2"],
/// };
/// # let _ = &SCALE;
/// // In `Kind::build`: SCALE.compile(device, vec![("FACTOR", "2".to_owned())])?.kernel("scale", 0)?
/// ```
#[derive(Debug)]
pub struct ProgramSource {
    /// The file. Its name is unique in a program: `--kernels DIR` replaces files by their names.
    pub source: Source,
    /// Files that it may include. NVRTC has no others.
    pub headers: &'static [Source],
    /// GPUs it runs on.
    pub needs: Needs,
    /// Parameter sets that `fxgraph kernels` compiles it with: `NAME=VALUE`, separated by blanks.
    pub cases: &'static [&'static str],
}

impl ProgramSource {
    /// The program, compiled for `device` with `defines` as macros, or taken from the user's cache of compiled programs.
    pub fn compile(
        &self,
        device: &Arc<Device>,
        defines: Defines,
    ) -> Result<Arc<Program>, CudaError> {
        let capability = device.properties().capability;
        if !self.needs.fits(capability) {
            let (name, needed) = (self.source.name.to_string(), self.needs.text());
            let found = format!("{}.{}", capability.0, capability.1);
            return Err(CudaError::Capability { name, needed, found });
        }
        Program::new(device, self.source.clone(), self.headers.to_vec(), defines)
    }
}
