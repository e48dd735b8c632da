//! Parameters of a block together with its ports.

use super::{KindSpec, Ports, Rejection};
use crate::diagnostic::Span;
use crate::port::PortType;
use crate::tree::{Node, ReadError, Reader};
use serde::de::{self, Deserialize, Deserializer};

/// Parameters of a block, its ports, and the shape derived from both. It is one argument of every method, so that a
/// new field does not change their signatures.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Configured<K: KindSpec> {
    /// The parameters.
    pub parameters: K,
    /// Shape that [`KindSpec::ports`] returned.
    pub shape: K::Shape,
    /// Types of inputs and outputs.
    pub ports: Ports,
}

impl<K: KindSpec> Configured<K> {
    /// Connects a block with these parameters to `inputs`.
    pub fn new(parameters: K, inputs: &[PortType]) -> Result<Self, Vec<Rejection>> {
        let (shape, outputs) = parameters.ports(inputs)?;
        Ok(Self { parameters, shape, ports: Ports { inputs: inputs.to_vec(), outputs } })
    }
}

/// Reads parameters from `json`, with the rules of a flowgraph file.
pub fn read<K: KindSpec>(json: &serde_json::Value) -> Result<K, Vec<ReadError>> {
    let node = Node::of_json(json, Span::default());
    super::parameters::read(Reader::new(&node, Span::default()))
}

/// Reads parameters from a deserializer of serde, with the rules of a flowgraph file. `#[derive(Kind)]` calls it.
pub fn deserialize<'de, K: KindSpec, D: Deserializer<'de>>(deserializer: D) -> Result<K, D::Error> {
    let json = serde_json::Value::deserialize(deserializer)?;
    read(&json).map_err(|errors| {
        let messages = errors.iter().map(ToString::to_string);
        de::Error::custom(messages.collect::<Vec<_>>().join("; "))
    })
}
