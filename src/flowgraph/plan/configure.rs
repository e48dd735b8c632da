//! Reads the parameters of a block; errors and rejections become diagnostics.

use crate::language::arrays;
use crate::text::document::ENTRY_KEYS;
use fxgraph_core::access::FileAccess;
use fxgraph_core::diagnostic::{Diagnostic, Span};
use fxgraph_core::kind::{AnyParameters, At, KindEntry, Rejection};
use fxgraph_core::tree::{Node, Problem, ReadError, Reader, Value};

/// Reads the parameters of a block; returns all errors at once.
pub(crate) fn configure(
    kind: &KindEntry,
    implementation: &str,
    node: &Node,
    owner: Span,
    access: &FileAccess,
) -> Result<Box<dyn AnyParameters>, Vec<Diagnostic>> {
    let expanded = arrays::expanded(node)?;
    let reader = Reader::new(&expanded, owner).with_access(access);
    let errors = match (kind.read)(reader, implementation) {
        Ok(parameters) => return Ok(parameters),
        Err(errors) => errors,
    };
    Err(errors.iter().map(|error| diagnostic(kind, error, node, owner)).collect())
}

/// Diagnostic for an error in the `parameters` of a block.
fn diagnostic(kind: &KindEntry, error: &ReadError, parameters: &Node, owner: Span) -> Diagnostic {
    let is_own_key = |key: &String| {
        let Value::Map(entries) = &parameters.value else { return false };
        ENTRY_KEYS.contains(&key.as_str())
            && entries.iter().any(|(own, _)| Some(own.span) == error.span)
    };
    let message = match &error.problem {
        Problem::UnknownKey(key) => format!("`{}` has no parameter `{key}`", kind.name),
        Problem::MissingKey(key) => format!("`{}` needs the parameter `{key}`", kind.name),
        _ => error.message.clone(),
    };
    let help = match &error.problem {
        Problem::UnknownKey(key) if is_own_key(key) => {
            Some(format!("`{key}` is a key of the block: move it out of `parameters`"))
        }
        Problem::MissingKey(_) | Problem::UnknownKey(_) => error
            .help
            .clone()
            .or_else(|| Some(format!("see `fxgraph list {}` for its parameters", kind.name))),
        _ => error.help.clone(),
    };
    Diagnostic::error(error.code(), error.span.unwrap_or(owner), message)
        .label(error.label.clone())
        .maybe_help(help)
}

/// Diagnostic for a [`Rejection`] of `block`, with places in the file.
pub(crate) fn rejection(
    rejection: Rejection,
    block: &str,
    place: impl Fn(&At) -> Span,
) -> Diagnostic {
    let mut problem = Diagnostic::error(rejection.code, place(&rejection.at), rejection.message)
        .label(rejection.label)
        .maybe_help(rejection.help);
    for (at, text) in &rejection.notes {
        let span = place(at);
        // One label per place.
        if Some(span) != problem.span {
            problem = problem.note(span, text.clone());
        }
    }
    problem.blocks.push(block.to_owned());
    problem
}
