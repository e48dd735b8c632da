//! Requests to a running flowgraph. They are read like a file.

use crate::language::arrays;
use crate::plan::configure::rejection;
use crate::text::document::wrong_type;
use crate::text::json::{self, JsonError, Limits};
use crate::text::parse::parse;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, tidy};
use fxgraph_core::kind::{At, KindEntry, Rejection};
use fxgraph_core::tree::{Node, Reader, Value};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::PathBuf;

/// A request, read once: YAML or JSON, with its text for diagnostics.
#[derive(Clone, Debug)]
pub struct Request {
    text: String,
    /// The tree or the diagnostics, for a text that is the first file of the sources.
    read: Result<Node, Vec<Diagnostic>>,
}

impl Request {
    /// Reads JSON, or returns `None` if `text` is not JSON.
    #[must_use]
    pub fn json(text: &str) -> Option<Self> {
        Self::json_of(text.to_owned(), &Limits::FILE)
    }

    /// Reads JSON of at most `bytes` bytes, or returns `None` if `text` is not JSON.
    #[must_use]
    pub fn json_within(text: String, bytes: usize) -> Option<Self> {
        Self::json_of(text, &Limits::of_bytes(bytes))
    }

    /// The content of a NumPy file for `parameter` of `block`.
    #[must_use]
    pub fn array(block: &str, parameter: &str, file: &[u8]) -> Self {
        (&json!({ block: { parameter: arrays::of_content(file) } })).into()
    }

    /// Reads the text of `values`, which may be large.
    #[must_use]
    pub fn printed(values: &serde_json::Value) -> Self {
        Self::json_of(values.to_string(), &Limits::NONE).unwrap_or_else(|| values.into())
    }

    fn json_of(text: String, limits: &Limits) -> Option<Self> {
        let read = match json::json(0, &text, limits) {
            Ok(node) => Ok(node),
            Err(JsonError::Problems(problems)) => Err(problems),
            Err(JsonError::Syntax) => return None,
        };
        Some(Self { text, read })
    }

    /// Names in the mapping `key` of the request; none if there is no such mapping.
    #[must_use]
    pub fn names_in(&self, key: &str) -> Vec<String> {
        let inner = self.read.as_ref().ok().and_then(|node| Some(&node.entry(key)?.1.value));
        let Some(Value::Map(entries)) = inner else { return Vec::new() };
        entries.iter().map(|(name, _)| name.text.clone()).collect()
    }

    /// Returns the tree, and sources with the text as file `name`.
    pub(crate) fn read_as(
        self,
        name: impl Into<PathBuf>,
    ) -> (Sources, Result<Node, Vec<Diagnostic>>) {
        let mut sources = Sources::default();
        sources.add(name, self.text);
        (sources, self.read)
    }
}

/// A mapping without text.
impl From<&serde_json::Value> for Request {
    fn from(values: &serde_json::Value) -> Self {
        Self { text: String::new(), read: Ok(Node::of_json(values, Span::default())) }
    }
}

/// Reads YAML.
impl From<&str> for Request {
    fn from(text: &str) -> Self {
        // Places are counted without a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text: text.to_owned(), read: parse(0, text) }
    }
}

impl From<&String> for Request {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

/// Diagnostics of a rejected request, with the texts that they quote.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Text of the request, for [`render_all`](fxgraph_core::diagnostic::render_all).
    pub sources: Sources,
    /// All diagnostics, sorted by place.
    pub problems: Vec<Diagnostic>,
}

/// Reads `request`, a mapping; keys that are not given have the values of the mapping `defaults`.
/// `rejections` checks the values.
pub fn read<T: DeserializeOwned>(
    request: impl Into<Request>,
    defaults: &str,
    rejections: impl FnOnce(&T) -> Vec<Rejection>,
) -> Result<T, Rejected> {
    let (mut sources, given) = request.into().read_as("request");
    let base = parse(sources.add("defaults", defaults), defaults);
    let (given, base) = match (given, base) {
        (Ok(given), Ok(base)) => (given, base),
        (Err(problems), _) | (_, Err(problems)) => {
            return Err(Rejected { sources, problems: tidy(problems) });
        }
    };
    match checked(given, base, rejections) {
        Ok(read) => Ok(read),
        Err(problems) => Err(Rejected { sources, problems: tidy(problems) }),
    }
}

fn checked<T: DeserializeOwned>(
    given: Node,
    base: Node,
    rejections: impl FnOnce(&T) -> Vec<Rejection>,
) -> Result<T, Vec<Diagnostic>> {
    if !matches!(given.value, Value::Map(_)) {
        return Err(vec![wrong_type(&given, "a mapping")]);
    }
    let node = laid_over(base, given, None);
    let read = T::deserialize(Reader::new(&node, node.span)).map_err(|error| {
        let place = error.span.unwrap_or(node.span);
        let problem = Diagnostic::error(error.code(), place, error.message.clone());
        vec![problem.label(error.label.clone()).maybe_help(error.help)]
    })?;
    let place = |at: &At| match at {
        At::Parameter(path) => node.at(path).map_or(node.span, |node| node.span),
        At::Value(path) => node.at(path).map_or(node.span, |node| node.span),
        _ => node.span,
    };
    let rejected = rejections(&read).into_iter().map(|rejected| {
        let mut problem = rejection(rejected, "", place);
        problem.blocks.clear();
        problem
    });
    let problems: Vec<_> = rejected.collect();
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

/// `base` with the entries of `over`; an entry of `over` without a value removes that of `base`. Mappings of a
/// parameter that the kind merges are laid over each other in the same way.
pub(crate) fn laid_over(base: Node, over: Node, kind: Option<&KindEntry>) -> Node {
    let (mut entries, changes) = match (base.value, over.value) {
        (Value::Map(entries), Value::Map(changes)) => (entries, changes),
        (_, value) => return Node::new(value, over.span),
    };
    for (key, node) in changes {
        // Entries keep their position, so that the result does not depend on the order of the changes.
        let known = entries.iter().position(|(known, _)| known.text == key.text);
        match known {
            Some(place) if node.value == Value::Null => {
                entries.remove(place);
            }
            // Kinds make their schema when they are asked.
            Some(place)
                if matches!(node.value, Value::Map(_))
                    && kind.is_some_and(|kind| kind.merges(&key.text)) =>
            {
                let node = laid_over(entries[place].1.clone(), node, None);
                entries[place] = (key, node);
            }
            Some(place) => entries[place] = (key, node),
            None if node.value == Value::Null => {}
            None => entries.push((key, node)),
        }
    }
    Node::new(Value::Map(entries), over.span)
}
