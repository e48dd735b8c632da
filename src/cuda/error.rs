//! Errors of CUDA devices.

use cudarc::driver::{DriverError, sys::CUresult};

/// Error of a CUDA device, its driver or the CUDA toolkit.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error(
        "this machine has no CUDA driver (libcuda.so cannot be loaded): install the NVIDIA driver, \
         or run on `cpu`"
    )]
    NoDriver,
    /// There is a driver, but not this device.
    #[error("there is no device cuda:{ordinal}; number of GPUs found: {count}")]
    NoDevice {
        /// Number of the device.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// A library of the CUDA toolkit cannot be loaded.
    #[error(
        "{library}, which {purpose}, cannot be loaded: install the CUDA toolkit, or add its library \
         directory to LD_LIBRARY_PATH"
    )]
    NoLibrary {
        /// File name of the library.
        library: &'static str,
        /// Purpose of the library, as "compiles GPU kernels".
        purpose: &'static str,
    },
    /// A kernel does not compile.
    #[error("the kernel {name} does not compile\n{log}")]
    Compile {
        /// File name of the program.
        name: String,
        /// Messages of the compiler, `file(line): error: ...`.
        log: String,
    },
    /// The GPU cannot run a program.
    #[error("the kernel {name} needs a GPU of compute capability {needed}, this one has {found}")]
    Capability {
        /// File name of the program.
        name: String,
        /// Required compute capability.
        needed: &'static str,
        /// Compute capability of the GPU.
        found: String,
    },
    /// A program lacks a kernel that its block needs.
    #[error("the kernel source {program} has no kernel `{kernel}`")]
    NoKernel {
        /// File name of the program.
        program: String,
        /// Name of the kernel.
        kernel: String,
    },
    /// A call of the driver failed.
    #[error("{what} failed: {reason} ({name})")]
    Driver {
        /// Operation that failed, as "opening the GPU".
        what: &'static str,
        /// Error text of the driver.
        reason: String,
        /// Error name of the driver.
        name: String,
    },
    /// A kernel has exceeded its time limit and may never end: calls that wait for the GPU would wait for it.
    #[error("{why}; restart the process")]
    Stuck {
        /// The GPU, the kernel and its time limit.
        why: String,
    },
    /// A call of a library of the CUDA toolkit failed.
    #[error("{what} failed: {reason}")]
    Library {
        /// Operation that failed, as "compiling a kernel".
        what: &'static str,
        /// Error name of the library.
        reason: String,
    },
}

impl CudaError {
    /// Converts an error of the driver in the operation `what`.
    pub(crate) fn driver(what: &'static str) -> impl Fn(DriverError) -> Self {
        move |error| {
            let text = |text: Result<&std::ffi::CStr, DriverError>| {
                text.map_or_else(|_| "unknown".to_owned(), |t| t.to_string_lossy().into_owned())
            };
            let (reason, name) = (text(error.error_string()), text(error.error_name()));
            Self::Driver { what, reason, name }
        }
    }

    /// Converts the result of a call of the driver's C interface.
    pub(crate) fn check(what: &'static str, result: CUresult) -> Result<(), Self> {
        result.result().map_err(Self::driver(what))
    }
}

/// Errors of the driver after which every call on the device fails until the process ends.
const STICKY: [&str; 13] = [
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
];

impl CudaError {
    /// Whether the device has failed permanently, so that all its blocks fail.
    pub(crate) fn is_sticky(&self) -> bool {
        matches!(self, Self::Driver { name, .. } if STICKY.contains(&name.as_str()))
    }
}
