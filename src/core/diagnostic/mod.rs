//! Diagnostics of flowgraph files: code, message, place, notes and help.

mod explain;
mod render;
mod sources;

pub use explain::{all as all_explanations, explain};
pub use render::{SHOWN, Style, first, render, render_all, to_json};
pub use sources::{Source, Sources};

/// A place in one of the files of a flowgraph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Index of the file in [`Sources`].
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The flowgraph cannot run.
    Error,
    /// The flowgraph can run, but perhaps not as intended.
    Warning,
}

/// An error in a flowgraph, or a warning.
///
/// Texts are lower case, quote names as the user wrote them, in backticks, and never name a Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// One of [`codes`].
    pub code: &'static str,
    /// The error in one line: subject, rule, value.
    pub message: String,
    /// Place in a file; `None` if the error is in no file, for example on the command line.
    pub span: Option<Span>,
    /// Label under that place.
    pub label: String,
    /// Labels under other places that explain the error.
    pub notes: Vec<(Span, String)>,
    /// Advice, one line each.
    pub help: Vec<String>,
    /// Names of the expanded blocks with this error; copies of a template share one diagnostic.
    pub blocks: Vec<String>,
}

impl Diagnostic {
    /// An error at `span`.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: readable(message),
            span: Some(span),
            label: String::new(),
            notes: Vec::new(),
            help: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// An error without a place in a file.
    pub fn nowhere(code: &'static str, message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(code, Span::default(), message) }
    }

    /// A warning at `span`.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// Sets the label under the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = readable(label);
        self
    }

    /// Adds a label under another place.
    #[must_use]
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Self {
        self.notes.push((span, readable(text)));
        self
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(readable(help));
        self
    }

    /// Adds advice, if there is any.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help.extend(help.map(readable));
        self
    }
}

/// Limits of one quotation, and of the words around it, in characters.
const QUOTED: usize = 200;
const PROSE: usize = 2000;

/// `text` with long quotations truncated; a quotation may be as long as a file.
fn readable(text: impl Into<String>) -> String {
    let text = text.into();
    if text.len() <= QUOTED {
        return text;
    }
    // Every second piece is a quotation.
    let limits = [PROSE, QUOTED].into_iter().cycle();
    let pieces =
        text.split('`').zip(limits).map(|(piece, limit)| match piece.char_indices().nth(limit) {
            Some((end, _)) => format!("{}...", &piece[..end]),
            None => piece.to_owned(),
        });
    pieces.collect::<Vec<_>>().join("`")
}

/// Sorts diagnostics by place and merges equal ones of several copies of a block.
#[must_use]
pub fn tidy(mut all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    // Errors without a place come first.
    all.sort_by(|a, b| (a.span, a.code).cmp(&(b.span, b.code)));
    let mut kept: Vec<Diagnostic> = Vec::new();
    for diagnostic in all {
        let same = kept
            .iter_mut()
            .rev()
            .take_while(|k| k.span == diagnostic.span)
            .find(|k| k.code == diagnostic.code && k.message == diagnostic.message);
        match same {
            Some(known) => {
                for block in diagnostic.blocks {
                    // Diagnostics of one block are adjacent.
                    if known.blocks.last() != Some(&block) {
                        known.blocks.push(block);
                    }
                }
            }
            None => kept.push(diagnostic),
        }
    }
    kept
}

/// Limit of the words that are searched for misspellings, in bytes.
const WORD_BYTES: usize = 100;

/// Returns the word of `known` nearest to `word`, if it is near enough to be a misspelling.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES {
        return None;
    }
    known
        .into_iter()
        .filter(|candidate| candidate.len() <= WORD_BYTES)
        .map(|candidate| {
            let swapped = strsim::osa_distance(&word.to_lowercase(), &candidate.to_lowercase());
            (swapped, candidate)
        })
        .filter(|(distance, candidate)| {
            let longer = word.chars().count().max(candidate.chars().count());
            *distance <= (longer / 3).max(1) && *distance < candidate.chars().count()
                || (word.len() >= 3 && candidate.starts_with(word))
        })
        .min_by_key(|(distance, candidate)| (*distance, candidate.len()))
        .map(|(_, candidate)| candidate)
}

/// Returns "did you mean `x`?" if a known word is near, otherwise the list of the first 12 known words.
#[must_use]
pub fn suggest(word: &str, what: &str, known: &[&str]) -> Option<String> {
    if let Some(near) = nearest(word, known.iter().copied()) {
        return Some(format!("did you mean `{near}`?"));
    }
    match known {
        [] => None,
        [only] => Some(format!("the only {what} here is `{only}`")),
        _ => {
            let shown: Vec<String> = known.iter().take(12).map(|k| format!("`{k}`")).collect();
            let more = if known.len() > 12 { ", ..." } else { "" };
            Some(format!("choose one of {}{more}", shown.join(", ")))
        }
    }
}

/// [`suggest`] for a diagnostic that follows `others`; `None` if it will not be shown. A search through all names for
/// each wrong one takes minutes if both are many.
#[must_use]
pub fn suggest_after(
    others: &[Diagnostic],
    word: &str,
    what: &str,
    known: &[&str],
) -> Option<String> {
    if others.len() < SHOWN { suggest(word, what, known) } else { None }
}

/// Returns the help for a part of the program that needs the Cargo feature `feature`, which was left out.
#[must_use]
pub fn build_with(feature: &str) -> String {
    format!("build fxgraph with it: `cargo install --locked --path src/cli --features {feature}`")
}

/// Stable codes of diagnostics.
pub mod codes {
    /// The text is not YAML.
    pub const YAML: &str = "E0101";
    /// A file, or a part of it, is larger than the limits allow.
    pub const LIMIT: &str = "E0102";
    /// A file cannot be read.
    pub const UNREADABLE: &str = "E0103";
    /// Files include each other.
    pub const INCLUDE_CYCLE: &str = "E0104";
    /// A key is given twice in one mapping, or a name is defined twice.
    pub const DOUBLED: &str = "E0105";
    /// Unknown key.
    pub const UNKNOWN_KEY: &str = "E0106";
    /// A required key is missing.
    pub const MISSING_KEY: &str = "E0107";
    /// A value has the wrong type, for example text instead of a number.
    pub const WRONG_TYPE: &str = "E0108";
    /// A name contains other characters than letters, digits and underscores.
    pub const BAD_NAME: &str = "E0109";
    /// `${...}` is not an expression, or its computation failed.
    pub const EXPRESSION: &str = "E0110";
    /// Unknown parameter.
    pub const UNKNOWN_PARAMETER: &str = "E0111";
    /// A parameter of the flowgraph is out of its declared range.
    pub const PARAMETER_RANGE: &str = "E0112";
    /// Defaults of parameters depend on each other.
    pub const PARAMETER_CYCLE: &str = "E0113";
    /// Unknown kind.
    pub const UNKNOWN_KIND: &str = "E0114";
    /// Unknown template.
    pub const UNKNOWN_TEMPLATE: &str = "E0115";
    /// A template contains itself.
    pub const TEMPLATE_CYCLE: &str = "E0116";
    /// `replicate` is not a valid count.
    pub const REPLICATE: &str = "E0117";
    /// Unknown block.
    pub const UNKNOWN_BLOCK: &str = "E0118";
    /// Unknown port.
    pub const UNKNOWN_PORT: &str = "E0119";
    /// An input is not connected.
    pub const UNCONNECTED: &str = "E0120";
    /// More inputs than the block has.
    pub const TOO_MANY_INPUTS: &str = "E0121";
    /// One output is connected twice to the same block.
    pub const DOUBLED_INPUT: &str = "E0122";
    /// The graph has a cycle.
    pub const CYCLE: &str = "E0123";
    /// Unknown device, or no implementation for the device.
    pub const UNKNOWN_DEVICE: &str = "E0124";
    /// Unknown implementation, or one for another device.
    pub const UNKNOWN_IMPLEMENTATION: &str = "E0125";
    /// A test has an error.
    pub const TEST: &str = "E0126";
    /// A block does not support its `on_fault` policy.
    pub const FAULT_POLICY: &str = "E0127";
    /// Hosts or the network between them are wrong.
    pub const HOSTS: &str = "E0128";
    /// An output cannot be read on another host.
    pub const CUT: &str = "E0129";

    /// A parameter has a value that the block does not support.
    pub const PARAMETER_OUT_OF_RANGE: &str = "E0201";
    /// The data type of an input does not fit.
    pub const INPUT_DTYPE: &str = "E0202";
    /// An axis of an input is missing or has a length that does not fit.
    pub const INPUT_AXIS: &str = "E0203";
    /// The rates of ports or parameters do not fit together.
    pub const RATE: &str = "E0204";
    /// Inputs of one block do not fit each other.
    pub const INPUTS_DIFFER: &str = "E0205";
    /// The implementation does not support parameters or inputs that the reference implementation supports.
    pub const IMPLEMENTATION: &str = "E0206";

    /// Two blocks bind the same socket.
    pub const BOUND_TWICE: &str = "E0301";
    /// The flowgraph needs more memory than is available.
    pub const MEMORY: &str = "E0302";
    /// An output is not connected.
    pub const UNREAD_OUTPUT: &str = "E0303";
    /// Two blocks write the same file.
    pub const WRITTEN_TWICE: &str = "E0304";
    /// The data of a host exceed the limit of the network.
    pub const NETWORK: &str = "E0305";
    /// A latency that the flowgraph cannot meet.
    pub const LATENCY: &str = "E0306";
    /// A value is possible and probably not meant.
    pub const IMPLAUSIBLE: &str = "E0307";

    /// A change that cannot be made while the flowgraph runs.
    pub const CHANGE: &str = "E0401";
    /// A parameter cannot change while its block runs.
    pub const NOT_LIVE: &str = "E0402";
    /// A client names a file that it may not use.
    pub const FORBIDDEN_FILE: &str = "E0403";
}
