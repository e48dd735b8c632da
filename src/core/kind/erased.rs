//! Kinds with erased types, in two steps: parameters as read, then parameters connected to inputs. Each step creates
//! the next one, so that nothing is computed twice and the shape stays typed.

use super::{
    Chosen, Configured, Effect, Env, FrameSizes, Implementation, KindSpec, Ports, Rejection,
    Resources, Rounded, TunedBand, parameters,
};
use crate::block::Block;
use crate::changes::LiveValue;
use crate::error::BlockError;
use crate::gpu;
use crate::port::PortType;
use crate::tree::{ReadError, Reader};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// A block's parameters, for one of its implementations.
pub trait AnyParameters: Send + Sync {
    /// Connects the block to `inputs`.
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>>;
    /// See [`KindSpec::cannot_restart`].
    fn cannot_restart(&self) -> Option<&'static str>;
    /// See [`KindSpec::frame_sizes`].
    fn frame_sizes(&self) -> Option<FrameSizes>;
}

/// A block with its parameters and ports. It can be built several times.
pub trait AnyConfigured: Any + Send + Sync {
    /// Types of inputs and outputs.
    fn ports(&self) -> &Ports;
    /// Connects the same parameters to other inputs.
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>>;
    /// See [`Implementation::check`].
    fn check(&self, _gpu: Option<&gpu::Properties>) -> Vec<Rejection> {
        Vec::new()
    }
    /// See [`KindSpec::resources`].
    fn resources(&self) -> Resources;
    /// See [`KindSpec::rounded`].
    fn rounded(&self) -> Vec<Rounded> {
        Vec::new()
    }
    /// See [`KindSpec::chosen`].
    fn chosen(&self) -> Vec<Chosen> {
        Vec::new()
    }
    /// See [`KindSpec::warnings`]; includes the warnings about rounded values.
    fn warnings(&self) -> Vec<Rejection> {
        Vec::new()
    }
    /// See [`KindSpec::content`].
    fn content(&self) -> Option<String> {
        None
    }
    /// See [`KindSpec::content_files`].
    fn content_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// See [`KindSpec::tuned_band`].
    fn tuned_band(&self) -> Option<TunedBand> {
        None
    }
    /// See [`Implementation::device_bytes`].
    fn device_bytes(&self) -> usize {
        0
    }
    /// See [`Implementation::tunable`].
    fn tunable(&self) -> Option<gpu::Tunable> {
        None
    }
    /// See [`LiveKind::live_value`](super::LiveKind::live_value).
    fn live_value(
        &self,
        parameter: &str,
        _running: &dyn AnyConfigured,
    ) -> Result<LiveValue, BlockError> {
        Err(not_live(parameter))
    }
    /// See [`LiveKind::live_statement`](super::LiveKind::live_statement).
    fn live_statement(&self, _parameter: &str, _effect: &Effect) -> Option<serde_json::Value> {
        None
    }
    /// See [`LiveKind::has_timestamps`](super::LiveKind::has_timestamps).
    fn has_timestamps(&self, _parameter: &str) -> bool {
        false
    }
    /// See [`KindSpec::cannot_restart`].
    fn cannot_restart(&self) -> Option<&'static str> {
        None
    }
    /// Builds the block, ready to start; it does no I/O.
    fn build(&self, env: &Env) -> Result<Box<dyn Block>, BlockError>;
}

pub(super) fn not_live(parameter: &str) -> BlockError {
    BlockError::new(format!("`{parameter}` cannot change while the block runs"))
}

/// Reads the parameters of a block of the kind `K`; see [`KindEntry::read`](super::KindEntry::read).
pub(super) fn read<K: KindSpec>(
    reader: Reader<'_>,
    implementation: &str,
) -> Result<Box<dyn AnyParameters>, Vec<ReadError>> {
    Ok(with_implementation(&parameters::read::<K>(reader)?, implementation))
}

/// `parameters` for the implementation `name`; for the reference implementation if `name` is unknown.
pub(super) fn with_implementation<K: KindSpec>(
    parameters: &K,
    name: &str,
) -> Box<dyn AnyParameters> {
    let is_named = |each: &&Implementation<K>| each.info.name == name;
    let implementation = K::IMPLEMENTATIONS.iter().find(is_named).unwrap_or(&K::IMPLEMENTATIONS[0]);
    let parameters = parameters.clone();
    let parameters = match implementation.suited {
        Some(suited) => suited(parameters),
        None => parameters,
    };
    Box::new(OfKind { parameters, implementation })
}

struct OfKind<K: KindSpec> {
    parameters: K,
    implementation: &'static Implementation<K>,
}

impl<K: KindSpec> AnyParameters for OfKind<K> {
    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>> {
        let block = Configured::new(self.parameters.clone(), inputs)?;
        Ok(Arc::new(Connected { block, implementation: self.implementation }))
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        self.parameters.cannot_restart()
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        self.parameters.frame_sizes()
    }
}

struct Connected<K: KindSpec> {
    block: Configured<K>,
    implementation: &'static Implementation<K>,
}

impl<K: KindSpec> AnyConfigured for Connected<K> {
    fn ports(&self) -> &Ports {
        &self.block.ports
    }

    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>> {
        let block = Configured::new(self.block.parameters.clone(), inputs)?;
        Ok(Arc::new(Self { block, implementation: self.implementation }))
    }

    fn check(&self, gpu: Option<&gpu::Properties>) -> Vec<Rejection> {
        self.implementation.check.map_or(Vec::new(), |check| check(&self.block, gpu))
    }

    fn resources(&self) -> Resources {
        K::resources(&self.block)
    }

    fn rounded(&self) -> Vec<Rounded> {
        K::rounded(&self.block)
    }

    fn chosen(&self) -> Vec<Chosen> {
        K::chosen(&self.block)
    }

    fn warnings(&self) -> Vec<Rejection> {
        let rounded = self.rounded().iter().filter_map(Rounded::warning).collect();
        [rounded, K::warnings(&self.block)].concat()
    }

    fn content(&self) -> Option<String> {
        K::content(&self.block)
    }

    fn content_files(&self) -> Vec<PathBuf> {
        K::content_files(&self.block)
    }

    fn tuned_band(&self) -> Option<TunedBand> {
        K::tuned_band(&self.block)
    }

    fn device_bytes(&self) -> usize {
        self.implementation.device_bytes.map_or(0, |device_bytes| device_bytes(&self.block))
    }

    fn tunable(&self) -> Option<gpu::Tunable> {
        self.implementation.tunable.and_then(|tunable| tunable(&self.block))
    }

    fn live_value(
        &self,
        parameter: &str,
        running: &dyn AnyConfigured,
    ) -> Result<LiveValue, BlockError> {
        let live = parameters::live_named::<K>(parameter).ok_or_else(|| not_live(parameter))?;
        let running: &dyn Any = running;
        let running: &Self = running
            .downcast_ref()
            .ok_or_else(|| BlockError::new(format!("the running block is not a `{}`", K::NAME)))?;
        K::live_value(&self.block, live, &running.block)
    }

    fn live_statement(&self, parameter: &str, effect: &Effect) -> Option<serde_json::Value> {
        K::live_statement(&self.block, parameters::live_named::<K>(parameter)?, effect)
    }

    fn has_timestamps(&self, parameter: &str) -> bool {
        let live = parameters::live_named::<K>(parameter);
        live.is_some_and(|live| K::has_timestamps(&self.block, live))
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        self.block.parameters.cannot_restart()
    }

    fn build(&self, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        (self.implementation.build)(&self.block, env)
    }
}
