//! Parses JSON (RFC 8259) to a tree of values with their places.
//!
//! A parser of its own, because that of YAML is slower, does not know characters as pairs of `\u` escapes and tabs
//! between tokens, and accepts more than JSON.

use crate::text::parse::{MAX_BYTES, MAX_DEPTH, MAX_NODES, doubled, too_deep, too_large, too_many};
use fxgraph_core::diagnostic::{Diagnostic, Span};
use fxgraph_core::tree::{Key, ListBuilder, Node, Value};
use std::collections::HashMap;

/// Reason why a text has no tree.
#[derive(Debug)]
pub(crate) enum JsonError {
    /// The text is not JSON.
    Syntax,
    /// The text is JSON that a request must not contain.
    Problems(Vec<Diagnostic>),
}

/// Limits of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    bytes: usize,
    values: usize,
}

/// Bytes of a text that may have [`MAX_NODES`] values.
const BYTES_OF_VALUES: usize = 1 << 20;

impl Limits {
    /// Limits of a file.
    pub const FILE: Self = Self { bytes: MAX_BYTES, values: MAX_NODES };
    /// For texts that the program has written.
    pub const NONE: Self = Self { bytes: usize::MAX, values: usize::MAX };

    /// Limits of a text of `bytes` bytes.
    pub fn of_bytes(bytes: usize) -> Self {
        let values = bytes.div_ceil(BYTES_OF_VALUES).saturating_mul(MAX_NODES);
        Self { bytes, values: MAX_NODES.max(values) }
    }
}

/// Returns the tree of `text`, which is file `file` of the sources.
pub(crate) fn json(file: u32, text: &str, limits: &Limits) -> Result<Node, JsonError> {
    if text.len() > limits.bytes {
        return Err(JsonError::Problems(vec![too_large(file, text, limits.bytes)]));
    }
    let mut parser =
        Parser { file, text, at: 0, left: limits.values, limits: *limits, problems: Vec::new() };
    let node = parser.value(0)?;
    parser.space();
    if parser.at < text.len() {
        return Err(JsonError::Syntax);
    }
    if parser.problems.is_empty() { Ok(node) } else { Err(JsonError::Problems(parser.problems)) }
}

struct Parser<'a> {
    file: u32,
    text: &'a str,
    /// Byte offset of the next character.
    at: usize,
    /// Number of values that may follow.
    left: usize,
    limits: Limits,
    problems: Vec<Diagnostic>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips `byte`, or returns `false` if another one is next.
    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.skip(byte) { Ok(()) } else { Err(JsonError::Syntax) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The place from `start` to here.
    fn since(&self, start: usize) -> Span {
        Span { file: self.file, start: start as u32, end: self.at as u32 }
    }

    fn limit(problem: Diagnostic) -> JsonError {
        JsonError::Problems(vec![problem])
    }

    /// Reads a value inside `depth` lists and mappings.
    fn value(&mut self, depth: usize) -> Result<Node, JsonError> {
        self.space();
        let start = self.at;
        let value = match self.peek().ok_or(JsonError::Syntax)? {
            b'{' | b'[' if depth >= MAX_DEPTH => {
                return Err(Self::limit(too_deep(self.since(start))));
            }
            b'{' => self.map(depth)?,
            b'[' => self.list(depth)?,
            b'"' => Value::Text(self.string()?),
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'n' => self.word("null", Value::Null)?,
            _ => self.number()?,
        };
        self.count(start)?;
        Ok(Node::new(value, self.since(start)))
    }

    /// Counts a value or key that began at `start`.
    fn count(&mut self, start: usize) -> Result<(), JsonError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(Self::limit(too_many(self.since(start), self.limits.values)));
        };
        self.left = left;
        Ok(())
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        let rest = self.text.get(self.at..).ok_or(JsonError::Syntax)?;
        if !rest.starts_with(word) {
            return Err(JsonError::Syntax);
        }
        self.at += word.len();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, JsonError> {
        let start = self.at;
        self.expect(b'[')?;
        let mut items = ListBuilder::default();
        self.space();
        if self.skip(b']') {
            return Ok(items.finish());
        }
        loop {
            let item = self.value(depth + 1)?;
            items.push(item, self.since(start));
            self.space();
            if self.skip(b']') {
                return Ok(items.finish());
            }
            self.expect(b',')?;
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.expect(b'{')?;
        let mut entries = Vec::new();
        let mut seen: HashMap<String, Span> = HashMap::new();
        self.space();
        if self.skip(b'}') {
            return Ok(Value::Map(entries));
        }
        loop {
            self.space();
            let start = self.at;
            let text = self.string()?;
            self.count(start)?;
            let key = Key { text, span: self.since(start) };
            self.space();
            self.expect(b':')?;
            let value = self.value(depth + 1)?;
            if let Some(first) = seen.get(&key.text) {
                self.problems.push(doubled(&key, *first));
            } else {
                seen.insert(key.text.clone(), key.span);
                entries.push((key, value));
            }
            self.space();
            if self.skip(b'}') {
                return Ok(Value::Map(entries));
            }
            self.expect(b',')?;
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(JsonError::Syntax) }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        self.skip(b'-');
        if !self.skip(b'0') {
            self.digits()?;
        }
        if self.skip(b'.') {
            self.digits()?;
        }
        if self.skip(b'e') || self.skip(b'E') {
            let _ = self.skip(b'+') || self.skip(b'-');
            self.digits()?;
        }
        match Value::from_plain(&self.text[start..self.at]) {
            Value::Float(number) if !number.is_finite() => Err(JsonError::Syntax),
            value => Ok(value),
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.expect(b'"')?;
        let mut string = String::new();
        loop {
            let start = self.at;
            while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
                self.at += 1;
            }
            string.push_str(&self.text[start..self.at]);
            if self.skip(b'"') {
                return Ok(string);
            }
            self.expect(b'\\')?;
            string.push(self.escaped()?);
        }
    }

    /// Reads the character after a backslash.
    fn escaped(&mut self) -> Result<char, JsonError> {
        let letter = self.peek().ok_or(JsonError::Syntax)?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let second = if (0xd800..0xdc00).contains(&first) {
                    self.expect(b'\\')?;
                    self.expect(b'u')?;
                    Some(self.unit()?)
                } else {
                    None
                };
                let mut characters = char::decode_utf16([first].into_iter().chain(second));
                characters.next().and_then(Result::ok).ok_or(JsonError::Syntax)?
            }
            _ => return Err(JsonError::Syntax),
        })
    }

    /// Reads the four hexadecimal digits of a UTF-16 unit.
    fn unit(&mut self) -> Result<u16, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(JsonError::Syntax)?;
        let mut unit = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16).ok_or(JsonError::Syntax)?;
            unit = unit * 16 + digit as u16;
        }
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::parse::parse;
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value as Json;

    /// Any values, with strings that match `strings`.
    fn values(strings: &'static str) -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            strings.prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
                prop::collection::hash_map("[ -~]{0,8}", inner, 0..6)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    #[test]
    fn float_between_two_texts_of_the_same_length_is_a_number() {
        let value = serde_json::json!(115_293_015_847_523.62);
        let node = json(0, &value.to_string(), &Limits::FILE).unwrap();
        assert_eq!(node.value.to_json(), value);
    }

    proptest! {
        #[test]
        fn json_has_the_values_that_serde_json_wrote(value in values(".*")) {
            let node = json(0, &value.to_string(), &Limits::FILE).unwrap();
            prop_assert_eq!(node.value.to_json(), value);
        }

        #[test]
        fn json_has_the_places_of_the_same_text_as_yaml(value in values("[ -~]{0,12}"), is_pretty: bool) {
            let text = if is_pretty { format!("{value:#}") } else { value.to_string() };
            prop_assert_eq!(json(0, &text, &Limits::FILE).unwrap(), parse(0, &text).unwrap());
        }

        #[test]
        fn json_accepts_the_texts_that_serde_json_accepts(
            value in values(".*"), at: prop::sample::Index, other in "[-+0-9.eE\"\\\\u,:\\[\\]{} \t\n]{0,3}",
        ) {
            let text = value.to_string();
            let at = at.index(text.chars().count() + 1);
            let before = text.chars().take(at);
            let text: String = before.chain(other.chars()).chain(text.chars().skip(at + 1)).collect();
            let is_json = !matches!(json(0, &text, &Limits::FILE), Err(JsonError::Syntax));
            prop_assert_eq!(is_json, serde_json::from_str::<Json>(&text).is_ok(), "{}", text);
        }
    }

    #[test]
    fn json_reads_pairs_of_escapes_and_tabs() {
        let node = json(0, "{\t\"name\": \"\\ud83d\\ude00\\/\"}", &Limits::FILE).unwrap();
        assert_eq!(node.value.to_json(), serde_json::json!({"name": "\u{1f600}/"}));
        for wrong in
            ["\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\"", "01", "1e999", "{} {}", ""]
        {
            assert!(matches!(json(0, wrong, &Limits::FILE), Err(JsonError::Syntax)), "{wrong}");
        }
    }

    #[test]
    fn json_beyond_a_limit_has_a_diagnostic() {
        let deep = format!("{}1{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
        let many = format!("[{}1]", "1,".repeat(MAX_NODES));
        let large = format!("\"{}\"", "a".repeat(MAX_BYTES));
        for text in [deep, many, large, "{\"a\": 1, \"a\": 2}".to_owned()] {
            let Err(JsonError::Problems(problems)) = json(0, &text, &Limits::FILE) else {
                panic!("accepted")
            };
            assert_eq!(problems.len(), 1);
        }
        let deepest = format!("{}1{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(json(0, &deepest, &Limits::FILE).is_ok());
        let many = format!("[{}1]", "1,".repeat(3 * MAX_NODES));
        assert!(json(0, &many, &Limits::of_bytes(2 * BYTES_OF_VALUES)).is_err());
        assert!(json(0, &many, &Limits::of_bytes(4 * BYTES_OF_VALUES)).is_ok());
    }
}
