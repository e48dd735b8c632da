#![doc = include_str!("README.md")]
//!
//! # Layout
//! - [`host`]: the block that hosts a sub-flowgraph
//! - [`graph`]: the sub-flowgraph, while it is built
//! - [`timing`]: which samples of the input make a sample of the output
//! - `timeline`: timestamps and validity of the output
//! - `ends`: the first and the last block of the sub-flowgraph, which read and write frames
//! - `executor`: FutureSDR's tasks, run by the hosting block
//! - `watched`: errors of FutureSDR's blocks, kept with their cause

mod ends;
mod executor;
pub mod graph;
pub mod host;
mod timeline;
pub mod timing;
mod watched;

pub use futuresdr;
pub use graph::{BUFFER_BYTES, Graph, INPUT, OUTPUT};
pub use host::Host;
pub use timing::Timing;

use futuresdr::runtime::dev::CpuSample;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A sample that frames and FutureSDR's buffers both carry: `f32`, `Complex32`, integers.
pub trait Sample: CpuSample + bytemuck::Pod {}

impl<T: CpuSample + bytemuck::Pod> Sample for T {}

/// Locks `mutex`. A panic of one holder leaves nothing half done here.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
