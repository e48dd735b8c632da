//! Values of declared parameters: given by a use of a template, set from outside, or default.

use crate::language::expression::{Scalar, to_scalar, to_value};
use crate::language::order::Order;
use crate::language::scope::{Budget, Names, Substitution, names_used};
use crate::text::document::{Declared, Document, wrong_type};
use crate::text::parse::parse;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest, suggest_after};
use fxgraph_core::tree::{Key, Node, Value};
use std::collections::{HashMap, HashSet};

/// Limit of the parameters of one flowgraph or template.
const MAX_PARAMETERS: usize = 1000;

/// Value of a parameter of the flowgraph, given from outside its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Name of the parameter.
    pub name: String,
    /// Its value.
    pub value: SetTo,
}

/// Value that a parameter is set to from outside the file.
#[derive(Clone, Debug, PartialEq)]
pub enum SetTo {
    /// Text after `--set name=`: text if the default is text, read as YAML otherwise.
    Typed(String),
    /// The same from elsewhere, such as a request.
    Text(String),
    /// A value from a file: `set:` of a test.
    Value(Value),
}

impl Setting {
    /// The setting of `--set name=value`.
    #[must_use]
    pub fn typed(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: SetTo::Typed(value.into()) }
    }

    /// A setting that is read like that of `--set name=value`, but is given elsewhere.
    #[must_use]
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: SetTo::Text(value.into()) }
    }
}

/// Source of values other than the defaults.
pub(crate) enum Given<'a> {
    /// From outside the file.
    Set(&'a [Setting]),
    /// Computed entries of `parameters:` where a template is used, and the place for errors about a missing
    /// entry.
    Entries(&'a [(Key, Option<Node>)], Span),
}

impl Given<'_> {
    /// Subject of messages about the value of the parameter `name`: the `--set` that gives the value, if one does.
    fn subject(&self, name: &str) -> String {
        match self {
            Given::Set(set) if is_typed(set, name) => format!("`--set {name}`"),
            _ => format!("the parameter `{name}`"),
        }
    }
}

/// Whether a `--set` gives the value of the parameter `name`.
fn is_typed(set: &[Setting], name: &str) -> bool {
    let last = set.iter().rev().find(|set| set.name == name);
    last.is_some_and(|set| matches!(set.value, SetTo::Typed(_)))
}

fn is_set(set: &[Setting], name: &str) -> bool {
    set.iter().any(|set| set.name == name)
}

/// Names in `problem` each `--set` whose value the expressions at the place of `problem` use, also by defaults of other
/// parameters.
pub(crate) fn note_set(
    problem: &mut Diagnostic,
    document: &Document,
    set: &[Setting],
    sources: &Sources,
) {
    let Some(span) = problem.span else { return };
    let mut used = Vec::new();
    names_used(&Node::new(Value::Text(sources.text(span).to_owned()), span), &mut used);
    // A parameter of a template may hide that of the flowgraph, but not from defaults of the flowgraph.
    let of_templates = document.templates.iter().flat_map(|template| &template.parameters);
    let hiding: HashSet<&str> = of_templates.map(|parameter| &*parameter.key.text).collect();
    used.retain(|name| !hiding.contains(&**name));
    let mut known = 0;
    while let Some(name) = used.get(known).cloned() {
        known += 1;
        let is_it = |parameter: &&Declared| parameter.key.text == name;
        let declared = document.parameters.iter().find(is_it).filter(|_| !is_set(set, &name));
        let mut by_default = Vec::new();
        if let Some(default) = declared.and_then(|parameter| parameter.default.as_ref()) {
            names_used(default, &mut by_default);
        }
        used.extend(by_default.into_iter().filter(|name| !used.contains(name)).collect::<Vec<_>>());
    }
    for parameter in &document.parameters {
        let name = &parameter.key.text;
        if used.contains(name) && is_typed(set, name) {
            let note = format!("set by `--set {name}`");
            problem.notes.push((parameter.key.span, note));
        }
    }
}

/// Returns the names in `outer` and the values of `declared`, which hide names of `outer`.
pub(crate) fn evaluate(
    declared: &[Declared],
    given: &Given<'_>,
    outer: &Names,
    (sources, budget): (&Sources, &Budget),
    problems: &mut Vec<Diagnostic>,
) -> Names {
    let mut names = outer.clone();
    if let Some(parameter) = declared.get(MAX_PARAMETERS) {
        let message = format!("there must be at most {MAX_PARAMETERS} parameters");
        problems.push(Diagnostic::error(codes::LIMIT, parameter.key.span, message));
        return names;
    }
    unknown(declared, given, problems);
    let mut waiting: Vec<&Declared> = Vec::new();
    for parameter in declared {
        #[allow(clippy::single_match_else, reason = "two cases of equal importance")]
        match value_given(parameter, given, problems) {
            Some(value) => {
                let value = value.and_then(|node| checked(parameter, given, &node, problems));
                names.set(&parameter.key.text, value);
            }
            None => {
                // Hides the outer name until its own value is known.
                names.remove(&parameter.key.text);
                waiting.push(parameter);
            }
        }
    }
    defaults(&waiting, given, &mut names, (sources, budget), problems);
    for parameter in declared {
        in_range(parameter, given, &names, (sources, budget), problems);
    }
    names
}

fn unknown(declared: &[Declared], given: &Given<'_>, problems: &mut Vec<Diagnostic>) {
    let known: Vec<&str> = declared.iter().map(|p| p.key.text.as_str()).collect();
    match given {
        Given::Set(set) => {
            for Setting { name, .. } in set.iter().filter(|set| !known.contains(&&*set.name)) {
                let message = if is_typed(set, name) {
                    format!("`--set {name}`: the flowgraph has no such parameter")
                } else {
                    format!("the flowgraph has no parameter `{name}`")
                };
                problems.push(
                    Diagnostic::nowhere(codes::UNKNOWN_PARAMETER, message).maybe_help(suggest(
                        name,
                        "parameter",
                        &known,
                    )),
                );
            }
        }
        Given::Entries(entries, _) => {
            for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str())) {
                let message = format!("the template has no parameter `{}`", key.text);
                let help = suggest_after(problems, &key.text, "parameter", &known);
                problems.push(
                    Diagnostic::error(codes::UNKNOWN_PARAMETER, key.span, message)
                        .label("unknown parameter")
                        .maybe_help(help),
                );
            }
        }
    }
}

/// The value given to a parameter; `Some(None)` if it had an error, which is already reported.
#[allow(clippy::option_option, reason = "not given, and given but wrong, differ")]
fn value_given(
    parameter: &Declared,
    given: &Given<'_>,
    problems: &mut Vec<Diagnostic>,
) -> Option<Option<Node>> {
    let name = &parameter.key.text;
    match given {
        Given::Entries(entries, _) => {
            entries.iter().find(|(key, _)| key.text == *name).map(|(_, node)| node.clone())
        }
        Given::Set(set) => {
            let set = set.iter().rev().find(|set| set.name == *name)?;
            let span = parameter.key.span;
            let text = match &set.value {
                SetTo::Typed(text) | SetTo::Text(text) => text,
                SetTo::Value(value) => return Some(Some(placed(value.clone(), span))),
            };
            let is_text = parameter.default.as_ref().and_then(Node::text);
            if is_text.is_some_and(|default| !default.contains("${")) {
                return Some(Some(Node::new(Value::Text(text.clone()), span)));
            }
            if let Ok(node) = parse(span.file, text) {
                return Some(Some(placed(node.value, span)));
            }
            problems.push(
                Diagnostic::error(
                    codes::WRONG_TYPE,
                    span,
                    format!("{}: the value `{text}` is not valid YAML", given.subject(name)),
                )
                .label("declared here"),
            );
            Some(None)
        }
    }
}

/// A value from outside the files, with `span` as its place and that of all values inside it.
fn placed(value: Value, span: Span) -> Node {
    let value = match value {
        Value::List(items) => {
            Value::List(items.into_iter().map(|item| placed(item.value, span)).collect())
        }
        Value::Map(entries) => {
            let entry =
                |(key, value): (Key, Node)| (Key { span, ..key }, placed(value.value, span));
            Value::Map(entries.into_iter().map(entry).collect())
        }
        other => other,
    };
    Node::new(value, span)
}

/// Type that all values of a parameter must have: an integer may become any number.
fn class(value: &Scalar) -> &'static str {
    match value {
        Scalar::Int(_) => "a number",
        other => other.sort(),
    }
}

/// Returns the value, if its type is that of the default.
fn checked(
    parameter: &Declared,
    given: &Given<'_>,
    node: &Node,
    problems: &mut Vec<Diagnostic>,
) -> Option<Scalar> {
    let subject = || given.subject(&parameter.key.text);
    let Some(value) = to_scalar(node) else {
        problems.push(
            Diagnostic::error(
                codes::WRONG_TYPE,
                node.span,
                format!("{} cannot be {}", subject(), node.value.sort()),
            )
            .label("expected a number, text, true or false, or a list or mapping of them"),
        );
        return None;
    };
    let default = parameter
        .default
        .as_ref()
        .filter(|default| default.text().is_none_or(|text| !text.contains("${")));
    let wanted = default.and_then(to_scalar).map(|default| class(&default));
    if wanted.is_none_or(|wanted| wanted == class(&value)) {
        return Some(value);
    }
    let wanted = wanted.unwrap_or_default();
    problems.push(
        Diagnostic::error(
            codes::WRONG_TYPE,
            node.span,
            format!("{} must be {wanted}, found {}", subject(), node.value.quoted()),
        )
        .label(format!("expected {wanted}"))
        .help("the type must be that of the default"),
    );
    None
}

/// Computes defaults, each one after the parameters that it uses.
fn defaults(
    waiting: &[&Declared],
    given: &Given<'_>,
    names: &mut Names,
    (sources, budget): (&Sources, &Budget),
    problems: &mut Vec<Diagnostic>,
) {
    let index: HashMap<&str, usize> =
        waiting.iter().enumerate().map(|(at, p)| (p.key.text.as_str(), at)).collect();
    let needs: Vec<Vec<usize>> = waiting
        .iter()
        .map(|parameter| {
            let mut used = Vec::new();
            parameter.default.iter().for_each(|node| names_used(node, &mut used));
            used.iter().filter_map(|name| index.get(name.as_str()).copied()).collect()
        })
        .collect();
    let Order { good: order, circles, stuck } = Order::of(&needs);
    for at in order {
        let parameter = waiting[at];
        let value = match &parameter.default {
            None => {
                problems.push(missing(parameter, given));
                None
            }
            Some(default) => Substitution { names, sources, budget, problems }
                .node(default)
                .and_then(|node| checked(parameter, given, &node, problems)),
        };
        names.set(&parameter.key.text, value);
    }
    for circle in circles {
        let first = waiting[circle[0]];
        let message = format!("the default of `{}` depends on its own value", first.key.text);
        let mut problem = Diagnostic::error(codes::PARAMETER_CYCLE, first.key.span, message)
            .label("depends on itself, directly or through others")
            .help("give one of these parameters a constant");
        for other in &circle[1..] {
            problem = problem.note(waiting[*other].key.span, "part of the cycle");
        }
        problems.push(problem);
    }
    for at in stuck {
        names.set(&waiting[at].key.text, None);
    }
}

fn missing(parameter: &Declared, given: &Given<'_>) -> Diagnostic {
    let name = &parameter.key.text;
    match given {
        Given::Set(_) => Diagnostic::error(
            codes::MISSING_KEY,
            parameter.key.span,
            format!("the parameter `{name}` has no default and is not set"),
        )
        .label("needs a value")
        .help(format!("set it with `--set {name}=...`, or add a default")),
        Given::Entries(_, span) => Diagnostic::error(
            codes::MISSING_KEY,
            *span,
            format!("the template's parameter `{name}` has no default and is not given"),
        )
        .label(format!("add `{name}` to its `parameters`"))
        .note(parameter.key.span, "declared here"),
    }
}

fn in_range(
    parameter: &Declared,
    given: &Given<'_>,
    names: &Names,
    (sources, budget): (&Sources, &Budget),
    problems: &mut Vec<Diagnostic>,
) {
    let name = &parameter.key.text;
    let value = names.value(name);
    let limits = [("minimum", &parameter.minimum), ("maximum", &parameter.maximum)];
    for (word, limit) in limits {
        let Some(node) = limit else { continue };
        let limit = Substitution { names, sources, budget, problems }.node(node);
        let Some(limit) = limit else { continue };
        let Some(bound) = to_scalar(&limit).as_ref().and_then(Scalar::number) else {
            problems.push(wrong_type(node, "a number"));
            continue;
        };
        let Some(found) = value.and_then(Scalar::number) else { continue };
        let is_out = if word == "minimum" { found < bound } else { found > bound };
        if !is_out {
            continue;
        }
        let shown = value.map(|v| to_value(v).plain()).unwrap_or_default();
        let side = if word == "minimum" { "below" } else { "above" };
        let message = format!(
            "{} is {shown}, {side} its {word} of {}",
            given.subject(name),
            limit.value.plain()
        );
        let place = match given {
            Given::Set(set) if set.iter().any(|set| set.name == *name) => parameter.key.span,
            Given::Set(_) => parameter.default.as_ref().map_or(parameter.key.span, |d| d.span),
            Given::Entries(entries, _) => entries
                .iter()
                .find(|(key, _)| key.text == *name)
                .and_then(|(_, node)| node.as_ref())
                .or(parameter.default.as_ref())
                .map_or(parameter.key.span, |node| node.span),
        };
        problems.push(
            Diagnostic::error(codes::PARAMETER_RANGE, place, message)
                .label(format!("{side} the {word}"))
                .note(node.span, format!("the {word}")),
        );
    }
}
