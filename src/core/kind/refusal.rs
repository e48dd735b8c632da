//! Why a block refuses its parameters or inputs.

use crate::diagnostic::codes;

/// Where a problem lies, in the block's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The block as a whole.
    Block,
    /// One of its parameters (path with dots for nested ones).
    Parameter(&'static str),
    /// One of its inputs, by position.
    Input(usize),
    /// Where the length of an axis of an input was decided.
    InputAxis(usize, &'static str),
    /// What chose its implementation: `implementation:` or `device:`.
    Implementation,
}

/// Why a block refuses its parameters or inputs.
///
/// `code` is one of the codes in [`crate::diagnostic::codes`]; texts are lower case, say what is
/// wrong, and never name a Rust type.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Stable code, `E0203`.
    pub code: &'static str,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    pub at: At,
    /// Label under that place.
    pub label: String,
    /// Other places that explain it.
    pub notes: Vec<(At, String)>,
    /// What to do.
    pub help: Option<String>,
}

impl Refusal {
    /// A refusal of something at `at`.
    pub fn new(code: &'static str, at: At, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at,
            label: "invalid".to_owned(),
            notes: Vec::new(),
            help: None,
        }
    }

    /// A refusal of the value of the parameter `name`.
    pub fn parameter(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(codes::PARAMETER_OUT_OF_RANGE, At::Parameter(name), message)
    }

    /// The same with another label under the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The same with another place that explains it.
    #[must_use]
    pub fn note(mut self, at: At, text: impl Into<String>) -> Self {
        self.notes.push((at, text.into()));
        self
    }

    /// The same with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
