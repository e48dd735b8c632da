//! Errors of reading values, with the terms of YAML: the messages of serde name Rust types.

use super::Value;
use crate::diagnostic::{Span, codes, suggest};
use serde::de::{self, Expected, Unexpected};
use std::fmt;

/// Type of a [`ReadError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The type does not have this key.
    UnknownKey(String),
    /// The type needs this key.
    MissingKey(String),
    /// The value has another type.
    WrongType,
    /// The type rejects the value.
    Value,
    /// The file may not be named.
    Forbidden,
}

/// Error of reading a value.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// Type of error.
    pub problem: Problem,
    /// The error in one line.
    pub message: String,
    /// Label under the place.
    pub label: String,
    /// Advice.
    pub help: Option<String>,
    /// Place, if known.
    pub span: Option<Span>,
}

impl ReadError {
    /// An error without a place.
    pub fn new(problem: Problem, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self { problem, message: message.into(), label: label.into(), help: None, span: None }
    }

    /// The error "expected `expected`, found `found`".
    #[must_use]
    pub fn expected(expected: &str, found: &str) -> Self {
        Self::new(
            Problem::WrongType,
            format!("expected {expected}, found {found}"),
            format!("expected {expected}"),
        )
    }

    /// Sets the place to `span`, unless it is known already.
    #[must_use]
    pub fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }

    /// The error for a mapping with the key `found`, which is not among the `known` keys.
    #[must_use]
    pub fn unknown_key(found: &str, known: &[&str]) -> Self {
        let problem = Problem::UnknownKey(found.to_owned());
        let mut error = Self::new(problem, format!("unknown key `{found}`"), "unknown key");
        error.help = suggest(found, "key", known);
        error
    }

    /// The error for a mapping without the required `key`.
    #[must_use]
    pub fn missing_key(key: &str) -> Self {
        Self::new(
            Problem::MissingKey(key.to_owned()),
            format!("the key `{key}` is missing"),
            format!("add `{key}` here"),
        )
    }

    /// Code of the diagnostic.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.problem {
            Problem::UnknownKey(_) => codes::UNKNOWN_KEY,
            Problem::MissingKey(_) => codes::MISSING_KEY,
            Problem::WrongType => codes::WRONG_TYPE,
            Problem::Value => codes::PARAMETER_OUT_OF_RANGE,
            Problem::Forbidden => codes::FORBIDDEN_FILE,
        }
    }
}

/// Translates serde's description of an expected type to the terms of YAML.
fn expected_words(said: &str) -> String {
    let word = said.trim();
    match word {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" | "integer" => "an integer".to_owned(),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a non-negative integer".to_owned(),
        "f32" | "f64" | "floating point" => "a number".to_owned(),
        "a boolean" | "bool" | "boolean" => "true or false".to_owned(),
        "a string" | "string" | "a borrowed string" | "str" | "path string" => "text".to_owned(),
        "a character" | "char" => "one character".to_owned(),
        "a sequence" | "sequence" | "an array" => "a list".to_owned(),
        "a map" | "map" => "a mapping".to_owned(),
        "unit" | "()" | "null" => "nothing".to_owned(),
        _ if word.starts_with("a nonzero") => "a number other than 0".to_owned(),
        _ if word.starts_with("struct ") || word.contains("internally tagged") => {
            "a mapping".to_owned()
        }
        _ if word.contains("tuple of ") || word.contains("array of length") => {
            let count: String = word.chars().filter(char::is_ascii_digit).collect();
            format!("a list of {count} values")
        }
        _ if word.contains("enum ") || word.contains("variant ") => "one of the choices".to_owned(),
        _ if word.contains("struct ") => "a list of values".to_owned(),
        _ => word.to_owned(),
    }
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        if message.contains("untagged enum") || message.contains("did not match any variant") {
            let message = "the value must have one of the documented types";
            return Self::new(Problem::WrongType, message, "wrong type");
        }
        Self::new(Problem::Value, message, "invalid")
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Bool(value) => format!("`{value}`"),
            Unexpected::Unsigned(value) => format!("`{value}`"),
            Unexpected::Signed(value) => format!("`{value}`"),
            Unexpected::Float(value) => format!("`{value:?}`"),
            Unexpected::Char(value) => format!("`{value}`"),
            Unexpected::Str(value) => Value::Text(value.to_owned()).quoted(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map | Unexpected::StructVariant => "a mapping".to_owned(),
            Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
            _ => "something else".to_owned(),
        };
        Self::expected(&expected_words(&expected.to_string()), &found)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let expected = expected_words(&expected.to_string());
        Self::expected(&expected, &format!("{length} value{}", if length == 1 { "" } else { "s" }))
    }

    fn unknown_variant(found: &str, known: &'static [&'static str]) -> Self {
        let message = format!("`{found}` is not one of the choices");
        let mut error = Self::new(Problem::WrongType, message, "not one of the choices");
        error.help = suggest(found, "choice", known);
        error
    }

    fn unknown_field(found: &str, known: &'static [&'static str]) -> Self {
        Self::unknown_key(found, known)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::missing_key(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(Problem::Value, format!("`{field}` is given twice"), "given twice")
    }
}
