//! Checked blocks of a plan.

use crate::language::hosts::Host;
use crate::language::latency::SourceFrame;
use crate::language::on_fault::OnFault;
use crate::language::queue::QueueLength;
use crate::language::thread::Thread;
use crate::plan::block_parameters::{Hash, Parameters};
use crate::plan::pending::Pending;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::Span;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::flowgraph_texts::TextPart;
use fxgraph_core::kind::{AnyConfigured, Ports, Resources};
use fxgraph_cuda::transfer::Transfer;
use serde_json::{Value as Json, json};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// One block of the plan. Plans share it; a plan that changes it gets a block of its own.
#[derive(Clone)]
pub struct PlannedBlock(pub(super) Arc<Identified>);

/// Properties of a block of the plan.
#[derive(Clone)]
pub struct Planned {
    /// Name in the expanded flowgraph: `f[0].pfb`.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// Templates that it comes from, outermost first: (name of the use, name of the template).
    pub templates: Vec<(String, String)>,
    /// Its parameters as given, with computed expressions.
    pub parameters: Parameters,
    /// Its parameters as read, with its ports.
    pub configured: Arc<dyn AnyConfigured>,
    /// Scheduled values of live parameters; `parameters` and `configured` include them already.
    #[doc(hidden)]
    pub pending: Pending,
    /// Types of its ports.
    pub ports: Ports,
    /// Names of its inputs.
    pub input_names: Vec<String>,
    /// Names of its outputs.
    pub output_names: Vec<String>,
    /// Its resources.
    pub resources: Resources,
    /// Source of each input: index of the block, and its output port.
    pub inputs: Vec<(usize, usize)>,
    /// Place of each input's reference in the file.
    pub input_spans: Vec<Span>,
    /// Host that runs it, if the flowgraph has hosts.
    pub host: Option<Host>,
    /// Thread that it runs on.
    pub thread: Thread,
    /// Length of the queue before each of its inputs.
    pub queue: QueueLength,
    /// Action of each of its inputs when the queue is full.
    pub when_full: Vec<WhenFull>,
    /// Frame size and its reason, if it is a source in real time.
    pub frame: Option<SourceFrame>,
    /// Device that it runs on; for a transfer, the GPU.
    pub device: DeviceName,
    /// Name of its implementation.
    pub implementation: &'static str,
    /// Fault policy.
    pub on_fault: OnFault,
    /// Keys of its shadow that differ from the block, if it has a shadow.
    pub shadow: Option<Json>,
    /// Device memory that it allocates for itself, in bytes.
    pub device_bytes: usize,
    /// Place in the file.
    pub span: Span,
}

/// A block in a plan, with its identity once that was computed.
#[derive(Clone)]
pub(super) struct Identified {
    planned: Planned,
    pub(super) identity: OnceLock<Identity>,
}

/// Identity of a block without its connections.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) hash: Hash,
    pub(super) text: TextPart,
}

impl From<Planned> for PlannedBlock {
    fn from(planned: Planned) -> Self {
        Self(Arc::new(Identified { planned, identity: OnceLock::new() }))
    }
}

impl Deref for PlannedBlock {
    type Target = Planned;

    fn deref(&self) -> &Planned {
        &self.0.planned
    }
}

/// Plans that share the block keep it as it is.
impl DerefMut for PlannedBlock {
    fn deref_mut(&mut self) -> &mut Planned {
        let Identified { planned, identity } = Arc::make_mut(&mut self.0);
        identity.take();
        planned
    }
}

impl PlannedBlock {
    /// Whether both plans share the block.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether it copies frames between devices.
    #[must_use]
    pub fn is_transfer(&self) -> bool {
        Transfer::KINDS.contains(&self.kind)
    }

    /// Device that it runs on, for users; for a copy between two GPUs with their link: `cuda:1 by NVLink`.
    #[must_use]
    pub fn place(&self) -> String {
        if self.kind == Transfer::PEER_COPY {
            return format!("{} by {}", self.device, self.implementation);
        }
        self.device.to_string()
    }

    /// Device of the frames of its outputs.
    #[must_use]
    pub fn output_device(&self) -> DeviceName {
        if self.kind == Transfer::DOWNLOAD { DeviceName::Cpu } else { self.device }
    }
}

impl Planned {
    /// Length of the queue before input `input`, in frames.
    #[must_use]
    pub fn queue_frames(&self, input: usize) -> usize {
        self.queue.frames(&self.ports.inputs[input])
    }

    /// Value of `when_full` in a flowgraph file; `None` if the writers of all inputs wait.
    #[must_use]
    pub fn when_full_json(&self) -> Option<Json> {
        let first = self.when_full.first().filter(|_| self.when_full.iter().any(|one| one.drops()));
        let first = first?;
        if self.when_full.iter().all(|one| one == first) {
            return Some(json!(first.name()));
        }
        let inputs = self.input_names.iter().zip(&self.when_full);
        let entry = |(name, action): (&String, &WhenFull)| (name.clone(), json!(action.name()));
        Some(Json::Object(inputs.filter(|(_, action)| action.drops()).map(entry).collect()))
    }
}
