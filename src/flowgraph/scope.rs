//! Parameters, and `${...}` in values.

use super::Sources;
use super::expression::{self, Problem, Scalar, evaluate};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest_after};
use fxgraph_core::tree::{Key, Node, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The names that an expression may use; a value of `None` was complained about already.
///
/// Every copy of a template has names of its own, so their values are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(BTreeMap<String, Option<Rc<Scalar>>>);

impl Names {
    /// The same names with `name` over them.
    pub(super) fn set(&mut self, name: &str, value: Option<Scalar>) {
        self.0.insert(name.to_owned(), value.map(Rc::new));
    }

    /// The same names with `name` meaning what it means in `other`, if it means something there.
    pub(super) fn take_over(&mut self, name: &str, other: &Self) {
        if let Some(value) = other.0.get(name) {
            self.0.insert(name.to_owned(), value.clone());
        }
    }

    /// The same names without `name`.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The value of `name`, if it has a good one.
    pub(super) fn value(&self, name: &str) -> Option<&Scalar> {
        self.0.get(name)?.as_deref()
    }
}

/// Values that one flowgraph may make out of its expressions, templates and copies, all together.
const MAX_VALUES: usize = 1_000_000;
/// Bytes of text that count as one more value.
const VALUE_BYTES: usize = 64;

/// What of [`MAX_VALUES`] is left. A small file can ask for more than any memory holds, in many
/// ways; whatever multiplies what stands in it takes from here first.
pub(super) struct Budget {
    left: Cell<usize>,
    /// Where it was used up.
    end: Cell<Option<Span>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: Cell::new(MAX_VALUES), end: Cell::new(None) }
    }
}

impl Budget {
    /// Takes `values` for what stands at `place`; `false` if that is more than there is left.
    pub(super) fn take(&self, values: usize, place: Span) -> bool {
        match self.left.get().checked_sub(values) {
            Some(left) if self.end.get().is_none() => self.left.set(left),
            _ if self.end.get().is_none() => self.end.set(Some(place)),
            _ => {}
        }
        !self.is_spent()
    }

    /// Whether more was asked for than there was.
    pub(super) fn is_spent(&self) -> bool {
        self.end.get().is_some()
    }

    /// Takes as much as a name or another text of `bytes` counts.
    pub(super) fn take_text(&self, bytes: usize, place: Span) -> bool {
        self.take(1 + bytes / VALUE_BYTES, place)
    }

    /// What is to be said if more was asked for than there was.
    pub(super) fn problem(&self) -> Option<Diagnostic> {
        let message = format!("the flowgraph grows beyond {MAX_VALUES} values, written out");
        self.end.get().map(|place| {
            Diagnostic::error(codes::LIMIT, place, message)
                .label("written out up to here")
                .help("`fxgraph explain E0102` tells the limits")
        })
    }
}

/// How many values a computed one counts.
fn weight(value: &Scalar) -> usize {
    match value {
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_) => 1,
        Scalar::Text(text) => 1 + text.len() / VALUE_BYTES,
        Scalar::List(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Scalar::Map(entries) => {
            let entry = |(key, value): &(String, Scalar)| weight(value) + key.len() / VALUE_BYTES;
            1 + entries.iter().map(entry).sum::<usize>()
        }
    }
}

/// All names that expressions in `node` use.
pub(super) fn names_used(node: &Node, found: &mut Vec<String>) {
    match &node.value {
        Value::Text(text) => {
            for piece in pieces(text).unwrap_or_default() {
                if let Piece::Expression(expression, _) = piece {
                    expression::names(expression, found);
                }
            }
        }
        Value::List(items) => items.iter().for_each(|item| names_used(item, found)),
        Value::Map(entries) => entries.iter().for_each(|(_, node)| names_used(node, found)),
        _ => {}
    }
}

/// The tree's form of a computed value.
pub(super) fn to_value(scalar: &Scalar) -> Value {
    to_node(scalar, Span::default()).value
}

fn to_node(scalar: &Scalar, span: Span) -> Node {
    let value = match scalar {
        Scalar::Bool(value) => Value::Bool(*value),
        Scalar::Int(value) => Value::Int(*value),
        Scalar::Float(value) => Value::Float(*value),
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

/// The computed form of a tree's value, if expressions know such values.
pub(super) fn to_scalar(node: &Node) -> Option<Scalar> {
    Some(match &node.value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Int(value) => Scalar::Int(*value),
        Value::Float(value) => Scalar::Float(*value),
        Value::Text(text) => Scalar::Text(text.clone()),
        Value::List(items) => Scalar::List(items.iter().map(to_scalar).collect::<Option<_>>()?),
        Value::Map(entries) => {
            let entry = |(key, node): &(Key, Node)| Some((key.text.clone(), to_scalar(node)?));
            Scalar::Map(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        Value::Null => return None,
    })
}

/// A piece of a text: as it stands, or an expression with its place in the text.
enum Piece<'a> {
    Plain(&'a str),
    Expression(&'a str, usize),
}

/// The pieces of `text`; `$${` stands for `${` itself. An error is the place of an open `${`.
fn pieces(text: &str) -> Result<Vec<Piece<'_>>, usize> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find("${") {
        let open = at + found;
        if text[at..open].ends_with('$') {
            pieces.push(Piece::Plain(&text[at..open]));
            pieces.push(Piece::Plain("{"));
            at = open + 2;
            continue;
        }
        pieces.push(Piece::Plain(&text[at..open]));
        let mut quote = None;
        let close = text[open + 2..].char_indices().find(|(_, c)| match quote {
            Some(mark) => {
                if *c == mark {
                    quote = None;
                }
                false
            }
            None if *c == '"' || *c == '\'' => {
                quote = Some(*c);
                false
            }
            None => *c == '}',
        });
        let Some((length, _)) = close else { return Err(open) };
        pieces.push(Piece::Expression(&text[open + 2..open + 2 + length], open + 2));
        at = open + 2 + length + 1;
    }
    pieces.push(Piece::Plain(&text[at..]));
    pieces.retain(|piece| !matches!(piece, Piece::Plain("")));
    Ok(pieces)
}

/// Computes `${...}` in values.
pub(super) struct Substitution<'a> {
    pub(super) names: &'a Names,
    pub(super) sources: &'a Sources,
    pub(super) budget: &'a Budget,
    pub(super) problems: &'a mut Vec<Diagnostic>,
}

impl Substitution<'_> {
    /// `node` with all expressions computed, or `None` if one could not be.
    pub(super) fn node(&mut self, node: &Node) -> Option<Node> {
        if !self.budget.take(1, node.span) {
            return None;
        }
        let value = match &node.value {
            Value::Text(text) if text.contains("${") => return self.text(text, node.span),
            Value::List(items) => {
                let items: Vec<Option<Node>> = items.iter().map(|item| self.node(item)).collect();
                Value::List(items.into_iter().collect::<Option<_>>()?)
            }
            Value::Map(entries) => {
                // All of them, so that all errors show at once.
                let entries: Vec<Option<(Key, Node)>> = entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), self.node(value)?)))
                    .collect();
                Value::Map(entries.into_iter().collect::<Option<_>>()?)
            }
            Value::Text(text) if !self.budget.take_text(text.len(), node.span) => return None,
            other => other.clone(),
        };
        Some(Node::new(value, node.span))
    }

    fn text(&mut self, text: &str, span: Span) -> Option<Node> {
        if !self.budget.take_text(text.len(), span) {
            return None;
        }
        // Where the text is not written as it reads (escapes, folded lines), places inside it are
        // not known.
        let written = self.sources.text(span).find(text).map(|offset| span.start + offset as u32);
        let place = Place { span, written };
        let pieces = match pieces(text) {
            Ok(pieces) => pieces,
            Err(open) => {
                let span = place.part(open, text.len());
                self.problems.push(
                    Diagnostic::error(codes::EXPRESSION, span, "`${` is not closed")
                        .label("no `}` follows")
                        .help("write `$${` for the characters themselves"),
                );
                return None;
            }
        };
        if let [Piece::Expression(expression, at)] = pieces[..] {
            let value = self.compute(expression, at, place)?;
            return Some(to_node(&value, span));
        }
        let mut result = Some(String::new());
        for piece in pieces {
            if self.budget.is_spent() {
                return None;
            }
            let part = match piece {
                Piece::Plain(part) => Some(part.to_owned()),
                Piece::Expression(expression, at) => {
                    self.compute(expression, at, place).map(|value| to_value(&value).plain())
                }
            };
            result = result.zip(part).map(|(so_far, part)| so_far + &part);
        }
        result.map(|text| Node::new(Value::Text(text), span))
    }

    fn compute(&mut self, expression: &str, at: usize, place: Place) -> Option<Scalar> {
        let (names, budget, span) = (self.names, self.budget, place.span);
        // What an expression makes grows out of the values that it looks up.
        let result = evaluate(expression, &mut |name: &str| match names.0.get(name) {
            Some(Some(value)) if budget.take(weight(value), span) => Ok(value.as_ref().clone()),
            Some(_) => Err(Some(())),
            None => Err(None),
        });
        match result {
            Ok(value) => budget.take(weight(&value), span).then_some(value),
            Err(problem) => {
                let place = place.part(at + problem.start, at + problem.end);
                self.complain(problem, place);
                None
            }
        }
    }

    fn complain(&mut self, problem: Problem, place: Span) {
        if problem.silent {
            return;
        }
        let Some(name) = problem.unknown else {
            let diagnostic = Diagnostic::error(codes::EXPRESSION, place, problem.message);
            self.problems.push(
                diagnostic
                    .label("in this expression")
                    .help("`fxgraph explain E0110` tells what expressions can do"),
            );
            return;
        };
        let known: Vec<&str> = self.names.0.keys().map(String::as_str).collect();
        let help = if name == "index" {
            Some("`index` is known inside a block or template with `replicate`".to_owned())
        } else {
            suggest_after(self.problems, &name, "parameter", &known)
        };
        self.problems.push(
            Diagnostic::error(codes::UNKNOWN_PARAMETER, place, problem.message)
                .label("not known here")
                .maybe_help(help),
        );
    }
}

/// Where a scalar stands, and where its text begins in the file.
#[derive(Clone, Copy)]
struct Place {
    span: Span,
    written: Option<u32>,
}

impl Place {
    /// The place of a part of the text, or of the whole scalar.
    fn part(self, start: usize, end: usize) -> Span {
        let Some(begin) = self.written else { return self.span };
        let at = |byte: usize| begin + byte as u32;
        Span { file: self.span.file, start: at(start), end: at(end).max(at(start)) }
    }
}
