//! Kinds as they were declared before `#[derive(Kind)]`, behind the same erased traits.

use super::erased::{AnyConfigured, AnyParameters};
use super::{CPU, Env, ImplementationInfo, PortNames, Ports, Refusal, Resources};
use crate::block::{Block, BlockError};
use crate::cuda;
use crate::device::DeviceName;
use crate::examples::{Benchmark, Case};
use crate::flowgraph::value::{Node, ReadError, Reader};
use crate::port::PortType;
use crate::retune::LiveValue;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::sync::Arc;

/// A kind of block. The type itself is the block's parameters, read from YAML; its field docs
/// are the parameter docs users see.
pub trait LegacyKind: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The word after `kind:`.
    const NAME: &'static str;
    /// The block's page (`README.md` of its folder).
    const DOC: &'static str;
    /// Inputs.
    const INPUTS: PortNames;
    /// Outputs.
    const OUTPUTS: PortNames;
    /// Forms to choose from; the first of each sort of device is the default there.
    const IMPLEMENTATIONS: &'static [ImplementationInfo] = &[CPU];
    /// Parameters that may change while a block of the kind runs.
    const LIVE: &'static [&'static str] = &[];

    /// The same parameters, with what this implementation takes where nothing is given. It comes
    /// first: ports may depend on it.
    #[must_use]
    fn suited_to(self, _implementation: &str) -> Self {
        self
    }

    /// What the outputs carry, given what the inputs carry; all refusals at once.
    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>>;

    /// Why this implementation cannot do between `ports` what the definition can; all refusals at
    /// once. `gpu` is the one that it is to run on, unless there is none on this machine.
    fn check(
        &self,
        _ports: &Ports,
        _implementation: &str,
        _gpu: Option<&cuda::Properties>,
    ) -> Vec<Refusal> {
        Vec::new()
    }

    /// What the block needs.
    fn resources(&self, ports: &Ports) -> Resources;

    /// Device memory that this implementation allocates for itself (not frames), in bytes.
    fn device_bytes(&self, _ports: &Ports, _implementation: &str) -> usize {
        0
    }

    /// Its kernel that can be cut in several ways, if this implementation has one.
    fn tunable(&self, _ports: &Ports, _implementation: &str) -> Option<cuda::Tunable> {
        None
    }

    /// What a block that was built with the parameters `running`, in whatever form, makes of the
    /// [live](Self::LIVE) `parameter` of these: what its [`Block::retune`] gets. Work belongs here, off the
    /// data path.
    fn live_value(
        &self,
        parameter: &str,
        _running: &Self,
        _ports: &Ports,
    ) -> Result<LiveValue, BlockError> {
        Err(BlockError::new(format!("`{parameter}` cannot change while `{}` runs", Self::NAME)))
    }

    /// Why a fresh block of this kind cannot go on where another one ended, if so: it would begin
    /// its stream again, or overwrite what was written.
    fn cannot_restart(&self) -> Option<&'static str> {
        (Self::INPUTS == PortNames::Fixed(&[])).then_some("its stream would begin again")
    }

    /// Flowgraphs that compare its other implementations, on `device`, with the reference.
    #[must_use]
    fn cases(_device: DeviceName) -> Vec<Case> {
        Vec::new()
    }

    /// Flowgraphs that `fxgraph bench` measures on `device`.
    #[must_use]
    fn benchmarks(_device: DeviceName) -> Vec<Benchmark> {
        Vec::new()
    }

    /// These parameters for the reference implementation, their type erased.
    fn erased(&self) -> Box<dyn AnyParameters>
    where
        Self: Clone,
    {
        erased(self, CPU.name)
    }

    /// The block, ready to start, of what [`ports`](Self::ports) and [`check`](Self::check) let
    /// through; no I/O yet.
    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError>;
}

/// `parameters`, for the implementation of this name.
pub fn erased<K: LegacyKind + Clone>(
    parameters: &K,
    implementation: &'static str,
) -> Box<dyn AnyParameters> {
    Box::new(Old { parameters: Arc::new(parameters.clone()), implementation })
}

/// JSON Schema of the parameters.
pub(super) fn schema<K: LegacyKind>() -> schemars::Schema {
    let mut schema = schemars::schema_for!(K);
    for name in K::LIVE {
        if let Some(parameter) = schema.pointer_mut(&format!("/properties/{name}")) {
            parameter["x-live"] = true.into();
        }
    }
    schema
}

/// Reads the parameters of a block.
pub(super) fn read<K: LegacyKind>(
    reader: Reader<'_>,
    implementation: &str,
) -> Result<Box<dyn AnyParameters>, Vec<ReadError>> {
    let known = K::IMPLEMENTATIONS.iter().find(|each| each.name == implementation);
    let implementation = known.map_or(CPU.name, |each| each.name);
    let read = |node: &Node| K::deserialize(reader.with_node(node));
    let parameters = read(reader.node()).map_err(|error| {
        super::parameters::all_errors(reader.node(), error, &|node| read(node).err())
    })?;
    Ok(Box::new(Old { parameters: Arc::new(parameters.suited_to(implementation)), implementation }))
}

#[derive(Clone)]
struct Old<K> {
    parameters: Arc<K>,
    implementation: &'static str,
}

struct Connected<K> {
    old: Old<K>,
    ports: Ports,
}

impl<K: LegacyKind> Old<K> {
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Refusal>> {
        let ports = Ports { inputs: inputs.to_vec(), outputs: self.parameters.ports(inputs)? };
        let old = Self { parameters: Arc::clone(&self.parameters), ..*self };
        Ok(Arc::new(Connected { old, ports }))
    }
}

impl<K: LegacyKind> AnyParameters for Old<K> {
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Refusal>> {
        self.connect(inputs)
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        self.parameters.cannot_restart()
    }
}

impl<K: LegacyKind> AnyConfigured for Connected<K> {
    fn ports(&self) -> &Ports {
        &self.ports
    }
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Refusal>> {
        self.old.connect(inputs)
    }
    fn check(&self, gpu: Option<&cuda::Properties>) -> Vec<Refusal> {
        self.old.parameters.check(&self.ports, self.old.implementation, gpu)
    }
    fn resources(&self) -> Resources {
        self.old.parameters.resources(&self.ports)
    }
    fn device_bytes(&self) -> usize {
        self.old.parameters.device_bytes(&self.ports, self.old.implementation)
    }
    fn tunable(&self) -> Option<cuda::Tunable> {
        self.old.parameters.tunable(&self.ports, self.old.implementation)
    }
    fn live_value(
        &self,
        parameter: &str,
        running: &dyn AnyConfigured,
    ) -> Result<LiveValue, BlockError> {
        let running: &dyn Any = running;
        let running: &Self = running
            .downcast_ref()
            .ok_or_else(|| BlockError::new(format!("the running block is no `{}`", K::NAME)))?;
        self.old.parameters.live_value(parameter, &running.old.parameters, &self.ports)
    }
    fn cannot_restart(&self) -> Option<&'static str> {
        self.old.parameters.cannot_restart()
    }
    fn build(&self, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        self.old.parameters.build(&self.ports, env)
    }
}
