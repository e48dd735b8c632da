//! Resolves references to blocks and ports.

use crate::language::expand::{Instance, Item, Member, Scope};
use crate::language::scope::Budget;
use crate::text::document::is_name;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest, suggest_after};
use fxgraph_core::kind::PortNames;
use fxgraph_core::steps::step;
use fxgraph_core::tree::Node;
use std::collections::HashMap;

/// An output that feeds an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Feed {
    pub(crate) block: usize,
    pub(crate) port: usize,
    /// Place of the reference in the block that reads.
    pub(crate) span: Span,
}

/// A parsed reference: `name`, `name[3]` or `name[*]`, with or without `.port`.
struct Reference<'t> {
    name: &'t str,
    index: Option<Index>,
    port: Option<&'t str>,
}

#[derive(Clone, Copy)]
enum Index {
    All,
    One(usize),
}

fn parse(text: &str) -> Option<Reference<'_>> {
    let (block, port) = match text.split_once('.') {
        Some((block, port)) => (block, Some(port)),
        None => (text, None),
    };
    let (name, index) = match block.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((name, "*")) => (name, Some(Index::All)),
        Some((name, digits)) => (name, Some(Index::One(digits.parse().ok()?))),
        None => (block, None),
    };
    (is_name(name) && port.is_none_or(is_name)).then_some(Reference { name, index, port })
}

/// Target of a name in a scope: an input of the template or a member, by index.
#[derive(Clone, Copy)]
enum Named {
    Input(usize),
    Member(usize),
}

/// Targets of the names of one scope.
type Names<'a> = HashMap<&'a str, Named>;

fn names(scope: &Scope) -> Names<'_> {
    let inputs = scope.inputs.iter().zip((0..).map(Named::Input));
    let members = scope.members.iter().map(|member| &member.key).zip((0..).map(Named::Member));
    let mut names = Names::new();
    for (key, named) in inputs.chain(members) {
        step();
        names.entry(&key.text).or_insert(named);
    }
    names
}

/// Parses a reference to a block that the file gives by its full name: `f[0].pfb`, with or without `.port`.
fn written_out<'t>(text: &'t str, names: &Names) -> Option<Reference<'t>> {
    let stands_here =
        |name: &str| !is_name(name) && matches!(names.get(name), Some(Named::Member(_)));
    let of = |name, port| Reference { name, index: None, port };
    if stands_here(text) {
        return Some(of(text, None));
    }
    let (name, port) = text.rsplit_once('.')?;
    (stands_here(name) && is_name(port)).then(|| of(name, Some(port)))
}

/// Names of the outputs of a kind that are known before its parameters are read.
fn known_ports(names: PortNames) -> Vec<String> {
    match names {
        PortNames::Fixed(names) | PortNames::Optional { names, .. } => {
            names.iter().map(|name| (*name).to_owned()).collect()
        }
        PortNames::Numbered(prefix) => vec![format!("{prefix}0"), format!("{prefix}1")],
    }
}

/// Name of the port with index `index`.
pub(crate) fn port_name(names: PortNames, index: usize) -> String {
    match names {
        PortNames::Fixed(names) | PortNames::Optional { names, .. } => {
            names.get(index).map_or_else(|| format!("port{index}"), |name| (*name).to_owned())
        }
        PortNames::Numbered(prefix) => format!("{prefix}{index}"),
    }
}

/// Index of the port `name`.
pub(crate) fn port_index(names: PortNames, name: &str) -> Option<usize> {
    match names {
        PortNames::Fixed(names) | PortNames::Optional { names, .. } => {
            names.iter().position(|known| *known == name)
        }
        PortNames::Numbered(prefix) => {
            let digits = name.strip_prefix(prefix)?;
            let index = digits.parse().ok()?;
            (digits == format!("{index}")).then_some(index)
        }
    }
}

/// Number of values of the budget that a connection takes.
const CONNECTION_VALUES: usize = 4;
/// Limit of the templates that a reference passes through.
const MAX_HOPS: usize = 200;

/// Finds the output of each reference.
pub(crate) struct Resolver<'a, 'r> {
    pub(crate) blocks: &'a [Instance<'r>],
    pub(crate) scopes: &'a [Scope],
    /// Targets of names, by scope.
    names: Vec<Names<'a>>,
    pub(crate) problems: &'a mut Vec<Diagnostic>,
    budget: &'a Budget,
    /// Inputs of templates, once they are known; the inner `None` means an error that is already reported.
    #[allow(
        clippy::option_option,
        reason = "not resolved yet, and resolved with an error, differ"
    )]
    inputs: Vec<Option<Option<Vec<Feed>>>>,
    /// Outputs and inputs of templates that are being resolved.
    way: Vec<(usize, Option<String>)>,
}

impl<'a, 'r> Resolver<'a, 'r> {
    pub(crate) fn new(
        blocks: &'a [Instance<'r>],
        scopes: &'a [Scope],
        budget: &'a Budget,
        problems: &'a mut Vec<Diagnostic>,
    ) -> Self {
        let (names, inputs) = (scopes.iter().map(names).collect(), vec![None; scopes.len()]);
        Self { blocks, scopes, names, problems, budget, inputs, way: Vec::new() }
    }

    /// Returns the output that feeds each input of each block; `None` for blocks with a wrong reference.
    pub(crate) fn run(&mut self) -> Vec<Option<Vec<Feed>>> {
        // Also inputs of templates that none of their blocks uses.
        for scope in 1..self.scopes.len() {
            let _ = self.template_inputs(scope);
        }
        (0..self.blocks.len()).map(|block| self.block(block)).collect()
    }

    fn block(&mut self, index: usize) -> Option<Vec<Feed>> {
        let blocks = self.blocks;
        let instance = &blocks[index];
        let feeds = self.list(instance.inputs.as_deref()?, instance.scope)?;
        let (least, most) = match instance.kind.inputs {
            PortNames::Fixed(names) => (names.len(), names.len()),
            PortNames::Optional { names, required } => (required, names.len()),
            PortNames::Numbered(_) => (1, usize::MAX),
        };
        if feeds.len() < least {
            let missing: Vec<String> = (feeds.len()..least)
                .map(|port| format!("`{}`", port_name(instance.kind.inputs, port)))
                .collect();
            let (verb, plural) = if missing.len() == 1 { ("is", "") } else { ("are", "s") };
            let list = missing.join(", ");
            let message =
                format!("input{plural} {list} of `{}` {verb} not connected", instance.kind.name);
            let mut problem = Diagnostic::error(codes::UNCONNECTED, instance.key, message)
                .label(format!("{} of {least} inputs connected", feeds.len()))
                .help("list its sources in the order of its inputs: `inputs: [a, b]`");
            problem.blocks.push(instance.name.clone());
            self.problems.push(problem);
            return None;
        }
        if let Some(extra) = feeds.get(most) {
            let found = feeds.len();
            let message = if most == 0 {
                format!("`{}` has no inputs", instance.kind.name)
            } else {
                let plural = if most == 1 { "" } else { "s" };
                format!("`{}` has {most} input{plural}, found {found}", instance.kind.name)
            };
            let mut problem =
                Diagnostic::error(codes::TOO_MANY_INPUTS, extra.span, message).label("extra input");
            problem.blocks.push(instance.name.clone());
            self.problems.push(problem);
            return None;
        }
        let mut connected: HashMap<(usize, usize), &Feed> = HashMap::new();
        for feed in &feeds {
            if let Some(first) = connected.insert((feed.block, feed.port), feed) {
                let source = &self.blocks[feed.block];
                let port = port_name(source.kind.outputs, feed.port);
                let message = format!("`{}.{port}` is connected twice", source.name);
                let mut problem = Diagnostic::error(codes::DOUBLED_INPUT, feed.span, message)
                    .label("again here")
                    .help("connect each input to a different output");
                if first.span != feed.span {
                    problem = problem.note(first.span, "first here");
                }
                problem.blocks.push(instance.name.clone());
                self.problems.push(problem);
                return None;
            }
        }
        Some(feeds)
    }

    /// Resolves a list of references; reports all wrong ones.
    fn list(&mut self, references: &[Node], scope: usize) -> Option<Vec<Feed>> {
        let mut all = Some(Vec::new());
        for reference in references {
            let feeds = self.reference(reference.text().unwrap_or(""), reference.span, scope);
            all = all.zip(feeds).map(|(mut all, feeds)| {
                all.extend(feeds.into_iter().map(|feed| Feed { span: reference.span, ..feed }));
                all
            });
        }
        all
    }

    /// Resolves one reference in `scope`.
    pub(crate) fn reference(&mut self, text: &str, span: Span, scope: usize) -> Option<Vec<Feed>> {
        let scopes = self.scopes;
        let here = &scopes[scope];
        let Some(reference) = written_out(text, &self.names[scope]).or_else(|| parse(text)) else {
            self.problems.push(
                Diagnostic::error(codes::WRONG_TYPE, span, format!("`{text}` is not a reference"))
                    .label("not a reference")
                    .help("write `block`, `block.port`, `block[0]`, `block[*]` or `block[*].port`"),
            );
            return None;
        };
        let named = self.names[scope].get(reference.name).copied();
        if let Some(Named::Input(input)) = named {
            if reference.index.is_some() || reference.port.is_some() {
                let message = format!(
                    "`{}` is an input of the template and has no ports or copies",
                    reference.name
                );
                self.problems.push(
                    Diagnostic::error(codes::UNKNOWN_PORT, span, message)
                        .label("not a block")
                        .help(format!("write `{}` alone", reference.name)),
                );
                return None;
            }
            let feeds = self.template_inputs(scope)?;
            return feeds.get(input).map(|feed| vec![*feed]);
        }
        let Some(Named::Member(member)) = named else {
            let known: Vec<&str> = here
                .inputs
                .iter()
                .chain(here.members.iter().map(|m| &m.key))
                .map(|k| k.text.as_str())
                .collect();
            let help = suggest_after(self.problems, reference.name, "block", &known);
            self.problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_BLOCK,
                    span,
                    format!("there is no block `{}`", reference.name),
                )
                .label("no such block here")
                .maybe_help(help),
            );
            return None;
        };
        let copies = self.copies(&here.members[member], &reference, span)?;
        if !self.budget.take(copies.len() * CONNECTION_VALUES, span) {
            return None;
        }
        let mut all = Some(Vec::new());
        for item in copies {
            let feeds = match item {
                Item::Block(block) => self.output(block, reference.port, span).map(|f| vec![f]),
                Item::Scope(inner) => self.template_output(inner, reference.port, span),
            };
            // Copies are equal: an error of one is an error of all.
            all = Some(all?.into_iter().chain(feeds?).collect());
        }
        all
    }

    /// Returns the copies of `member` that the reference names.
    fn copies(
        &mut self,
        member: &Member,
        reference: &Reference<'_>,
        span: Span,
    ) -> Option<Vec<Item>> {
        if member.is_broken {
            return None;
        }
        let name = reference.name;
        let count = member.copies.len();
        let problem = match reference.index {
            None if !member.is_replicated => return Some(member.copies.clone()),
            Some(Index::All) if member.is_replicated => return Some(member.copies.clone()),
            Some(Index::One(index)) if member.is_replicated => match member.copies.get(index) {
                Some(item) => return Some(vec![*item]),
                None => Diagnostic::error(
                    codes::UNKNOWN_BLOCK,
                    span,
                    format!("there is no block `{name}[{index}]`"),
                )
                .label("no such copy")
                .help(format!(
                    "`{name}` has {count} copies, `{name}[0]` to `{name}[{}]`",
                    count - 1
                )),
            },
            None => Diagnostic::error(
                codes::UNKNOWN_BLOCK,
                span,
                format!("`{name}` is replicated; the reference must name a copy"),
            )
            .label("needs an index")
            .help(format!("write `{name}[0]` for one copy, or `{name}[*]` for all")),
            Some(_) => {
                Diagnostic::error(codes::UNKNOWN_BLOCK, span, format!("`{name}` is not replicated"))
                    .label("has no copies")
                    .help(format!("write `{name}` without an index"))
            }
        };
        self.problems.push(problem.note(member.key.span, "defined here"));
        None
    }

    fn output(&mut self, block: usize, port: Option<&str>, span: Span) -> Option<Feed> {
        let instance = &self.blocks[block];
        let names = instance.kind.outputs;
        let known = known_ports(names);
        let kind = instance.kind.name;
        if known.is_empty() {
            self.problems.push(
                Diagnostic::error(codes::UNKNOWN_PORT, span, format!("`{kind}` has no outputs"))
                    .label("not a source of data")
                    .note(instance.key, "defined here"),
            );
            return None;
        }
        let index = match port {
            None => Some(0),
            Some(port) => port_index(names, port),
        };
        if index.is_none() {
            let port = port.unwrap_or_default();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            self.problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_PORT,
                    span,
                    format!("`{kind}` has no output `{port}`"),
                )
                .label("no such output")
                .maybe_help(suggest(port, "output", &known)),
            );
        }
        Some(Feed { block, port: index?, span })
    }

    fn template_output(
        &mut self,
        scope: usize,
        port: Option<&str>,
        span: Span,
    ) -> Option<Vec<Feed>> {
        let scopes = self.scopes;
        let inner = &scopes[scope];
        let found = match port {
            None => inner.outputs.first(),
            Some(port) => inner.outputs.iter().find(|(key, _)| key.text == port),
        };
        let Some((key, node)) = found else {
            let known: Vec<&str> = inner.outputs.iter().map(|(key, _)| key.text.as_str()).collect();
            let (message, help) = match port {
                Some(port) => (
                    format!("the template has no output `{port}`"),
                    suggest_after(self.problems, port, "output", &known),
                ),
                None => ("the template has no outputs".to_owned(), None),
            };
            let help = help.or_else(|| Some("add it to the template's `outputs`".to_owned()));
            self.problems.push(
                Diagnostic::error(codes::UNKNOWN_PORT, span, message)
                    .label("no such output")
                    .maybe_help(help),
            );
            return None;
        };
        let node = node.as_ref()?;
        self.enter(scope, Some(&key.text), span)?;
        let feeds = self.reference(node.text().unwrap_or(""), node.span, scope);
        self.way.pop();
        feeds.map(|feeds| feeds.into_iter().map(|feed| Feed { span, ..feed }).collect())
    }

    /// Notes that an output, or the inputs, of a template are being resolved; reports cycles.
    fn enter(&mut self, scope: usize, output: Option<&str>, span: Span) -> Option<()> {
        let step = (scope, output.map(str::to_owned));
        if self.way.contains(&step) {
            self.problems.push(
                Diagnostic::error(codes::CYCLE, span, "the templates form a cycle")
                    .label("closes the cycle"),
            );
            return None;
        }
        if self.way.len() >= MAX_HOPS {
            let message = format!("a reference must pass through at most {MAX_HOPS} templates");
            self.problems.push(Diagnostic::error(codes::LIMIT, span, message));
            return None;
        }
        self.way.push(step);
        Some(())
    }

    /// Returns the outputs that feed the inputs of a use of a template.
    fn template_inputs(&mut self, scope: usize) -> Option<Vec<Feed>> {
        if let Some(known) = &self.inputs[scope] {
            return known.clone();
        }
        let found = self.look_up_inputs(scope);
        // A failure is stored, too, so that a cycle is reported once.
        self.inputs[scope] = Some(found.clone());
        found
    }

    fn look_up_inputs(&mut self, scope: usize) -> Option<Vec<Feed>> {
        let scopes = self.scopes;
        let here = &scopes[scope];
        let parent = here.parent?;
        let given = here.given.as_deref()?;
        self.enter(scope, None, here.key)?;
        let feeds = self.list(given, parent);
        self.way.pop();
        let feeds = feeds?;
        let names: Vec<String> = here.inputs.iter().map(|key| format!("`{}`", key.text)).collect();
        let problem = if feeds.len() < names.len() {
            let missing = &names[feeds.len()..];
            let (plural, verb) = if missing.len() == 1 { ("", "is") } else { ("s", "are") };
            let list = missing.join(", ");
            let message = format!("input{plural} {list} of the template {verb} not connected");
            Diagnostic::error(codes::UNCONNECTED, here.key, message)
                .label(format!("{} of {} inputs connected", feeds.len(), names.len()))
                .help("list its sources in the order of its inputs: `inputs: [a, b]`")
        } else if let Some(extra) = feeds.get(names.len()) {
            let message = format!("the template has {} inputs, found {}", names.len(), feeds.len());
            Diagnostic::error(codes::TOO_MANY_INPUTS, extra.span, message).label("extra input")
        } else {
            return Some(feeds);
        };
        self.problems.push(problem);
        None
    }
}
