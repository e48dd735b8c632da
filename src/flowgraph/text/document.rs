//! The content of one file: flowgraph, parameters, templates and blocks, read from its tree of values.

use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::tree::{Key, Node, Value};

/// Declaration of a parameter of a flowgraph or template.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) key: Key,
    pub(crate) default: Option<Node>,
    pub(crate) doc: Option<String>,
    pub(crate) minimum: Option<Node>,
    pub(crate) maximum: Option<Node>,
}

/// Definition of a template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) key: Key,
    pub(crate) inputs: Vec<Key>,
    pub(crate) parameters: Vec<Declared>,
    pub(crate) blocks: Vec<Entry>,
    pub(crate) outputs: Vec<(Key, Node)>,
}

/// An entry of `blocks:`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) what: Option<What>,
    /// Place of the key `input` or `inputs`, and its references.
    pub(crate) inputs: Option<(Span, Vec<Node>)>,
    /// Whether the value of `input` or `inputs` has the wrong type, which is already reported.
    pub(crate) has_wrong_inputs: bool,
    pub(crate) parameters: Option<(Key, Node)>,
    pub(crate) replicate: Option<Node>,
    pub(crate) thread: Option<Node>,
    pub(crate) queue: Option<Node>,
    pub(crate) when_full: Option<Node>,
    pub(crate) latency_seconds: Option<Node>,
    pub(crate) device: Option<Node>,
    pub(crate) implementation: Option<Node>,
    pub(crate) on_fault: Option<Node>,
    pub(crate) shadow: Option<Node>,
    pub(crate) host: Option<Node>,
}

/// Type of an entry: a kind or a template.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Kind(Node),
    Template(Node),
}

/// Content of a file. Parts with errors are reported and left out.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) name: Option<String>,
    pub(crate) doc: Option<String>,
    pub(crate) device: Option<Node>,
    pub(crate) latency_seconds: Option<Node>,
    /// The keys `hosts` and `network`, with their values.
    pub(crate) hosts: Option<(Key, Node)>,
    pub(crate) network: Option<(Key, Node)>,
    pub(crate) parameters: Vec<Declared>,
    pub(crate) includes: Vec<Node>,
    pub(crate) templates: Vec<Template>,
    pub(crate) blocks: Vec<Entry>,
    pub(crate) tests: Vec<Node>,
}

type Problems = Vec<Diagnostic>;

/// Diagnostic "expected a list, found `x`" at `node`.
pub(crate) fn wrong_type(node: &Node, expected: &str) -> Diagnostic {
    let found = node.value.quoted();
    Diagnostic::error(codes::WRONG_TYPE, node.span, format!("expected {expected}, found {found}"))
        .label(format!("expected {expected}"))
}

/// Entries of a mapping; an empty value is an empty mapping.
pub(crate) fn map<'a>(node: &'a Node, problems: &mut Problems) -> &'a [(Key, Node)] {
    match &node.value {
        Value::Map(entries) => entries,
        Value::Null => &[],
        _ => {
            problems.push(wrong_type(node, "a mapping"));
            &[]
        }
    }
}

pub(crate) fn list<'a>(node: &'a Node, problems: &mut Problems) -> &'a [Node] {
    match &node.value {
        Value::List(items) => items,
        Value::Null => &[],
        _ => {
            problems.push(wrong_type(node, "a list"));
            &[]
        }
    }
}

pub(crate) fn text(node: &Node, problems: &mut Problems) -> Option<String> {
    if node.text().is_none() {
        problems.push(wrong_type(node, "text"));
    }
    node.text().map(str::to_owned)
}

pub(crate) fn unknown_key(key: &Key, known: &[&str]) -> Diagnostic {
    Diagnostic::error(codes::UNKNOWN_KEY, key.span, format!("unknown key `{}`", key.text))
        .label("unknown key")
        .maybe_help(suggest(&key.text, "key", known))
}

/// Whether `text` is a valid name of a block, parameter, port or template.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether `text` is a full name of a block, as in an expanded flowgraph: `f[0].pfb`.
pub(crate) fn is_full_name(text: &str) -> bool {
    text.split('.').all(|part| match part.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((name, index)) => {
            is_name(name) && index.parse::<usize>().is_ok_and(|parsed| parsed.to_string() == index)
        }
        None => is_name(part),
    })
}

/// Whether `key` is a valid name; reports it if not.
fn name(key: &Key, problems: &mut Problems) -> bool {
    let good = is_name(&key.text);
    if !good {
        problems.push(
            Diagnostic::error(codes::BAD_NAME, key.span, format!("`{}` is not a name", key.text))
                .label("invalid name")
                .help("use letters, digits and `_`, and no digit at the start: `pol_0`"),
        );
    }
    good
}

/// Reads a file. An included file (`is_main` false) has templates and parameters only.
pub(crate) fn document(root: &Node, is_main: bool, problems: &mut Problems) -> Document {
    let mut document = Document::default();
    let known: &[&str] = if is_main {
        &[
            "flowgraph",
            "doc",
            "device",
            "latency_seconds",
            "hosts",
            "network",
            "parameters",
            "include",
            "templates",
            "blocks",
            "tests",
        ]
    } else {
        &["doc", "parameters", "include", "templates"]
    };
    for (key, node) in map(root, problems) {
        match key.text.as_str() {
            "doc" => document.doc = text(node, problems),
            "parameters" => document.parameters = declarations(node, problems),
            "include" => document.includes = list(node, problems).to_vec(),
            "templates" => {
                for (key, node) in map(node, problems) {
                    if name(key, problems) {
                        document.templates.push(template(key, node, problems));
                    }
                }
            }
            "hosts" if is_main => document.hosts = Some((key.clone(), node.clone())),
            "network" if is_main => document.network = Some((key.clone(), node.clone())),
            "device" if is_main => document.device = Some(node.clone()),
            "latency_seconds" if is_main => document.latency_seconds = Some(node.clone()),
            "flowgraph" if is_main => document.name = text(node, problems),
            "blocks" if is_main => document.blocks = entries(node, is_full_name, problems),
            "tests" if is_main => document.tests = list(node, problems).to_vec(),
            other => {
                let mut problem = unknown_key(key, known);
                if matches!(
                    other,
                    "flowgraph"
                        | "device"
                        | "latency_seconds"
                        | "hosts"
                        | "network"
                        | "blocks"
                        | "tests"
                ) {
                    problem.help =
                        vec!["put only templates and parameters in an included file".to_owned()];
                }
                problems.push(problem);
            }
        }
    }
    let start = Span { end: root.span.start, ..root.span };
    if is_main
        && root.entry("flowgraph").is_none()
        && matches!(root.value, Value::Map(_) | Value::Null)
    {
        problems.push(
            Diagnostic::error(codes::MISSING_KEY, start, "the key `flowgraph` is missing")
                .label("add `flowgraph: NAME` here")
                .help("begin the file with a name, for example `flowgraph: my_array`"),
        );
    }
    let blocks = root.entry("blocks");
    let is_empty = |node: &Node| match &node.value {
        Value::Map(entries) => entries.is_empty(),
        other => *other == Value::Null,
    };
    if is_main && root.entry("flowgraph").is_some() && blocks.is_none_or(|(_, n)| is_empty(n)) {
        let (place, message) = match blocks {
            Some((key, _)) => (key.span, "`blocks` must have at least one block"),
            None => (start, "the key `blocks` is missing"),
        };
        problems.push(
            Diagnostic::error(codes::MISSING_KEY, place, message)
                .label("no blocks")
                .help("`fxgraph generate flowgraph NAME` creates a skeleton to start from"),
        );
    }
    document
}

fn declarations(node: &Node, problems: &mut Problems) -> Vec<Declared> {
    let mut declared = Vec::new();
    for (key, node) in map(node, problems) {
        if !name(key, problems) {
            continue;
        }
        if key.text == "index" {
            problems.push(
                Diagnostic::error(codes::BAD_NAME, key.span, "`index` cannot be a parameter")
                    .label("reserved name")
                    .help("choose another name: `index` is the number of the copy in `replicate`"),
            );
            continue;
        }
        let mut parameter =
            Declared { key: key.clone(), default: None, doc: None, minimum: None, maximum: None };
        match &node.value {
            Value::Null => {}
            Value::Map(entries) => {
                for (key, node) in entries {
                    match key.text.as_str() {
                        "default" if node.value != Value::Null => {
                            parameter.default = Some(node.clone());
                        }
                        "default" => {}
                        "doc" => parameter.doc = text(node, problems),
                        "minimum" => parameter.minimum = Some(node.clone()),
                        "maximum" => parameter.maximum = Some(node.clone()),
                        _ => problems
                            .push(unknown_key(key, &["default", "doc", "minimum", "maximum"])),
                    }
                }
            }
            _ => parameter.default = Some(node.clone()),
        }
        declared.push(parameter);
    }
    declared
}

fn template(key: &Key, node: &Node, problems: &mut Problems) -> Template {
    let mut template = Template {
        key: key.clone(),
        inputs: Vec::new(),
        parameters: Vec::new(),
        blocks: Vec::new(),
        outputs: Vec::new(),
    };
    for (key, node) in map(node, problems) {
        match key.text.as_str() {
            "doc" => drop(text(node, problems)),
            "inputs" => {
                for node in list(node, problems) {
                    let Some(text) = text(node, problems) else { continue };
                    let key = Key { text, span: node.span };
                    if !name(&key, problems) {
                        continue;
                    }
                    if let Some(first) = template.inputs.iter().find(|k| k.text == key.text) {
                        problems.push(doubled("input", &key, first.span));
                        continue;
                    }
                    template.inputs.push(key);
                }
            }
            "parameters" => template.parameters = declarations(node, problems),
            "blocks" => template.blocks = entries(node, is_name, problems),
            "outputs" => {
                for (key, node) in map(node, problems) {
                    if name(key, problems) && text(node, problems).is_some() {
                        template.outputs.push((key.clone(), node.clone()));
                    }
                }
            }
            _ => {
                let known = ["doc", "inputs", "parameters", "blocks", "outputs"];
                problems.push(unknown_key(key, &known));
            }
        }
    }
    for block in &template.blocks {
        if let Some(input) = template.inputs.iter().find(|input| input.text == block.key.text) {
            problems.push(doubled("name", &block.key, input.span));
        }
    }
    template
}

pub(crate) fn doubled(what: &str, key: &Key, first: Span) -> Diagnostic {
    let message = format!("the {what} `{}` is defined twice", key.text);
    Diagnostic::error(codes::DOUBLED, key.span, message)
        .label("again here")
        .note(first, "first here")
}

fn entries(node: &Node, is_named: fn(&str) -> bool, problems: &mut Problems) -> Vec<Entry> {
    if let Value::List(_) | Value::Numbers(_) = node.value {
        let help = "write `NAME: {kind: ...}` for each block, without `-`: the name is the key";
        problems.push(wrong_type(node, "a mapping").help(help));
        return Vec::new();
    }
    let mut good = Vec::new();
    for (key, node) in map(node, problems) {
        if is_named(&key.text) || name(key, problems) {
            good.push(entry(key, node, problems));
        }
    }
    good
}

pub(crate) const ENTRY_KEYS: [&str; 15] = [
    "kind",
    "template",
    "input",
    "inputs",
    "parameters",
    "replicate",
    "thread",
    "queue",
    "when_full",
    "latency_seconds",
    "device",
    "implementation",
    "on_fault",
    "shadow",
    "host",
];

#[allow(clippy::too_many_lines, reason = "one arm per key")]
pub(crate) fn entry(key: &Key, node: &Node, problems: &mut Problems) -> Entry {
    let mut entry = Entry {
        key: key.clone(),
        what: None,
        inputs: None,
        has_wrong_inputs: false,
        parameters: None,
        replicate: None,
        thread: None,
        queue: None,
        when_full: None,
        latency_seconds: None,
        device: None,
        implementation: None,
        on_fault: None,
        shadow: None,
        host: None,
    };
    let mut claimed: Option<Span> = None;
    for (key, node) in map(node, problems) {
        match key.text.as_str() {
            "kind" | "template" => {
                if let Some(first) = claimed {
                    problems.push(
                        Diagnostic::error(
                            codes::DOUBLED,
                            key.span,
                            "a block must have either a `kind` or a `template`, not both",
                        )
                        .label("a second one")
                        .note(first, "first here"),
                    );
                    continue;
                }
                claimed = Some(key.span);
                if text(node, problems).is_some() {
                    let node = node.clone();
                    let is_kind = key.text == "kind";
                    entry.what =
                        Some(if is_kind { What::Kind(node) } else { What::Template(node) });
                }
            }
            "input" | "inputs" => {
                if let Some((first, _)) = entry.inputs {
                    let problem = "`input` and `inputs` must not be given together";
                    problems.push(
                        Diagnostic::error(codes::DOUBLED, key.span, problem)
                            .label("again here")
                            .note(first, "first here"),
                    );
                    continue;
                }
                let references = match &node.value {
                    Value::List(items) if key.text == "inputs" => items.clone(),
                    Value::Text(_) => vec![node.clone()],
                    _ => {
                        let expected = if key.text == "input" {
                            "a reference like `block` or `block.port`"
                        } else {
                            "a list of references"
                        };
                        problems.push(wrong_type(node, expected));
                        entry.has_wrong_inputs = true;
                        continue;
                    }
                };
                entry.inputs = Some((key.span, references));
            }
            "parameters" => entry.parameters = Some((key.clone(), node.clone())),
            "replicate" => entry.replicate = Some(node.clone()),
            "thread" => entry.thread = Some(node.clone()),
            "queue" => entry.queue = Some(node.clone()),
            "when_full" => entry.when_full = Some(node.clone()),
            "latency_seconds" => entry.latency_seconds = Some(node.clone()),
            "device" => entry.device = Some(node.clone()),
            "implementation" => entry.implementation = Some(node.clone()),
            "on_fault" => entry.on_fault = Some(node.clone()),
            "shadow" => entry.shadow = Some(node.clone()),
            "host" => entry.host = Some(node.clone()),
            _ => problems.push(unknown_key(key, &ENTRY_KEYS)),
        }
    }
    if claimed.is_none() && matches!(node.value, Value::Map(_) | Value::Null) {
        problems.push(
            Diagnostic::error(
                codes::MISSING_KEY,
                key.span,
                format!("`{}` has neither a `kind` nor a `template`", key.text),
            )
            .label("needs `kind` or `template`"),
        );
    }
    if let Some(What::Template(_)) = entry.what {
        let only_blocks = [
            ("thread", &entry.thread),
            ("queue", &entry.queue),
            ("when_full", &entry.when_full),
            ("latency_seconds", &entry.latency_seconds),
            ("device", &entry.device),
            ("implementation", &entry.implementation),
            ("on_fault", &entry.on_fault),
            ("shadow", &entry.shadow),
        ];
        for (word, _) in only_blocks.iter().filter(|(_, value)| value.is_some()) {
            if let Some((key, _)) = node.entry(word) {
                problems.push(
                    Diagnostic::error(
                        codes::UNKNOWN_KEY,
                        key.span,
                        format!("`{word}` is for blocks with a `kind`, not for templates"),
                    )
                    .label("not allowed here")
                    .help("set it for the blocks inside the template"),
                );
            }
        }
    }
    entry
}
