//! Parameters of blocks: read field by field, so that all errors are reported at once with their places, and
//! described by a JSON Schema.

use super::Kind;
use crate::access::FileAccess;
use crate::diagnostic::Span;
use crate::tree::{Key, Node, Problem, ReadError, Reader, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

/// Range of the numbers of a parameter, both ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Least number.
    pub minimum: Option<f64>,
    /// Largest number.
    pub maximum: Option<f64>,
}

/// Declaration of a parameter, apart from its type.
#[derive(Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// Its doc comment.
    pub doc: &'static str,
    /// Unit of its numbers.
    pub unit: Option<&'static str>,
    /// Range of its numbers.
    pub range: Option<Range>,
    /// Whether it may change while a block runs.
    pub live: bool,
}

/// A parameter with the properties of its type.
pub struct Field {
    /// Its declaration.
    pub param: &'static Param,
    /// Whether it must be given.
    pub is_required: bool,
    /// Its default.
    pub default: Option<Json>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Field {
    /// A parameter that must be given.
    #[must_use]
    pub fn required<T: JsonSchema>(param: &'static Param) -> Self {
        let schema = SchemaGenerator::subschema_for::<T>;
        Self { param, is_required: true, default: None, schema }
    }

    /// A parameter that may be left out and then has no value.
    #[must_use]
    pub fn optional<T: JsonSchema>(param: &'static Param) -> Self {
        Self { is_required: false, ..Self::required::<T>(param) }
    }

    /// A parameter with the value `default` if it is left out.
    #[must_use]
    pub fn with_default<T: JsonSchema + Serialize>(param: &'static Param, default: &T) -> Self {
        let default = serde_json::to_value(default).ok();
        Self { default, ..Self::optional::<T>(param) }
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Json {
        let mut schema = (self.schema)(generator).to_value();
        if schema.is_boolean() {
            schema = json!({});
        }
        schema["description"] = self.param.doc.into();
        if let Some(default) = &self.default {
            schema["default"] = default.clone();
        }
        if let Some(unit) = self.param.unit {
            schema["x-unit"] = unit.into();
        }
        if self.param.live {
            schema["x-live"] = true.into();
        }
        if let Some(Range { minimum, maximum }) = self.param.range {
            // The range of a list is that of its elements.
            let bounded =
                if schema.get("items").is_some() { &mut schema["items"] } else { &mut schema };
            for (key, end) in [("minimum", minimum), ("maximum", maximum)] {
                if let Some(end) = end {
                    bounded[key] = number(end);
                }
            }
        }
        schema
    }
}

/// `end` as JSON, integers without a fraction.
fn number(end: f64) -> Json {
    if end.fract() == 0.0 && end.abs() < 9e15 { json!(end as i64) } else { json!(end) }
}

/// Types for which a range makes sense.
#[diagnostic::on_unimplemented(
    message = "a parameter of type `{Self}` cannot have a `range`",
    label = "not a number, nor a list or `Option` of numbers"
)]
pub trait Bounded {
    /// Calls `see` for every number, with its path after the name of the parameter.
    fn each(&self, see: &mut dyn FnMut(&str, f64));
}

macro_rules! bounded {
    ($($number:ty)*) => {
        $(impl Bounded for $number {
            #[allow(clippy::cast_lossless, reason = "of some of the types only")]
            fn each(&self, see: &mut dyn FnMut(&str, f64)) {
                see("", *self as f64);
            }
        })*
    };
}
bounded!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);

impl<T: Bounded> Bounded for Option<T> {
    fn each(&self, see: &mut dyn FnMut(&str, f64)) {
        self.iter().for_each(|value| value.each(see));
    }
}

impl<T: Bounded> Bounded for Vec<T> {
    fn each(&self, see: &mut dyn FnMut(&str, f64)) {
        for (n, value) in self.iter().enumerate() {
            value.each(&mut |place, number| see(&format!(".{n}{place}"), number));
        }
    }
}

/// Names of live parameters; `#[derive(Kind)]` writes an enum of them.
pub trait LiveName: Copy + Send + Sync + 'static {
    /// Returns the live parameter `name`.
    fn named(name: &str) -> Option<Self>;
}

/// Type of the live parameters of a kind without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLive {}

impl LiveName for NoLive {
    fn named(_: &str) -> Option<Self> {
        None
    }
}

/// A struct whose fields are parameters: those of a kind, or a group that several kinds share. Derived by
/// `#[derive(Kind)]` or `#[derive(Parameters)]`.
pub trait Parameters: Sized {
    /// Names of the live parameters.
    type Live: LiveName;

    /// Appends every parameter to `fields`.
    fn fields(fields: &mut Vec<Field>);

    /// Reads the parameters; `None` if the reader has noted an error.
    fn read(reader: &mut ParametersReader<'_>) -> Option<Self>;
}

/// All parameters of `P`, including those of its groups.
pub(super) fn fields<P: Parameters>() -> Vec<Field> {
    let mut fields = Vec::new();
    P::fields(&mut fields);
    fields
}

/// Names of the live parameters of `P`.
pub(super) fn live<P: Parameters>() -> Vec<&'static str> {
    let live = fields::<P>().into_iter().map(|field| field.param).filter(|param| param.live);
    live.map(|param| param.name).collect()
}

/// Returns the live parameter `name`.
pub(super) fn live_named<P: Parameters>(name: &str) -> Option<P::Live> {
    P::Live::named(name)
}

/// JSON Schema of the parameters of `K`.
pub(super) fn schema<K: Kind>() -> Schema {
    let mut generator = SchemaGenerator::default();
    let fields = fields::<K>();
    let properties: Map<String, Json> = fields
        .iter()
        .map(|field| (field.param.name.to_owned(), field.schema(&mut generator)))
        .collect();
    let required: Vec<_> =
        fields.iter().filter(|field| field.is_required).map(|field| field.param.name).collect();
    let mut schema = Map::new();
    schema.insert("title".to_owned(), K::NAME.into());
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Json::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), Json::Object(definitions));
    }
    schema.into()
}

/// Reads the parameters of a kind; returns all errors at once.
pub(super) fn read<P: Parameters>(reader: Reader<'_>) -> Result<P, Vec<ReadError>> {
    let entries: &[(Key, Node)] = match &reader.node().value {
        Value::Map(entries) => entries,
        // `parameters:` with nothing after it.
        Value::Null => &[],
        _ => return Err(vec![reader.expected("a mapping")]),
    };
    let (owner, access) = (reader.owner(), reader.access());
    let (known, errors) = (Vec::new(), Vec::new());
    let mut reader = ParametersReader { entries, owner, access, known, errors };
    let parameters = P::read(&mut reader);
    let known = std::mem::take(&mut reader.known);
    let unknown = entries.iter().filter(|(key, _)| !known.contains(&key.text.as_str()));
    for (key, _) in unknown.take(MAX_ERRORS) {
        reader.note(ReadError::unknown_key(&key.text, &known).at(key.span));
    }
    parameters.filter(|_| reader.errors.is_empty()).ok_or(reader.errors)
}

/// Reads parameters from a mapping. It notes errors and continues.
pub struct ParametersReader<'a> {
    entries: &'a [(Key, Node)],
    /// Place for errors about missing parameters.
    owner: Span,
    /// Files that may be named.
    access: &'a FileAccess,
    /// Names of the parameters read so far.
    known: Vec<&'static str>,
    errors: Vec<ReadError>,
}

impl ParametersReader<'_> {
    /// Notes `error`, up to [`MAX_ERRORS`]: clients may send lists of any length.
    fn note(&mut self, error: ReadError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// Value of a parameter, if it is given; the outer `None` means that an error was noted.
    #[allow(clippy::option_option, reason = "not given, and given but wrong, differ")]
    pub fn given<T: DeserializeOwned>(&mut self, param: &'static Param) -> Option<Option<T>> {
        self.known.push(param.name);
        let given = self.entries.iter().find(|(key, _)| key.text == param.name);
        let Some((key, node)) = given else { return Some(None) };
        let access = self.access;
        let read = |node: &Node| T::deserialize(Reader::new(node, key.span).with_access(access));
        match read(node) {
            Ok(value) => Some(Some(value)),
            Err(error) => {
                let errors = all_errors(node, error, &|node| read(node).err());
                errors.into_iter().for_each(|error| self.note(error));
                None
            }
        }
    }

    /// Value of a parameter that must be given.
    pub fn required<T: DeserializeOwned>(&mut self, param: &'static Param) -> Option<T> {
        let given = self.given(param)?;
        if given.is_none() {
            self.note(ReadError::missing_key(param.name).at(self.owner));
        }
        given
    }

    /// Value of a parameter; `default` if it is not given.
    pub fn or<T: DeserializeOwned>(
        &mut self,
        param: &'static Param,
        default: impl FnOnce() -> T,
    ) -> Option<T> {
        Some(self.given(param)?.unwrap_or_else(default))
    }

    /// Returns `value`, if all its numbers are in the range of the parameter. Defaults are not checked.
    pub fn ranged<T: Bounded>(&mut self, param: &'static Param, value: Option<T>) -> Option<T> {
        let value = value?;
        let given = self.entries.iter().find(|(key, _)| key.text == param.name);
        let (Some((_, node)), Some(range)) = (given, param.range) else { return Some(value) };
        let mut is_ranged = true;
        value.each(&mut |place, number| {
            // NaN is in no range.
            let is_in = range.minimum.is_none_or(|minimum| number >= minimum)
                && range.maximum.is_none_or(|maximum| number <= maximum);
            is_ranged &= is_in;
            // Avoid formatting errors that are not kept, for long lists.
            if !is_in && self.errors.len() < MAX_ERRORS {
                let element = place.strip_prefix('.').and_then(|path| node.at(path));
                let error = out_of_range(param, range, place, number);
                self.note(error.at(element.unwrap_or(node).span));
            }
        });
        is_ranged.then_some(value)
    }
}

fn out_of_range(param: &Param, range: Range, place: &str, number: f64) -> ReadError {
    let unit = param.unit.map(|unit| format!(" {unit}")).unwrap_or_default();
    let must = match (range.minimum, range.maximum) {
        (Some(minimum), Some(maximum)) => format!("between {minimum} and {maximum}{unit}"),
        (Some(minimum), None) => format!("at least {minimum}{unit}"),
        (None, Some(maximum)) => format!("at most {maximum}{unit}"),
        (None, None) => "a number".to_owned(),
    };
    let message = format!("`{}{place}` must be {must}, got {number}", param.name);
    ReadError::new(Problem::Value, message, format!("must be {must}"))
}

/// Limit of the errors that are reported for one block, and of those searched for in one value.
pub(super) const MAX_ERRORS: usize = 32;

/// Returns all errors in `node`. `first` is the first one; the value with the error is removed and the rest read again
/// with `read`, and so on. Errors that follow from a removal are left out.
fn all_errors(
    node: &Node,
    first: ReadError,
    read: &dyn Fn(&Node) -> Option<ReadError>,
) -> Vec<ReadError> {
    let mut errors = Vec::new();
    let mut rest = node.clone();
    let mut removed: Vec<(String, Span)> = Vec::new();
    let mut next = Some(first);
    for _ in 0..MAX_ERRORS {
        let Some(error) = next else { break };
        let is_consequence = match &error.problem {
            Problem::MissingKey(key) => removed.iter().any(|(gone, _)| gone == key),
            Problem::Value => !removed.is_empty(),
            // A value with a removed entry.
            _ => removed.iter().any(|(_, gone)| error.span.is_some_and(|span| holds(span, *gone))),
        };
        let span = error.span;
        if !is_consequence {
            errors.push(error);
        }
        let Some(span) = span else { break };
        let Some(key) = take_away(&mut rest, span) else { break };
        removed.push((key, span));
        next = read(&rest);
    }
    errors
}

fn holds(outer: Span, inner: Span) -> bool {
    outer.file == inner.file && outer.start <= inner.start && inner.end <= outer.end
}

/// Removes the innermost entry of a mapping whose key or value is at `span`; returns its key.
fn take_away(node: &mut Node, span: Span) -> Option<String> {
    let entries = match &mut node.value {
        Value::Map(entries) => entries,
        Value::List(items) => {
            return items.iter_mut().find_map(|item| take_away(item, span));
        }
        _ => return None,
    };
    let position =
        entries.iter().position(|(key, value)| key.span == span || holds(value.span, span))?;
    if let Some(inner) = take_away(&mut entries[position].1, span) {
        return Some(inner);
    }
    Some(entries.remove(position).0.text)
}
