//! Expansion of templates and `replicate`: from the entries of the file to single blocks.

use crate::language::expression::Scalar;
use crate::language::hosts::{Host, Hosts};
use crate::language::latency::{Latency, SourceFrame};
use crate::language::on_fault::OnFault;
use crate::language::parameters::{Given, evaluate};
use crate::language::place::{Placement, Wanted};
use crate::language::queue::{self, QueueLength};
use crate::language::scope::{Budget, Names, Substitution};
use crate::language::thread::Thread;
use crate::text::document::{Document, Entry, Template, What, map, wrong_type};
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::Sources;
use fxgraph_core::diagnostic::{Diagnostic, Span, build_with, codes, nearest, suggest_after};
use fxgraph_core::kind::{KindEntry, Registry};
use fxgraph_core::tree::{Key, Node, Value};

/// Limit of blocks and uses of templates in one flowgraph.
pub(crate) const MAX_BLOCKS: usize = 10_000;
/// Limit of the nesting of templates.
const MAX_TEMPLATES_DEEP: usize = 32;

/// One expanded block; its references are not resolved yet.
pub(crate) struct Instance<'r> {
    pub(crate) name: String,
    pub(crate) kind: &'r KindEntry,
    pub(crate) templates: Vec<(String, String)>,
    /// Parameters with computed expressions; `None` if an expression failed.
    pub(crate) parameters: Option<Node>,
    /// Place for errors about missing parameters: the key `parameters`, or the kind without that key.
    pub(crate) owner: Span,
    pub(crate) key: Span,
    pub(crate) kind_span: Span,
    /// References to the sources; their names are looked up in `scope`.
    pub(crate) inputs: Option<Vec<Node>>,
    pub(crate) scope: usize,
    pub(crate) thread: Thread,
    /// Length of its queues, and the place of `queue` in the file.
    pub(crate) queue: (QueueLength, Span),
    /// Value of `when_full`, if given, and its place in the file.
    pub(crate) when_full: Option<(queue::Given, Span)>,
    /// Latency target of the flowgraph, or its own.
    pub(crate) latency: Latency,
    /// Place of its own `latency_seconds`.
    pub(crate) own_latency: Option<Span>,
    /// Frame size, if it is a source in real time.
    pub(crate) frame: Option<SourceFrame>,
    pub(crate) placement: Placement,
    /// Fault policy, and its place in the file.
    pub(crate) on_fault: (OnFault, Span),
    /// Keys of the shadow that differ from the block.
    pub(crate) shadow: Option<Node>,
    /// Host that runs it, its own or that of the template's use.
    pub(crate) host: Option<Host>,
}

/// Meaning of a name in a scope: a block, or a use of a template.
#[derive(Clone, Copy)]
pub(crate) enum Item {
    Block(usize),
    Scope(usize),
}

/// All copies with one name.
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) copies: Vec<Item>,
    pub(crate) is_replicated: bool,
    /// Whether its expansion failed, which is already reported.
    pub(crate) is_broken: bool,
}

/// The flowgraph, or one use of a template.
pub(crate) struct Scope {
    pub(crate) parent: Option<usize>,
    /// Full name of the use, empty for the flowgraph.
    pub(crate) name: String,
    pub(crate) key: Span,
    pub(crate) inputs: Vec<Key>,
    /// References in the parent, one or more for each input.
    pub(crate) given: Option<Vec<Node>>,
    pub(crate) outputs: Vec<(Key, Option<Node>)>,
    pub(crate) members: Vec<Member>,
}

/// Expands a document.
pub(crate) struct Expansion<'a, 'r> {
    registry: &'r Registry,
    sources: &'a Sources,
    budget: &'a Budget,
    templates: &'a [Template],
    problems: &'a mut Vec<Diagnostic>,
    pub(crate) blocks: Vec<Instance<'r>>,
    pub(crate) scopes: Vec<Scope>,
    /// Device of blocks without `device`, and its place in the file.
    default_device: (Wanted, Option<Span>),
    pub(crate) latency: Latency,
    /// Classes of hosts, if the flowgraph has any.
    pub(crate) hosts: Option<Hosts>,
    /// Whether the file has the key `hosts`.
    has_hosts: bool,
    /// Host of the use of a template that is being expanded.
    host: Option<Host>,
    /// The flowgraph's own parameters, which every template sees in addition to its own.
    globals: Names,
    count: usize,
    /// Templates that are being expanded, outermost first.
    way: Vec<String>,
}

impl<'a, 'r> Expansion<'a, 'r> {
    pub(crate) fn new(
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
    pub(crate) fn run(&mut self, document: &Document, names: &Names) {
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
            && let Some(wanted) = Wanted::read(node, &mut self.values(names))
        {
            self.default_device = (wanted, Some(node.span));
        }
        let latency = document.latency_seconds.as_ref();
        if let Some(latency) = Latency::read(latency, &mut self.values(names)) {
            self.latency = latency;
        }
        self.hosts = Hosts::read(document, &mut self.values(names));
        self.has_hosts = document.hosts.is_some();
        self.entries(&document.blocks, 0, names, &[]);
    }

    /// Computes values with `names`.
    fn values<'s>(&'s mut self, names: &'s Names) -> Substitution<'s> {
        let (sources, budget) = (self.sources, self.budget);
        Substitution { names, sources, budget, problems: self.problems }
    }

    fn compute(&mut self, node: &Node, names: &Names) -> Option<Node> {
        self.values(names).node(node)
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
                names.set("index", Some(Scalar::Int(copy as i128)));
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
        let kind = kind(kind_node, self.registry, &mut self.values(names));
        let inputs = self.inputs(entry, names);
        let parameters = match &entry.parameters {
            Some((_, node)) => self.compute(node, names),
            None => Some(Node::new(Value::Map(Vec::new()), entry.key.span)),
        };
        let thread = Thread::read(entry, &mut self.values(names));
        let queue = QueueLength::read(entry, &mut self.values(names));
        let when_full = queue::Given::read(entry, &mut self.values(names));
        let own_latency = entry.latency_seconds.as_ref();
        let own_latency = Latency::read(own_latency, &mut self.values(names));
        let on_fault = OnFault::read(entry, &mut self.values(names));
        let shadow = entry.shadow.as_ref().and_then(|node| self.compute(node, names));
        let host = self.host(entry, names).or(self.host);
        let kind = kind?;
        let default = self.default_device;
        let placement = Placement::read(entry, kind, default, &mut self.values(names));
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

    fn host(&mut self, entry: &Entry, names: &Names) -> Option<Host> {
        let (sources, budget) = (self.sources, self.budget);
        let values = Substitution { names, sources, budget, problems: self.problems };
        Host::read(entry, (self.hosts.as_ref(), self.has_hosts), values)
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
        let host = self.host(entry, names).or(self.host);
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
            for (key, node) in map(node, self.problems) {
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

/// Returns the kind that `node` names.
pub(crate) fn kind<'r>(
    node: &Node,
    registry: &'r Registry,
    values: &mut Substitution<'_>,
) -> Option<&'r KindEntry> {
    let word = values.node(node)?;
    let word = word.value.plain();
    let kind = registry.get(&word);
    if kind.is_none() {
        let known: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
        let absent = registry.feature_of(&word);
        let help = match (absent, nearest(&word, known.iter().copied())) {
            (Some(feature), _) => build_with(feature),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => "see `fxgraph list` for all kinds".to_owned(),
        };
        let message = match absent {
            Some(feature) => {
                format!("this program was built without `{feature}`, which kind `{word}` needs")
            }
            None => format!("there is no kind `{word}`"),
        };
        values.problems.push(
            Diagnostic::error(codes::UNKNOWN_KIND, node.span, message)
                .label("no such kind")
                .help(help),
        );
    }
    kind
}
