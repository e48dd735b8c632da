//! Another form of one block of a flowgraph, in its place or beside it, checked as a file is.

use super::document::{Document, Entry, What, entry, map, unknown_key};
use super::expand::{Expansion, Instance};
use super::parse::parse;
use super::pending::Pending;
use super::place::Wanted;
use super::resolve::Feed;
use super::scope::{Budget, Names, to_scalar};
use super::{Plan, PlannedBlock, check, load, transfers};
use crate::OnFault;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Severity, Span, codes, suggest, tidy};
use fxgraph_core::kind::{CPU, KindEntry, PortNames, Registry};
use fxgraph_core::tree::{Key, Node, Value};

/// Keys of a block that may change while it runs.
const KEYS: [&str; 5] = ["kind", "parameters", "device", "implementation", "on_fault"];

/// What [`Plan::change`] found.
pub struct Changed {
    /// The change and what it is laid over, for [`render`](fxgraph_core::diagnostic::render()).
    pub sources: Sources,
    /// The plan with the change, or what is wrong with it, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
}

/// Puts another form of a block into a plan.
type Put = fn(&Plan, usize, PlannedBlock, Span, &mut Vec<Diagnostic>) -> Plan;

impl Plan {
    /// This plan with another form of the block `name`. `text` is YAML, which JSON is too, of those
    /// keys of the block that change: `kind`, `parameters`, `device`, `implementation`,
    /// `on_fault`. Parameters of the same kind go over those in force, one by one; nothing in place
    /// of a value takes the parameter back to its default. The ports must stay as they are.
    #[must_use]
    pub fn change(&self, name: &str, text: &str, registry: &Registry) -> Changed {
        self.with_form(name, text, registry, Self::exchanged)
    }

    /// This plan with another form of the block `name`, as for [`change`](Self::change), beside that
    /// block and on the same frames: block number `self.blocks.len()`. It may be on another device;
    /// its outputs must carry what those of the block carry, and nothing reads them.
    #[must_use]
    pub fn beside(&self, name: &str, text: &str, registry: &Registry) -> Changed {
        self.with_form(name, text, registry, Self::accompanied)
    }

    /// This plan with the form of the block `name` that `text` asks for, where `put` puts it.
    fn with_form(&self, name: &str, text: &str, registry: &Registry, put: Put) -> Changed {
        let mut sources = Sources::default();
        let file = sources.add(format!("change of {name}"), text);
        let mut problems = Vec::new();
        let start = Span { file, start: 0, end: 0 };
        let form = self.form(name, start, text, registry, &mut sources, &mut problems);
        let plan = form.map(|(index, new)| put(self, index, new, start, &mut problems));
        let problems = tidy(problems);
        let is_wrong = problems.iter().any(|problem| problem.severity == Severity::Error);
        let result = match plan {
            Some(plan) if !is_wrong => Ok(Plan { warnings: problems, ..plan }),
            _ => Err(problems),
        };
        Changed { sources, result }
    }

    /// The block `name` and the form of it that `text`, which begins at `start`, asks for.
    fn form(
        &self,
        name: &str,
        start: Span,
        text: &str,
        registry: &Registry,
        sources: &mut Sources,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<(usize, PlannedBlock)> {
        let Some(index) = self.block(name) else {
            let known: Vec<&str> = self.blocks.iter().map(|block| block.name.as_str()).collect();
            let message = format!("there is no block `{name}`");
            let problem = Diagnostic::nowhere(codes::UNKNOWN_BLOCK, message);
            problems.push(problem.maybe_help(suggest(name, "block", &known)));
            return None;
        };
        let block = &self.blocks[index];
        let Some(old_kind) = registry.get(block.kind) else {
            let message = format!("`{name}` is a copy between devices");
            let problem = Diagnostic::error(codes::CHANGE, start, message);
            problems.push(problem.help("it follows from where the blocks around it run"));
            return None;
        };
        let node = parse(start.file, text).map_err(|wrong| problems.extend(wrong)).ok()?;
        let in_force = block.parameters.to_string();
        let in_force_file = sources.add(format!("{name} as it runs"), &in_force);
        let in_force = parse(in_force_file, &in_force).ok()?;
        let entry = (index, old_kind);
        let new = self.with_entry(entry, node, in_force, registry, sources, problems)?;
        Some((index, new))
    }

    /// Complains if block `index` cannot have the shadow that `node` asks for; `in_force` are the
    /// parameters of the block.
    pub(super) fn check_shadow(
        &self,
        index: usize,
        node: &Node,
        in_force: Node,
        registry: &Registry,
        sources: &Sources,
        problems: &mut Vec<Diagnostic>,
    ) {
        let block = &self.blocks[index];
        let Some(kind) = registry.get(block.kind) else { return };
        let place = node.span;
        let refusal = |message: String, help: &str| {
            Diagnostic::error(codes::CHANGE, place, message).label("there can be none").help(help)
        };
        if block.inputs.is_empty() || block.ports.outputs.is_empty() {
            let message = format!("a shadow of `{}` has nothing to compare", block.name);
            return problems.push(refusal(message, "a shadow needs inputs and outputs"));
        }
        let start = Span { end: node.span.start, ..node.span };
        let new =
            self.with_entry((index, kind), node.clone(), in_force, registry, sources, problems);
        let Some(new) = new else { return };
        if new.device != block.device {
            let message = format!("the shadow of `{}` is on {}", block.name, new.device);
            let help = format!("a shadow gets the block's frames: run it on `{}`", block.device);
            problems.push(refusal(message, &help));
        }
        problems.extend(self.impossible_change(index, &new, start));
    }

    /// The block `index`, of `old_kind`, as `node` changes it.
    fn with_entry(
        &self,
        (index, old_kind): (usize, &KindEntry),
        node: Node,
        in_force: Node,
        registry: &Registry,
        sources: &Sources,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<PlannedBlock> {
        let block = &self.blocks[index];
        let name = block.name.as_str();
        let start = Span { end: node.span.start, ..node.span };
        let entry = given(block, node, problems);
        // What runs is computed already, and may hold what looks like an expression.
        let names = self.names();
        let (budget, empty) = (Budget::default(), Document::default());
        let mut expansion = Expansion::new(registry, (sources, &budget), &empty, problems);
        expansion.default_device = (Wanted::Device(block.device), None);
        let Some(What::Kind(kind_node)) = &entry.what else { return None };
        let kind = expansion.kind(kind_node, &names)?;
        let placement = expansion.place(&entry, &names, kind);
        let on_fault = expansion.on_fault(&entry, &names);
        let given = match &entry.parameters {
            Some((_, node)) => Some(expansion.compute(node, &names)?),
            None => None,
        };
        let parameters = match given {
            None if kind.name == old_kind.name => in_force,
            None => Node::new(Value::Map(Vec::new()), start),
            Some(given) if kind.name == old_kind.name => laid_over(in_force, given),
            Some(given) => given,
        };
        if !takes(kind.inputs, block.inputs.len()) {
            let count = block.inputs.len();
            let message =
                format!("`{}` cannot have the inputs of `{name}`: there are {count}", kind.name);
            problems.push(
                Diagnostic::error(codes::CHANGE, kind_node.span, message)
                    .label("this kind")
                    .help(format!("`fxgraph list {}` shows its inputs", kind.name)),
            );
            return None;
        }
        let owner = entry.parameters.as_ref().map_or(start, |(key, _)| key.span);
        let form = placement.map_or(CPU.name, |placement| placement.implementation);
        let read = match check::configure(kind, form, &parameters, owner, &self.access) {
            Ok(read) => read,
            Err(wrong) => {
                problems.extend(wrong);
                return None;
            }
        };
        let instance = Instance {
            name: name.to_owned(),
            kind,
            templates: block.templates.clone(),
            parameters: Some(parameters),
            owner,
            key: start,
            kind_span: start,
            inputs: None,
            scope: 0,
            thread: block.thread,
            queue: block.queue,
            placement: placement?,
            on_fault: on_fault?,
            shadow: None,
        };
        let feed = |&(block, port): &(usize, usize)| Feed { block, port, span: start };
        let feeds: Vec<Feed> = block.inputs.iter().map(feed).collect();
        let planned = |index: usize| self.blocks.get(index);
        let new = check::plan_block(&instance, read.as_ref(), &feeds, planned, &[], problems)?;
        problems.extend(check::impossible_policy(&instance, read.as_ref()));
        // Another kind has other parameters, which hold at once.
        let pending = if kind.name == old_kind.name {
            block.pending.of_form(block, &new, kind, &self.access)
        } else {
            Some(Pending::default())
        };
        let Some(pending) = pending else {
            let message = format!("`{name}` waits for values that do not fit this form of it");
            let help = "give the live parameters of which a change waits values of its own";
            problems.push(refusal(message, start, help));
            return None;
        };
        // The place in the file stays that of the block.
        Some(PlannedBlock { span: block.span, shadow: block.shadow.clone(), pending, ..new })
    }

    /// This plan with `new` in place of block `index`.
    fn exchanged(
        &self,
        index: usize,
        new: PlannedBlock,
        span: Span,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        problems.extend(self.impossible_change(index, &new, span));
        let mut plan = self.clone();
        plan.blocks[index] = new;
        load::seal(&mut plan);
        plan
    }

    /// This plan with `new` beside block `index`.
    fn accompanied(
        &self,
        index: usize,
        new: PlannedBlock,
        span: Span,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        let old = &self.blocks[index];
        if old.inputs.is_empty() || old.ports.outputs.is_empty() {
            let message = format!("a second form of `{}` has nothing to compare", old.name);
            let problem = Diagnostic::error(codes::CHANGE, span, message);
            problems.push(problem.label("beside it").help("it needs inputs and outputs"));
        }
        let help = "only frames of one type can be compared";
        problems.extend(other_outputs(old, &new, span, help));
        problems.extend(claimed_twice(self.blocks.iter(), &new, span));
        let mut plan = self.clone();
        // No block of a file can be called so: names have no spaces.
        plan.blocks.push(PlannedBlock { name: format!("{} (b)", old.name), shadow: None, ..new });
        transfers::feed(&mut plan.blocks, self.blocks.len());
        load::seal(&mut plan);
        plan
    }

    /// This plan with what `other` tells of the flowgraph as a whole: its text and its parameters.
    #[must_use]
    pub fn with_head_of(&self, other: &Self) -> Self {
        let (doc, parameters) = (other.doc.clone(), other.parameters.clone());
        let mut plan = Self { doc, parameters, written: other.written.clone(), ..self.clone() };
        load::seal(&mut plan);
        plan
    }

    /// The parameters of the flowgraph, for expressions.
    fn names(&self) -> Names {
        let mut names = Names::default();
        for parameter in &self.parameters {
            let node = parse(0, &parameter.value.to_string()).ok();
            names.set(&parameter.name, node.and_then(|node| to_scalar(&node)));
        }
        names
    }

    /// What is to be said if a running flowgraph cannot put `new` into the place of block `index`.
    fn impossible_change(&self, index: usize, new: &PlannedBlock, span: Span) -> Vec<Diagnostic> {
        let old = &self.blocks[index];
        let help = "what is behind it was built for what it carries now";
        let mut problems = other_outputs(old, new, span, help);
        let others = self.blocks.iter().enumerate().filter(|(other, _)| *other != index);
        problems.extend(claimed_twice(others.map(|(_, other)| other), new, span));
        problems
    }
}

const RESTART: &str = "stop the flowgraph and start it with the change";

fn refusal(message: String, span: Span, help: &str) -> Diagnostic {
    Diagnostic::error(codes::CHANGE, span, message).label("this change").help(help)
}

/// What is to be said if the outputs of `new` are not those of `old`; `help` if they carry something
/// else.
fn other_outputs(
    old: &PlannedBlock,
    new: &PlannedBlock,
    span: Span,
    help: &str,
) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    if new.ports.outputs.len() != old.ports.outputs.len() {
        let (from, to) = (old.ports.outputs.len(), new.ports.outputs.len());
        let message = format!("`{}` would have {to} outputs, not {from}", old.name);
        problems.push(refusal(message, span, RESTART));
    }
    let outputs = old.ports.outputs.iter().zip(&new.ports.outputs).zip(&old.output_names);
    for ((from, to), name) in outputs.filter(|((from, to), _)| !from.is_read_like(to)) {
        let message = format!("`{}.{name}` would carry {to}, not {from}", old.name);
        problems.push(refusal(message, span, help));
    }
    problems
}

/// What is to be said if `new` wants a socket or a file that one of `others` has.
fn claimed_twice<'a>(
    others: impl Iterator<Item = &'a PlannedBlock>,
    new: &PlannedBlock,
    span: Span,
) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for other in others {
        let shared = other.resources.binds.iter().find(|s| new.resources.binds.contains(s));
        if let Some(socket) = shared {
            let message = format!("`{}` binds {socket} already", other.name);
            problems.push(refusal(message, span, "give it its own"));
        }
        let shared = other.resources.writes.iter().find(|f| new.resources.writes.contains(f));
        if let Some(file) = shared {
            let message = format!("`{}` writes {} already", other.name, file.display());
            problems.push(refusal(message, span, "give it its own"));
        }
    }
    problems
}

/// Whether a block with these inputs can have `count` of them.
fn takes(inputs: PortNames, count: usize) -> bool {
    match inputs {
        PortNames::Fixed(names) => count == names.len(),
        PortNames::Optional { names, required } => (required..=names.len()).contains(&count),
        PortNames::Numbered(_) => count > 0,
    }
}

/// The entry that a change gives, with what it leaves out as it is.
fn given(block: &PlannedBlock, node: Node, problems: &mut Vec<Diagnostic>) -> Entry {
    let whole = Span { end: node.span.start, ..node.span };
    let mut entries = Vec::new();
    for (key, value) in map(&node, problems).to_vec() {
        if KEYS.contains(&key.text.as_str()) {
            entries.push((key, value));
        } else {
            let known = super::document::ENTRY_KEYS.contains(&key.text.as_str());
            problems.push(if known {
                let message = format!("`{}` cannot change while the flowgraph runs", key.text);
                Diagnostic::error(codes::CHANGE, key.span, message)
                    .label("not this")
                    .help("stop the flowgraph and start it with the change")
            } else {
                unknown_key(&key, &KEYS)
            });
        }
    }
    let gives = |entries: &[(Key, Node)], key: &str| entries.iter().any(|(k, _)| k.text == key);
    let has_kind = gives(&entries, "kind");
    let has_form = gives(&entries, "implementation") || gives(&entries, "device");
    let has_policy = gives(&entries, "on_fault");
    let text = |text: &str| Node::new(Value::Text(text.to_owned()), whole);
    let mut keep = |key: &str, value: &str| {
        entries.push((Key { text: key.to_owned(), span: whole }, text(value)));
    };
    if !has_kind {
        keep("kind", block.kind);
        if !has_form {
            keep("implementation", block.implementation);
        }
    }
    if !has_policy && block.on_fault != OnFault::Stop {
        keep("on_fault", block.on_fault.name());
    }
    let key = Key { text: block.name.clone(), span: whole };
    entry(&key, &Node::new(Value::Map(entries), node.span), problems)
}

/// `base` with the entries of `over`; nothing in place of a value takes the entry away.
pub(super) fn laid_over(base: Node, over: Node) -> Node {
    let (Value::Map(mut entries), Value::Map(changes)) = (base.value, over.value.clone()) else {
        return over;
    };
    for (key, node) in changes {
        // In its place: what becomes of a flowgraph does not depend on the order of its changes.
        let known = entries.iter().position(|(known, _)| known.text == key.text);
        match known {
            Some(place) if node.value == Value::Null => {
                entries.remove(place);
            }
            Some(place) => entries[place] = (key, node),
            None if node.value == Value::Null => {}
            None => entries.push((key, node)),
        }
    }
    Node::new(Value::Map(entries), over.span)
}
