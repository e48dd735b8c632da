//! References to blocks and ports.

use super::document::is_name;
use super::expand::{Instance, Item, Member, Scope};
use super::scope::Budget;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest, suggest_after};
use fxgraph_core::kind::PortNames;
use fxgraph_core::steps::step;
use fxgraph_core::tree::Node;
use std::collections::HashMap;

/// An output that feeds an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Feed {
    pub(super) block: usize,
    pub(super) port: usize,
    /// Where the reading block refers to it.
    pub(super) span: Span,
}

/// A reference taken apart: `name`, `name[3]`, `name[*]`, each with `.port` or without.
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

/// What a name in a scope refers to: an input of the template by number, or a member.
#[derive(Clone, Copy)]
enum Named {
    Input(usize),
    Member(usize),
}

/// What the names of one scope refer to.
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

/// A reference to a block that stands in a scope by its full name: `f[0].pfb`, with `.port` or without.
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

/// Names of the outputs of a kind, as far as they are known before its parameters.
fn known_ports(names: PortNames) -> Vec<String> {
    match names {
        PortNames::Fixed(names) | PortNames::Optional { names, .. } => {
            names.iter().map(|name| (*name).to_owned()).collect()
        }
        PortNames::Numbered(prefix) => vec![format!("{prefix}0"), format!("{prefix}1")],
    }
}

/// Name of port number `index`.
pub(super) fn port_name(names: PortNames, index: usize) -> String {
    match names {
        PortNames::Fixed(names) | PortNames::Optional { names, .. } => {
            names.get(index).map_or_else(|| format!("port{index}"), |name| (*name).to_owned())
        }
        PortNames::Numbered(prefix) => format!("{prefix}{index}"),
    }
}

/// Number of the port called `name`.
pub(super) fn port_index(names: PortNames, name: &str) -> Option<usize> {
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

/// As how many values a connection counts.
const CONNECTION_VALUES: usize = 4;
/// How many templates a reference may pass through.
const MAX_HOPS: usize = 200;

/// Finds what references mean.
pub(super) struct Resolver<'a, 'r> {
    pub(super) blocks: &'a [Instance<'r>],
    pub(super) scopes: &'a [Scope],
    /// What names refer to, scope by scope.
    names: Vec<Names<'a>>,
    pub(super) problems: &'a mut Vec<Diagnostic>,
    budget: &'a Budget,
    /// Inputs of templates, once they are known; inner `None` is a complaint made.
    #[allow(clippy::option_option, reason = "not asked yet, and asked in vain, differ")]
    inputs: Vec<Option<Option<Vec<Feed>>>>,
    /// Outputs and inputs of templates being looked up.
    way: Vec<(usize, Option<String>)>,
}

impl<'a, 'r> Resolver<'a, 'r> {
    pub(super) fn new(
        blocks: &'a [Instance<'r>],
        scopes: &'a [Scope],
        budget: &'a Budget,
        problems: &'a mut Vec<Diagnostic>,
    ) -> Self {
        let (names, inputs) = (scopes.iter().map(names).collect(), vec![None; scopes.len()]);
        Self { blocks, scopes, names, problems, budget, inputs, way: Vec::new() }
    }

    /// What feeds each input of each block; `None` for blocks with a wrong reference.
    pub(super) fn run(&mut self) -> Vec<Option<Vec<Feed>>> {
        // Also those of templates that none of their blocks uses.
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
                .label(format!("has {} of {least} inputs", feeds.len()))
                .help(
                    "name the blocks that feed it in `inputs: [...]`, in the order of its inputs",
                );
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
            let mut problem = Diagnostic::error(codes::TOO_MANY_INPUTS, extra.span, message)
                .label("one too many");
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
                    .help("give each input an output of its own");
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

    /// All that a list of references means; all wrong ones are complained about.
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

    /// What one reference in `scope` means.
    pub(super) fn reference(&mut self, text: &str, span: Span, scope: usize) -> Option<Vec<Feed>> {
        let scopes = self.scopes;
        let here = &scopes[scope];
        let Some(reference) = written_out(text, &self.names[scope]).or_else(|| parse(text)) else {
            self.problems.push(
                Diagnostic::error(codes::WRONG_TYPE, span, format!("`{text}` is not a reference"))
                    .label("cannot be read")
                    .help("write `block`, `block.port`, `block[0]`, `block[*]` or `block[*].port`"),
            );
            return None;
        };
        let named = self.names[scope].get(reference.name).copied();
        if let Some(Named::Input(input)) = named {
            if reference.index.is_some() || reference.port.is_some() {
                let message = format!("`{}` is an input of the template", reference.name);
                self.problems.push(
                    Diagnostic::error(codes::UNKNOWN_PORT, span, message)
                        .label("an input has neither ports nor copies")
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
            // Copies are alike: what is wrong with one is wrong with all.
            all = Some(all?.into_iter().chain(feeds?).collect());
        }
        all
    }

    /// The copies of `member` that the reference names.
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
                format!("`{name}` is replicated, and the reference does not say which copy"),
            )
            .label("which one?")
            .help(format!("write `{name}[0]` for one of them, or `{name}[*]` for all")),
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
                    .label("nothing comes out of this block")
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
            let help = help.or_else(|| Some("name it in the template's `outputs`".to_owned()));
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

    /// Notes what is being looked up; refuses circles.
    fn enter(&mut self, scope: usize, output: Option<&str>, span: Span) -> Option<()> {
        let step = (scope, output.map(str::to_owned));
        if self.way.contains(&step) {
            self.problems.push(
                Diagnostic::error(codes::CYCLE, span, "templates feed each other in a circle")
                    .label("leads back to itself"),
            );
            return None;
        }
        if self.way.len() >= MAX_HOPS {
            let message = format!("a reference passes through more than {MAX_HOPS} templates");
            self.problems.push(Diagnostic::error(codes::LIMIT, span, message));
            return None;
        }
        self.way.push(step);
        Some(())
    }

    /// What feeds the inputs of a template's use.
    fn template_inputs(&mut self, scope: usize) -> Option<Vec<Feed>> {
        if let Some(known) = &self.inputs[scope] {
            return known.clone();
        }
        let found = self.look_up_inputs(scope);
        // A circle is found deep inside first; what it hides is not known to be wrong.
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
                .label(format!("has {} of {} inputs", feeds.len(), names.len()))
                .help("name the blocks that feed it in `inputs: [...]`")
        } else if let Some(extra) = feeds.get(names.len()) {
            let message = format!("the template has {} inputs, found {}", names.len(), feeds.len());
            Diagnostic::error(codes::TOO_MANY_INPUTS, extra.span, message).label("one too many")
        } else {
            return Some(feeds);
        };
        self.problems.push(problem);
        None
    }
}
