//! Deserializer of serde types from a tree with places.
//!
//! Types are read from the tree, not from text, so that every error has the place of the innermost value.

use super::{Key, Node, Problem, ReadError, Value, has_leading_zero, is_long_number};
use crate::access::{self, FileAccess, FileUse};
use crate::diagnostic::Span;
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use std::borrow::Borrow;

/// Deserializer of a value with its place.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    node: &'a Node,
    /// Place of the key of the value, for errors about keys that are missing in the value.
    owner: Span,
    /// Files that may be named.
    access: &'a FileAccess,
}

impl<'a> Reader<'a> {
    /// A reader of `node`, whose key is at `owner`; any file may be named.
    #[must_use]
    pub fn new(node: &'a Node, owner: Span) -> Self {
        Self { node, owner, access: &access::ANY }
    }

    /// Restricts file names to those that `access` allows.
    #[must_use]
    pub fn with_access(self, access: &'a FileAccess) -> Self {
        Self { access, ..self }
    }

    /// The value that is read.
    #[must_use]
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Place of the key of the value.
    #[must_use]
    pub fn owner(&self) -> Span {
        self.owner
    }

    /// Files that may be named.
    #[must_use]
    pub fn access(&self) -> &'a FileAccess {
        self.access
    }

    /// A reader of another value, whose key is at `owner`.
    fn of(self, node: &'a Node, owner: Span) -> Self {
        Self { node, owner, ..self }
    }

    /// Reads the name of a file that a block uses, or code that it executes.
    fn file<'de, V: Visitor<'de>>(self, usage: FileUse, visitor: V) -> Result<V::Value, ReadError> {
        let Value::Text(text) = &self.node.value else { return Err(self.expected("text")) };
        match self.access.check(usage, text) {
            Ok(None) => self.done(visitor.visit_newtype_struct(self)),
            Ok(Some(located)) => {
                let located = SeqDeserializer::<_, ReadError>::new(located.into_iter());
                self.done(visitor.visit_seq(located))
            }
            Err(rejected) => {
                let mut error =
                    ReadError::new(Problem::Forbidden, rejected.message, "file not allowed");
                error.help = Some(rejected.help.to_owned());
                Err(error.at(self.node.span))
            }
        }
    }
}

/// Whether `text` looks like a number with a unit: `1 MHz`, `10ms`.
fn has_unit(text: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit() || "+-._".contains(letter);
    let unit = text.trim_start_matches(is_digit);
    let number = &text[..text.len() - unit.len()];
    let unit = unit.trim_start();
    number.contains(|letter: char| letter.is_ascii_digit())
        && unit.starts_with(|letter: char| letter.is_alphabetic() || "%°".contains(letter))
        && !unit.contains(char::is_whitespace)
}

/// Whether `text` may be the name of a parameter.
fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    letters.next().is_some_and(is_letter)
        && letters.all(|letter| is_letter(letter) || letter.is_ascii_digit())
}

impl Reader<'_> {
    /// Error "expected `expected`, found ..." for this value.
    #[must_use]
    pub fn expected(self, expected: &str) -> ReadError {
        let mut error = ReadError::expected(expected, &self.node.value.quoted());
        if let Value::Text(text) = &self.node.value
            && (expected.ends_with("number") || expected.ends_with("integer"))
        {
            if has_unit(text) {
                let help = "give the number without a unit; the name of the parameter has the unit";
                error.help = Some(help.to_owned());
            } else if let Some(name) = text.strip_prefix('$').filter(|name| is_name(name)) {
                error.help = Some(format!("a reference to a parameter is `\"${{{name}}}\"`"));
            } else if has_leading_zero(text) {
                error.help = Some("give the number without leading zeros".to_owned());
            }
        }
        error.at(self.node.span)
    }

    /// Returns the value as an integer, if it is from `low` to `high`.
    fn int(self, low: i128, high: i128) -> Result<i128, ReadError> {
        let Some(value) = self.node.value.whole() else {
            return Err(self.expected("an integer"));
        };
        if (low..=high).contains(&value) {
            return Ok(value);
        }
        let range = match (low, high) {
            (0, high) if value < 0 && high > 1_000_000 => "a non-negative integer".to_owned(),
            _ => format!("an integer from {low} to {high}"),
        };
        Err(self.expected(&range))
    }

    fn done<T>(self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|error| match error.problem {
            Problem::MissingKey(_) => error.at(self.owner),
            _ => error.at(self.node.span),
        })
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $type:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            let value = self.int(i128::from($type::MIN), i128::from($type::MAX))?;
            self.done(visitor.$visit(value as $type))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => Err(self.expected("a smaller integer")),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::Digits(_) => visitor.visit_f64(self.node.value.float().unwrap_or(f64::NAN)),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), reader: self }),
            Value::Numbers(numbers) => {
                let node = |value| Node::new(value, self.node.span);
                visitor.visit_seq(Items { items: numbers.iter().map(node), reader: self })
            }
            Value::Map(entries) => {
                visitor.visit_map(Entries { rest: entries.iter(), next: None, reader: self })
            }
        };
        self.done(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            Value::Bool(_) => self.deserialize_any(visitor),
            _ => Err(self.expected("true or false")),
        }
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let number = match &self.node.value {
            // Digits that went through JSON and YAML are quoted.
            Value::Text(text) if is_long_number(text) => text.parse().ok(),
            value => value.float(),
        };
        match number {
            Some(number) => self.done(visitor.visit_f64(number)),
            None => Err(self.expected("a number")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.value {
            Value::Text(text) => self.done(visitor.visit_str(text)),
            Value::Digits(text) if is_long_number(text) => self.done(visitor.visit_str(text)),
            _ => Err(self.expected("text")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if let (fxgraph_time::NAME, Value::Digits(digits)) = (name, &self.node.value) {
            return self.done(visitor.visit_str(digits));
        }
        if let Some(usage) = access::NAMES.iter().position(|known| *known == name) {
            return self.file(FileUse::ALL[usage], visitor);
        }
        self.done(visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            Value::List(_) | Value::Numbers(_) => self.deserialize_any(visitor),
            _ => Err(self.expected("a list")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let given = match &self.node.value {
            Value::List(items) => items.len(),
            Value::Numbers(numbers) => numbers.len(),
            _ => return Err(self.expected(&format!("a list of {length} values"))),
        };
        if given == length {
            return self.deserialize_any(visitor);
        }
        let found = format!("a list of {given}");
        Err(ReadError::expected(&format!("a list of {length} values"), &found).at(self.node.span))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.node.value {
            Value::Map(_) => self.deserialize_any(visitor),
            // `parameters:` with nothing after it.
            Value::Null => {
                let rest = [].iter();
                self.done(visitor.visit_map(Entries { rest, next: None, reader: self }))
            }
            _ => Err(self.expected("a mapping")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let access = match &self.node.value {
            Value::Text(text) => Choice { name: text, name_span: self.node.span, content: None },
            Value::Map(entries) if entries.len() == 1 => Choice {
                name: &entries[0].0.text,
                name_span: entries[0].0.span,
                content: Some(self.of(&entries[0].1, entries[0].0.span)),
            },
            _ => {
                let known: Vec<String> = variants.iter().map(|name| format!("`{name}`")).collect();
                return Err(self.expected(&format!("one of {}", known.join(", "))));
            }
        };
        self.done(visitor.visit_enum(access))
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct identifier ignored_any
    }
}

struct Items<'a, I> {
    items: I,
    reader: Reader<'a>,
}

impl<'de, N: Borrow<Node>, I: ExactSizeIterator<Item = N>> SeqAccess<'de> for Items<'_, I> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let node = node.borrow();
        let owner = match node.value {
            Value::Map(_) => node.span,
            _ => self.reader.owner,
        };
        let Reader { access, .. } = self.reader;
        seed.deserialize(Reader { node, owner, access }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, (Key, Node)>,
    next: Option<(&'a Key, &'a Node)>,
    reader: Reader<'a>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = ReadError;

    fn next_key_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        let Some((key, node)) = self.rest.next() else { return Ok(None) };
        self.next = Some((key, node));
        let deserializer: StrDeserializer<'_, ReadError> = key.text.as_str().into_deserializer();
        seed.deserialize(deserializer).map(Some).map_err(|error| error.at(key.span))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        match self.next.take() {
            Some((key, node)) => seed.deserialize(self.reader.of(node, key.span)),
            None => Err(de::Error::custom("a value was requested before its key")),
        }
    }
}

struct Choice<'a> {
    name: &'a str,
    name_span: Span,
    content: Option<Reader<'a>>,
}

impl<'de, 'a> EnumAccess<'de> for Choice<'a> {
    type Error = ReadError;
    type Variant = Content<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<(T::Value, Content<'a>), ReadError> {
        let deserializer: StrDeserializer<'_, ReadError> = self.name.into_deserializer();
        let value = seed.deserialize(deserializer).map_err(|error| error.at(self.name_span))?;
        Ok((value, Content { name: self.name, content: self.content }))
    }
}

struct Content<'a> {
    name: &'a str,
    content: Option<Reader<'a>>,
}

impl<'a> Content<'a> {
    fn reader(self) -> Result<Reader<'a>, ReadError> {
        let found = format!("`{}` alone", self.name);
        self.content.ok_or_else(|| {
            ReadError::expected(&format!("`{{{}: ...}}` with a value", self.name), &found)
        })
    }
}

impl<'de> VariantAccess<'de> for Content<'_> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self.content {
            None => Ok(()),
            Some(reader) if reader.node.value == Value::Null => Ok(()),
            Some(reader) => Err(reader.expected(&format!("`{}` alone", self.name))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, ReadError> {
        seed.deserialize(self.reader()?)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_tuple(self.reader()?, length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        de::Deserializer::deserialize_map(self.reader()?, visitor)
    }
}
