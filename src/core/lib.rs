//! Base types of blocks and flowgraphs: data types, ports, frames, edges, the traits of blocks and kinds, parameters,
//! diagnostics.
//!
//! The crate opens only files that parameters name, and contains no YAML and no CUDA.

// The derive macros refer to the crate `fxgraph`, which re-exports the items of this crate that they need.
extern crate self as fxgraph;

pub mod access;
pub mod block;
pub mod changes;
pub mod counter;
pub mod device;
pub mod device_jobs;
pub mod diagnostic;
pub mod difference;
pub mod dtype;
pub mod edge;
pub mod elements;
pub mod error;
pub mod event;
pub mod examples;
pub mod files;
pub mod flowgraph_texts;
pub mod frame;
pub mod gauge;
pub mod gpu;
pub mod host_clock;
pub mod kind;
pub mod live_updates;
pub mod lock;
mod map;
pub mod npy;
pub mod overload;
pub mod patience;
mod per_base;
pub mod port;
pub mod real_time;
pub mod recorders;
pub mod stdout;
#[doc(hidden)]
pub mod steps;
pub mod summary;
#[doc(hidden)]
pub mod sync;
pub mod threads;
pub mod time_base;
pub mod timelines;
pub mod tree;

pub use async_trait::async_trait;
pub use block::{AsyncBlock, Awaits, Block, Input, Io, Next, Output};
pub use counter::{Counter, Counters};
pub use device::DeviceName;
pub use dtype::Dtype;
pub use error::BlockError;
pub use frame::{Frame, FrameMut, Header, NotOnHost, ON_HOST};
pub use fxgraph_derive::{Kind, Parameters};
pub use fxgraph_time::{self as time, Time};
pub use gauge::Gauge;
pub use kind::{
    AnyConfigured, AnyParameters, At, CPU, Checked, Configured, Env, FrameSizes, Implementation,
    ImplementationInfo, Implementations, Kind, KindEntry, KindSpec, LiveKind, Parameters,
    PortNames, PortPool, Ports, Registry, Rejection, Resources,
};
pub use map::{Map, Mapped};
pub use patience::Patience;
pub use per_base::{PerBase, TimedSink};
pub use port::{Axis, Band, Clock, PortType, Sideband, ValidityType};
pub use summary::Summary;
pub use time_base::TimeBase;
