//! Candidates: one block of a flowgraph with another kind, parameters or implementation, for a swap or a comparison.
//! They are checked like a file.

use crate::change::request::{Request, laid_over};
use crate::language::arrays;
use crate::language::expand::{Instance, kind};
use crate::language::expression::to_scalar;
use crate::language::latency::Latency;
use crate::language::on_fault::OnFault;
use crate::language::place::{Placement, Wanted};
use crate::language::resolve::Feed;
use crate::language::scope::{Budget, Names, Substitution};
use crate::plan::bands::seal;
use crate::plan::block::PlannedBlock;
use crate::plan::check;
use crate::plan::configure::configure;
use crate::plan::flowgraph::Plan;
use crate::plan::pending::Pending;
use crate::plan::transfers;
use crate::text::document::{ENTRY_KEYS, Entry, What, entry, map, unknown_key};
use crate::text::parse::parse;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Severity, Span, codes, suggest, tidy};
use fxgraph_core::kind::{CPU, KindEntry, PortNames, Registry};
use fxgraph_core::tree::{Key, Node, Value};
use std::sync::{Arc, OnceLock};

/// Keys of a block that a swap may change.
const KEYS: [&str; 5] = ["kind", "parameters", "device", "implementation", "on_fault"];

/// Result of [`Plan::change`].
pub struct Changed {
    /// Text of the change and of the running parameters, for [`render`](fxgraph_core::diagnostic::render()).
    pub sources: Sources,
    /// The plan with the change, or the diagnostics, sorted by place.
    pub result: Result<Plan, Vec<Diagnostic>>,
}

/// Puts a candidate into a plan.
type Put = fn(&Plan, usize, PlannedBlock, Span, &mut Vec<Diagnostic>) -> Plan;

impl Plan {
    /// This plan with a candidate in the slot of the block `name`. `request` has the keys of the block that
    /// change: `kind`, `parameters`, `device`, `implementation`, `on_fault`. If the kind stays, `parameters`
    /// replace those of the running block one by one, and an empty value restores the default. The ports must not
    /// change.
    #[must_use]
    pub fn change(&self, name: &str, request: impl Into<Request>, registry: &Registry) -> Changed {
        self.with_candidate(name, request.into(), registry, Self::swapped)
    }

    /// This plan with a second block that reads the same frames as the block `name`, for a comparison. `request` is that
    /// of [`change`](Self::change). The second block has index `self.blocks.len()`, may run on another device, must
    /// have the same output types, and has no readers.
    #[must_use]
    pub fn beside(&self, name: &str, request: impl Into<Request>, registry: &Registry) -> Changed {
        self.with_candidate(name, request.into(), registry, Self::accompanied)
    }

    /// This plan with the candidate for the block `name` that `request` describes, inserted by `put`.
    fn with_candidate(
        &self,
        name: &str,
        request: Request,
        registry: &Registry,
        put: Put,
    ) -> Changed {
        let (mut sources, request) = request.read_as(format!("change of {name}"));
        let mut problems = Vec::new();
        let start = Span { file: 0, start: 0, end: 0 };
        let candidate = self.candidate(name, start, request, registry, &mut sources, &mut problems);
        let plan = candidate.map(|(index, new)| put(self, index, new, start, &mut problems));
        let problems = tidy(problems);
        let is_wrong = problems.iter().any(|problem| problem.severity == Severity::Error);
        let result = match plan {
            Some(plan) if !is_wrong => Ok(Plan { warnings: problems.into(), ..plan }),
            _ => Err(problems),
        };
        Changed { sources, result }
    }

    /// Index of the block `name`, and the candidate that `request`, whose text begins at `start`, describes.
    fn candidate(
        &self,
        name: &str,
        start: Span,
        request: Result<Node, Vec<Diagnostic>>,
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
            let message = format!("`{name}` is an automatic copy between devices, not a block");
            let problem = Diagnostic::error(codes::CHANGE, start, message);
            problems.push(problem.help("name the block before or after the copy"));
            return None;
        };
        let node = request.map_err(|wrong| problems.extend(wrong)).ok()?;
        let in_force = block.parameters.to_string();
        let in_force_file = sources.add(format!("{name} as it runs"), &in_force);
        // Text that is too long to parse has no places.
        let in_force = parse(in_force_file, &in_force);
        let in_force = in_force.unwrap_or_else(|_| Node::of_json(&block.parameters, start));
        let entry = (index, old_kind);
        let new = self.with_entry(entry, node, in_force, registry, sources, problems)?;
        Some((index, new))
    }

    /// Reports errors in the shadow `node` of block `index`; `in_force` are the parameters of the block.
    pub(crate) fn check_shadow(
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
        let rejection = |message: String, help: &str| {
            Diagnostic::error(codes::CHANGE, place, message).label("invalid shadow").help(help)
        };
        if block.inputs.is_empty() || block.ports.outputs.is_empty() {
            let message = format!("`{}` must have inputs and outputs to have a shadow", block.name);
            return problems.push(rejection(message, "remove `shadow`"));
        }
        let start = Span { end: node.span.start, ..node.span };
        let new =
            self.with_entry((index, kind), node.clone(), in_force, registry, sources, problems);
        let Some(new) = new else { return };
        if new.device != block.device {
            let message = format!(
                "the shadow of `{}` must run on the device of its block, got {}",
                block.name, new.device
            );
            let help = format!("run the shadow on `{}`", block.device);
            problems.push(rejection(message, &help));
        }
        problems.extend(self.impossible_change(index, &new, start));
    }

    /// The candidate for block `index`, of `old_kind`, with the keys in `node`.
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
        // Running parameters are not evaluated again: they may contain a literal `${`.
        let names = self.names();
        let budget = Budget::default();
        let mut values = Substitution { names: &names, sources, budget: &budget, problems };
        let Some(What::Kind(kind_node)) = &entry.what else { return None };
        let kind = kind(kind_node, registry, &mut values)?;
        let default = (Wanted::Device(block.device), None);
        let placement = Placement::read(&entry, kind, default, &mut values);
        let on_fault = OnFault::read(&entry, &mut values);
        let given = match &entry.parameters {
            Some((_, node)) => {
                let mut given = values.node(node)?;
                let mut room = Some(arrays::MAX_ALL_BYTES);
                arrays::load(&mut given, &mut room, &self.access, values.problems);
                Some(given)
            }
            None => None,
        };
        let parameters = match given {
            None if kind.name == old_kind.name => in_force,
            None => Node::new(Value::Map(Vec::new()), start),
            Some(given) if kind.name == old_kind.name => laid_over(in_force, given, Some(kind)),
            Some(given) => given,
        };
        if !takes(kind.inputs, block.inputs.len()) {
            let count = block.inputs.len();
            let message =
                format!("`{}` must take as many inputs as `{name}`, which has {count}", kind.name);
            problems.push(
                Diagnostic::error(codes::CHANGE, kind_node.span, message)
                    .label("wrong number of inputs")
                    .help(format!("see `fxgraph list {}` for its inputs", kind.name)),
            );
            return None;
        }
        let owner = entry.parameters.as_ref().map_or(start, |(key, _)| key.span);
        let implementation = placement.map_or(CPU.name, |placement| placement.implementation);
        let read = match configure(kind, implementation, &parameters, owner, &self.access) {
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
            queue: (block.queue, start),
            when_full: None,
            latency: Latency::default(),
            own_latency: None,
            frame: block.frame.clone(),
            placement: placement?,
            on_fault: on_fault?,
            shadow: None,
            host: block.host,
        };
        let feed = |&(block, port): &(usize, usize)| Feed { block, port, span: start };
        let feeds: Vec<Feed> = block.inputs.iter().map(feed).collect();
        let planned = |index: usize| self.blocks.get(index);
        let new = check::plan_block(&instance, read.as_ref(), &feeds, planned, &[], problems)?;
        problems.extend(check::impossible_policy(&instance, read.as_ref()));
        // Another kind has other parameters; none of them is scheduled for later.
        let pending = if kind.name == old_kind.name {
            block.pending.of_version(block, &new, kind, &self.access)
        } else {
            Some(Pending::default())
        };
        let Some(pending) = pending else {
            let message = format!("the scheduled values of `{name}` do not fit the candidate");
            let help = "set the live parameters that are scheduled to change, too";
            problems.push(rejection(message, start, help));
            return None;
        };
        // Diagnostics keep the place of the block in the flowgraph file.
        let (shadow, when_full) = (block.shadow.clone(), block.when_full.clone());
        let mut new = new;
        (new.span, new.shadow, new.when_full, new.pending) =
            (block.span, shadow, when_full, pending);
        Some(new)
    }

    /// This plan with `new` in the slot of block `index`.
    fn swapped(
        &self,
        index: usize,
        new: PlannedBlock,
        span: Span,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        let impossible = self.impossible_change(index, &new, span);
        let mut plan = self.clone();
        // An impossible block may lack outputs that others read.
        if impossible.is_empty() {
            plan.blocks[index] = new;
            seal(&mut plan);
        }
        problems.extend(impossible);
        plan
    }

    /// This plan with `new` as a second block on the inputs of block `index`.
    fn accompanied(
        &self,
        index: usize,
        new: PlannedBlock,
        span: Span,
        problems: &mut Vec<Diagnostic>,
    ) -> Self {
        let old = &self.blocks[index];
        if old.inputs.is_empty() || old.ports.outputs.is_empty() {
            let message = format!("`{}` must have inputs and outputs to be compared", old.name);
            let problem = Diagnostic::error(codes::CHANGE, span, message);
            problems.push(problem.label("this comparison").help("compare another block"));
        }
        let help = "give parameters with which both blocks have the same output type";
        problems.extend(other_outputs(old, &new, span, help));
        problems.extend(claimed_twice(self.blocks.iter(), &new, span));
        let mut plan = Self { outline: OnceLock::new(), ..self.clone() };
        // Names in files have no spaces, so this name is free.
        let mut new = new;
        (new.name, new.shadow) = (format!("{} (b)", old.name), None);
        plan.blocks.push(new);
        transfers::feed(&mut plan.blocks, self.blocks.len());
        seal(&mut plan);
        plan
    }

    /// This plan with the description, the parameters and the text of the flowgraph `other`, and the actions of its
    /// queues when they are full.
    #[must_use]
    pub fn with_head_of(&self, other: &Self) -> Self {
        let (doc, parameters) = (other.doc.clone(), Arc::clone(&other.parameters));
        let (written, outline) = (other.written.clone(), OnceLock::new());
        let mut plan = Self { doc, parameters, outline, written, ..self.clone() };
        let by_name = other.by_name();
        for block in &mut plan.blocks {
            let new = by_name.get(&*block.name).map(|index| &other.blocks[*index].when_full);
            let is_other =
                |new: &&Vec<_>| new.len() == block.when_full.len() && **new != block.when_full;
            if let Some(new) = new.filter(is_other) {
                block.when_full.clone_from(new);
            }
        }
        seal(&mut plan);
        plan
    }

    /// Parameters of the flowgraph, for expressions.
    fn names(&self) -> Names {
        let mut names = Names::default();
        for parameter in self.parameters.iter() {
            let node = parse(0, &parameter.value.to_string()).ok();
            names.set(&parameter.name, node.and_then(|node| to_scalar(&node)));
        }
        names
    }

    /// Diagnostics that prevent a swap of block `index` for `new` in a running flowgraph.
    fn impossible_change(&self, index: usize, new: &PlannedBlock, span: Span) -> Vec<Diagnostic> {
        let old = &self.blocks[index];
        let help =
            "the new block must have the same output type; restart the flowgraph to change it";
        let mut problems = other_outputs(old, new, span, help);
        let others = self.blocks.iter().enumerate().filter(|(other, _)| *other != index);
        problems.extend(claimed_twice(others.map(|(_, other)| other), new, span));
        if problems.is_empty() {
            problems.extend(self.unfollowed_swap(index, new, span));
        }
        problems
    }
}

const RESTART: &str = "stop the flowgraph and start it with the change";

fn rejection(message: String, span: Span, help: &str) -> Diagnostic {
    Diagnostic::error(codes::CHANGE, span, message).label("this change").help(help)
}

/// Diagnostics for outputs of `new` that differ from those of `old`; `help` is for outputs of another type.
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
        problems.push(rejection(message, span, RESTART));
    }
    let outputs = old.ports.outputs.iter().zip(&new.ports.outputs).zip(&old.output_names);
    for ((from, to), name) in outputs.filter(|((from, to), _)| !from.is_read_like(to)) {
        let message = format!("`{}.{name}` would carry {to}, not {from}", old.name);
        problems.push(rejection(message, span, help));
    }
    problems
}

/// Diagnostics for sockets and files of `new` that one of `others` uses.
fn claimed_twice<'a>(
    others: impl Iterator<Item = &'a PlannedBlock>,
    new: &PlannedBlock,
    span: Span,
) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for other in others {
        let shared = other.resources.binds.iter().find(|s| new.resources.binds.contains(s));
        if let Some(socket) = shared {
            let message = format!("`{}` already binds {socket}", other.name);
            problems.push(rejection(message, span, "give the candidate its own socket"));
        }
        let shared = other.resources.writes.iter().find(|f| new.resources.writes.contains(f));
        if let Some(file) = shared {
            let message = format!("`{}` already writes {}", other.name, file.display());
            problems.push(rejection(message, span, "give the candidate its own file"));
        }
    }
    problems
}

/// Whether a block with these inputs can have `count` connections.
fn takes(inputs: PortNames, count: usize) -> bool {
    match inputs {
        PortNames::Fixed(names) => count == names.len(),
        PortNames::Optional { names, required } => (required..=names.len()).contains(&count),
        PortNames::Numbered(_) => count > 0,
    }
}

/// Block entry of a change; keys that the change leaves out are those of the running block.
fn given(block: &PlannedBlock, node: Node, problems: &mut Vec<Diagnostic>) -> Entry {
    let whole = Span { end: node.span.start, ..node.span };
    let mut entries = Vec::new();
    for (key, value) in map(&node, problems).to_vec() {
        if KEYS.contains(&key.text.as_str()) {
            entries.push((key, value));
        } else {
            let known = ENTRY_KEYS.contains(&key.text.as_str());
            problems.push(if key.text == "when_full" {
                let message = format!("`{}` is no part of a swap", key.text);
                Diagnostic::error(codes::CHANGE, key.span, message)
                    .label("belongs to the queue, not to the block")
                    .help("change it with the whole flowgraph: `PUT /api/v1/flowgraph`, or `Update` in the browser")
            } else if known {
                let message = format!("`{}` cannot change while the flowgraph runs", key.text);
                Diagnostic::error(codes::CHANGE, key.span, message)
                    .label("fixed while running")
                    .help("stop the flowgraph and start it with the change")
            } else {
                unknown_key(&key, &KEYS)
            });
        }
    }
    let gives = |entries: &[(Key, Node)], key: &str| entries.iter().any(|(k, _)| k.text == key);
    let has_kind = gives(&entries, "kind");
    let has_implementation = gives(&entries, "implementation") || gives(&entries, "device");
    let has_policy = gives(&entries, "on_fault");
    let text = |text: &str| Node::new(Value::Text(text.to_owned()), whole);
    let mut keep = |key: &str, value: &str| {
        entries.push((Key { text: key.to_owned(), span: whole }, text(value)));
    };
    if !has_kind {
        keep("kind", block.kind);
        if !has_implementation {
            keep("implementation", block.implementation);
        }
    }
    if !has_policy && block.on_fault != OnFault::Stop {
        keep("on_fault", block.on_fault.name());
    }
    let key = Key { text: block.name.clone(), span: whole };
    entry(&key, &Node::new(Value::Map(entries), node.span), problems)
}
