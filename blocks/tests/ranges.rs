//! Declared ranges of parameters: numbers outside the range are rejected when they are read.

use fxgraph::diagnostic::Span;
use fxgraph::tree::{Node, Reader};
use serde_json::{Value, json};

#[test]
fn numbers_outside_a_declared_range_are_rejected() {
    let mut tried = Vec::new();
    for kind in crate::kinds().iter() {
        let schema = (kind.schema)().to_value();
        for (name, property) in schema["properties"].as_object().unwrap() {
            for (end, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(end) = property[end].as_f64() else { continue };
                // Unsigned integers have a minimum of 0 without a declared range.
                let is_type = end == 0.0 && property.get("maximum").is_none();
                if is_type && property["type"] != "number" {
                    continue;
                }
                let node = Node::of_json(&json!({name: whole(end + step)}), Span::default());
                let read = (kind.read)(Reader::new(&node, Span::default()), "cpu");
                let errors = read.err().unwrap_or_default();
                let messages: Vec<_> = errors.into_iter().map(|error| error.message).collect();
                let is_rejected = |message: &String| {
                    message.starts_with(&format!("`{name}` must be")) || message.contains("integer")
                };
                assert!(messages.iter().any(is_rejected), "{} {name}: {messages:?}", kind.name);
                tried.push(name.clone());
            }
        }
    }
    for name in ["threads", "window", "wait_seconds", "ttl"] {
        assert!(tried.iter().any(|tried| tried == name), "{name} has no range");
    }
}

/// Returns `number` as JSON, as an integer if it is one.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 { json!(number as i64) } else { json!(number) }
}
