#![doc = include_str!("README.md")]
//!
//! # Layout
//! - [`host`]: block that hosts a sub-flowgraph
//! - [`graph`]: construction of the sub-flowgraph
//! - [`timing`]: relation between input and output samples
//! - `timeline`: timestamps and validity of the output
//! - `ends`: first and last block of the sub-flowgraph, which read and write frames
//! - `executor`: scheduler that runs FutureSDR's tasks in the hosting block
//! - `watched`: wrapper that stores the errors of FutureSDR's blocks with their cause

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
use fxgraph::lock::lock;

/// Sample type supported by frames and by FutureSDR's buffers: `f32`, `Complex32`, integers.
pub trait Sample: CpuSample + bytemuck::Pod {}

impl<T: CpuSample + bytemuck::Pod> Sample for T {}
