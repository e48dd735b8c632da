//! Deserialisation of JSON of unknown origin, with limits and with errors that name the key.

use fxgraph_core::diagnostic::Span;
use fxgraph_core::tree::{Key, Node, Problem, Reader, Value};
use serde::de::{self, DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Largest number of values in a text.
const MAX_VALUES: usize = 20_000;
/// Number of characters of a key that errors show.
const MAX_KEY: usize = 40;

/// Reads `text`; the error names the invalid value and the reason.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut places = Places(vec![(0, String::new())]);
    let mut json = serde_json::Deserializer::from_str(text);
    let root = NodeSeed { places: &mut places, place: 0 }
        .deserialize(&mut json)
        .and_then(|node| json.end().map(|()| node))
        .map_err(|error| syntax(&error))?;
    T::deserialize(Reader::new(&root, root.span)).map_err(|error| {
        let message = match &error.problem {
            Problem::MissingKey(key) => format!("the key `{key}` is missing"),
            _ => error.message.clone(),
        };
        let place = error.span.map_or(0, |span| span.start as usize);
        printable(&match places.path(place) {
            path if path.is_empty() => message,
            path => format!("`{path}`: {message}"),
        })
    })
}

/// Returns `text` without control characters, which would act on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns the text of a JSON syntax error, with its position.
fn syntax(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let why = text.rsplit_once(" at line ").map_or(text.as_str(), |(why, _)| why);
    let why = if error.is_eof() { "the text ends too early" } else { why };
    printable(&format!("{why} (line {}, column {})", error.line(), error.column()))
}

/// Position of each value: the number of its parent, and the step from there.
struct Places(Vec<(usize, String)>);

impl Places {
    fn add<E: de::Error>(&mut self, parent: usize, step: String) -> Result<usize, E> {
        if self.0.len() == MAX_VALUES {
            return Err(E::custom(format!("more than {MAX_VALUES} values")));
        }
        self.0.push((parent, step));
        Ok(self.0.len() - 1)
    }

    /// Path of a value, for example `axes[0].len`; empty for the root.
    fn path(&self, mut place: usize) -> String {
        let mut steps = Vec::new();
        while place > 0 {
            let (parent, step) = &self.0[place];
            steps.push(step.as_str());
            place = *parent;
        }
        steps.reverse();
        steps.concat().trim_start_matches('.').to_owned()
    }
}

/// Reads a value as a [`Node`] whose span is the number of its place.
struct NodeSeed<'a> {
    places: &'a mut Places,
    place: usize,
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let number = self.place as u32;
        let value = deserializer.deserialize_any(self)?;
        Ok(Node::new(value, Span { file: 0, start: number, end: number }))
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let step = format!("[{}]", list.len());
            let place = self.places.add(self.place, step)?;
            let seed = NodeSeed { places: &mut *self.places, place };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::List(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(text) = entries.next_key::<String>()? {
            let step = format!(".{}", text.chars().take(MAX_KEY).collect::<String>());
            let place = self.places.add(self.place, step)?;
            let node = entries.next_value_seed(NodeSeed { places: &mut *self.places, place })?;
            map.push((Key { text, span: node.span }, node));
        }
        Ok(Value::Map(map))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Side {
        frames: u64,
        axes: Vec<Axis>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Axis {
        len: usize,
    }

    fn rejected(text: &str) -> String {
        read::<Side>(text).unwrap_err()
    }

    #[test]
    fn read_of_wrong_value_names_its_key() {
        let said = rejected(r#"{"frames": 1, "axes": [{"len": 2}, {"len": "\u001b[2Jx"}]}"#);
        assert_eq!(said, "`axes[1].len`: expected an integer, found `\u{fffd}[2Jx`");
        let said = rejected(r#"{"frames": -1, "axes": []}"#);
        assert_eq!(said, "`frames`: expected a non-negative integer, found `-1`");
        assert_eq!(rejected(r#"{"frames": 1}"#), "the key `axes` is missing");
        let said = rejected(r#"{"frames": 1, "axes": [{"size": 1}]}"#);
        assert_eq!(said, "`axes[0]`: the key `len` is missing");
        assert_eq!(rejected("[]"), "expected a mapping, found a list");
    }

    #[test]
    fn read_of_broken_json_names_the_position() {
        assert_eq!(rejected("{\n \"frames\" 1}"), "expected `:` (line 2, column 11)");
        assert_eq!(rejected("{"), "the text ends too early (line 1, column 1)");
        assert_eq!(rejected(""), "the text ends too early (line 1, column 0)");
        assert!(rejected("{} x").starts_with("trailing characters"));
        assert!(rejected(&"[".repeat(1000)).starts_with("recursion limit exceeded"));
    }

    #[test]
    fn read_rejects_too_many_values() {
        let text = format!("[{}0]", "0,".repeat(1 << 20));
        assert!(
            rejected(&text).starts_with("more than 20000 values (line 1"),
            "{}",
            rejected(&text)
        );
    }
}
