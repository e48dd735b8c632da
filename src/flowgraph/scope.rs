//! Parameters, and `${...}` in values.

use super::Sources;
use super::expression::{Problem, Scalar, evaluate};
use super::value::{Key, Node, Value};
use crate::diagnostic::{Diagnostic, Span, codes, suggest};

/// The names that an expression may use; a value of `None` was complained about already.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(pub(super) Vec<(String, Option<Scalar>)>);

impl Names {
    /// The same names with `name` over them.
    pub(super) fn set(&mut self, name: &str, value: Option<Scalar>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<&Option<Scalar>> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
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
    pub(super) problems: &'a mut Vec<Diagnostic>,
}

impl Substitution<'_> {
    /// `node` with all expressions computed, or `None` if one could not be.
    pub(super) fn node(&mut self, node: &Node) -> Option<Node> {
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
            other => other.clone(),
        };
        Some(Node::new(value, node.span))
    }

    fn text(&mut self, text: &str, span: Span) -> Option<Node> {
        let pieces = match pieces(text) {
            Ok(pieces) => pieces,
            Err(open) => {
                let span = self.place(text, span, open, text.len());
                self.problems.push(
                    Diagnostic::error(codes::EXPRESSION, span, "`${` is not closed")
                        .label("no `}` follows")
                        .help("write `$${` for the characters themselves"),
                );
                return None;
            }
        };
        if let [Piece::Expression(expression, at)] = pieces[..] {
            let value = self.compute(expression, at, text, span)?;
            return Some(to_node(&value, span));
        }
        let mut result = Some(String::new());
        for piece in pieces {
            let part = match piece {
                Piece::Plain(part) => Some(part.to_owned()),
                Piece::Expression(expression, at) => {
                    self.compute(expression, at, text, span).map(|value| to_value(&value).plain())
                }
            };
            result = result.zip(part).map(|(so_far, part)| so_far + &part);
        }
        result.map(|text| Node::new(Value::Text(text), span))
    }

    fn compute(&mut self, expression: &str, at: usize, text: &str, span: Span) -> Option<Scalar> {
        let names = self.names;
        let result = evaluate(expression, &mut |name: &str| match names.get(name) {
            Some(Some(value)) => Ok(value.clone()),
            Some(None) => Err(Some(())),
            None => Err(None),
        });
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                let place = self.place(text, span, at + problem.start, at + problem.end);
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
            self.problems.push(diagnostic.label("in this expression"));
            return;
        };
        let known: Vec<&str> = self.names.0.iter().map(|(known, _)| known.as_str()).collect();
        let help = if name == "index" {
            Some("`index` is known inside a block or template with `replicate`".to_owned())
        } else {
            suggest(&name, "parameter", &known)
        };
        self.problems.push(
            Diagnostic::error(codes::UNKNOWN_PARAMETER, place, problem.message)
                .label("not known here")
                .maybe_help(help),
        );
    }

    /// The place of a part of a scalar's text, or the whole scalar where its text is not
    /// written as it reads (escapes, folded lines).
    fn place(&self, text: &str, span: Span, start: usize, end: usize) -> Span {
        let written = self.sources.text(span);
        let Some(offset) = written.find(text) else { return span };
        let at = |byte: usize| span.start + (offset + byte) as u32;
        Span { file: span.file, start: at(start), end: at(end).max(at(start)) }
    }
}
