//! Kinds of blocks: parameters, ports, implementations and resources, known without I/O and without a device.
//!
//! A kind is a struct of parameters with `#[derive(Kind)]`, which writes [`Parameters`] and [`Kind`], and an
//! implementation of [`KindSpec`] with types of its ports, implementations and resources.

mod chosen;
mod configured;
mod env;
mod erased;
mod frames;
mod implementation;
mod parameters;
mod plausible;
mod ports;
mod registry;
mod rejection;
#[cfg(test)]
mod tests;
mod tuned_band;

pub use chosen::{Chosen, cores};
pub use configured::{Configured, deserialize, read};
pub use env::{Env, Waker};
pub use erased::{AnyConfigured, AnyParameters};
pub use frames::{FrameSizes, MAX_CHOSEN_BYTES};
pub use implementation::{
    Build, CPU, Implementation, ImplementationInfo, Implementations, has_reference,
};
pub use parameters::{
    Bounded, Field, LiveName, NoLive, Param, Parameters, ParametersReader, Range,
};
pub use plausible::{Rounded, four_digits, slow_digitiser, unlikely_band};
pub use ports::{PortNames, PortPool, Ports, Resources};
pub use registry::{KindEntry, Read, Registry};
pub use rejection::{At, Rejection};
#[doc(hidden)]
pub use serde;
#[doc(hidden)]
pub use serde_json;
pub use tuned_band::TunedBand;

use crate::block::Block;
use crate::changes::LiveValue;
use crate::device::DeviceName;
use crate::error::BlockError;
use crate::examples::{Benchmark, Case};
use crate::port::PortType;
use crate::time_base::TimeBase;
use std::path::PathBuf;

/// Declaration of a kind, written by `#[derive(Kind)]`. Block authors implement [`KindSpec`].
pub trait Kind: Parameters + Clone + Send + Sync + 'static {
    /// Value of `kind:`.
    const NAME: &'static str;
    /// Page of the block (`README.md` of its directory).
    const PAGE: &'static str;
    /// Inputs.
    const INPUTS: PortNames;
    /// Outputs.
    const OUTPUTS: PortNames;
    /// Example flowgraphs (YAML), for the page of the kind and for the tests of all kinds. The block of this kind is
    /// called `block`.
    const EXAMPLES: &'static [&'static str];

    /// See [`LiveKind::live_value`].
    fn live_value(
        new: &Configured<Self>,
        parameter: Self::Live,
        running: &Configured<Self>,
    ) -> Result<LiveValue, BlockError>
    where
        Self: KindSpec;

    /// See [`LiveKind::live_statement`].
    fn live_statement(
        new: &Configured<Self>,
        parameter: Self::Live,
        effect: &Effect,
    ) -> Option<serde_json::Value>
    where
        Self: KindSpec;

    /// See [`LiveKind::has_timestamps`].
    fn has_timestamps(new: &Configured<Self>, parameter: Self::Live) -> bool
    where
        Self: KindSpec;
}

/// Effect of a live update on a block.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// Effective timestamp.
    pub from: u64,
    /// Time base of the newest frame that the block has taken.
    pub base: TimeBase,
}

/// Shape and types of the outputs, or all errors.
pub type Checked<S> = Result<(S, Vec<PortType>), Vec<Rejection>>;

/// Properties of a kind that its author writes, in addition to the parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has parameters, but no ports and no implementations",
    note = "`impl KindSpec for {Self}` declares them"
)]
pub trait KindSpec: Kind {
    /// Sizes that [`ports`](Self::ports) derives, for resources, implementations and live updates; `()` if none are
    /// needed.
    type Shape: Send + Sync + 'static;
    /// Implementations; the first one, on the CPU, is the reference.
    const IMPLEMENTATIONS: Implementations<Self>;

    /// Returns shape and types of the outputs for the types of the inputs. Ranges of parameters are checked already.
    fn ports(&self, inputs: &[PortType]) -> Checked<Self::Shape>;

    /// Frame sizes that the plan may choose from if the parameter for it is not given; `None` if the block does not
    /// run in real time, or if its data depends on the size of its frames.
    fn frame_sizes(&self) -> Option<FrameSizes> {
        None
    }

    /// Returns the resources of the block.
    fn resources(_block: &Configured<Self>) -> Resources {
        Resources::default()
    }

    /// Parameters in physical units that the block rounds to a grid. `fxgraph plan` shows them; a difference of more
    /// than 10 % is a warning.
    fn rounded(_block: &Configured<Self>) -> Vec<Rounded> {
        Vec::new()
    }

    /// Parameters that the flowgraph does not give and that the block has chosen from the rate of its stream and from the
    /// machine. `fxgraph plan` and `fxgraph run` show them.
    fn chosen(_block: &Configured<Self>) -> Vec<Chosen> {
        Vec::new()
    }

    /// Warnings about values that are possible and probably not meant, with the code `E0307`.
    fn warnings(_block: &Configured<Self>) -> Vec<Rejection> {
        Vec::new()
    }

    /// Identity of content that is not in the parameters, such as that of a file that the block runs. A block with other
    /// content differs from the running one, so that a swap replaces it.
    fn content(_block: &Configured<Self>) -> Option<String> {
        None
    }

    /// Files that [`content`](Self::content) depends on, as named, also those that do not exist: an edit of one of them
    /// may change the content.
    fn content_files(_block: &Configured<Self>) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Band that a live parameter moves within the band of the input. Clients offer to tune the block in pictures of
    /// that band.
    fn tuned_band(_block: &Configured<Self>) -> Option<TunedBand> {
        None
    }

    /// Reason why a block of this kind cannot be restarted, if any: for example, its stream would begin
    /// again.
    fn cannot_restart(&self) -> Option<&'static str> {
        (Self::INPUTS == PortNames::Fixed(&[])).then_some("its stream would begin again")
    }

    /// Returns the types of the outputs for the types of the inputs.
    fn outputs(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Rejection>> {
        self.ports(inputs).map(|(_, outputs)| outputs)
    }

    /// Builds a block with these parameters in the reference implementation, for tests and benchmarks.
    fn build(&self, inputs: &[PortType], env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let rejected = |rejections: Vec<Rejection>| {
            let messages = rejections.into_iter().map(|rejection| rejection.message);
            BlockError::new(messages.collect::<Vec<_>>().join("; "))
        };
        let parameters = erased::with_implementation(self, CPU.name);
        parameters.connect(inputs).map_err(rejected)?.build(env)
    }

    /// Flowgraphs that compare the implementations on `device` with the reference.
    #[must_use]
    fn cases(_device: DeviceName) -> Vec<Case> {
        Vec::new()
    }

    /// Flowgraphs that `fxgraph bench` measures on `device`.
    #[must_use]
    fn benchmarks(_device: DeviceName) -> Vec<Benchmark> {
        Vec::new()
    }
}

/// A kind with live parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has live parameters, but no live values",
    note = "`impl LiveKind for {Self}` makes them"
)]
pub trait LiveKind: KindSpec {
    /// Value of a live parameter that running blocks of the kind get, the same type for all implementations.
    type Value: Send + 'static;

    /// Computes the value of `parameter` from the parameters `new`, for [`Block::update`] of a running block.
    /// `running` are the parameters that the block was built with. Heavy computation belongs here, off the data
    /// path.
    fn live_value(
        new: &Configured<Self>,
        parameter: Self::Live,
        running: &Configured<Self>,
    ) -> Result<Self::Value, BlockError>;

    /// States how the value of `parameter` in the parameters `new` is understood, for the answer to a live update;
    /// `None` if the value itself says so.
    fn live_statement(
        _new: &Configured<Self>,
        _parameter: Self::Live,
        _effect: &Effect,
    ) -> Option<serde_json::Value> {
        None
    }

    /// Whether the value of `parameter` in the parameters `new` has timestamps, so that it is valid for one time base
    /// only.
    fn has_timestamps(_new: &Configured<Self>, _parameter: Self::Live) -> bool {
        false
    }
}
