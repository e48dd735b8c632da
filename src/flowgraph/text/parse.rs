//! Parses YAML text to a tree of values with their places.

use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::tree::{Key, Node, Value};
use saphyr_parser::{Event, Parser, ScalarStyle};
use std::collections::{HashMap, HashSet};

/// Limit of the size of one file, and of the text of its values with each alias written out, in bytes: arrays of gains of
/// all antennas and channels are text in the flowgraphs of parts.
pub const MAX_BYTES: usize = 16 << 20;
/// Limit of the nesting of values. Recursive functions over the tree rely on it.
pub(crate) const MAX_DEPTH: usize = 64;
/// Limit of the values of one file; each use of an alias counts all its values.
pub(crate) const MAX_NODES: usize = 200_000;

/// A mapping or list that is being read.
struct Open {
    value: Value,
    start: usize,
    anchor: usize,
    key: Option<Key>,
    /// Keys seen so far, with the place of the first.
    seen: HashMap<String, Span>,
    count: usize,
    bytes: usize,
    depth: usize,
}

/// A finished value with its number of values, the bytes of their text, and its depth.
#[derive(Clone)]
struct Done {
    node: Node,
    count: usize,
    bytes: usize,
    depth: usize,
}

struct Builder<'a> {
    file: u32,
    text: &'a str,
    /// Byte offset of each character, because the parser counts characters; `None` if each has one byte.
    offsets: Option<Vec<u32>>,
    open: Vec<Open>,
    anchors: HashMap<usize, Done>,
    /// Number of values stored for anchors, and the bytes of their text; nested anchors store their values again.
    anchored: (usize, usize),
    doubled: HashSet<Span>,
    root: Option<Done>,
    problems: Vec<Diagnostic>,
}

/// Reads `text` from a command line as one value of a flowgraph file. The error is the first message.
pub fn read_value(text: &str) -> Result<Value, String> {
    let first = |problems: Vec<Diagnostic>| problems.into_iter().next().map(|first| first.message);
    parse(0, text).map(|node| node.value).map_err(|problems| first(problems).unwrap_or_default())
}

/// Reads `text`, which is not a flowgraph file but has its syntax, such as a declaration within another file. Places are
/// bytes of `text`.
///
/// # Errors
/// All syntax errors that were found, at least one.
pub fn read_tree(text: &str) -> Result<Node, Vec<Diagnostic>> {
    parse(0, text)
}

/// Returns the tree of `text`, or the diagnostics.
pub(crate) fn parse(file: u32, text: &str) -> Result<Node, Vec<Diagnostic>> {
    if text.len() > MAX_BYTES {
        return Err(vec![too_large(file, text, MAX_BYTES)]);
    }
    if let Some(at) = text.find('\0') {
        let span = Span { file, start: at as u32, end: at as u32 + 1 };
        let problem = Diagnostic::error(codes::YAML, span, "the file contains a NUL byte")
            .label("NUL byte")
            .help("remove it, and check that the file is complete and is a text file");
        return Err(vec![problem]);
    }
    let offsets = || text.char_indices().map(|(at, _)| at as u32).chain([text.len() as u32]);
    let mut builder = Builder {
        file,
        text,
        offsets: (!text.is_ascii()).then(|| offsets().collect()),
        open: Vec::new(),
        anchors: HashMap::new(),
        anchored: (0, 0),
        doubled: HashSet::new(),
        root: None,
        problems: Vec::new(),
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => {
                let range = (span.start.index(), span.end.index());
                if let Err(problem) = builder.event(event, range) {
                    builder.problems.push(*problem);
                    return Err(builder.problems);
                }
            }
            Err(error) => {
                let at = error.marker().index();
                let span = builder.span(at, at + 1);
                builder.problems.push(not_yaml(error.info(), span, text));
                return Err(builder.problems);
            }
        }
    }
    let end = builder.span(0, 0);
    match builder.root {
        Some(done) if builder.problems.is_empty() => Ok(done.node),
        None if builder.problems.is_empty() => Ok(Node::new(Value::Null, end)),
        _ => Err(builder.problems),
    }
}

impl Builder<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        let byte = |at: usize| match &self.offsets {
            Some(offsets) => offsets[at.min(offsets.len() - 1)],
            None => at.min(self.text.len()) as u32,
        };
        Span { file: self.file, start: byte(start), end: byte(end).max(byte(start)) }
    }

    /// The span of a value without trailing space; the parser may report an end after space and comments.
    fn trimmed(&self, start: usize, end: usize) -> Span {
        let mut span = self.span(start, end);
        if let Some(text) = self.text.get(span.start as usize..span.end as usize) {
            span.end = span.start + text.trim_end().len() as u32;
        }
        span
    }

    fn event(
        &mut self,
        event: Event<'_>,
        (start, end): (usize, usize),
    ) -> Result<(), Box<Diagnostic>> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let span = self.trimmed(start, end);
                if tag.is_some() {
                    return Err(Box::new(tag_problem(span)));
                }
                let bytes = text.len();
                let value = match style {
                    ScalarStyle::Plain => Value::from_plain(&text),
                    _ => Value::Text(text.into_owned()),
                };
                let done = Done { node: Node::new(value, span), count: 1, bytes, depth: 1 };
                self.keep(anchor, &done)?;
                self.add(done)
            }
            Event::SequenceStart(anchor, tag) => {
                self.start(Value::List(Vec::new()), start, anchor, tag.is_some())
            }
            Event::MappingStart(anchor, tag) => {
                self.start(Value::Map(Vec::new()), start, anchor, tag.is_some())
            }
            Event::SequenceEnd | Event::MappingEnd => self.finish(end),
            Event::Alias(anchor) => {
                let span = self.span(start, end);
                let Some(mut done) = self.anchors.get(&anchor).cloned() else {
                    let message = "an alias must not be inside its own anchor";
                    let problem = Diagnostic::error(codes::YAML, span, message);
                    return Err(Box::new(problem));
                };
                // Errors about a scalar point at the alias, errors inside a list or mapping at the anchor.
                if !matches!(done.node.value, Value::List(_) | Value::Map(_)) {
                    done.node.span = span;
                }
                self.add(done)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                let problem = Diagnostic::error(
                    codes::YAML,
                    self.span(start, end),
                    "a file must have one YAML document, found a second one",
                )
                .label("second document");
                Err(Box::new(problem))
            }
            _ => Ok(()),
        }
    }

    fn start(
        &mut self,
        value: Value,
        start: usize,
        anchor: usize,
        has_tag: bool,
    ) -> Result<(), Box<Diagnostic>> {
        let span = self.span(start, start + 1);
        if has_tag {
            return Err(Box::new(tag_problem(span)));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(Box::new(too_deep(span)));
        }
        let (key, seen) = (None, HashMap::new());
        self.open.push(Open { value, start, anchor, key, seen, count: 1, bytes: 0, depth: 1 });
        Ok(())
    }

    fn finish(&mut self, end: usize) -> Result<(), Box<Diagnostic>> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let span = self.trimmed(open.start, end);
        let Open { value, count, bytes, depth, .. } = open;
        let done = Done { node: Node::new(value, span), count, bytes, depth };
        self.keep(open.anchor, &done)?;
        self.add(done)
    }

    /// Keeps an anchored value for its aliases.
    fn keep(&mut self, anchor: usize, done: &Done) -> Result<(), Box<Diagnostic>> {
        if anchor == 0 {
            return Ok(());
        }
        self.anchored.0 += done.count;
        self.anchored.1 += done.bytes;
        self.limit(self.anchored, done.node.span)?;
        self.anchors.insert(anchor, done.clone());
        Ok(())
    }

    /// Limits the number of values and the bytes of their text, of which the last ones are at `span`.
    fn limit(&self, (values, bytes): (usize, usize), span: Span) -> Result<(), Box<Diagnostic>> {
        if values > MAX_NODES {
            return Err(Box::new(too_many(span, MAX_NODES)));
        }
        if bytes > MAX_BYTES {
            let message = format!(
                "the values must have at most {MAX_BYTES} bytes of text with all aliases written out"
            );
            let problem = Diagnostic::error(codes::LIMIT, span, message)
                .help("repeat shorter text, and put arrays into NumPy files: `{npy: FILE}`");
            return Err(Box::new(problem));
        }
        Ok(())
    }

    /// Adds a finished value to the open list or mapping.
    fn add(&mut self, done: Done) -> Result<(), Box<Diagnostic>> {
        let total = self.open.iter().fold((done.count, done.bytes), |(values, bytes), open| {
            (values + open.count, bytes + open.bytes)
        });
        self.limit(total, done.node.span)?;
        if self.open.len() + done.depth > MAX_DEPTH + 1 {
            return Err(Box::new(too_deep(done.node.span)));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(done);
            return Ok(());
        };
        open.count += done.count;
        open.bytes += done.bytes;
        open.depth = open.depth.max(done.depth + 1);
        match &mut open.value {
            Value::List(items) => items.push(done.node),
            Value::Map(entries) => match open.key.take() {
                Some(key) => {
                    if let Some(first) = open.seen.get(&key.text) {
                        if self.doubled.insert(key.span) {
                            self.problems.push(doubled(&key, *first));
                        }
                    } else {
                        open.seen.insert(key.text.clone(), key.span);
                        entries.push((key, done.node));
                    }
                }
                None => match done.node.value {
                    Value::List(_) | Value::Map(_) => {
                        let problem = Diagnostic::error(
                            codes::YAML,
                            done.node.span,
                            "a key must be a word or a number",
                        )
                        .help("put quotes around an expression: `\"${x}\"`");
                        return Err(Box::new(problem));
                    }
                    scalar => {
                        open.key = Some(Key { text: scalar.plain(), span: done.node.span });
                    }
                },
            },
            _ => {}
        }
        Ok(())
    }
}

/// Diagnostic for an error of the YAML parser.
fn not_yaml(said: &str, span: Span, text: &str) -> Diagnostic {
    if said.contains("recursion limit") {
        return too_deep(span);
    }
    let problem = Diagnostic::error(codes::YAML, span, format!("not YAML: {said}"))
        .label("syntax error")
        .help(
            "check indentation (spaces, no tabs), quotes and brackets here and in the lines before",
        );
    match unquoted(line_at(text, span.start as usize)) {
        Some(word) => problem.help(format!("put quotes around `{word}`: `\"{word}\"`")),
        None => problem,
    }
}

/// The line of `text` with the byte number `at`.
fn line_at(text: &str, at: usize) -> &str {
    let lines = text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((*end, line))
    });
    let line = lines.into_iter().find(|(end, _)| at < *end).map(|(_, line)| line);
    line.or(text.lines().last()).unwrap_or_default()
}

/// The first expression or reference of `line` without the quotes that YAML needs inside braces and brackets: `${n}`,
/// `f[*]`, `t[3].pol0`.
fn unquoted(line: &str) -> Option<&str> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    let mut quote = None;
    for (at, letter) in line.char_indices() {
        match quote {
            Some(end) if letter == end => quote = None,
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if letter == '#' => return None,
            None if line[at..].starts_with("${") => {
                return line[at..].find('}').map(|end| &line[at..=at + end]);
            }
            None if letter == '[' => {
                let name = line[..at].trim_end_matches(is_name).len();
                let Some(len) = line[at..].find(']') else { continue };
                let index = &line[at + 1..at + len];
                let is_index =
                    index == "*" || !index.is_empty() && index.chars().all(|c| c.is_ascii_digit());
                if is_index && name < at {
                    let rest = &line[at + len + 1..];
                    let more = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
                    return Some(&line[name..at + len + 1 + more]);
                }
            }
            _ => {}
        }
    }
    None
}

pub(crate) fn too_large(file: u32, text: &str, most: usize) -> Diagnostic {
    let message = format!("the file must have at most {most} bytes, got {}", text.len());
    Diagnostic::error(codes::LIMIT, Span { file, start: 0, end: 0 }, message)
}

/// Diagnostic for `key`, which is at `first` already.
pub(crate) fn doubled(key: &Key, first: Span) -> Diagnostic {
    let message = format!("the key `{}` is given twice", key.text);
    Diagnostic::error(codes::DOUBLED, key.span, message)
        .label("again here")
        .note(first, "first here")
        .help("keep one of them")
}

pub(crate) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(codes::LIMIT, span, format!("values must be nested at most {MAX_DEPTH} deep"))
        .help("see `fxgraph explain E0102` for all limits")
}

pub(crate) fn too_many(span: Span, most: usize) -> Diagnostic {
    let message = format!("a file must have at most {most} values, including those of aliases");
    Diagnostic::error(codes::LIMIT, span, message)
        .help("see `fxgraph explain E0102` for all limits")
}

fn tag_problem(span: Span) -> Diagnostic {
    Diagnostic::error(codes::YAML, span, "YAML tags are not supported")
        .help("remove the word that begins with `!`")
}
