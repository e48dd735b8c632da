//! Kinds of blocks: what is known of a block from its parameters, without I/O and without a device.
//!
//! A kind is a struct of parameters with `#[derive(Kind)]`, which writes [`Parameters`] and [`Kind`], and an
//! implementation of [`KindSpec`]: what its ports carry, which implementations it has, what it needs.

mod configured;
mod env;
mod erased;
mod implementation;
mod parameters;
mod ports;
mod refusal;
mod registry;
#[cfg(test)]
mod tests;

pub use configured::{Configured, deserialize, read};
pub use env::{Env, Waker};
pub use erased::{AnyConfigured, AnyParameters};
pub use implementation::{
    Build, CPU, Implementation, ImplementationInfo, Implementations, has_reference,
};
pub use parameters::{
    Bounded, Field, LiveName, NoLive, Param, Parameters, ParametersReader, Range,
};
pub use ports::{PortNames, PortPool, Ports, Resources};
pub use refusal::{At, Refusal};
pub use registry::{KindEntry, Read, Registry};
#[doc(hidden)]
pub use serde;

use crate::block::Block;
use crate::device::DeviceName;
use crate::error::BlockError;
use crate::examples::{Benchmark, Case};
use crate::port::PortType;
use crate::retune::LiveValue;

/// What `#[derive(Kind)]` writes. Block authors implement [`KindSpec`].
pub trait Kind: Parameters + Clone + Send + Sync + 'static {
    /// The word after `kind:`.
    const NAME: &'static str;
    /// The block's page (`README.md` of its directory).
    const PAGE: &'static str;
    /// Inputs.
    const INPUTS: PortNames;
    /// Outputs.
    const OUTPUTS: PortNames;
    /// Flowgraphs (YAML) that show the kind at work, in the block called `block`: for its page, and for tests that
    /// every kind has to pass.
    const EXAMPLES: &'static [&'static str];

    /// See [`LiveKind::live_value`].
    fn live_value(
        new: &Configured<Self>,
        parameter: Self::Live,
        running: &Configured<Self>,
    ) -> Result<LiveValue, BlockError>
    where
        Self: KindSpec;
}

/// Shape and types of the outputs, or every refusal.
pub type Checked<S> = Result<(S, Vec<PortType>), Vec<Refusal>>;

/// What a block author writes of a kind beside its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has parameters, but no ports and no implementations",
    note = "`impl KindSpec for {Self}` declares them"
)]
pub trait KindSpec: Kind {
    /// What [`ports`](Self::ports) finds out; resources, implementations and live updates get it. `()` where
    /// there is nothing.
    type Shape: Send + Sync + 'static;
    /// The implementations; the first one, on the CPU, is the reference.
    const IMPLEMENTATIONS: Implementations<Self>;

    /// Shape and types of the outputs, given the types of the inputs. Ranges of parameters hold already.
    fn ports(&self, inputs: &[PortType]) -> Checked<Self::Shape>;

    /// What the block needs.
    fn resources(_block: &Configured<Self>) -> Resources {
        Resources::default()
    }

    /// Why a fresh block of this kind cannot continue where another one ended, if so: its stream would begin
    /// again, or it would overwrite its files.
    fn cannot_restart(&self) -> Option<&'static str> {
        (Self::INPUTS == PortNames::Fixed(&[])).then_some("its stream would begin again")
    }

    /// Types of the outputs, given the types of the inputs.
    fn outputs(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        self.ports(inputs).map(|(_, outputs)| outputs)
    }

    /// A block with these parameters in the reference implementation, to drive by hand in tests and benchmarks.
    fn build(&self, inputs: &[PortType], env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let refused = |refusals: Vec<Refusal>| {
            let messages = refusals.into_iter().map(|refusal| refusal.message);
            BlockError::new(messages.collect::<Vec<_>>().join("; "))
        };
        let parameters = erased::with_implementation(self, CPU.name);
        parameters.connect(inputs).map_err(refused)?.build(env)
    }

    /// Flowgraphs that compare the other implementations, on `device`, with the reference.
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

/// What a kind with live parameters adds.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has live parameters, but no live values",
    note = "`impl LiveKind for {Self}` makes them"
)]
pub trait LiveKind: KindSpec {
    /// The value of a live parameter as running blocks of the kind want it, of every implementation.
    type Value: Send + 'static;

    /// The value of `parameter` for a running block, computed from the parameters `new`: what
    /// [`Block::retune`] gets. `running` is what the block was built with. Heavy computation
    /// belongs here, off the data path.
    fn live_value(
        new: &Configured<Self>,
        parameter: Self::Live,
        running: &Configured<Self>,
    ) -> Result<Self::Value, BlockError>;
}
