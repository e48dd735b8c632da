//! Errors in flowgraph files: what, where, why, help.

mod explain;
mod render;
mod sources;

pub use explain::{all as all_explanations, explain};
pub use render::{SHOWN, Style, first, render, render_all, to_json};
pub use sources::{Source, Sources};

/// A place in one of the files of a flowgraph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Index into the loaded files.
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The flowgraph cannot run.
    Error,
    /// It can, but perhaps not as meant.
    Warning,
}

/// One thing wrong with a flowgraph.
///
/// Texts are lower case, name things as the user wrote them, in backticks, and never a Rust type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// One of [`codes`].
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where; `None` if no place in a file is to blame (the command line is).
    pub span: Option<Span>,
    /// Label under that place.
    pub label: String,
    /// Other places that explain it.
    pub notes: Vec<(Span, String)>,
    /// What to do, one line each.
    pub help: Vec<String>,
    /// Expanded blocks that have this problem; copies of a template share one diagnostic.
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

    /// An error that lies in no file.
    pub fn nowhere(code: &'static str, message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(code, Span::default(), message) }
    }

    /// A warning at `span`.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// The same with a label under the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = readable(label);
        self
    }

    /// The same with another place that explains it.
    #[must_use]
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Self {
        self.notes.push((span, readable(text)));
        self
    }

    /// The same with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(readable(help));
        self
    }

    /// The same with advice, if there is any.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help.extend(help.map(readable));
        self
    }
}

/// Characters of one quotation, and of the words around it.
const QUOTED: usize = 200;
const PROSE: usize = 2000;

/// The text with quotations, which may be as long as a file, cut to what one reads.
fn readable(text: impl Into<String>) -> String {
    let text = text.into();
    if text.len() <= QUOTED {
        return text;
    }
    // Every other piece stands between quotes.
    let limits = [PROSE, QUOTED].into_iter().cycle();
    let pieces =
        text.split('`').zip(limits).map(|(piece, limit)| match piece.char_indices().nth(limit) {
            Some((end, _)) => format!("{}...", &piece[..end]),
            None => piece.to_owned(),
        });
    pieces.collect::<Vec<_>>().join("`")
}

/// Sorts by place and joins the diagnostics that copies of one template share.
#[must_use]
pub fn tidy(mut all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    // Errors without a place come first: they are about the command line.
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
                    // One block's diagnostics stand together.
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

/// Longest word that may be a misspelt one.
const WORD_BYTES: usize = 100;

/// The one of `known` nearest to `word`, if it is near enough to have been meant.
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

/// "did you mean `x`?" if something is near, else the list of what there is.
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
            Some(format!("known here: {}{more}", shown.join(", ")))
        }
    }
}

/// [`suggest`] for a problem that comes after `others`: not for one that nobody will see, because
/// a look at all names for every wrong one takes minutes where both are many.
#[must_use]
pub fn suggest_after(
    others: &[Diagnostic],
    word: &str,
    what: &str,
    known: &[&str],
) -> Option<String> {
    if others.len() < SHOWN { suggest(word, what, known) } else { None }
}

/// The stable codes.
pub mod codes {
    /// The text is not YAML.
    pub const YAML: &str = "E0101";
    /// A file, or a part of it, is larger than the limits allow.
    pub const LIMIT: &str = "E0102";
    /// A file cannot be read.
    pub const UNREADABLE: &str = "E0103";
    /// Files include each other in a circle.
    pub const INCLUDE_CYCLE: &str = "E0104";
    /// A key stands twice in one mapping, or a name is given twice.
    pub const DOUBLED: &str = "E0105";
    /// A key that nothing reads.
    pub const UNKNOWN_KEY: &str = "E0106";
    /// A key that must be there is not.
    pub const MISSING_KEY: &str = "E0107";
    /// A value is of the wrong sort: text where a number belongs, and the like.
    pub const WRONG_TYPE: &str = "E0108";
    /// A name is not made of letters, digits and underscores.
    pub const BAD_NAME: &str = "E0109";
    /// `${...}` is not arithmetic, or cannot be computed.
    pub const EXPRESSION: &str = "E0110";
    /// No parameter of that name.
    pub const UNKNOWN_PARAMETER: &str = "E0111";
    /// A parameter of the flowgraph is out of its declared range.
    pub const PARAMETER_RANGE: &str = "E0112";
    /// Parameters are defined by each other in a circle.
    pub const PARAMETER_CYCLE: &str = "E0113";
    /// No kind of block of that name.
    pub const UNKNOWN_KIND: &str = "E0114";
    /// No template of that name.
    pub const UNKNOWN_TEMPLATE: &str = "E0115";
    /// Templates contain each other in a circle.
    pub const TEMPLATE_CYCLE: &str = "E0116";
    /// `replicate` is not a sensible count.
    pub const REPLICATE: &str = "E0117";
    /// No block of that name.
    pub const UNKNOWN_BLOCK: &str = "E0118";
    /// No port of that name.
    pub const UNKNOWN_PORT: &str = "E0119";
    /// An input is not connected.
    pub const UNCONNECTED: &str = "E0120";
    /// More inputs than the block has.
    pub const TOO_MANY_INPUTS: &str = "E0121";
    /// One output connected twice to the same block.
    pub const DOUBLED_INPUT: &str = "E0122";
    /// Blocks feed each other in a circle.
    pub const CYCLE: &str = "E0123";
    /// No such device, or none this build knows.
    pub const UNKNOWN_DEVICE: &str = "E0124";
    /// No implementation of that name.
    pub const UNKNOWN_IMPLEMENTATION: &str = "E0125";
    /// A test is not one the program can run.
    pub const TEST: &str = "E0126";
    /// A block cannot do what its `on_fault` asks for.
    pub const FAULT_POLICY: &str = "E0127";

    /// A parameter has a value the block cannot work with.
    pub const PARAMETER_OUT_OF_RANGE: &str = "E0201";
    /// The data type of an input does not fit.
    pub const INPUT_DTYPE: &str = "E0202";
    /// An axis of an input is missing or has a length that does not fit.
    pub const INPUT_AXIS: &str = "E0203";
    /// The rates of ports or parameters do not fit together.
    pub const RATE: &str = "E0204";
    /// Inputs of one block do not fit each other.
    pub const INPUTS_DIFFER: &str = "E0205";
    /// The implementation cannot do what the definition can.
    pub const IMPLEMENTATION: &str = "E0206";

    /// Two blocks bind the same socket.
    pub const BOUND_TWICE: &str = "E0301";
    /// The flowgraph needs more memory than there is.
    pub const MEMORY: &str = "E0302";
    /// An output is read by no one.
    pub const UNREAD_OUTPUT: &str = "E0303";
    /// Two blocks write the same file.
    pub const WRITTEN_TWICE: &str = "E0304";

    /// A change that cannot be made while the flowgraph runs.
    pub const CHANGE: &str = "E0401";
    /// A parameter cannot change while its block runs.
    pub const NOT_LIVE: &str = "E0402";
    /// A client names a file that the operator did not allow.
    pub const FORBIDDEN_FILE: &str = "E0403";
}
