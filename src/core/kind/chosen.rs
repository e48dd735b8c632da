//! Parameters that a block chooses itself where the flowgraph does not give them.

use serde::Serialize;
use serde_json::Value;
use std::sync::OnceLock;

/// Value of a parameter that the flowgraph does not give, chosen from the rate of the stream and from the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chosen {
    /// Parameter.
    pub parameter: &'static str,
    /// Value in use.
    pub value: Value,
    /// Reason, such as `0.125 s of 2.14 GB/s`.
    pub why: String,
}

impl Chosen {
    /// `value` of `parameter`, because of `why`.
    pub fn new(parameter: &'static str, value: impl Into<Value>, why: impl Into<String>) -> Self {
        Self { parameter, value: value.into(), why: why.into() }
    }
}

/// Number of CPU cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
