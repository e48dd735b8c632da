//! fxgraph: a dataflow framework whose blocks are the stages of a radio telescope's signal chain.
//!
//! The framework names no block, no signal processing and no protocol. The life of a flowgraph:
//! text, tree with places, expressions and templates expanded, parameters read, ports checked
//! from source to sink, plan, build, start, run, draining stop.
//!
//! # Layout
//! - [`dtype`], [`port`]: what flows through a port
//! - [`frame`]: frames and the pools of their storage
//! - [`block`]: what a running block does
//! - [`kind`]: what can be said of a block before it runs; the registry
//! - [`retune`]: parameters that change while a block runs
//! - [`counter`], [`summary`]: what blocks count, and what they say at the end
//! - [`real_time`]: what time a source's timestamps stand for
//! - [`device`], [`cuda`]: names of devices; GPUs, their memory and their kernels
//! - [`npy`]: frames as NumPy's arrays
//! - [`diagnostic`]: errors that point at the line
//! - [`flowgraph`]: the YAML, from text to plan
//! - [`access`]: files that parameters name, and which of them clients may name
//! - [`elements`], [`difference`]: elements of frames as numbers; how far two streams are apart
//! - [`examples`]: flowgraphs that compare a kind's implementations, or measure it
//! - [`recording`]: frames in files, with a memory of those before
//! - [`files`]: regular files, read without waiting and up to a limit
//! - [`memory`]: how much memory there is
//! - [`control`]: watching and changing a running flowgraph
//! - [`runtime`]: FutureSDR underneath; the only room that names it

// The derive macros name this crate as others do.
extern crate self as fxgraph;

pub mod access;
pub mod block;
pub mod control;
pub mod counter;
pub mod cuda;
pub mod device;
pub mod device_jobs;
pub mod diagnostic;
pub mod difference;
pub mod dtype;
pub mod elements;
pub mod examples;
pub mod files;
pub mod flowgraph;
pub mod frame;
pub mod kind;
pub mod memory;
pub mod npy;
pub mod port;
pub mod real_time;
pub mod recording;
pub mod retune;
pub mod runtime;
mod steps;
pub mod summary;
mod sync;

pub use async_trait::async_trait;
pub use block::{Block, BlockError, Input, Io, Next, Output};
pub use control::Control;
pub use counter::{Counter, Counters, Gauge};
pub use device::DeviceName;
pub use dtype::Dtype;
pub use frame::{Frame, FrameMut, Header, NotOnHost, ON_HOST};
pub use fxgraph_derive::{Kind, Parameters};
pub use kind::{
    AnyConfigured, AnyParameters, At, CPU, Checked, Configured, Env, Implementation,
    ImplementationInfo, Implementations, Kind, KindEntry, KindSpec, LiveKind, Parameters,
    PortNames, PortPool, Ports, Refusal, Registry, Resources,
};
pub use port::{Axis, Band, Clock, PortType, ValidityType};
pub use summary::Summary;
