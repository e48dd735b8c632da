//! Arithmetic in `${...}`.
//!
//! An own evaluator, because maintained libraries under permissive licences either compute in
//! floats or do not report the place of an error; see src/adr/002-yaml.md.

mod eval;
mod parse;
mod value;

use fxgraph_core::diagnostic::Span;
use fxgraph_core::tree::{Node, Value};
use std::ops::Range;

pub(crate) use eval::evaluate;
pub(crate) use parse::names;
pub(crate) use value::{to_node, to_scalar, to_value};

/// Computes an expression that is not in a flowgraph file, such as a length in a declaration. `names` returns the value of
/// a name; `None` if it is unknown. The time is bounded by the length of the text: there are no loops.
///
/// # Errors
/// The bytes of `text` that are wrong, and the reason in one line.
pub fn compute(
    text: &str,
    names: &dyn Fn(&str) -> Option<Value>,
) -> Result<Value, (Range<usize>, String)> {
    let mut scalar = |name: &str| {
        let value = names(name).ok_or(None)?;
        to_scalar(&Node::new(value, Span::default())).ok_or(None)
    };
    evaluate(text, &mut scalar)
        .map(|scalar| to_value(&scalar))
        .map_err(|problem| (problem.start..problem.end, problem.message))
}

/// A value in an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A number whose spelling a float does not keep.
    Digits(String),
    Text(String),
    List(Vec<Scalar>),
    /// Passed through unchanged.
    Map(Vec<(String, Scalar)>),
}

impl Scalar {
    /// Type of the value, for messages.
    pub(crate) fn sort(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a truth value",
            Self::Int(_) => "an integer",
            Self::Float(_) | Self::Digits(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// The value for arithmetic: without digits that a float does not have.
    fn rounded(self) -> Self {
        match (self.number(), self) {
            (Some(number), Self::Digits(_)) => Self::Float(number),
            (_, Self::List(items)) => Self::List(items.into_iter().map(Self::rounded).collect()),
            (_, other) => other,
        }
    }

    /// The value as a float, if it is a number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Digits(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// An error with its bytes in the expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) message: String,
    /// The unknown name, if that is the error.
    pub(crate) unknown: Option<String>,
    /// Whether the error is already reported, for a name whose value failed.
    pub(crate) silent: bool,
}

impl Problem {
    fn new((start, end): (usize, usize), message: impl Into<String>) -> Self {
        Self { start, end, message: message.into(), unknown: None, silent: false }
    }
}

/// An expression with its bytes in the text.
#[derive(Debug)]
struct Term {
    kind: TermKind,
    at: (usize, usize),
}

#[derive(Debug)]
enum TermKind {
    Value(Scalar),
    Name(String),
    Unary(&'static str, Box<Term>),
    Binary(&'static str, Box<Term>, Box<Term>),
    Choice { condition: Box<Term>, yes: Box<Term>, no: Box<Term> },
    Call(String, Vec<Term>),
    Index(Box<Term>, Box<Term>),
    List(Vec<Term>),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn eval(text: &str) -> Result<Scalar, Problem> {
        evaluate(text, &mut |name: &str| match name {
            "channels" => Ok(Scalar::Int(1024)),
            "rate_hz" => Ok(Scalar::Float(1.712e9)),
            "hosts" => Ok(Scalar::List(vec![Scalar::Text("a".into()), Scalar::Text("b".into())])),
            _ => Err(None),
        })
    }

    #[test]
    fn integer_arithmetic_is_exact() {
        for (text, value) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("-2 ** 2", -4),
            ("2 ** 3 ** 2", 512),
            ("7 // 2", 3),
            ("-7 // 2", -4),
            ("-7 % 3", 2),
            ("channels / 4", 256),
            ("2 ** 62 + 1", (1 << 62) + 1),
            ("min(3, 1, 2)", 1),
            ("floor(2.9)", 2),
            ("ceil(2.1)", 3),
            ("round(2.5)", 3),
            ("log2(channels)", 10),
            ("abs(-3)", 3),
            ("len(hosts)", 2),
            ("1 if channels > 4 else 2", 1),
            ("0x10", 16),
            ("1e3 // 1", 1000),
        ] {
            let found = eval(text).unwrap();
            let found = match found {
                Scalar::Float(value) if value.fract() == 0.0 => Scalar::Int(value as i128),
                other => other,
            };
            assert_eq!(found, Scalar::Int(value), "{text}");
        }
    }

    #[test]
    fn floats_texts_lists_and_booleans_are_computed() {
        assert_eq!(eval("7 / 2").unwrap(), Scalar::Float(3.5));
        assert_eq!(eval("sqrt(16)").unwrap(), Scalar::Float(4.0));
        assert_eq!(eval("cos(0)").unwrap(), Scalar::Float(1.0));
        assert_eq!(eval("sin(radians(90))").unwrap(), Scalar::Float(1.0));
        assert_eq!(eval("round(1e9 * radians(180))").unwrap(), Scalar::Int(3_141_592_654));
        assert_eq!(eval("rate_hz / 2").unwrap(), Scalar::Float(8.56e8));
        assert_eq!(eval("'a' + \"b\"").unwrap(), Scalar::Text("ab".into()));
        assert_eq!(eval("hosts[1]").unwrap(), Scalar::Text("b".into()));
        assert_eq!(eval("not (1 < 2) or 3 == 3.0").unwrap(), Scalar::Bool(true));
        assert_eq!(eval("false and 1 / 0 == 0").unwrap(), Scalar::Bool(false));
    }

    #[test]
    fn errors_point_at_the_wrong_bytes() {
        for (text, place, message) in [
            ("channels // 0", "0", "division by 0"),
            ("1 + ", "", "the expression ends too early"),
            ("1 + nothing", "nothing", "unknown parameter `nothing`"),
            ("(1 + 2", "", "the expression ends too early"),
            ("1 $ 2", "$", "unexpected `$`"),
            ("2 ** 64 * 2", "2 ** 64", "the result does not fit in 64 bits"),
            ("'a' * 2", "'a' * 2", "`*` cannot be applied to text and an integer"),
            ("sqrt(0 - 1)", "sqrt(0 - 1)", "the result is not a number"),
            ("hosts[2]", "2", "index 2 is out of range: the list has 2 values"),
            ("frob(2)", "frob", "unknown function `frob`"),
            ("1 2", "2", "unexpected `2` after the expression"),
        ] {
            let problem = eval(text).unwrap_err();
            assert!(problem.message.contains(message), "{text}: {}", problem.message);
            assert_eq!(&text[problem.start..problem.end], place, "{text}");
        }
    }

    proptest! {
        #[test]
        fn eval_never_panics(text in "[-+*/%().,a-z0-9<>=!'\" \\[\\]{}$äx]{0,60}") {
            let _ = eval(&text);
        }

        #[test]
        fn integer_operations_match_i128(a in -1_000_000i64..1_000_000, b in 1i64..1_000_000) {
            let (wide_a, wide_b) = (i128::from(a), i128::from(b));
            prop_assert_eq!(eval(&format!("{a} * {b} + {b}")).unwrap(), Scalar::Int(wide_a * wide_b + wide_b));
            prop_assert_eq!(eval(&format!("({a}) // {b}")).unwrap(), Scalar::Int(wide_a.div_euclid(wide_b)));
            prop_assert_eq!(eval(&format!("({a}) % {b}")).unwrap(), Scalar::Int(wide_a.rem_euclid(wide_b)));
        }
    }
}
