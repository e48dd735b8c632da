//! Loads a flowgraph: all steps from the text to a checked plan, in order.

use super::document::{Document, doubled};
use super::expand::{Expansion, Instance};
use super::expect::{TestHead, TestSpec};
use super::parameters::{Given, Setting, evaluate, note_set};
use super::plan::{ParameterInfo, Plan, Planned, PlannedBlock};
use super::resolve::Resolver;
use super::scope::{Budget, Names, Substitution, to_value};
use super::{Loaded, arrays, check, cut, expect, hosts, include, latency, targets, transfers};
use fxgraph_core::access::{self, FileAccess};
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, SHOWN, Severity, Span, codes, suggest_after, tidy};
use fxgraph_core::files::open_regular;
use fxgraph_core::flowgraph_texts::{FlowgraphText, FlowgraphTexts};
use fxgraph_core::live_updates::LiveUpdates;
use fxgraph_core::overload::Overloads;
use fxgraph_core::recorders::Recorders;
use fxgraph_core::tree::{Key, Node, Value};
use fxgraph_core::{Registry, Resources};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Reads, expands and checks the flowgraph at `path`; `set` overrides its parameters.
#[must_use]
pub fn load(path: &Path, set: &[Setting], registry: &Registry) -> Loaded {
    load_read(path, include::read(open_regular(path)), set, registry)
}

/// [`load`] of standard input. `bytes` is the text read from standard input, at most one byte more than
/// [`MAX_BYTES`](super::MAX_BYTES). Included paths are relative to the working directory.
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
            plan.warnings = problems;
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
    hosts::check_placement(&blocks, hosts.as_ref(), problems);
    named_twice(&blocks, problems);
    let mut array_files = Vec::new();
    for parameters in blocks.iter_mut().filter_map(|block| block.parameters.as_mut()) {
        array_files.extend(arrays::load(parameters, access, problems));
    }
    latency::choose_frames(&mut blocks, access, problems);
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
    claimed_twice(&planned, &blocks, problems);
    targets::unknown(&planned, &blocks, registry, problems);
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
        hosts,
        tests,
        warnings: Vec::new(),
        config_hash: String::new(),
        text: FlowgraphText::default(),
        printed: Arc::default(),
        head: OnceLock::new(),
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
        included: Vec::new(),
        array_files,
    };
    seal(&mut plan);
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        // Further diagnostics might be consequences of these errors.
        return None;
    }
    unread(&plan, problems);
    latency::check_latency(&plan.blocks, latency, problems);
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

/// Reports blocks whose name in the file equals the full name of a block from a template or `replicate`.
fn named_twice(instances: &[Instance<'_>], problems: &mut Vec<Diagnostic>) {
    let mut seen = HashMap::new();
    for block in instances {
        if let Some(first) = seen.insert(&block.name, block.key) {
            let key = Key { text: block.name.clone(), span: block.key };
            problems.push(doubled("block", &key, first));
        }
    }
}

/// Reports sockets and files that two blocks use.
fn claimed_twice(
    planned: &[Option<PlannedBlock>],
    instances: &[Instance<'_>],
    problems: &mut Vec<Diagnostic>,
) {
    let mut seen: HashMap<(&str, String), usize> = HashMap::new();
    for (index, block) in planned.iter().enumerate() {
        let Some(Resources { binds, writes, .. }) = block.as_ref().map(|block| &block.resources)
        else {
            continue;
        };
        let sockets = binds.iter().map(|socket| ("binds", socket.clone()));
        let files = writes.iter().map(|path| ("writes", plain(path).display().to_string()));
        for (verb, name) in sockets.chain(files) {
            let Some(first) = seen.get(&(verb, name.clone())) else {
                seen.insert((verb, name), index);
                continue;
            };
            let (one, two) = (&instances[*first], &instances[index]);
            let (code, both, help) = match verb {
                "binds" => (codes::BOUND_TWICE, "bind", "give each its own port or address"),
                _ => (codes::WRITTEN_TWICE, "write", "give each its own path"),
            };
            let message = if *first == index {
                format!("`{}` {verb} {name} twice", two.name)
            } else {
                format!("`{}` and `{}` both {both} {name}", one.name, two.name)
            };
            let mut problem = Diagnostic::error(code, two.key, message)
                .label(format!("{verb} it again"))
                .help(help);
            if one.key != two.key {
                problem = problem.note(one.key, format!("{verb} it first"));
            }
            problems.push(problem);
        }
    }
}

/// `path` without `.` and empty components: `./out//a` is `out/a`.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|step| *step != Component::CurDir).collect()
}

fn unread(plan: &Plan, problems: &mut Vec<Diagnostic>) {
    let mut is_read: Vec<Vec<bool>> =
        plan.blocks.iter().map(|block| vec![false; block.ports.outputs.len()]).collect();
    for (source, port) in plan.blocks.iter().flat_map(|block| &block.inputs) {
        is_read[*source][*port] = true;
    }
    for (block, is_read) in plan.blocks.iter().zip(is_read) {
        for (port, _) in is_read.iter().enumerate().filter(|(_, is_read)| !**is_read) {
            let message = format!(
                "output `{}` of `{}` is not connected",
                block.output_names[port], block.kind
            );
            let mut problem = Diagnostic::warning(codes::UNREAD_OUTPUT, block.span, message)
                .label("its data is discarded")
                .help("connect it to a `null_sink` if this is intended");
            problem.blocks.push(block.name.clone());
            problems.push(problem);
        }
    }
}

/// Updates bands and identity of `plan` after a change.
pub(super) fn seal(plan: &mut Plan) {
    carry_bands(&mut plan.blocks);
    plan.identify();
}

/// Propagates bands along the edges, after a block's parameters and with them its output band changed.
fn carry_bands(blocks: &mut [PlannedBlock]) {
    // One pass is enough unless a block comes before its source in the list.
    for _ in 0..blocks.len() {
        let mut is_settled = true;
        for index in 0..blocks.len() {
            for input in 0..blocks[index].inputs.len() {
                let (from, port) = blocks[index].inputs[input];
                let band = blocks[from].ports.outputs[port].band;
                if blocks[index].ports.inputs[input].band != band {
                    is_settled = false;
                    blocks[index].ports.inputs[input].band = band;
                    carry_band(&mut blocks[index]);
                }
            }
        }
        if is_settled {
            return;
        }
    }
}

/// Gives the outputs of a block the bands that follow from its inputs.
fn carry_band(block: &mut Planned) {
    // Inputs that do not fit each other yet may fit once the next one has changed.
    let Ok(configured) = block.configured.connect(&block.ports.inputs) else { return };
    for (port, other) in block.ports.outputs.iter_mut().zip(&configured.ports().outputs) {
        if port.is_read_like(other) && other.impossible().is_none() {
            port.band = other.band;
        }
    }
    block.configured = configured;
    block.pending.connect(&block.ports.inputs);
}

/// Values of the flowgraph's parameters, as in a file.
pub(super) fn resolved_parameters(plan: &Plan) -> Json {
    let value = |parameter: &ParameterInfo| match plainly(&parameter.value) {
        // A bare mapping would be read as a declaration with `default`, `minimum`, ...
        mapping @ Json::Object(_) => json!({ "default": mapping }),
        other => other,
    };
    Json::Object(plan.parameters.iter().map(|p| (p.name.clone(), value(p))).collect())
}

/// `value` with `${` escaped in all texts, so that none is read as an expression.
pub(super) fn plainly(value: &Json) -> Json {
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
