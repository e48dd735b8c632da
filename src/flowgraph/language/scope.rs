//! Names in scope, and the substitution of `${...}` in values.

use crate::language::expression::{self, Problem, Scalar, evaluate, to_node, to_value};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest_after};
use fxgraph_core::tree::{Key, Node, Value};
use serde_json::{Value as Json, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Names that an expression may use; a value of `None` has an error that is already reported.
///
/// Every copy of a template has its own `Names`, so values are shared by `Rc`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(BTreeMap<String, Option<Rc<Scalar>>>);

impl Names {
    /// Sets `name`, which hides an earlier value.
    pub(crate) fn set(&mut self, name: &str, value: Option<Scalar>) {
        self.0.insert(name.to_owned(), value.map(Rc::new));
    }

    /// Copies `name` from `other`, if it is set there.
    pub(crate) fn take_over(&mut self, name: &str, other: &Self) {
        if let Some(value) = other.0.get(name) {
            self.0.insert(name.to_owned(), value.clone());
        }
    }

    /// Removes `name`.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Value of `name`, if it is known and has no error.
    pub(crate) fn value(&self, name: &str) -> Option<&Scalar> {
        self.0.get(name)?.as_deref()
    }
}

/// Limit of the values that all expressions, templates and copies of one flowgraph make together.
const MAX_VALUES: usize = 1_000_000;
/// Bytes of text that count as one value.
const VALUE_BYTES: usize = 64;

/// Remainder of [`MAX_VALUES`]. A small file can expand to more values than fit into memory, so each step that
/// multiplies values of the file takes from this budget first.
pub(crate) struct Budget {
    left: Cell<usize>,
    /// Place where it was used up.
    end: Cell<Option<Span>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: Cell::new(MAX_VALUES), end: Cell::new(None) }
    }
}

impl Budget {
    /// Takes `values` for the value at `place`; `false` if fewer are left.
    pub(crate) fn take(&self, values: usize, place: Span) -> bool {
        match self.left.get().checked_sub(values) {
            Some(left) if self.end.get().is_none() => self.left.set(left),
            _ if self.end.get().is_none() => self.end.set(Some(place)),
            _ => {}
        }
        !self.is_spent()
    }

    /// Whether the budget was exceeded.
    pub(crate) fn is_spent(&self) -> bool {
        self.end.get().is_some()
    }

    /// Takes the values that a text of `bytes` counts.
    pub(crate) fn take_text(&self, bytes: usize, place: Span) -> bool {
        self.take(1 + bytes / VALUE_BYTES, place)
    }

    /// Diagnostic, if the budget was exceeded.
    pub(crate) fn problem(&self) -> Option<Diagnostic> {
        let message = format!("the expanded flowgraph must have at most {MAX_VALUES} values");
        self.end.get().map(|place| {
            Diagnostic::error(codes::LIMIT, place, message)
                .label("limit reached here")
                .help("see `fxgraph explain E0102` for all limits")
        })
    }
}

/// Number of values of the budget that a computed value takes.
fn weight(value: &Scalar) -> usize {
    match value {
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_) => 1,
        Scalar::Text(text) | Scalar::Digits(text) => 1 + text.len() / VALUE_BYTES,
        Scalar::List(items) => 1 + items.iter().map(weight).sum::<usize>(),
        Scalar::Map(entries) => {
            let entry = |(key, value): &(String, Scalar)| weight(value) + key.len() / VALUE_BYTES;
            1 + entries.iter().map(entry).sum::<usize>()
        }
    }
}

/// All names that expressions in `node` use.
pub(crate) fn names_used(node: &Node, found: &mut Vec<String>) {
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

/// A piece of a text: plain, or an expression with its offset in the text.
enum Piece<'a> {
    Plain(&'a str),
    Expression(&'a str, usize),
}

/// Splits `text` into pieces; `$${` is a literal `${`. The error is the offset of a `${` that is not closed.
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
pub(crate) struct Substitution<'a> {
    pub(crate) names: &'a Names,
    pub(crate) sources: &'a Sources,
    pub(crate) budget: &'a Budget,
    pub(crate) problems: &'a mut Vec<Diagnostic>,
}

impl Substitution<'_> {
    /// Returns `node` with all expressions computed, or `None` if one failed.
    pub(crate) fn node(&mut self, node: &Node) -> Option<Node> {
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
                // All entries, so that all errors are reported at once.
                let entries: Vec<Option<(Key, Node)>> = entries
                    .iter()
                    .map(|(key, value)| Some((key.clone(), self.node(value)?)))
                    .collect();
                Value::Map(entries.into_iter().collect::<Option<_>>()?)
            }
            Value::Text(text) if !self.budget.take_text(text.len(), node.span) => return None,
            Value::Numbers(numbers) if !self.budget.take(numbers.len(), node.span) => return None,
            other => other.clone(),
        };
        Some(Node::new(value, node.span))
    }

    fn text(&mut self, text: &str, span: Span) -> Option<Node> {
        if !self.budget.take_text(text.len(), span) {
            return None;
        }
        // In texts with escapes or folded lines, places inside the text are not known.
        let written = self.sources.text(span).find(text).map(|offset| span.start + offset as u32);
        let place = Place { span, written };
        let pieces = match pieces(text) {
            Ok(pieces) => pieces,
            Err(open) => {
                let span = place.part(open, text.len());
                self.problems.push(
                    Diagnostic::error(codes::EXPRESSION, span, "`${` is not closed")
                        .label("no `}` follows")
                        .help("add `}`, or write `$${` for a literal `${`"),
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
        // The size of the result depends on the values that the expression looks up.
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
                    .help("see `fxgraph explain E0110` for operators and functions"),
            );
            return;
        };
        let known: Vec<&str> = self.names.0.keys().map(String::as_str).collect();
        let help = if name == "index" {
            Some("use `index` only in a block or template with `replicate`".to_owned())
        } else {
            suggest_after(self.problems, &name, "parameter", &known)
        };
        self.problems.push(
            Diagnostic::error(codes::UNKNOWN_PARAMETER, place, problem.message)
                .label("unknown parameter")
                .maybe_help(help),
        );
    }
}

/// Place of a scalar, and the offset of its text in the file.
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

/// `value` with `${` escaped in all texts, so that none is read as an expression.
pub(crate) fn plainly(value: &Json) -> Json {
    match value {
        Json::String(text) => json!(text.replace("${", "$${")),
        Json::Array(items) => items.iter().map(plainly).collect(),
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| (key.clone(), plainly(value));
            Json::Object(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}
