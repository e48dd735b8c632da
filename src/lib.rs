//! fxgraph: a dataflow framework whose blocks are the stages of a radio telescope's signal chain.
//!
//! The framework contains no blocks, no signal processing and no protocol. The life of a flowgraph:
//! parse the text to a tree with places, expand expressions and templates, read parameters, check ports
//! from source to sink, plan, build, start, run, draining stop.
//!
//! Block authors and programs use this crate. It re-exports five crates, each of which uses only those listed before
//! it:
//!
//! `fxgraph-core`, the base types:
//! - [`dtype`], [`port`]: types of elements and of ports
//! - [`frame`]: frames and the pools of their storage
//! - [`edge`]: bounded queues of frames between blocks
//! - [`block`], [`Map`], [`error`]: traits of running blocks, and their errors
//! - [`kind`]: kinds with parameters, ports, implementations and resources; the registry
//! - [`tree`]: values of flowgraph files with their places
//! - [`changes`]: live updates
//! - [`counter`], [`gauge`], [`summary`], [`event`]: counters, gauges, final reports, events
//! - [`real_time`]: Unix time of the timestamps of a source
//! - [`device`], [`gpu`]: names of devices; declarations of GPU programs
//! - [`npy`]: frames as NumPy arrays
//! - [`patience`]: time limits that pauses of the program do not use up
//! - [`diagnostic`]: errors that point at the line of the file
//! - [`access`]: parameters that name files, and the files that clients may name
//! - [`elements`], [`difference`]: elements of frames as numbers; differences between two streams
//! - [`examples`]: example flowgraphs, conformance cases and benchmarks of kinds
//! - [`files`]: access to files anywhere, or below one directory only
//! - [`stdout`]: stdout of the program as the output of a block
//!
//! `fxgraph-cuda`: [`cuda`], GPUs, their memory and their kernels. `fxgraph-flowgraph`: [`flowgraph`], from YAML
//! text to constructed blocks. `fxgraph-recording`: [`recording`], frames in files, and recorders that keep the newest
//! frames in memory. `fxgraph-runtime`: [`runtime`], execution on FutureSDR; [`control`], monitoring and control of a
//! running flowgraph.

//!
//! # A kind of block
//!
//! A kind is a struct of parameters, the types of its ports, and its implementations. [`Map`] and [`Block`] are the two
//! ways to write an implementation; [`edge::Harness`] drives it in a test.
//!
//! ```
//! use fxgraph::diagnostic::codes;
//! use fxgraph::{
//!     At, BlockError, Checked, Dtype, Frame, FrameMut, Implementation, Implementations, Kind, KindEntry,
//!     KindSpec, Map, Mapped, PortType, Registry, Rejection,
//! };
//!
//! /// Multiplies samples by a constant: `f32` in, `f32` of the same axes out.
//! #[derive(Clone, Debug, Kind)]
//! #[kind(name = "my_gain", page = "../README.md", inputs("input"), outputs("output"))]
//! pub struct MyGain {
//!     /// Factor of every sample.
//!     #[param(default = 1.0, range = -1e6..=1e6)]
//!     pub gain: f32,
//! }
//!
//! struct Gain(f32);
//!
//! impl Map for Gain {
//!     fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
//!         let samples = output.as_mut_slice::<f32>()?.iter_mut().zip(input.as_slice::<f32>()?);
//!         samples.for_each(|(to, from)| *to = self.0 * from);
//!         Ok(())
//!     }
//! }
//!
//! impl KindSpec for MyGain {
//!     type Shape = ();
//!     const IMPLEMENTATIONS: Implementations<Self> =
//!         &[Implementation::cpu(|block, _| Ok(Box::new(Mapped(Gain(block.parameters.gain)))))];
//!
//!     // Called when a flowgraph is checked: the error shows the line of the input.
//!     fn ports(&self, inputs: &[PortType]) -> Checked<()> {
//!         if inputs[0].dtype != Dtype::F32 {
//!             let message = format!("`my_gain` needs `f32` samples, got `{}`", inputs[0].dtype);
//!             return Err(vec![Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)]);
//!         }
//!         Ok(((), inputs.to_vec()))
//!     }
//! }
//!
//! let kinds = Registry::new(vec![KindEntry::of::<MyGain>()]);
//! let text = "flowgraph: f\nblocks:\n  a: {kind: my_gain, input: b, parameters: {gain: 1e9}}";
//! let problems = fxgraph::flowgraph::load_text("f.yaml", text, &[], &kinds).result.err().unwrap();
//! assert!(problems.iter().any(|problem| problem.message.contains("`gain`")));
//! ```
//!
//! `fxgraph generate block NAME` writes such a kind with its page and a test, `fxgraph generate crate NAME` a program
//! of your own with it.

pub use fxgraph_core::{
    access, block, changes, counter, device, device_jobs, diagnostic, difference, dtype, edge,
    elements, error, event, examples, files, flowgraph_texts, frame, gauge, gpu, host_clock, kind,
    live_updates, lock, npy, overload, patience, port, real_time, recorders, stdout, summary,
    threads, time, time_base, timelines, tree,
};
pub use fxgraph_cuda as cuda;
pub use fxgraph_flowgraph as flowgraph;
pub use fxgraph_recording as recording;
pub use fxgraph_runtime::{self as runtime, control};

pub use fxgraph_core::{
    AnyConfigured, AnyParameters, AsyncBlock, At, Awaits, Axis, Band, Block, BlockError, CPU,
    Checked, Clock, Configured, Counter, Counters, DeviceName, Dtype, Env, Frame, FrameMut,
    FrameSizes, Gauge, Header, Implementation, ImplementationInfo, Implementations, Input, Io,
    Kind, KindEntry, KindSpec, LiveKind, Map, Mapped, Next, NotOnHost, ON_HOST, Output, Parameters,
    Patience, PerBase, PortNames, PortPool, PortType, Ports, Registry, Rejection, Resources,
    Sideband, Summary, Time, TimeBase, TimedSink, ValidityType, async_trait,
};
pub use fxgraph_runtime::Control;
