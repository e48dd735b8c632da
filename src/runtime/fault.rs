//! Faults of blocks.

use fxgraph_core::error::{BlockError, SharedFault, panic_text, with_causes};
use std::any::Any;

/// Error or panic of a block.
pub(super) struct Fault {
    pub cause: String,
    pub panic: bool,
    /// Fault that other blocks report too.
    pub shared: Option<SharedFault>,
}

impl Fault {
    pub fn error(error: &BlockError) -> Self {
        let shared = error.shared_fault().cloned();
        Self { cause: with_causes(error), panic: false, shared }
    }

    pub fn panic(panic: &(dyn Any + Send)) -> Self {
        Self { panic: true, ..Self::of(panic_text(panic)) }
    }

    /// A fault of one block with this cause.
    pub fn of(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), panic: false, shared: None }
    }

    /// Appends the reason why the block did not survive the fault.
    pub fn because(mut self, why: &str) -> Self {
        self.cause = format!("{}; {why}", self.cause);
        self
    }
}
