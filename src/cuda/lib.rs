//! CUDA devices, loaded at run time: a machine without them builds and runs everything else.
//!
//! - [`Device`]: an opened GPU. [`count`] says how many there are, [`properties`] what one is.
//! - [`ProgramSource`]: a CUDA source that a crate carries, its own or any other's.
//! - [`Program`], [`Kernel`]: sources, compiled by NVRTC for the GPU at hand and launched.
//! - [`DeviceArray`], [`Pinned`], [`DeviceAllocator`], [`PinnedAllocator`]: memory.
//! - [`Lane`]: a block's place on a device: streams, the jobs queued on them, and the callback that
//!   wakes the block when one is done.
//! - [`GpuMap`]: what makes one frame of each frame; the rest is the same for all such blocks.
//! - [`Readout`]: frames copied to the host beside everything else.
//! - [`Tunable`], [`Tuning`]: kernels that can be cut in several ways, and the fastest one of each.
//! - [`calls`]: counts of allocations and of waits, which steady state has none of.
//! - [`transfer`]: the blocks `upload` and `download`, which the plan inserts.
//!
//! A block hands a frame on only when the device has finished it (`src/adr/007`): a reader never
//! waits for an event, header and payload belong together, and a fault is found in the block whose
//! frame it spoilt. To keep the device busy meanwhile, each block keeps [`IN_FLIGHT`] jobs queued.
//!
//! # Safety
//!
//! Copies of tables are safe calls of a [`Lane`]: the lane keeps the memory of both ends, and
//! [`Pinned`] gives its elements to the host only while no copy may be under way.
//!
//! Kernels are launched with plain device addresses, which no type can check. What keeps them
//! valid: a job owns the frames whose addresses its kernels use, and a [`Lane`] gives a job back,
//! or drops it, only after the device has finished it, also when an error ended the job early.

mod calls;
mod compile;
mod device;
mod driver_calls;
mod error;
mod kernel;
mod lane;
mod map;
mod memory;
mod readout;
mod status;
pub mod transfer;
mod tuning;

pub use calls::{Calls, calls};
pub use compile::{compile, compiler_version};
pub use cudarc::{cufft, driver};
pub use device::{Device, count, properties};
pub use error::CudaError;
pub use fxgraph_core::gpu::{Defines, Needs, ProgramSource, Properties, Source, Tunable};
pub use kernel::{Arg, Grid, Kernel, Program};
pub use lane::{IN_FLIGHT, Lane};
pub use map::{Frames, GpuJob, GpuMap, GpuMapped};
pub use memory::{
    DeviceAllocator, DeviceArray, InUse, Pinned, PinnedAllocator, SLACK_BYTES, frame_address,
};
pub use readout::Readout;
pub use readout::payload;
pub use tuning::{Choice, Tuning, TuningError};
