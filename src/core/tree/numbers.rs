//! Long lists of numbers, without a node for each: a request may have millions of them.

use super::{Node, Value, is_long_number};
use crate::diagnostic::Span;
use std::sync::Arc;

/// Length from which a list of numbers is kept as [`Numbers`].
const LONG: usize = 1024;
/// Integers up to this magnitude are exact as floats.
const EXACT: u128 = 1 << f64::MANTISSA_DIGITS;

/// Numbers of a long list, all with the place of the list: 9 bytes each, where a node has 48. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers(Arc<Columns>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Columns {
    values: Vec<f64>,
    are_ints: Vec<bool>,
}

impl Columns {
    /// Adds `value`, unless it is no number or a float does not hold it.
    fn push(&mut self, value: &Value) -> bool {
        let (number, is_int) = match value {
            Value::Int(int) if int.unsigned_abs() <= EXACT => (*int as f64, true),
            Value::Float(number) => (*number, false),
            Value::Digits(text) if !is_long_number(text) => match text.parse() {
                Ok(number) => (number, false),
                Err(_) => return false,
            },
            _ => return false,
        };
        self.values.push(number);
        self.are_ints.push(is_int);
        true
    }
}

impl Numbers {
    /// Number of the numbers.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a long list is not empty")]
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// The numbers as integers and floats.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Value> {
        let numbers = self.0.values.iter().zip(&self.0.are_ints);
        numbers.map(
            |(number, is_int)| {
                if *is_int { Value::Int(*number as i128) } else { Value::Float(*number) }
            },
        )
    }
}

/// A list that is being read.
#[derive(Debug, Default)]
pub struct ListBuilder {
    nodes: Vec<Node>,
    numbers: Columns,
}

impl ListBuilder {
    /// Adds `node` to a list at `span`.
    pub fn push(&mut self, node: Node, span: Span) {
        if !self.numbers.values.is_empty() {
            if self.numbers.push(&node.value) {
                return;
            }
            let numbers = Numbers(Arc::new(std::mem::take(&mut self.numbers)));
            self.nodes = numbers.iter().map(|value| Node::new(value, span)).collect();
        }
        self.nodes.push(node);
        if self.nodes.len() == LONG {
            let mut numbers = Columns::default();
            if self.nodes.iter().all(|node| numbers.push(&node.value)) {
                (self.numbers, self.nodes) = (numbers, Vec::new());
            }
        }
    }

    /// The list.
    #[must_use]
    pub fn finish(self) -> Value {
        if self.numbers.values.is_empty() {
            Value::List(self.nodes)
        } else {
            Value::Numbers(Numbers(Arc::new(self.numbers)))
        }
    }
}

/// A list of `values`, all at `span`.
pub fn list(values: impl Iterator<Item = Value>, span: Span) -> Value {
    let mut list = ListBuilder::default();
    values.for_each(|value| list.push(Node::new(value, span), span));
    list.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tree::Reader;
    use serde::Deserialize;
    use serde_json::{Value as Json, json};

    fn node(json: &Json) -> Node {
        Node::of_json(json, Span { file: 1, start: 2, end: 3 })
    }

    #[test]
    fn long_list_of_numbers_keeps_its_values() {
        let mut items: Vec<Json> = (0..LONG as i64).map(|n| json!(n - 500)).collect();
        items.extend([json!(0.5), json!(-0.0), json!(9_007_199_254_740_992_u64), json!(3.0)]);
        let json = Json::Array(items);
        let long = node(&json);
        assert!(matches!(long.value, Value::Numbers(_)));
        assert_eq!(long.value.to_json().to_string(), json.to_string());
        let read = Vec::<f64>::deserialize(Reader::new(&long, long.span)).unwrap();
        assert_eq!((read.len(), read[0], read[LONG]), (LONG + 4, -500.0, 0.5));
        assert_eq!(long.value.sort(), "a list");
        assert_eq!((long.at("7"), long.at("1028"), long.at("x")), (Some(&long), None, None));
        let read = Vec::<u8>::deserialize(Reader::new(&long, long.span)).unwrap_err();
        assert_eq!(read.span, Some(long.span));
    }

    #[test]
    fn list_with_another_value_is_a_list_of_nodes() {
        for (other, at) in [(json!("a"), 0), (json!([1]), LONG + 5), (json!(u64::MAX), LONG + 5)] {
            let mut items = vec![json!(1); LONG + 9];
            items[at] = other;
            let json = Json::Array(items);
            assert!(matches!(&node(&json).value, Value::List(items) if items.len() == LONG + 9));
            assert_eq!(node(&json).value.to_json(), json);
        }
    }

    #[test]
    fn numbers_keep_the_values_of_their_spelling() {
        let of =
            |text: &str| list(std::iter::repeat_n(Value::from_plain(text), LONG), Span::default());
        let first = |text: &str| match of(text) {
            Value::Numbers(numbers) => numbers.iter().next(),
            _ => None,
        };
        assert_eq!(first("1.10"), Some(Value::Float(1.1)));
        assert_eq!(first("1e3"), Some(Value::Float(1e3)));
        // A time with more digits than a float has keeps them.
        assert_eq!(first("1638307199.123456789012"), None);
    }
}
