//! What can go wrong with a CUDA device, in the user's words.

use cudarc::driver::{DriverError, sys::CUresult};
use fxgraph_core::error::BlockError;

/// Why something did not work on a CUDA device.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error(
        "this machine has no CUDA driver (libcuda.so cannot be loaded): install NVIDIA's driver, \
         or run on `cpu`"
    )]
    NoDriver,
    /// There is a driver, but not this device.
    #[error("there is no device cuda:{ordinal}: the driver shows {count}")]
    NoDevice {
        /// Number of the device.
        ordinal: usize,
        /// Devices that there are.
        count: usize,
    },
    /// A library of the CUDA toolkit cannot be loaded.
    #[error(
        "{library} cannot be loaded, which {purpose}: install NVIDIA's CUDA toolkit, or put its \
         folder into LD_LIBRARY_PATH"
    )]
    NoLibrary {
        /// Its file name.
        library: &'static str,
        /// What it does here.
        purpose: &'static str,
    },
    /// A kernel does not compile.
    #[error("the kernel {name} does not compile\n{log}")]
    Compile {
        /// File name of the program.
        name: String,
        /// The compiler's messages, `file(line): error: ...`.
        log: String,
    },
    /// The GPU cannot run a program.
    #[error("the kernel {name} needs a GPU of compute capability {needed}, this one has {found}")]
    Capability {
        /// File name of the program.
        name: String,
        /// What it needs.
        needed: &'static str,
        /// What there is.
        found: String,
    },
    /// A program lacks a kernel that its block asks for.
    #[error("the kernel source {program} has no kernel `{kernel}`")]
    NoKernel {
        /// File name of the program.
        program: String,
        /// The kernel.
        kernel: String,
    },
    /// The driver refused something.
    #[error("{what} failed: {reason} ({name})")]
    Driver {
        /// What was tried.
        what: &'static str,
        /// The driver's explanation.
        reason: String,
        /// The driver's name for it.
        name: String,
    },
    /// A library of the CUDA toolkit refused something.
    #[error("{what} failed: {reason}")]
    Library {
        /// What was tried.
        what: &'static str,
        /// The library's name for it.
        reason: String,
    },
}

impl CudaError {
    /// What the driver answered to `what`.
    pub(crate) fn driver(what: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| {
            let text = |text: Result<&std::ffi::CStr, DriverError>| {
                text.map_or_else(|_| "unknown".to_owned(), |t| t.to_string_lossy().into_owned())
            };
            let (reason, name) = (text(error.error_string()), text(error.error_name()));
            Self::Driver { what, reason, name }
        }
    }

    /// What a call of the driver's raw interface answered.
    pub(crate) fn check(what: &'static str, result: CUresult) -> Result<(), Self> {
        result.result().map_err(Self::driver(what))
    }
}

impl From<CudaError> for BlockError {
    fn from(error: CudaError) -> Self {
        Self::new(error.to_string())
    }
}
