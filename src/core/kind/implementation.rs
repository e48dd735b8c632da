//! The implementations of a kind, each bound to its constructor.

use super::{Configured, Env, KindSpec, Refusal};
use crate::block::Block;
use crate::error::BlockError;
use crate::gpu::{self, ProgramSource};

/// The implementations of a kind.
pub type Implementations<K> = &'static [Implementation<K>];

/// What users read of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImplementationInfo {
    /// The word after `implementation:`.
    pub name: &'static str,
    /// `cpu` or `cuda`.
    pub device: &'static str,
    /// One line about it.
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
    ImplementationInfo { name: "cpu", device: "cpu", summary: "the definition" };

/// Makes a block, ready to start; no I/O yet.
pub type Build<K> = fn(&Configured<K>, &Env) -> Result<Box<dyn Block>, BlockError>;
/// Why an implementation cannot do what the reference can.
type Check<K> = fn(&Configured<K>, Option<&gpu::Properties>) -> Vec<Refusal>;
/// The kernel that can be launched in several ways, if there is one.
type Tunable<K> = fn(&Configured<K>) -> Option<gpu::Tunable>;

/// An implementation of the kind `K` with everything that is its own.
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

    /// The reference implementation, on the CPU. `build` makes a block that is ready to start; no I/O yet.
    #[must_use]
    pub const fn cpu(build: Build<K>) -> Self {
        Self::new(CPU, build)
    }

    /// Another implementation on the CPU.
    #[must_use]
    pub const fn other_cpu(name: &'static str, summary: &'static str, build: Build<K>) -> Self {
        Self::new(ImplementationInfo { name, device: "cpu", summary }, build)
    }

    /// An implementation for CUDA devices; [`Env::device`] is the one.
    #[must_use]
    pub const fn cuda(name: &'static str, summary: &'static str, build: Build<K>) -> Self {
        Self::new(ImplementationInfo::cuda(name, summary), build)
    }

    /// `suited` fills in what this implementation takes where a parameter is not given. It comes first: ports may
    /// depend on it.
    #[must_use]
    pub const fn suited(mut self, suited: fn(K) -> K) -> Self {
        self.suited = Some(suited);
        self
    }

    /// `check` says why this implementation cannot do what the reference can; every refusal at once. It gets the
    /// GPU that the block is to run on, unless this machine has none.
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

    /// `programs` are the CUDA programs that the block compiles, which `fxgraph kernels` compiles without a GPU.
    #[must_use]
    pub const fn programs(mut self, programs: &'static [ProgramSource]) -> Self {
        self.programs = programs;
        self
    }

    /// `tunable` is the kernel, if there is one, whose launch configuration `fxgraph tune` measures.
    #[must_use]
    pub const fn tunable(mut self, tunable: Tunable<K>) -> Self {
        self.tunable = Some(tunable);
        self
    }
}

/// Checks that a kind has a reference implementation; `#[derive(Kind)]` calls it.
///
/// # Panics
/// Where it is compiled, if the first implementation is not one for the CPU.
pub const fn has_reference<K: KindSpec>() {
    assert!(
        matches!(K::IMPLEMENTATIONS, [first, ..] if matches!(first.info.device.as_bytes(), b"cpu")),
        "the first of the `IMPLEMENTATIONS` of a kind must be `Implementation::cpu`"
    );
}
