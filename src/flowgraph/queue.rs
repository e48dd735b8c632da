//! Keys `queue` and `when_full` of a block: length of the queue before each input, and action when it is full.

use super::document::{Entry, wrong_type};
use super::expand::Expansion;
use super::plan::{Plan, Planned};
use super::scope::Names;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::edge::WhenFull;
use fxgraph_core::port::PortType;
use fxgraph_core::tree::{Key, Node, Value};
use serde_json::{Value as Json, json};

/// Limit of the length of a queue, in frames.
pub(super) const MAX_FRAMES: usize = 4096;

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
    pub(super) fn to_json(self) -> Json {
        match self {
            Self::Frames(frames) => json!(frames),
            Self::Seconds(seconds) => json!({ "seconds": seconds }),
        }
    }
}

/// Value of `when_full`: one action for all inputs, or actions by input.
#[derive(Clone)]
pub(super) enum Given {
    All(WhenFull),
    ByInput(Vec<(Key, WhenFull)>),
}

const ACTIONS: &str = "`wait`, `drop_oldest` or `drop_newest`";

fn action(node: &Node) -> Option<WhenFull> {
    WhenFull::ALL.into_iter().find(|action| node.text() == Some(action.name()))
}

impl Expansion<'_, '_> {
    /// Value of `queue`, with its place in the file.
    pub(super) fn queue(&mut self, entry: &Entry, names: &Names) -> Option<(QueueLength, Span)> {
        let Some(node) = &entry.queue else {
            return Some((QueueLength::default(), entry.key.span));
        };
        let value = self.compute(node, names)?.value;
        let length = match &value {
            Value::Map(entries) => match &entries[..] {
                [(key, seconds)] if key.text == "seconds" => {
                    let seconds = seconds.value.float();
                    let seconds = seconds.filter(|seconds| *seconds > 0.0 && seconds.is_finite());
                    seconds.map(QueueLength::Seconds)
                }
                _ => None,
            },
            other => match other.whole() {
                Some(frames) if (1..=MAX_FRAMES as i128).contains(&frames) => {
                    Some(QueueLength::Frames(frames as usize))
                }
                _ => None,
            },
        };
        if length.is_none() {
            let expected = format!("an integer from 1 to {MAX_FRAMES}, or `{{seconds: 2.5}}`");
            self.problems.push(wrong_type(&Node::new(value, node.span), &expected));
        }
        Some((length?, node.span))
    }

    /// Value of `when_full`, with its place in the file, if it is given and has no error.
    pub(super) fn when_full(&mut self, entry: &Entry, names: &Names) -> Option<(Given, Span)> {
        let node = entry.when_full.as_ref()?;
        let value = self.compute(node, names)?;
        let given = match &value.value {
            Value::Map(entries) => {
                let mut actions = Vec::new();
                for (key, node) in entries {
                    let Some(action) = action(node) else {
                        self.problems.push(wrong_type(node, ACTIONS));
                        return None;
                    };
                    actions.push((key.clone(), action));
                }
                Some(Given::ByInput(actions))
            }
            _ => action(&value).map(Given::All),
        };
        if given.is_none() {
            let expected = format!("{ACTIONS}, or one of these for single inputs");
            self.problems.push(wrong_type(&Node::new(value.value, node.span), &expected));
        }
        Some((given?, node.span))
    }
}

/// Action of each of the inputs `names` of the block `block`.
pub(super) fn actions(
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
pub(super) fn too_long(
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

impl Planned {
    /// Length of the queue before input `input`, in frames.
    #[must_use]
    pub fn queue_frames(&self, input: usize) -> usize {
        self.queue.frames(&self.ports.inputs[input])
    }

    /// Value of `when_full` in a flowgraph file; `None` if the writers of all inputs wait.
    #[must_use]
    pub fn when_full_json(&self) -> Option<Json> {
        let first = self.when_full.first().filter(|_| self.when_full.iter().any(|one| one.drops()));
        let first = first?;
        if self.when_full.iter().all(|one| one == first) {
            return Some(json!(first.name()));
        }
        let inputs = self.input_names.iter().zip(&self.when_full);
        let entry = |(name, action): (&String, &WhenFull)| (name.clone(), json!(action.name()));
        Some(Json::Object(inputs.filter(|(_, action)| action.drops()).map(entry).collect()))
    }
}

impl Plan {
    /// For each block: whether it is in a side branch, which gets the frames that the queue at its beginning does not drop.
    /// The flowgraph neither waits for such a block nor needs it to keep up.
    #[must_use]
    pub fn side_branches(&self) -> Vec<bool> {
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); self.blocks.len()];
        for (reader, block) in self.blocks.iter().enumerate() {
            let inputs = block.inputs.iter().zip(&block.when_full);
            inputs
                .filter(|(_, action)| !action.drops())
                .for_each(|((writer, _), _)| waiting[*writer].push(reader));
        }
        let mut is_aside = vec![true; self.blocks.len()];
        let sources = self.blocks.iter().enumerate().filter(|(_, block)| block.inputs.is_empty());
        let mut next: Vec<usize> = sources.map(|(index, _)| index).collect();
        while let Some(block) = next.pop() {
            if std::mem::replace(&mut is_aside[block], false) {
                next.extend(&waiting[block]);
            }
        }
        is_aside
    }
}
