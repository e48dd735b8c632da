//! fxgraph: a dataflow framework whose blocks are the stages of a radio telescope's signal chain.
//!
//! The framework names no block, no signal processing and no protocol. The life of a flowgraph:
//! text, tree with places, expressions and templates expanded, parameters read, ports checked
//! from source to sink, plan, build, start, run, draining stop.
//!
//! This crate is what block authors and programs use; it re-exports five others, each of which knows those before
//! it only:
//!
//! `fxgraph-core`, what blocks are made of:
//! - [`dtype`], [`port`]: what flows through a port
//! - [`frame`]: frames and the pools of their storage
//! - [`edge`]: bounded queues of frames between blocks
//! - [`block`], [`error`]: what a running block does, and how it fails
//! - [`kind`]: what can be said of a block before it runs; the registry
//! - [`tree`]: values with the places where they stand
//! - [`retune`]: parameters that change while a block runs
//! - [`counter`], [`summary`], [`event`]: what blocks count, what they say at the end, what happens to them
//! - [`real_time`]: what time a source's timestamps stand for
//! - [`device`], [`gpu`]: names of devices; GPUs and their programs as kinds speak of them
//! - [`npy`]: frames as NumPy's arrays
//! - [`diagnostic`]: errors that point at the line
//! - [`access`]: files that parameters name, and which of them clients may name
//! - [`elements`], [`difference`]: elements of frames as numbers; how far two streams are apart
//! - [`examples`]: flowgraphs that compare a kind's implementations, or measure it
//! - [`files`]: regular files, read without waiting and up to a limit
//!
//! `fxgraph-cuda`: [`cuda`], GPUs, their memory and their kernels. `fxgraph-flowgraph`: [`flowgraph`], the YAML, from
//! text to blocks that are built. `fxgraph-recording`: [`recording`], frames in files, with a memory of those before. `fxgraph-runtime`:
//! [`runtime`], flowgraphs on FutureSDR; [`control`], watching and changing a running
//! flowgraph.

pub use fxgraph_core::{
    access, block, counter, device, device_jobs, diagnostic, difference, dtype, edge, elements,
    error, event, examples, files, frame, gpu, kind, npy, port, real_time, recorders, retune,
    summary, tree,
};
pub use fxgraph_cuda as cuda;
pub use fxgraph_flowgraph as flowgraph;
pub use fxgraph_recording as recording;
pub use fxgraph_runtime::{self as runtime, control};

pub use fxgraph_core::{
    AnyConfigured, AnyParameters, AsyncBlock, At, Awaits, Axis, Band, Block, BlockError, CPU,
    Checked, Clock, Configured, Counter, Counters, DeviceName, Dtype, Env, Frame, FrameMut, Gauge,
    Header, Implementation, ImplementationInfo, Implementations, Input, Io, Kind, KindEntry,
    KindSpec, LiveKind, Map, Mapped, Next, NotOnHost, ON_HOST, Output, Parameters, PortNames,
    PortPool, PortType, Ports, Refusal, Registry, Resources, Summary, ValidityType, async_trait,
};
pub use fxgraph_runtime::Control;
