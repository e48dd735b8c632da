//! The declaration of a kernel: YAML in the comment at the top of its file.

use super::numbers::NumberType;
use crate::util::python::COUNTERS;
use fxgraph::diagnostic::Span;
use fxgraph::flowgraph::read_tree;
use fxgraph::tree::{Node, Reader};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// First line of the comment, after the comment sign.
const MARK: &str = "fxgraph";
/// Largest declaration in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Largest number of parameters, buffers and counters together: they are one argument of the kernel, of at most 4 KiB.
const MAX_MEMBERS: usize = 64;
/// Longest name.
const MAX_NAME_BYTES: usize = 64;
/// Names that `Fx`, or the object of the reference, has itself.
const TAKEN: [&str; 18] = [
    "input",
    "output",
    "input_validity",
    "output_validity",
    "timestamp",
    "sequence",
    "is_continuous",
    "ports",
    "start",
    "work",
    "updated",
    "finish",
    "counters",
    "input_elements",
    "output_elements",
    "input_units",
    "output_units",
    "samples_per_frame",
];
/// Words of C++ and Python, and names of the text before the kernel, that cannot be names.
const WORDS: &str = "\
alignas alignof and and_eq as asm assert async auto await bitand bitor bool break case catch char char16_t char32_t char8_t \
class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype def default \
del delete do double dynamic_cast elif else enum except explicit export extern False false finally float for friend from \
global goto if import in inline int is lambda long main mutable namespace new None noexcept nonlocal not not_eq nullptr \
operator or or_eq pass private protected public raise register reinterpret_cast requires return short signed sizeof static \
static_assert static_cast struct switch template this thread_local throw True true try typedef typeid typename union unsigned \
using virtual void volatile wchar_t while with xor xor_eq yield \
Fx FxInput FxOutput u8 u16 u32 u64 i8 i16 i32 i64 char2 short2 int2 float2 double2";

/// Error in a kernel file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the file, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// The error in one line.
    pub message: String,
    /// Advice.
    pub help: Option<String>,
}

impl Problem {
    /// An error of the file as a whole.
    pub fn of_file(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into(), help: None }
    }

    /// Sets the advice.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// An expression, as text.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(pub String);

/// An axis of the output.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputAxis {
    pub name: String,
    /// Length; `None` for that of the input.
    pub length: Option<Expression>,
}

/// One value, or a list of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OneOrMore(pub Vec<String>);

/// A parameter of the kernel.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    #[serde(rename = "type")]
    pub number: NumberType,
    /// Value if none is given; without it, a value must be given.
    pub default: Option<Value>,
    /// Least and greatest value.
    pub range: Option<[f64; 2]>,
    pub unit: Option<String>,
    /// Whether it may change while the block runs.
    #[serde(default)]
    pub live: bool,
    /// Description, for readers of the file.
    #[serde(default)]
    #[allow(dead_code, reason = "read by people")]
    pub doc: String,
}

/// Rule for the input.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Data types that the kernel accepts; empty for all.
    #[serde(default)]
    pub dtype: OneOrMore,
    /// Names of its axes, in order; `None` for any axes.
    pub axes: Option<Vec<String>>,
}

/// Rule for the validity of the output.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validity {
    /// Units and counts of the input.
    #[default]
    Same,
    /// One flag for the frame: valid if the whole input is. The frame is zeroed if not.
    Whole,
    /// One flag for each element of these axes of the output, which the kernel may clear.
    Units(Vec<String>),
}

/// The output.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Data type; `None` for that of the input.
    pub dtype: Option<String>,
    /// Axes; `None` for those of the input.
    pub axes: Option<Vec<OutputAxis>>,
    #[serde(default)]
    pub validity: Validity,
}

/// Launch of the kernel: up to 3 numbers of blocks and of threads.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    pub grid: Vec<Expression>,
    pub block: Vec<Expression>,
    pub shared_bytes: Option<Expression>,
}

/// An array on the device that lives as long as the block.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    pub dtype: String,
    /// Number of elements.
    pub length: Expression,
}

/// The declaration.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// Name of the kernel, and of the function in the reference; by default that of the file without its ending.
    pub kernel: Option<String>,
    /// File with the reference, in the same directory; by default that of the same name with the ending `.py`, if it exists.
    pub reference: Option<String>,
    #[serde(default)]
    pub parameters: BTreeMap<String, Parameter>,
    #[serde(default)]
    pub input: Input,
    #[serde(default)]
    pub output: Output,
    pub launch: Launch,
    /// Macros with the values of expressions.
    #[serde(default)]
    pub constants: BTreeMap<String, Expression>,
    /// Conditions for the sizes and parameters.
    #[serde(default)]
    pub require: Vec<Expression>,
    #[serde(default)]
    pub buffers: BTreeMap<String, Buffer>,
    /// Counters to which the kernel adds, with their descriptions.
    #[serde(default)]
    pub counters: BTreeMap<String, String>,
}

/// A declaration with its places in the file.
#[derive(Clone, Debug)]
pub struct Declared {
    pub declaration: Declaration,
    tree: Node,
    /// Text of the declaration, at its lines of the file.
    text: String,
}

impl Declared {
    /// Reads the declaration of the file `text`.
    pub fn read(text: &str) -> Result<Self, Problem> {
        let text = comment(text)?;
        let tree = read_tree(&text).map_err(|diagnostics| {
            let first = diagnostics.into_iter().next();
            let at = first.as_ref().map(|first| line_at(&text, first.span.unwrap_or_default()));
            let message = first.map_or_else(String::new, |first| first.message);
            Problem { line: at, message, help: None }
        })?;
        let declaration = Declaration::deserialize(Reader::new(&tree, tree.span));
        let declaration = declaration.map_err(|error| Problem {
            line: Some(line_at(&text, error.span.unwrap_or(tree.span))),
            message: error.message,
            help: error.help,
        })?;
        let declared = Self { declaration, tree, text };
        declared.check_names()?;
        Ok(declared)
    }

    /// An error of the value at `path`, such as `launch.grid.0`.
    pub fn problem(&self, path: &str, message: impl Into<String>) -> Problem {
        let span = self.tree.at(path).map(|node| node.span);
        let line = span.map(|span| line_at(&self.text, span));
        Problem { line, message: message.into(), help: None }
    }

    fn check_names(&self) -> Result<(), Problem> {
        let declaration = &self.declaration;
        let [parameters, buffers, counters, constants] = [
            ("parameters", declaration.parameters.keys().collect::<Vec<_>>()),
            ("buffers", declaration.buffers.keys().collect()),
            ("counters", declaration.counters.keys().collect()),
            ("constants", declaration.constants.keys().collect()),
        ];
        let mut seen: BTreeSet<&str> = TAKEN.into();
        for (list, names) in [parameters, buffers, counters, constants] {
            for name in names {
                let path = format!("{list}.{name}");
                if !is_name(name) {
                    let message = format!(
                        "`{name}` must be a name of letters, digits and `_` that begins with a letter, and no word of C++ or \
                         Python"
                    );
                    return Err(self.problem(list, message));
                }
                if list == "counters" && COUNTERS.contains(&name.as_str()) {
                    let message = format!("the process of the reference counts `{name}` itself");
                    return Err(self.problem(&path, message).help("choose another name"));
                }
                if !seen.insert(name) || is_size(name) {
                    return Err(self.problem(&path, format!("the name `{name}` is in use")));
                }
            }
        }
        let members = seen.len() - TAKEN.len();
        if members > MAX_MEMBERS {
            let message = format!(
                "a kernel must have at most {MAX_MEMBERS} parameters, buffers, counters and constants, got {members}"
            );
            return Err(self.problem("parameters", message));
        }
        for (path, name) in [("kernel", &declaration.kernel), ("reference", &declaration.reference)]
        {
            let base = |name: &str| match path {
                "kernel" => Some(name.to_owned()),
                _ => name.strip_suffix(".py").map(str::to_owned),
            };
            if let Some(name) = name
                && !base(name).is_some_and(|base| is_name(&base))
            {
                let rule = if path == "kernel" {
                    "a name that begins with a letter, and no word of C++ or Python"
                } else {
                    "a file beside this one, such as `gain.py`"
                };
                return Err(self.problem(path, format!("`{path}` must be {rule}, got `{name}`")));
            }
        }
        let dimensions = [("grid", &declaration.launch.grid), ("block", &declaration.launch.block)];
        for (name, numbers) in dimensions {
            if !(1..=3).contains(&numbers.len()) {
                let message = format!("`{name}` must have 1 to 3 numbers, got {}", numbers.len());
                return Err(self.problem(&format!("launch.{name}"), message));
            }
        }
        Ok(())
    }
}

/// Whether `name` is a name in C++ and in Python. Those that begin with `_` are for compilers and for fxgraph.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !WORDS.split_ascii_whitespace().any(|word| word == name)
}

/// Whether expressions have `name` for the length of an axis.
fn is_size(name: &str) -> bool {
    let axis = name.strip_prefix("input_").or(name.strip_prefix("output_")).unwrap_or(name);
    crate::common::axes::known(axis).is_some()
}

/// Line of the start of `span` in `text`, from 1.
fn line_at(text: &str, span: Span) -> usize {
    let before = text.get(..span.start as usize).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Returns the text of the declaration in the comment at the top of `file`, with an empty line for each line before.
fn comment(file: &str) -> Result<String, Problem> {
    let none = || {
        Problem { line: Some(1), ..Problem::of_file("the file must begin with its declaration") }
            .help("begin it with a comment: `/* fxgraph`, then lines such as `launch: {grid: [1], block: [256]}`, then `*/`")
    };
    let mut rest = file.trim_start();
    while rest.starts_with("//") {
        rest = rest.split_once('\n').ok_or_else(none)?.1.trim_start();
    }
    let (first, body) =
        rest.strip_prefix("/*").and_then(|rest| rest.split_once('\n')).ok_or_else(none)?;
    if first.trim() != MARK {
        return Err(none());
    }
    let before = file[..file.len() - body.len()].matches('\n').count();
    let Some((text, _)) = body.split_once("*/") else {
        let problem = Problem::of_file("the comment with the declaration does not end");
        return Err(Problem { line: Some(before), ..problem }.help("end it with `*/`"));
    };
    if text.len() > MAX_BYTES {
        let message =
            format!("the declaration must have at most {MAX_BYTES} bytes, got {}", text.len());
        return Err(Problem { line: Some(before), ..Problem::of_file(message) });
    }
    Ok("\n".repeat(before) + text)
}

struct ExpressionVisitor;

impl Visitor<'_> for ExpressionVisitor {
    type Value = Expression;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an expression")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Expression, E> {
        Ok(Expression(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Expression, E> {
        Ok(Expression(number.to_string()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Expression, E> {
        Ok(Expression(number.to_string()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Expression, E> {
        Ok(Expression(format!("{number:?}")))
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ExpressionVisitor)
    }
}

struct AxisVisitor;

impl<'de> Visitor<'de> for AxisVisitor {
    type Value = OutputAxis;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an axis, or a name with its length")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<OutputAxis, E> {
        Ok(OutputAxis { name: name.to_owned(), length: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OutputAxis, A::Error> {
        let one = || A::Error::custom("an axis must be a name, or one name with its length");
        let (name, length) = map.next_entry()?.ok_or_else(one)?;
        if map.next_entry::<String, Expression>()?.is_some() {
            return Err(one());
        }
        Ok(OutputAxis { name, length: Some(length) })
    }
}

impl<'de> Deserialize<'de> for OutputAxis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AxisVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = OneOrMore;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a data type, or a list of them")
    }

    fn visit_str<E: Error>(self, one: &str) -> Result<OneOrMore, E> {
        Ok(OneOrMore(vec![one.to_owned()]))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            all.push(one);
        }
        Ok(OneOrMore(all))
    }
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ListVisitor)
    }
}
