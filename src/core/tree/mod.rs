//! YAML values with their places in the file.

mod numbers;
mod read;
mod read_error;

pub use numbers::{ListBuilder, Numbers, list};
pub use read::Reader;
pub use read_error::{Problem, ReadError};

use crate::diagnostic::Span;

/// A value and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Place in the file.
    pub span: Span,
}

/// A key of a mapping and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Place in the file.
    pub span: Span,
}

/// A value of a flowgraph file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An empty value, or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer from `i64::MIN` to `u64::MAX`.
    Int(i128),
    /// Any other number.
    Float(f64),
    /// A number as in the file, whose spelling a float does not keep: it has more digits, or zeros at its end.
    Digits(String),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A long list of numbers, of a request or an array.
    Numbers(Numbers),
    /// A mapping; keys are distinct, in order of the file.
    Map(Vec<(Key, Node)>),
}

/// Range of [`Value::Int`].
pub const INT_RANGE: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(u64::MAX as i128);

impl Value {
    /// Value of an unquoted scalar in YAML's core schema, but digits after a leading zero are text: `0437` in a name
    /// must not become `437`, and other readers of YAML take `010` for eight. Nor must `1.10` in a name become `1.1`, so
    /// that a number with zeros at its end keeps its spelling.
    #[must_use]
    pub fn from_plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "true" | "True" | "TRUE" => return Self::Bool(true),
            "false" | "False" | "FALSE" => return Self::Bool(false),
            ".inf" | ".Inf" | ".INF" | "+.inf" => return Self::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => return Self::Float(f64::NEG_INFINITY),
            ".nan" | ".NaN" | ".NAN" => return Self::Float(f64::NAN),
            _ => {}
        }
        if has_leading_zero(text) {
            return Self::Text(text.to_owned());
        }
        let radix = |digits: &str, radix| i128::from_str_radix(digits, radix).ok();
        let int = match text.get(..2) {
            Some("0x") if !text[2..].starts_with(['+', '-']) => radix(&text[2..], 16),
            Some("0o") if !text[2..].starts_with(['+', '-']) => radix(&text[2..], 8),
            _ => text.parse().ok(),
        };
        if let Some(int) = int.filter(|int| INT_RANGE.contains(int)) {
            return Self::Int(int);
        }
        // Rust also parses words like `infinity`, which are text in YAML.
        let is_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && text.contains(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
        match text.parse() {
            Ok(number)
                if is_number
                    && (has_excess_digits(text, number) || has_more_zeros(text, number)) =>
            {
                Self::Digits(text.to_owned())
            }
            Ok(number) if is_number => Self::Float(number),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// The value as a float, if it is a number.
    #[must_use]
    pub fn float(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Digits(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The value as an integer, if it is one; `1e6` counts as an integer.
    #[must_use]
    pub fn whole(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
                Some(*value as i128)
            }
            Self::Digits(text) if !is_long_number(text) => Self::Float(self.float()?).whole(),
            _ => None,
        }
    }

    /// Type of the value, for messages.
    #[must_use]
    pub fn sort(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "an integer",
            Self::Float(_) | Self::Digits(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) | Self::Numbers(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// The value as quoted in messages: scalars in backticks, others by their type.
    #[must_use]
    pub fn quoted(&self) -> String {
        match self {
            Self::Text(text) if text.chars().count() > 40 => {
                let start: String = text.chars().take(37).collect();
                format!("`{start}...`")
            }
            Self::Null | Self::List(_) | Self::Numbers(_) | Self::Map(_) => self.sort().to_owned(),
            Self::Text(text) if !matches!(Self::from_plain(text), Self::Text(_)) => {
                format!("the text `{text}`")
            }
            scalar => format!("`{}`", scalar.plain()),
        }
    }

    /// The value as text.
    #[must_use]
    pub fn plain(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => float_text(*value),
            Self::Text(text) | Self::Digits(text) => text.clone(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.value.plain()).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Numbers(numbers) => {
                let items: Vec<String> = numbers.iter().map(|value| value.plain()).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Map(entries) => {
                let entry =
                    |(key, node): &(Key, Node)| format!("{}: {}", key.text, node.value.plain());
                let entries: Vec<String> = entries.iter().map(entry).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// The value as JSON; numbers that JSON does not have (NaN, infinity) become text.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => value.into(),
                (_, Ok(value)) => value.into(),
                _ => value.to_string().into(),
            },
            Self::Float(value) => serde_json::Number::from_f64(*value)
                .map_or_else(|| float_text(*value).into(), Json::Number),
            Self::Digits(text) if !is_long_number(text) => {
                self.float().map_or(Json::Null, Json::from)
            }
            // Text, because numbers in JSON are floats; it is read as a number again.
            Self::Text(text) | Self::Digits(text) => text.clone().into(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Numbers(numbers) => numbers.iter().map(|value| value.to_json()).collect(),
            Self::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.text.clone(), node.value.to_json()))
                    .collect(),
            ),
        }
    }
}

/// Digits that every decimal number keeps as a float.
const FLOAT_DIGITS: usize = 15;

/// Whether `text`, which reads as `number`, has digits that a float cannot hold.
fn has_excess_digits(text: &str, number: f64) -> bool {
    let digits = |text: &str| -> String {
        let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        digits.trim_matches('0').to_owned()
    };
    let given = digits(text);
    // A float may have two texts of the same length: writers choose differently.
    let is_other = |text: String| given != digits(&text);
    given.len() > FLOAT_DIGITS
        && number.is_finite()
        && is_other(format!("{number:e}"))
        && is_other(
            serde_json::Number::from_f64(number).map_or_else(String::new, |n| n.to_string()),
        )
}

/// Whether `text`, which reads as `number`, differs from the shortest text of this number by zeros at its end only.
fn has_more_zeros(text: &str, number: f64) -> bool {
    text.strip_prefix(&float_text(number))
        .is_some_and(|more| !more.is_empty() && more.bytes().all(|byte| byte == b'0'))
}

/// Whether `text` is a number with digits that a float cannot hold.
#[must_use]
pub fn is_long_number(text: &str) -> bool {
    matches!(Value::from_plain(text), Value::Digits(_))
        && text.parse().is_ok_and(|number| has_excess_digits(text, number))
}

/// Whether `text` is a number that begins with a zero and another digit.
#[must_use]
pub fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with('0')
        && digits[1..].starts_with(|c: char| c.is_ascii_digit())
        && digits.parse::<f64>().is_ok()
}

/// A float as YAML writes it.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        ".nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { ".inf".to_owned() } else { "-.inf".to_owned() }
    } else {
        format!("{value:?}")
    }
}

impl Node {
    /// Converts JSON to a node; all values get the place `span`.
    #[must_use]
    pub fn of_json(json: &serde_json::Value, span: Span) -> Self {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => {
                let int = number.as_u64().map(i128::from).or(number.as_i64().map(i128::from));
                int.map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), Value::Int)
            }
            Json::String(text) if is_long_number(text) => Value::Digits(text.clone()),
            Json::String(text) => Value::Text(text.clone()),
            Json::Array(items) => {
                list(items.iter().map(|item| Self::of_json(item, span).value), span)
            }
            Json::Object(entries) => {
                let entry = |(key, value): (&String, &Json)| {
                    (Key { text: key.clone(), span }, Self::of_json(value, span))
                };
                Value::Map(entries.iter().map(entry).collect())
            }
        };
        Self::new(value, span)
    }

    /// A value at `span`.
    #[must_use]
    pub fn new(value: Value, span: Span) -> Self {
        Self { value, span }
    }

    /// The entry `key` of a mapping.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&(Key, Self)> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(known, _)| known.text == key),
            _ => None,
        }
    }

    /// The value at a path of keys and list indices with dots between them; the list, if it is [`Numbers`].
    #[must_use]
    pub fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, step| match &node.value {
            Value::List(items) => items.get(step.parse::<usize>().ok()?),
            Value::Numbers(numbers) => {
                (step.parse::<usize>().ok()? < numbers.len()).then_some(node)
            }
            _ => node.entry(step).map(|(_, value)| value),
        })
    }

    /// The text, if the value is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
