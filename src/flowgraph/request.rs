//! Requests to a running flowgraph other than changes, such as recordings. They are read like a file.

use super::Refused;
use super::change::laid_over;
use super::check::refusal;
use super::document::wrong_type;
use super::parse::parse;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, tidy};
use fxgraph_core::kind::{At, Refusal};
use fxgraph_core::tree::{Node, Reader, Value};
use serde::de::DeserializeOwned;

/// Reads `request`, a mapping (YAML or JSON); keys that are not given have the values of the mapping `defaults`.
/// `refusals` checks the values.
pub fn read<T: DeserializeOwned>(
    request: &str,
    defaults: &str,
    refusals: impl FnOnce(&T) -> Vec<Refusal>,
) -> Result<T, Refused> {
    let mut sources = Sources::default();
    let [given, base] = [("request", request), ("defaults", defaults)].map(|(name, text)| {
        let file = sources.add(name, text);
        parse(file, sources.get(file).map_or("", |source| &source.text))
    });
    let (given, base) = match (given, base) {
        (Ok(given), Ok(base)) => (given, base),
        (Err(problems), _) | (_, Err(problems)) => {
            return Err(Refused { sources, problems: tidy(problems) });
        }
    };
    match checked(given, base, refusals) {
        Ok(read) => Ok(read),
        Err(problems) => Err(Refused { sources, problems: tidy(problems) }),
    }
}

fn checked<T: DeserializeOwned>(
    given: Node,
    base: Node,
    refusals: impl FnOnce(&T) -> Vec<Refusal>,
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
    let refused = refusals(&read).into_iter().map(|refused| {
        let mut problem = refusal(refused, "", place);
        problem.blocks.clear();
        problem
    });
    let problems: Vec<_> = refused.collect();
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}
