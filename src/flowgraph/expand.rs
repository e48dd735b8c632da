//! Expansion of templates and `replicate`: from the entries of the file to single blocks.

use super::Sources;
use super::document::{Document, Entry, Template, What, wrong_type};
use super::hosts::{Host, Hosts};
use super::latency::{Latency, SourceFrame};
use super::parameters::{Given, evaluate};
use super::place::{Placement, Wanted};
use super::queue::{self, QueueLength};
use super::scope::{Budget, Names, Substitution};
use crate::{OnFault, Thread};
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, nearest, suggest_after};
use fxgraph_core::kind::{KindEntry, Registry};
use fxgraph_core::tree::{Key, Node, Value};

/// Limit of blocks and uses of templates in one flowgraph.
pub(super) const MAX_BLOCKS: usize = 10_000;
/// Limit of the nesting of templates.
const MAX_TEMPLATES_DEEP: usize = 32;

/// One expanded block; its references are not resolved yet.
pub(super) struct Instance<'r> {
    pub(super) name: String,
    pub(super) kind: &'r KindEntry,
    pub(super) templates: Vec<(String, String)>,
    /// Parameters with computed expressions; `None` if an expression failed.
    pub(super) parameters: Option<Node>,
    /// Place for errors about missing parameters: the key `parameters`, or the kind without that key.
    pub(super) owner: Span,
    pub(super) key: Span,
    pub(super) kind_span: Span,
    /// References to the sources; their names are looked up in `scope`.
    pub(super) inputs: Option<Vec<Node>>,
    pub(super) scope: usize,
    pub(super) thread: Thread,
    /// Length of its queues, and the place of `queue` in the file.
    pub(super) queue: (QueueLength, Span),
    /// Value of `when_full`, if given, and its place in the file.
    pub(super) when_full: Option<(queue::Given, Span)>,
    /// Latency target of the flowgraph, or its own.
    pub(super) latency: Latency,
    /// Place of its own `latency_seconds`.
    pub(super) own_latency: Option<Span>,
    /// Frame size, if it is a source in real time.
    pub(super) frame: Option<SourceFrame>,
    pub(super) placement: Placement,
    /// Fault policy, and its place in the file.
    pub(super) on_fault: (OnFault, Span),
    /// Keys of the shadow that differ from the block.
    pub(super) shadow: Option<Node>,
    /// Host that runs it, its own or that of the template's use.
    pub(super) host: Option<Host>,
}

/// Meaning of a name in a scope: a block, or a use of a template.
#[derive(Clone, Copy)]
pub(super) enum Item {
    Block(usize),
    Scope(usize),
}

/// All copies with one name.
pub(super) struct Member {
    pub(super) key: Key,
    pub(super) copies: Vec<Item>,
    pub(super) is_replicated: bool,
    /// Whether its expansion failed, which is already reported.
    pub(super) is_broken: bool,
}

/// The flowgraph, or one use of a template.
pub(super) struct Scope {
    pub(super) parent: Option<usize>,
    /// Full name of the use, empty for the flowgraph.
    pub(super) name: String,
    pub(super) key: Span,
    pub(super) inputs: Vec<Key>,
    /// References in the parent, one or more for each input.
    pub(super) given: Option<Vec<Node>>,
    pub(super) outputs: Vec<(Key, Option<Node>)>,
    pub(super) members: Vec<Member>,
}

/// Expands a document.
pub(super) struct Expansion<'a, 'r> {
    pub(super) registry: &'r Registry,
    pub(super) sources: &'a Sources,
    pub(super) budget: &'a Budget,
    pub(super) templates: &'a [Template],
    pub(super) problems: &'a mut Vec<Diagnostic>,
    pub(super) blocks: Vec<Instance<'r>>,
    pub(super) scopes: Vec<Scope>,
    /// Device of blocks without `device`, and its place in the file.
    pub(super) default_device: (Wanted, Option<Span>),
    pub(super) latency: Latency,
    /// Classes of hosts, if the flowgraph has any.
    pub(super) hosts: Option<Hosts>,
    /// Whether the file has the key `hosts`.
    pub(super) has_hosts: bool,
    /// Host of the use of a template that is being expanded.
    host: Option<Host>,
    /// The flowgraph's own parameters, which every template sees in addition to its own.
    globals: Names,
    count: usize,
    /// Templates that are being expanded, outermost first.
    way: Vec<String>,
}

impl<'a, 'r> Expansion<'a, 'r> {
    pub(super) fn new(
        registry: &'r Registry,
        (sources, budget): (&'a Sources, &'a Budget),
        document: &'a Document,
        problems: &'a mut Vec<Diagnostic>,
    ) -> Self {
        Self {
            registry,
            sources,
            budget,
            templates: &document.templates,
            problems,
            blocks: Vec::new(),
            scopes: Vec::new(),
            default_device: (Wanted::Device(DeviceName::Cpu), None),
            latency: Latency::default(),
            hosts: None,
            has_hosts: false,
            host: None,
            globals: Names::default(),
            count: 0,
            way: Vec::new(),
        }
    }

    /// Expands the flowgraph itself.
    pub(super) fn run(&mut self, document: &Document, names: &Names) {
        self.scopes.push(Scope {
            parent: None,
            name: String::new(),
            key: Span::default(),
            inputs: Vec::new(),
            given: None,
            outputs: Vec::new(),
            members: Vec::new(),
        });
        self.globals = names.clone();
        if let Some(node) = &document.device
            && let Some(wanted) = self.device(node, names)
        {
            self.default_device = (wanted, Some(node.span));
        }
        if let Some(latency) = self.latency(document.latency_seconds.as_ref(), names) {
            self.latency = latency;
        }
        self.hosts = self.read_hosts(document, names);
        self.entries(&document.blocks, 0, names, &[]);
    }

    pub(super) fn compute(&mut self, node: &Node, names: &Names) -> Option<Node> {
        let (sources, budget) = (self.sources, self.budget);
        Substitution { names, sources, budget, problems: self.problems }.node(node)
    }

    fn entries(
        &mut self,
        entries: &[Entry],
        scope: usize,
        names: &Names,
        templates: &[(String, String)],
    ) {
        for entry in entries {
            let member = self.member(entry, scope, names, templates);
            self.scopes[scope].members.push(member);
        }
    }

    fn member(
        &mut self,
        entry: &Entry,
        scope: usize,
        names: &Names,
        templates: &[(String, String)],
    ) -> Member {
        let mut member = Member {
            key: entry.key.clone(),
            copies: Vec::new(),
            is_replicated: entry.replicate.is_some(),
            is_broken: entry.what.is_none(),
        };
        let count = match &entry.replicate {
            None => Some(1),
            Some(node) => self.replicate(node, names),
        };
        let Some(count) = count else {
            member.is_broken = true;
            return member;
        };
        let local = match &self.scopes[scope].name {
            outer if outer.is_empty() => entry.key.text.clone(),
            outer => format!("{outer}.{}", entry.key.text),
        };
        for copy in 0..count {
            self.count += 1;
            if self.count > MAX_BLOCKS {
                if self.count == MAX_BLOCKS + 1 {
                    let message = format!("a flowgraph must have at most {MAX_BLOCKS} blocks");
                    self.problems.push(Diagnostic::error(codes::LIMIT, entry.key.span, message));
                }
                member.is_broken = true;
                break;
            }
            let outer: usize = templates.iter().map(|(name, word)| name.len() + word.len()).sum();
            if !self.budget.take_text(local.len() + outer, entry.key.span) {
                member.is_broken = true;
                break;
            }
            let mut names = names.clone();
            let name = if member.is_replicated {
                names.set("index", Some(super::expression::Scalar::Int(copy as i128)));
                format!("{local}[{copy}]")
            } else {
                local.clone()
            };
            let item = match &entry.what {
                Some(What::Kind(kind)) => self.block(entry, kind, name, scope, &names, templates),
                Some(What::Template(template)) => {
                    self.template(entry, template, name, scope, &names, templates)
                }
                None => None,
            };
            match item {
                Some(item) => member.copies.push(item),
                None => member.is_broken = true,
            }
        }
        member
    }

    fn replicate(&mut self, node: &Node, names: &Names) -> Option<usize> {
        let value = self.compute(node, names)?;
        match value.value.whole() {
            Some(count) if (1..=MAX_BLOCKS as i128).contains(&count) => Some(count as usize),
            _ => {
                let message = format!(
                    "`replicate` must be an integer from 1 to {MAX_BLOCKS}, found {}",
                    value.value.quoted()
                );
                self.problems.push(
                    Diagnostic::error(codes::REPLICATE, node.span, message)
                        .label("invalid count")
                        .help("write an integer or an expression, for example `\"${antennas}\"`"),
                );
                None
            }
        }
    }

    fn inputs(&mut self, entry: &Entry, names: &Names) -> Option<Vec<Node>> {
        if entry.has_wrong_inputs {
            return None;
        }
        let Some((_, nodes)) = &entry.inputs else { return Some(Vec::new()) };
        let mut all = Some(Vec::new());
        for node in nodes {
            let reference = self.reference(node, names);
            all = all.zip(reference).map(|(mut all, reference)| {
                all.push(reference);
                all
            });
        }
        all
    }

    fn reference(&mut self, node: &Node, names: &Names) -> Option<Node> {
        let computed = self.compute(node, names)?;
        if computed.text().is_none() {
            self.problems.push(wrong_type(node, "a reference like `block` or `block.port`"));
            return None;
        }
        Some(computed)
    }

    fn block(
        &mut self,
        entry: &Entry,
        kind_node: &Node,
        name: String,
        scope: usize,
        names: &Names,
        templates: &[(String, String)],
    ) -> Option<Item> {
        let kind = self.kind(kind_node, names);
        let inputs = self.inputs(entry, names);
        let parameters = match &entry.parameters {
            Some((_, node)) => self.compute(node, names),
            None => Some(Node::new(Value::Map(Vec::new()), entry.key.span)),
        };
        let thread = self.thread(entry, names);
        let queue = self.queue(entry, names);
        let when_full = self.when_full(entry, names);
        let own_latency = self.latency(entry.latency_seconds.as_ref(), names);
        let on_fault = self.on_fault(entry, names);
        let shadow = entry.shadow.as_ref().and_then(|node| self.compute(node, names));
        let host = self.host_of(entry, names).or(self.host);
        let kind = kind?;
        let placement = self.place(entry, names, kind);
        // Continue with default values after an error in `thread` and the like, to find further errors.
        self.blocks.push(Instance {
            name,
            kind,
            templates: templates.to_vec(),
            parameters,
            owner: entry.parameters.as_ref().map_or(kind_node.span, |(key, _)| key.span),
            key: entry.key.span,
            kind_span: kind_node.span,
            inputs,
            scope,
            thread: thread.unwrap_or_default(),
            queue: queue.unwrap_or((QueueLength::default(), entry.key.span)),
            when_full,
            latency: own_latency.unwrap_or(self.latency),
            own_latency: own_latency.and_then(|latency| latency.span),
            frame: None,
            placement: placement.unwrap_or_default(),
            on_fault: on_fault.unwrap_or_default(),
            shadow,
            host,
        });
        Some(Item::Block(self.blocks.len() - 1))
    }

    /// Returns the kind that `kind: ...` names.
    pub(super) fn kind(&mut self, node: &Node, names: &Names) -> Option<&'r KindEntry> {
        let word = self.compute(node, names)?;
        let word = word.value.plain();
        let kind = self.registry.get(&word);
        if kind.is_none() {
            let known: Vec<&str> = self.registry.iter().map(|kind| kind.name).collect();
            let absent = self.registry.feature_of(&word);
            let help = match (absent, nearest(&word, known.iter().copied())) {
                (Some(feature), _) => format!("build fxgraph with `--features {feature}`"),
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) => "see `fxgraph list` for all kinds".to_owned(),
            };
            let message = match absent {
                Some(feature) => {
                    format!("this program was built without `{feature}`, which kind `{word}` needs")
                }
                None => format!("there is no kind `{word}`"),
            };
            self.problems.push(
                Diagnostic::error(codes::UNKNOWN_KIND, node.span, message)
                    .label("no such kind")
                    .help(help),
            );
        }
        kind
    }

    fn thread(&mut self, entry: &Entry, names: &Names) -> Option<Thread> {
        let Some(node) = &entry.thread else { return Some(Thread::Shared) };
        let value = self.compute(node, names)?;
        match &value.value {
            Value::Text(word) if word == "shared" => return Some(Thread::Shared),
            Value::Text(word) if word == "own" => return Some(Thread::Own { core: None }),
            Value::Map(entries) if entries.len() == 1 && entries[0].0.text == "core" => {
                if let Some(core @ 0..=4095) = entries[0].1.value.whole() {
                    return Some(Thread::Own { core: Some(core as usize) });
                }
            }
            _ => {}
        }
        self.problems.push(wrong_type(node, "`shared`, `own` or `{core: N}`"));
        None
    }

    /// Value of `latency_seconds`, if it is given and has no error.
    fn latency(&mut self, node: Option<&Node>, names: &Names) -> Option<Latency> {
        let node = node?;
        let value = self.compute(node, names)?.value;
        Latency::read(&Node::new(value, node.span), self.problems)
    }

    pub(super) fn on_fault(&mut self, entry: &Entry, names: &Names) -> Option<(OnFault, Span)> {
        let Some(node) = &entry.on_fault else { return Some((OnFault::Stop, entry.key.span)) };
        let value = self.compute(node, names)?;
        let found = OnFault::ALL.into_iter().find(|policy| value.text() == Some(policy.name()));
        if found.is_none() {
            let wrong = Node::new(value.value, node.span);
            self.problems.push(wrong_type(&wrong, "`stop`, `restart` or `skip`"));
        }
        Some((found?, node.span))
    }

    fn template(
        &mut self,
        entry: &Entry,
        node: &Node,
        name: String,
        scope: usize,
        names: &Names,
        templates: &[(String, String)],
    ) -> Option<Item> {
        let word = self.compute(node, names)?.value.plain();
        let Some(template) = self.templates.iter().find(|t| t.key.text == word) else {
            let known: Vec<&str> = self.templates.iter().map(|t| t.key.text.as_str()).collect();
            let help = suggest_after(self.problems, &word, "template", &known)
                .or_else(|| Some("this flowgraph has no templates".to_owned()));
            self.problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_TEMPLATE,
                    node.span,
                    format!("there is no template `{word}`"),
                )
                .label("no such template")
                .maybe_help(help),
            );
            return None;
        };
        if self.way.contains(&word) {
            self.problems.push(
                Diagnostic::error(
                    codes::TEMPLATE_CYCLE,
                    node.span,
                    format!("the template `{word}` contains itself"),
                )
                .label("closes the cycle")
                .note(template.key.span, "defined here"),
            );
            return None;
        }
        if self.way.len() >= MAX_TEMPLATES_DEEP {
            let message = format!("templates must be nested at most {MAX_TEMPLATES_DEEP} deep");
            self.problems.push(Diagnostic::error(codes::LIMIT, node.span, message));
            return None;
        }
        let given = self.inputs(entry, names);
        let values = self.template_parameters(entry, template, names);
        let host = self.host_of(entry, names).or(self.host);
        self.scopes.push(Scope {
            parent: Some(scope),
            name: name.clone(),
            key: entry.key.span,
            inputs: template.inputs.clone(),
            given,
            outputs: Vec::new(),
            members: Vec::new(),
        });
        let inner = self.scopes.len() - 1;
        let outputs = template
            .outputs
            .iter()
            .map(|(key, node)| (key.clone(), self.reference(node, &values)))
            .collect();
        self.scopes[inner].outputs = outputs;
        let mut path = templates.to_vec();
        path.push((name, word.clone()));
        self.way.push(word);
        let outer = std::mem::replace(&mut self.host, host);
        self.entries(&template.blocks, inner, &values, &path);
        self.host = outer;
        self.way.pop();
        Some(Item::Scope(inner))
    }

    /// Names that the blocks of a template see: the flowgraph's parameters, the template's own, and
    /// `index`.
    fn template_parameters(&mut self, entry: &Entry, template: &Template, names: &Names) -> Names {
        let mut given = Vec::new();
        if let Some((_, node)) = &entry.parameters {
            for (key, node) in super::document::map(node, self.problems) {
                given.push((key.clone(), self.compute(node, names)));
            }
        }
        let place = entry.parameters.as_ref().map_or(entry.key.span, |(key, _)| key.span);
        let given = Given::Entries(&given, place);
        let mut outer = self.globals.clone();
        outer.take_over("index", names);
        let ground = (self.sources, self.budget);
        evaluate(&template.parameters, &given, &outer, ground, self.problems)
    }
}
