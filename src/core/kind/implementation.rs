//! Implementations of a kind, each with its constructor.

use super::{Configured, Env, KindSpec, Rejection};
use crate::block::Block;
use crate::error::BlockError;
use crate::gpu::{self, ProgramSource};

/// Implementations of a kind.
pub type Implementations<K> = &'static [Implementation<K>];

/// Name, device and summary of an implementation, for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImplementationInfo {
    /// Value of `implementation:`.
    pub name: &'static str,
    /// `cpu` or `cuda`.
    pub device: &'static str,
    /// Description in one line.
    pub summary: &'static str,
}

impl ImplementationInfo {
    /// An implementation for CUDA devices.
    #[must_use]
    pub const fn cuda(name: &'static str, summary: &'static str) -> Self {
        Self { name, device: "cuda", summary }
    }
}

/// The implementation that every kind has: the reference.
pub const CPU: ImplementationInfo =
    ImplementationInfo { name: "cpu", device: "cpu", summary: "reference implementation" };

/// Builds a block, ready to start; it does no I/O.
pub type Build<K> = fn(&Configured<K>, &Env) -> Result<Box<dyn Block>, BlockError>;
/// Returns errors for parameters and inputs that only the reference implementation supports.
type Check<K> = fn(&Configured<K>, Option<&gpu::Properties>) -> Vec<Rejection>;
/// Returns the kernel with several launch configurations, if any.
type Tunable<K> = fn(&Configured<K>) -> Option<gpu::Tunable>;

/// An implementation of the kind `K`.
pub struct Implementation<K: KindSpec> {
    pub(crate) info: ImplementationInfo,
    pub(crate) build: Build<K>,
    pub(crate) suited: Option<fn(K) -> K>,
    pub(crate) check: Option<Check<K>>,
    pub(crate) device_bytes: Option<fn(&Configured<K>) -> usize>,
    pub(crate) tunable: Option<Tunable<K>>,
    pub(crate) programs: &'static [ProgramSource],
}

impl<K: KindSpec> Implementation<K> {
    const fn new(info: ImplementationInfo, build: Build<K>) -> Self {
        Self {
            info,
            build,
            suited: None,
            check: None,
            device_bytes: None,
            tunable: None,
            programs: &[],
        }
    }

    /// The reference implementation, on the CPU. `build` returns a block that is ready to start, without doing I/O.
    #[must_use]
    pub const fn cpu(build: Build<K>) -> Self {
        Self::new(CPU, build)
    }

    /// Another implementation on the CPU.
    #[must_use]
    pub const fn other_cpu(name: &'static str, summary: &'static str, build: Build<K>) -> Self {
        Self::new(ImplementationInfo { name, device: "cpu", summary }, build)
    }

    /// An implementation for CUDA devices; `build` gets the device as [`Env::device`].
    #[must_use]
    pub const fn cuda(name: &'static str, summary: &'static str, build: Build<K>) -> Self {
        Self::new(ImplementationInfo::cuda(name, summary), build)
    }

    /// `suited` sets defaults of this implementation for parameters that are not given. It is called before
    /// [`KindSpec::ports`], which may depend on these defaults.
    #[must_use]
    pub const fn suited(mut self, suited: fn(K) -> K) -> Self {
        self.suited = Some(suited);
        self
    }

    /// `check` returns all errors for parameters and inputs that this implementation does not support. It gets the
    /// GPU that the block will run on, or `None` if this machine has none.
    #[must_use]
    pub const fn check(mut self, check: Check<K>) -> Self {
        self.check = Some(check);
        self
    }

    /// `device_bytes` is the device memory that the block allocates for itself (not for frames), in bytes.
    #[must_use]
    pub const fn device_bytes(mut self, device_bytes: fn(&Configured<K>) -> usize) -> Self {
        self.device_bytes = Some(device_bytes);
        self
    }

    /// `programs` are the CUDA programs that the block compiles; `fxgraph kernels` compiles them without a GPU.
    #[must_use]
    pub const fn programs(mut self, programs: &'static [ProgramSource]) -> Self {
        self.programs = programs;
        self
    }

    /// `tunable` returns the kernel, if any, whose launch configurations `fxgraph tune` measures.
    #[must_use]
    pub const fn tunable(mut self, tunable: Tunable<K>) -> Self {
        self.tunable = Some(tunable);
        self
    }
}

/// Checks that a kind has a reference implementation; `#[derive(Kind)]` calls it.
///
/// # Panics
/// At compile time, if the first implementation is not for the CPU.
pub const fn has_reference<K: KindSpec>() {
    assert!(
        matches!(K::IMPLEMENTATIONS, [first, ..] if matches!(first.info.device.as_bytes(), b"cpu")),
        "the first of the `IMPLEMENTATIONS` of a kind must be `Implementation::cpu`"
    );
}
