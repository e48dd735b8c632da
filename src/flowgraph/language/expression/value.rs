//! Conversion between values of expressions and values of the tree.

use super::Scalar;
use fxgraph_core::diagnostic::Span;
use fxgraph_core::tree::{Key, Node, Value};

/// Converts a computed value to a value of the tree.
pub(crate) fn to_value(scalar: &Scalar) -> Value {
    to_node(scalar, Span::default()).value
}

pub(crate) fn to_node(scalar: &Scalar, span: Span) -> Node {
    let value = match scalar {
        Scalar::Bool(value) => Value::Bool(*value),
        Scalar::Int(value) => Value::Int(*value),
        Scalar::Float(value) => Value::Float(*value),
        Scalar::Digits(text) => Value::Digits(text.clone()),
        Scalar::Text(text) => Value::Text(text.clone()),
        Scalar::List(items) => Value::List(items.iter().map(|item| to_node(item, span)).collect()),
        Scalar::Map(entries) => {
            let entry = |(key, value): &(String, Scalar)| {
                (Key { text: key.clone(), span }, to_node(value, span))
            };
            Value::Map(entries.iter().map(entry).collect())
        }
    };
    Node::new(value, span)
}

/// Converts a value of the tree to one that expressions use; `None` for an empty value.
pub(crate) fn to_scalar(node: &Node) -> Option<Scalar> {
    Some(match &node.value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Int(value) => Scalar::Int(*value),
        Value::Float(value) => Scalar::Float(*value),
        Value::Digits(text) => Scalar::Digits(text.clone()),
        Value::Text(text) => Scalar::Text(text.clone()),
        Value::List(items) => Scalar::List(items.iter().map(to_scalar).collect::<Option<_>>()?),
        Value::Numbers(numbers) => {
            let scalar = |value| to_scalar(&Node::new(value, node.span));
            Scalar::List(numbers.iter().map(scalar).collect::<Option<_>>()?)
        }
        Value::Map(entries) => {
            let entry = |(key, node): &(Key, Node)| Some((key.text.clone(), to_scalar(node)?));
            Scalar::Map(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        Value::Null => return None,
    })
}
