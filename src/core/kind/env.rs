//! What blocks are built with.

use crate::counter::Counters;
use crate::event::BlockEvents;
use crate::recorders::Recorders;
use crate::summary::Summary;
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// What a block gets when it is built.
#[derive(Clone)]
pub struct Env {
    /// Name of the block in the flowgraph.
    pub name: String,
    /// Counters shown with the block.
    pub counters: Counters,
    /// What the block wants printed under its name after a run.
    pub summary: Summary,
    /// Events that the block reports itself.
    pub events: BlockEvents,
    /// The GPU it runs on, if its implementation is for one: an `Arc<fxgraph::cuda::Device>`, which
    /// `fxgraph::cuda::Lane::new` takes.
    pub device: Option<Arc<dyn Any + Send + Sync>>,
    /// Wakes the block from any thread: sockets, devices, helper threads.
    pub wake: Waker,
    /// Hash over the resolved flowgraph; what file headers and provenance quote.
    pub config_hash: String,
    /// The resolved flowgraph as YAML, for provenance.
    pub resolved_yaml: Arc<str>,
    /// Where relative paths of files that the block writes begin.
    pub output_folder: PathBuf,
    /// Where a block that records says so, to be seen and triggered from outside.
    pub recorders: Recorders,
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
            config_hash: String::new(),
            resolved_yaml: Arc::from(""),
            output_folder: PathBuf::new(),
            recorders: Recorders::default(),
        }
    }
}

/// Wakes a block; cheap to clone, callable from any thread, does nothing before the start.
#[derive(Clone, Default)]
pub struct Waker(Arc<std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Waker {
    /// Has [`Block::work`](crate::Block::work) called again.
    pub fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }

    #[doc(hidden)]
    /// Gives the waker its target; `false` if it has one already.
    pub fn set(&self, wake: impl Fn() + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(wake)).is_ok()
    }

    /// Whether it has a target.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
