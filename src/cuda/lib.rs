//! CUDA devices. The CUDA driver is loaded at run time, so that fxgraph also builds and runs without it.
//!
//! - [`Device`]: an opened GPU. [`count`] returns the number of GPUs, [`properties`] the properties of one.
//! - [`GpuState`]: clocks, power and PCIe link of a GPU.
//! - [`ProgramSource`]: a CUDA source embedded in a crate.
//! - [`Program`], [`Kernel`]: sources compiled by NVRTC for the GPU of a block, and their kernels.
//! - [`DeviceArray`], [`Pinned`], [`DeviceAllocator`], [`PinnedAllocator`]: memory.
//! - [`Pipeline`]: the CUDA pipeline of a block: streams, the jobs queued on them, and the callback that
//!   wakes the block when a job is done.
//! - [`GpuMap`]: work of a block with one output frame per input frame; [`GpuMapped`] is the block.
//! - [`exported`], [`Exported`]: frames in device memory for another process.
//! - [`Readout`]: copies of frames to the host, independent of blocks.
//! - [`Tunable`], [`Tuning`]: kernels with several launch configurations, and the fastest one of each.
//! - [`calls`]: counts of allocations and waits, which do not occur in steady state.
//! - [`transfer`]: the blocks `upload` and `download`, which the plan inserts.
//!
//! A block pushes a frame only when the device has finished it (`src/adr/007`): so a reader never
//! waits for an event, header and payload belong together, and a fault shows in the block whose
//! frame it affects. To keep the device busy meanwhile, each block keeps [`IN_FLIGHT`] jobs queued.
//!
//! # Safety
//!
//! Copies of tables are safe calls of a [`Pipeline`]: the CUDA pipeline keeps the memory of both ends, and
//! [`Pinned`] gives the host access to its elements only while no copy may be in flight.
//!
//! Kernels are launched with plain device addresses, which no type can check. The addresses stay
//! valid because a job owns the frames whose addresses its kernels use, and a [`Pipeline`] returns a job,
//! or drops it, only after the device has finished it, also when an error ended the job early.

mod calls;
mod compile;
mod device;
mod driver_calls;
mod error;
mod gpus;
mod ipc;
mod jobs;
mod kernel;
mod map;
mod memory;
mod nvml;
mod payload;
mod pipeline;
mod readout;
mod status;
pub mod transfer;
mod tuning;

pub use calls::{Calls, calls};
pub use compile::{compile, compiler_version, includes, precompile};
pub use cudarc::{cufft, driver};
pub use device::{CONTEXT_BYTES, Device, context_bytes};
pub use error::CudaError;
pub use fxgraph_core::gpu::{Defines, Needs, ProgramSource, Properties, Source, Tunable};
pub use gpus::{Link, count, link, properties};
pub use ipc::{Exported, HANDLE_BYTES, exported, visible};
pub use jobs::IN_FLIGHT;
pub use kernel::{Arg, Grid, Kernel, Program};
pub use map::{Frames, GpuJob, GpuMap, GpuMapped};
pub use memory::{DeviceArray, InUse, Pinned, SLACK_BYTES};
pub use nvml::GpuState;
pub use payload::{DeviceAllocator, PinnedAllocator, frame_address, pool_bytes};
pub use pipeline::Pipeline;
pub use readout::Readout;
pub use readout::payload;
pub use tuning::{Choice, Tuning, TuningError};
