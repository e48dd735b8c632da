//! Keys `queue` and `when_full` of a block: length of the queue before each input, and action when it is full.

use crate::language::scope::Substitution;
use crate::text::document::{Entry, wrong_type};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::edge::WhenFull;
use fxgraph_core::port::PortType;
use fxgraph_core::tree::{Key, Node, Value};
use serde_json::{Value as Json, json};

/// Limit of the length of a queue, in frames.
pub(crate) const MAX_FRAMES: usize = 4096;

/// Length of the queue before each input of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLength {
    /// In frames.
    Frames(usize),
    /// In seconds of the signal.
    Seconds(f64),
}

impl Default for QueueLength {
    fn default() -> Self {
        Self::Frames(4)
    }
}

impl QueueLength {
    /// Length in frames of `port`, at least 1.
    #[must_use]
    pub fn frames(self, port: &PortType) -> usize {
        match self {
            Self::Frames(frames) => frames,
            Self::Seconds(seconds) => {
                let frames = seconds * port.clock.frames_per_second();
                // A rounding error is no frame.
                ((frames * (1.0 - 1e-9)).ceil() as usize).max(1)
            }
        }
    }

    /// Value in a flowgraph file.
    pub(crate) fn to_json(self) -> Json {
        match self {
            Self::Frames(frames) => json!(frames),
            Self::Seconds(seconds) => json!({ "seconds": seconds }),
        }
    }
}

/// Value of `when_full`: one action for all inputs, or actions by input.
#[derive(Clone)]
pub(crate) enum Given {
    All(WhenFull),
    ByInput(Vec<(Key, WhenFull)>),
}

const ACTIONS: &str = "`wait`, `drop_oldest` or `drop_newest`";

fn action(node: &Node) -> Option<WhenFull> {
    WhenFull::ALL.into_iter().find(|action| node.text() == Some(action.name()))
}

impl QueueLength {
    /// Value of `queue`, with its place in the file, if it has no error.
    pub(crate) fn read(entry: &Entry, values: &mut Substitution<'_>) -> Option<(Self, Span)> {
        let Some(node) = &entry.queue else {
            return Some((Self::default(), entry.key.span));
        };
        let value = values.node(node)?.value;
        let length = match &value {
            Value::Map(entries) => match &entries[..] {
                [(key, seconds)] if key.text == "seconds" => {
                    let seconds = seconds.value.float();
                    let seconds = seconds.filter(|seconds| *seconds > 0.0 && seconds.is_finite());
                    seconds.map(Self::Seconds)
                }
                _ => None,
            },
            other => match other.whole() {
                Some(frames) if (1..=MAX_FRAMES as i128).contains(&frames) => {
                    Some(Self::Frames(frames as usize))
                }
                _ => None,
            },
        };
        if length.is_none() {
            let expected = format!("an integer from 1 to {MAX_FRAMES}, or `{{seconds: 2.5}}`");
            values.problems.push(wrong_type(&Node::new(value, node.span), &expected));
        }
        Some((length?, node.span))
    }
}

impl Given {
    /// Value of `when_full`, with its place in the file, if it is given and has no error.
    pub(crate) fn read(entry: &Entry, values: &mut Substitution<'_>) -> Option<(Self, Span)> {
        let node = entry.when_full.as_ref()?;
        let value = values.node(node)?;
        let given = match &value.value {
            Value::Map(entries) => {
                let mut actions = Vec::new();
                for (key, node) in entries {
                    let Some(action) = action(node) else {
                        values.problems.push(wrong_type(node, ACTIONS));
                        return None;
                    };
                    actions.push((key.clone(), action));
                }
                Some(Self::ByInput(actions))
            }
            _ => action(&value).map(Self::All),
        };
        if given.is_none() {
            let expected = format!("{ACTIONS}, or one of these for single inputs");
            values.problems.push(wrong_type(&Node::new(value.value, node.span), &expected));
        }
        Some((given?, node.span))
    }
}

/// Action of each of the inputs `names` of the block `block`.
pub(crate) fn actions(
    given: Option<&(Given, Span)>,
    (block, names): (&str, &[String]),
    problems: &mut Vec<Diagnostic>,
) -> Vec<WhenFull> {
    let mut actions = vec![WhenFull::Wait; names.len()];
    let Some((given, span)) = given else { return actions };
    if names.is_empty() {
        let message = format!("`{block}` must have inputs to have `when_full`");
        problems.push(
            Diagnostic::error(codes::UNKNOWN_PORT, *span, message)
                .label("no inputs")
                .help("set `when_full` for the block that reads the frames"),
        );
    }
    match given {
        Given::All(action) => actions.fill(*action),
        Given::ByInput(by_input) => {
            for (key, action) in by_input {
                let Some(input) = names.iter().position(|name| *name == key.text) else {
                    let message = format!("`{block}` has no input `{}`", key.text);
                    let known: Vec<&str> = names.iter().map(String::as_str).collect();
                    problems.push(
                        Diagnostic::error(codes::UNKNOWN_PORT, key.span, message)
                            .label("no such input")
                            .maybe_help(suggest(&key.text, "input", &known)),
                    );
                    continue;
                };
                actions[input] = *action;
            }
        }
    }
    actions
}

/// Diagnostic if a queue of `length` is too long for the frames of one of the inputs `names`.
pub(crate) fn too_long(
    (length, span): (QueueLength, Span),
    ports: &[PortType],
    names: &[String],
) -> Option<Diagnostic> {
    let mut frames = ports.iter().map(|port| length.frames(port)).zip(names);
    let (frames, name) = frames.find(|(frames, _)| *frames > MAX_FRAMES)?;
    let message = format!(
        "the queue of the input `{name}` must have at most {MAX_FRAMES} frames, got {frames}"
    );
    let help = "make `queue` shorter, or the frames of the source longer";
    Some(Diagnostic::error(codes::LIMIT, span, message).label("too long").help(help))
}
