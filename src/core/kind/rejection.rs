//! Errors of a block about its parameters or inputs.

use crate::diagnostic::codes;

/// Place of an error, in the terms of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The block as a whole.
    Block,
    /// One of its parameters; a path with dots for nested values.
    Parameter(&'static str),
    /// A value within a parameter whose keys the kind does not declare; a path with dots.
    Value(String),
    /// One of its inputs, by index.
    Input(usize),
    /// The parameter that sets the length of an axis of an input.
    InputAxis(usize, &'static str),
    /// The key that chose its implementation: `implementation:` or `device:`.
    Implementation,
}

/// Error of a block about its parameters or inputs.
///
/// `code` is one of the codes in [`crate::diagnostic::codes`]. Texts are lower case and never name a Rust type. The
/// message has subject, rule and value: "`gain` must be finite, got NaN".
#[derive(Clone, Debug)]
pub struct Rejection {
    /// Stable code, for example `E0203`.
    pub code: &'static str,
    /// The error in one line.
    pub message: String,
    /// Place of the error.
    pub at: At,
    /// Label under that place.
    pub label: String,
    /// Labels under other places that explain the error.
    pub notes: Vec<(At, String)>,
    /// Advice: an imperative with an example.
    pub help: Option<String>,
}

impl Rejection {
    /// An error at `at`.
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

    /// An error of the value of the parameter `name`, with the code `E0201`.
    pub fn parameter(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(codes::PARAMETER_OUT_OF_RANGE, At::Parameter(name), message)
    }

    /// Sets the label under the place; it is "invalid" otherwise.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a label under another place.
    #[must_use]
    pub fn note(mut self, at: At, text: impl Into<String>) -> Self {
        self.notes.push((at, text.into()));
        self
    }

    /// Sets the advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}
