//! A block's parameters with its ports.

use super::{KindSpec, Ports, Refusal};
use crate::diagnostic::Span;
use crate::port::PortType;
use crate::tree::{Node, ReadError, Reader};
use serde::de::{self, Deserialize, Deserializer};

/// A block's parameters, its ports, and the shape that those have shown. One bundle for every method, so that
/// another field breaks no signature.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Configured<K: KindSpec> {
    /// The parameters.
    pub parameters: K,
    /// What [`KindSpec::ports`] found out.
    pub shape: K::Shape,
    /// Types of inputs and outputs.
    pub ports: Ports,
}

impl<K: KindSpec> Configured<K> {
    /// A block with these parameters behind `inputs`.
    pub fn new(parameters: K, inputs: &[PortType]) -> Result<Self, Vec<Refusal>> {
        let (shape, outputs) = parameters.ports(inputs)?;
        Ok(Self { parameters, shape, ports: Ports { inputs: inputs.to_vec(), outputs } })
    }
}

/// The parameters in `json`, read as a flowgraph's.
pub fn read<K: KindSpec>(json: &serde_json::Value) -> Result<K, Vec<ReadError>> {
    let node = Node::of_json(json, Span::default());
    super::parameters::read(Reader::new(&node, Span::default()))
}

/// The parameters that a deserializer of serde gives, read as a flowgraph's. `#[derive(Kind)]` calls it.
pub fn deserialize<'de, K: KindSpec, D: Deserializer<'de>>(deserializer: D) -> Result<K, D::Error> {
    let json = serde_json::Value::deserialize(deserializer)?;
    read(&json).map_err(|errors| {
        let messages = errors.iter().map(ToString::to_string);
        de::Error::custom(messages.collect::<Vec<_>>().join("; "))
    })
}
