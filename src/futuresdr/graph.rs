//! Construction of a sub-flowgraph.

use crate::ends::{FramesToStream, Inlet, Outlet, StreamToFrames};
use crate::watched::{Cause, Watched};
use crate::{Sample, lock};
use futuresdr::runtime::__private::KernelInterface;
use futuresdr::runtime::dev::Kernel;
use futuresdr::runtime::{BlockId, Flowgraph, config};
use fxgraph::BlockError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Block whose port `output` carries the samples of the input frames.
pub const INPUT: BlockId = BlockId(0);
/// Block whose port `input` accepts the samples of the output frames.
pub const OUTPUT: BlockId = BlockId(1);

/// Size of the stream buffer between two blocks in bytes, for `KindSpec::resources`; a block may request more.
/// The buffer holds the samples for a filter with some thousand taps.
pub const BUFFER_BYTES: usize = 1 << 16;

/// Function that adds the blocks of a sub-flowgraph and connects them.
pub(crate) type Build = Box<dyn FnMut(&mut Graph) -> Result<(), BlockError> + Send>;

/// A FutureSDR flowgraph between one input and one output of the hosting block.
pub struct Graph {
    pub(crate) flowgraph: Flowgraph,
    pub(crate) cause: Cause,
}

impl Graph {
    /// Creates the sub-flowgraph that `build` builds between `inlet` and `outlet`.
    pub(crate) fn new<I: Sample, O: Sample>(
        inlet: &Arc<Mutex<Inlet>>,
        outlet: &Arc<Mutex<Outlet>>,
        build: &mut Build,
    ) -> Result<Self, BlockError> {
        // FutureSDR panics on invalid settings, and on buffers that it cannot map.
        let built = catch_unwind(AssertUnwindSafe(|| {
            configure();
            let mut graph = Self { flowgraph: Flowgraph::new(), cause: Cause::default() };
            graph.add(FramesToStream::<I>::new(Arc::clone(inlet)))?;
            graph.add(StreamToFrames::<O>::new(Arc::clone(outlet)))?;
            build(&mut graph)?;
            Ok(graph)
        }));
        built.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            Err(BlockError::new(format!("panic while building the FutureSDR flowgraph: {text}")))
        })
    }

    /// Adds a block. Blocks that FutureSDR would run on a separate thread (`#[blocking]`) are rejected: all blocks
    /// of the sub-flowgraph run on the thread of the hosting block.
    pub fn add<K>(&mut self, block: K) -> Result<BlockId, BlockError>
    where
        K: Kernel + KernelInterface + 'static,
    {
        if K::is_blocking() {
            let text = format!(
                "the FutureSDR block `{}` needs a separate thread (`#[blocking]`)",
                K::type_name()
            );
            return Err(BlockError::new(text));
        }
        Ok(self.flowgraph.add(Watched::new(block, Arc::clone(&self.cause))).id())
    }

    /// Connects `INPUT`, `blocks` in this order, and `OUTPUT` through their ports `output` and `input`.
    pub fn chain(&mut self, blocks: &[BlockId]) -> Result<(), BlockError> {
        let mut from = INPUT;
        for &to in blocks.iter().chain(&[OUTPUT]) {
            self.connect((from, "output"), (to, "input"))?;
            from = to;
        }
        Ok(())
    }

    /// Connects an output port to an input port.
    pub fn connect(
        &mut self,
        (from, output): (BlockId, &str),
        (to, input): (BlockId, &str),
    ) -> Result<(), BlockError> {
        self.flowgraph.stream_dyn(from, output, to, input).map_err(|error| {
            let text = format!(
                "FutureSDR cannot connect `{output}` of block {} to `{input}` of block {}",
                from.0, to.0
            );
            BlockError::new(text).because(error)
        })
    }

    /// Returns the FutureSDR flowgraph, for message connections.
    pub fn flowgraph(&mut self) -> &mut Flowgraph {
        &mut self.flowgraph
    }

    /// Returns the failure of the sub-flowgraph as an error of the hosting block.
    pub(crate) fn error(cause: &Cause, said: String) -> BlockError {
        let error = BlockError::new("the FutureSDR flowgraph failed");
        match lock(cause).take() {
            Some(failed) => error.because(failed),
            None => error.because(std::io::Error::other(said)),
        }
    }
}

/// Overrides FutureSDR's global settings from configuration files and environment variables.
fn configure() {
    // fxgraph sets the first two when it starts a flowgraph; a block may be built before that.
    config::set("ctrlport_enable", false);
    config::set("log_level", "off");
    config::set("buffer_size", BUFFER_BYTES as i64);
}
