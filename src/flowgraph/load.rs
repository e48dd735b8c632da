//! Loads a flowgraph: all steps from the text to a checked plan, in order.

use crate::cut;
use crate::language::arrays;
use crate::language::expand::Expansion;
use crate::language::expect::{self, TestHead, TestSpec};
use crate::language::expression::to_value;
use crate::language::parameters::{Given, Setting, evaluate, note_set};
use crate::language::resolve::Resolver;
use crate::language::scope::{Budget, Names, Substitution};
use crate::plan::bands::seal;
use crate::plan::block::PlannedBlock;
use crate::plan::check;
use crate::plan::flowgraph::{ParameterInfo, Plan};
use crate::plan::transfers;
use crate::plan::{cross_checks, frames};
use crate::text::document::Document;
use crate::text::include;
use fxgraph_core::Registry;
use fxgraph_core::access::{self, FileAccess};
use fxgraph_core::diagnostic::{
    Diagnostic, SHOWN, Severity, Sources, Span, codes, suggest_after, tidy,
};
use fxgraph_core::files::open_regular;
use fxgraph_core::flowgraph_texts::{FlowgraphText, FlowgraphTexts};
use fxgraph_core::live_updates::LiveUpdates;
use fxgraph_core::overload::Overloads;
use fxgraph_core::recorders::Recorders;
use fxgraph_core::tree::{Node, Value};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Result of [`load`].
pub struct Loaded {
    /// The files, for [`render`](fxgraph_core::diagnostic::render()).
    pub sources: Sources,
    /// The plan, or the diagnostics, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
    /// The tests of the file, also if the flowgraph has errors without the settings of the tests.
    pub tests: Vec<TestHead>,
}

/// Reads, expands and checks the flowgraph at `path`; `set` overrides its parameters.
#[must_use]
pub fn load(path: &Path, set: &[Setting], registry: &Registry) -> Loaded {
    load_read(path, include::read(open_regular(path)), set, registry)
}

/// [`load`] of standard input. `bytes` is the text read from standard input, at most one byte more than
/// [`MAX_BYTES`](crate::MAX_BYTES). Included paths are relative to the working directory.
#[must_use]
pub fn load_standard_input(
    bytes: Result<&[u8], &std::io::Error>,
    set: &[Setting],
    registry: &Registry,
) -> Loaded {
    load_read(Path::new("standard input"), include::standard_input(bytes), set, registry)
}

fn load_read(
    name: &Path,
    read: Result<String, include::Unread>,
    set: &[Setting],
    registry: &Registry,
) -> Loaded {
    match read {
        Ok(text) => load_text(name, &text, set, registry),
        Err(include::Unread { code, reason }) => {
            let message = format!("cannot read `{}`: {reason}", name.display());
            let problem = Diagnostic::nowhere(code, message);
            Loaded { sources: Sources::default(), result: Err(vec![problem]), tests: Vec::new() }
        }
    }
}

/// [`load`] of a text with the file name `name`. Included paths are relative to the directory of `name`.
#[must_use]
pub fn load_text(
    name: impl AsRef<Path>,
    text: &str,
    set: &[Setting],
    registry: &Registry,
) -> Loaded {
    let directory = name.as_ref().parent().unwrap_or(Path::new(""));
    load_in(directory, name.as_ref(), text, set, registry)
}

/// [`load_text`], with included paths relative to `directory`.
#[must_use]
pub fn load_in(
    directory: &Path,
    name: &Path,
    text: &str,
    set: &[Setting],
    registry: &Registry,
) -> Loaded {
    load_with((directory, &access::ANY), name, text, set, registry)
}

/// [`load_in`], restricted to the files that `access` allows.
pub fn load_with(
    (directory, access): (&Path, &FileAccess),
    name: &Path,
    text: &str,
    set: &[Setting],
    registry: &Registry,
) -> Loaded {
    let mut sources = Sources::default();
    let main = sources.add(name, text);
    let mut problems = Vec::new();
    let document = include::gather((main, directory), access, &mut sources, &mut problems);
    let mut heads = Vec::new();
    let ground = (&sources, access, directory);
    let plan = document.and_then(|document| {
        let plan = plan(&document, set, registry, ground, &mut problems, &mut heads);
        problems.iter_mut().for_each(|problem| note_set(problem, &document, set, &sources));
        plan
    });
    if access.is_limited() {
        problems.iter_mut().for_each(|problem| hide_content(problem, &sources, access));
    }
    let mut problems = tidy(problems);
    let is_wrong = problems.iter().any(|problem| problem.severity == Severity::Error);
    let result = match plan {
        Some(mut plan) if !is_wrong => {
            plan.warnings = problems.into();
            directory.clone_into(&mut plan.directory);
            let included = sources.iter().skip(1).map(|source| source.path.canonicalize());
            plan.included = included.filter_map(Result::ok).collect();
            if set.is_empty() {
                plan.is_written(text);
            }
            Ok(plan)
        }
        _ => {
            if problems.is_empty() {
                // Each failing step reports a diagnostic; this one covers a step that does not.
                problems.push(Diagnostic::nowhere(codes::YAML, "the flowgraph cannot be read"));
            }
            Err(problems)
        }
    };
    Loaded { sources, result, tests: heads }
}

/// Removes from `problem` quotations of included files that the author of the flowgraph did not include.
fn hide_content(problem: &mut Diagnostic, sources: &Sources, access: &FileAccess) {
    let hidden = |span: Span| {
        let source = sources.get(span.file).filter(|_| span.file > 0)?;
        (!access.may_quote(&source.path)).then_some(source)
    };
    problem.notes.retain(|(span, _)| hidden(*span).is_none());
    if let Some((span, source)) = problem.span.and_then(|span| Some((span, hidden(span)?))) {
        let line = sources.line_column(span).0;
        problem.message = format!("line {line} of `{}` has an error", source.path.display());
        problem.label.clear();
        problem.help = vec!["run `fxgraph validate` on the server to see the error".to_owned()];
    }
}

fn plan(
    document: &Document,
    set: &[Setting],
    registry: &Registry,
    (sources, access, directory): (&Sources, &FileAccess, &Path),
    problems: &mut Vec<Diagnostic>,
    heads: &mut Vec<TestHead>,
) -> Option<Plan> {
    let given = Given::Set(set);
    let budget = Budget::default();
    let ground = (sources, &budget);
    let names = evaluate(&document.parameters, &given, &Names::default(), ground, problems);
    heads.extend(document.tests.iter().filter_map(|test| head(test, &names, ground)));
    let mut expansion = Expansion::new(registry, ground, document, problems);
    expansion.run(document, &names);
    let latency = expansion.latency;
    let (mut blocks, scopes, hosts) = (expansion.blocks, expansion.scopes, expansion.hosts);
    cross_checks::check_placement(&blocks, hosts.as_ref(), problems);
    cross_checks::named_twice(&blocks, problems);
    let (mut array_files, mut room) = (Vec::new(), Some(arrays::MAX_ALL_BYTES));
    for parameters in blocks.iter_mut().filter_map(|block| block.parameters.as_mut()) {
        array_files.extend(arrays::load(parameters, &mut room, access, problems));
    }
    frames::choose_frames(&mut blocks, access, problems);
    let feeds = Resolver::new(&blocks, &scopes, &budget, problems).run();
    let shadows: Vec<(usize, Node, Option<Node>)> = blocks
        .iter()
        .enumerate()
        .filter_map(|(index, block)| Some((index, block.shadow.clone()?, block.parameters.clone())))
        .collect();
    let planned = check::check(&blocks, &feeds, access, problems);
    for parameters in blocks.iter().filter_map(|block| block.parameters.as_ref()) {
        arrays::describe(parameters, problems);
    }
    cross_checks::claimed_twice(&planned, &blocks, problems);
    cross_checks::unknown_targets(&planned, &blocks, registry, problems);
    let tests = tests(document, &names, ground, (access, directory), problems);
    problems.extend(budget.problem());
    // A block may be missing because an expression failed; that error is already in `problems`.
    let blocks: Vec<PlannedBlock> = planned.into_iter().collect::<Option<_>>()?;
    let parameters = document.parameters.iter().map(|declared| {
        let name = &declared.key.text;
        let value = names.value(name);
        ParameterInfo {
            name: name.clone(),
            value: value.map_or(Json::Null, |value| to_value(value).to_json()),
            doc: declared.doc.clone(),
            is_set: set.iter().any(|set| set.name == *name),
        }
    });
    let mut plan = Plan {
        name: document.name.clone().unwrap_or_default(),
        doc: document.doc.clone(),
        parameters: parameters.collect(),
        blocks,
        hosts: hosts.map(Arc::new),
        tests: tests.into(),
        warnings: Arc::default(),
        config_hash: String::new(),
        text: FlowgraphText::default(),
        printed: Arc::default(),
        outline: OnceLock::new(),
        written: None,
        directory: PathBuf::new(),
        output_directory: PathBuf::new(),
        kernel_directory: None,
        build_progress: Arc::default(),
        tuning: Arc::default(),
        texts: FlowgraphTexts::default(),
        recorders: Recorders::default(),
        overloads: Overloads::default(),
        updates: LiveUpdates::default(),
        access: access.clone(),
        included: Arc::default(),
        array_files: array_files.into(),
    };
    seal(&mut plan);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        // Further diagnostics might be consequences of these errors.
        return None;
    }
    cross_checks::unread(&plan, registry, problems);
    frames::check_latency(&plan.blocks, latency, problems);
    cut::check(&plan, registry, problems);
    transfers::insert(&mut plan.blocks);
    for (index, shadow, in_force) in shadows {
        let in_force = in_force.unwrap_or_else(|| Node::new(Value::Null, shadow.span));
        plan.check_shadow(index, &shadow, in_force, registry, sources, problems);
    }
    // Other parameters may give fewer blocks; `fxgraph test` checks the ports of such tests when it runs them.
    if set.is_empty() {
        let as_written = plan.tests.iter().filter(|test| test.set.is_empty());
        // Only `SHOWN` diagnostics are printed, and each one searches all blocks.
        problems.extend(as_written.flat_map(|test| plan.check_taps(test)).take(SHOWN));
    }
    Some(plan)
}

/// Name and settings of a test, which are known even if the rest of the flowgraph has errors.
fn head(test: &Node, names: &Names, (sources, budget): (&Sources, &Budget)) -> Option<TestHead> {
    let mut said_elsewhere = Vec::new();
    let mut compute = |key: &str| {
        let (_, node) = test.entry(key)?;
        Substitution { names, sources, budget, problems: &mut said_elsewhere }.node(node)
    };
    let name = compute("name")?.text()?.to_owned();
    let set = compute("set").map(|node| expect::read::settings(&node, &mut Vec::new()));
    Some(TestHead { name, set: set.unwrap_or_default() })
}

fn tests(
    document: &Document,
    names: &Names,
    (sources, budget): (&Sources, &Budget),
    (access, directory): (&FileAccess, &Path),
    problems: &mut Vec<Diagnostic>,
) -> Vec<TestSpec> {
    let mut tests: Vec<TestSpec> = Vec::new();
    for node in &document.tests {
        let node = Substitution { names, sources, budget, problems }.node(node);
        let Some(test) = node.and_then(|node| expect::read::test(&node, problems)) else {
            continue;
        };
        if let Some(first) = tests.iter().find(|known| known.name == test.name) {
            let message = format!("the test `{}` is defined twice", test.name);
            problems.push(
                Diagnostic::error(codes::DOUBLED, test.span, message)
                    .label("again here")
                    .note(first.span, "first here"),
            );
        }
        for other in &test.alongside {
            let path = directory.join(&other.flowgraph);
            // Clients must not learn which files exist, and run no tests.
            if !access.is_limited() && !path.is_file() {
                let message = format!("cannot read `{}`: there is no such file", path.display());
                problems.push(
                    Diagnostic::error(codes::UNREADABLE, other.span, message)
                        .label("listed in `alongside`")
                        .help("give the path relative to this file"),
                );
            }
        }
        let declared: Vec<&str> = document.parameters.iter().map(|p| p.key.text.as_str()).collect();
        for Setting { name, .. } in test.set.iter().filter(|set| !declared.contains(&&*set.name)) {
            let message = format!("the test sets `{name}`, which is not a parameter");
            let help = suggest_after(problems, name, "parameter", &declared);
            problems.push(
                Diagnostic::error(codes::UNKNOWN_PARAMETER, test.span, message)
                    .label("in this test")
                    .maybe_help(help),
            );
        }
        tests.push(test);
    }
    tests
}
