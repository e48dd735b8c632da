//! Environment of a block: counters, events, device, waker.

use crate::counter::Counters;
use crate::event::BlockEvents;
use crate::flowgraph_texts::{FlowgraphText, FlowgraphTexts};
use crate::live_updates::LiveUpdates;
use crate::overload::Overload;
use crate::recorders::Recorders;
use crate::summary::Summary;
use crate::timelines::Timelines;
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// Environment that the constructor of a block gets.
#[derive(Clone)]
pub struct Env {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Counters shown with the block.
    pub counters: Counters,
    /// Summary that is printed under the block's name after a run.
    pub summary: Summary,
    /// Events that the block reports itself.
    pub events: BlockEvents,
    /// The GPU of the block, for implementations for a GPU: an `Arc<fxgraph::cuda::Device>`, the argument of
    /// `fxgraph::cuda::Pipeline::new`.
    pub device: Option<Arc<dyn Any + Send + Sync>>,
    /// Wakes the block from any thread: sockets, devices, helper threads.
    pub wake: Waker,
    /// The resolved flowgraph with which the block was built, and its hash. The configuration of a frame may differ: see
    /// [`of_configuration`](Self::of_configuration).
    pub flowgraph: FlowgraphText,
    /// Texts of the flowgraph by `config_id`.
    pub texts: FlowgraphTexts,
    /// Directory for relative paths of files that the block writes.
    pub output_directory: PathBuf,
    /// Registry where a recorder registers itself, so that clients can list and trigger it.
    pub recorders: Recorders,
    /// Intervals that the block drops if it is a live source that does not keep up.
    pub overload: Overload,
    /// Timelines of the live sources of the flowgraph.
    pub timelines: Timelines,
    /// Live updates of other blocks that the block requests: see [`Requester`](crate::live_updates::Requester).
    pub updates: LiveUpdates,
}

impl Env {
    /// An environment outside any flowgraph, for a block driven by hand in tests and benchmarks.
    #[must_use]
    pub fn detached(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            counters: Counters::default(),
            summary: Summary::default(),
            events: BlockEvents::default(),
            device: None,
            wake: Waker::default(),
            flowgraph: FlowgraphText::default(),
            texts: FlowgraphTexts::default(),
            output_directory: PathBuf::new(),
            recorders: Recorders::default(),
            overload: Overload::default(),
            timelines: Timelines::default(),
            updates: LiveUpdates::default(),
        }
    }

    /// This environment with the flowgraph that made frames with `config_id`, for provenance; unchanged if the number is
    /// unknown.
    #[must_use]
    pub fn of_configuration(&self, config_id: u64) -> Self {
        let Some(flowgraph) = self.texts.get(config_id) else { return self.clone() };
        Self { flowgraph, ..self.clone() }
    }
}

/// Wakes a block. It is cheap to clone, may be called from any thread, and has no effect before the start.
#[derive(Clone, Default)]
pub struct Waker(Arc<std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Waker {
    /// Requests another call of [`Block::work`](crate::Block::work).
    pub fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }

    #[doc(hidden)]
    /// Sets the target of the waker; `false` if it has one already.
    pub fn set(&self, wake: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(wake)).is_ok()
    }

    /// Whether the target is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
