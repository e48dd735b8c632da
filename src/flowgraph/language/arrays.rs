//! Parameters that are arrays: `{npy: gains.npy}` names a NumPy file, `{npy_base64: "k05VTVBZ..."}` has the content of
//! one. A plan has contents only, so that its text and its hash state the values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fxgraph_core::access::{FileAccess, FileUse, ReadPath};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::files::Files;
use fxgraph_core::tree::{Key, Node, Value, list};
use fxgraph_recording::array::Header;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

/// Key of the path of a file.
const FILE: &str = "npy";
/// Key of the content of a file.
const CONTENT: &str = "npy_base64";
/// Limits of an array.
const MAX_BYTES: u64 = 32 << 20;
const MAX_ELEMENTS: usize = 1 << 20;
/// Limit of all files of arrays that a flowgraph or a request names, in bytes.
pub(crate) const MAX_ALL_BYTES: usize = 256 << 20;

/// The value of `key`, if `node` is a mapping with this key only.
fn only<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    match &node.value {
        Value::Map(entries) if entries.len() == 1 && entries[0].0.text == key => {
            Some(&entries[0].1)
        }
        _ => None,
    }
}

/// The value of a parameter with the content of a NumPy `file`.
pub(crate) fn of_content(file: &[u8]) -> serde_json::Value {
    serde_json::json!({ CONTENT: BASE64_STANDARD.encode(file) })
}

/// Puts the contents of arrays in place of the names of their files, in the `parameters` of a block. Returns the names.
/// The files must have at most `room` bytes together, and take them from it; `None`, after the report of a file that does
/// not fit, reads none.
pub(crate) fn load(
    parameters: &mut Node,
    room: &mut Option<usize>,
    access: &FileAccess,
    problems: &mut Vec<Diagnostic>,
) -> Vec<String> {
    let mut names = Vec::new();
    let Value::Map(entries) = &mut parameters.value else { return names };
    for (_, node) in entries {
        let Some(path) = only(node, FILE) else { continue };
        let Some(text) = path.text() else {
            problems.push(wrong(path.span, "the path of a NumPy file is text"));
            continue;
        };
        let Some(left) = *room else { break };
        match content(text, access) {
            Ok(bytes) if bytes.len() > left => {
                *room = None;
                let message = format!(
                    "the files of arrays must have at most {MAX_ALL_BYTES} bytes together, `{text}` exceeds them"
                );
                let problem = Diagnostic::error(codes::LIMIT, path.span, message);
                problems.push(problem.label("named here").help(
                    "leave arrays out, and set them while the flowgraph runs: \
                     `PUT /api/v1/blocks/BLOCK/parameters/PARAMETER`",
                ));
            }
            Ok(bytes) => {
                *room = Some(left - bytes.len());
                names.push(text.to_owned());
                let content = Value::Text(BASE64_STANDARD.encode(bytes));
                let key = Key { text: CONTENT.to_owned(), span: path.span };
                node.value = Value::Map(vec![(key, Node::new(content, path.span))]);
            }
            Err((message, help)) => {
                problems.push(wrong(path.span, &message).maybe_help(help.map(str::to_owned)));
            }
        }
    }
    names
}

/// Reads the file `text`; the error is a message with help.
fn content(text: &str, access: &FileAccess) -> Result<Vec<u8>, (String, Option<&'static str>)> {
    let located = access.check(FileUse::Read, text);
    let path = match located.map_err(|rejected| (rejected.message, Some(rejected.help)))? {
        Some([path, root]) => ReadPath::new(Files::below_known(Path::new(&root)), path),
        None => ReadPath::from(text),
    };
    let unread = |error: &std::io::Error| (format!("cannot read `{text}`: {error}"), None);
    let file = path.open().map_err(|error| unread(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unread(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err((format!("`{text}` must have at most {MAX_BYTES} bytes"), None));
    }
    let array = Array::read(bytes).map_err(|why| (format!("`{text}`: {why}"), None))?;
    Ok(array.bytes)
}

/// The `parameters` of a block with lists in place of arrays.
pub(crate) fn expanded(parameters: &Node) -> Result<Cow<'_, Node>, Vec<Diagnostic>> {
    let Value::Map(entries) = &parameters.value else { return Ok(Cow::Borrowed(parameters)) };
    if entries.iter().all(|(_, node)| only(node, CONTENT).is_none()) {
        return Ok(Cow::Borrowed(parameters));
    }
    let mut problems = Vec::new();
    let entry = |(key, node): &(Key, Node)| {
        let Some(content) = only(node, CONTENT) else { return (key.clone(), node.clone()) };
        let value = Array::of(content).map(|array| array.value(node.span));
        let value = value.unwrap_or_else(|why| {
            problems.push(wrong(content.span, &why));
            Value::Null
        });
        (key.clone(), Node::new(value, node.span))
    };
    let entries = Value::Map(entries.iter().map(entry).collect());
    if problems.is_empty() {
        Ok(Cow::Owned(Node::new(entries, parameters.span)))
    } else {
        Err(problems)
    }
}

/// Adds type and shape of arrays to the `problems` of their values in the `parameters` of a block.
pub(crate) fn describe(parameters: &Node, problems: &mut [Diagnostic]) {
    let Value::Map(entries) = &parameters.value else { return };
    for (key, node) in entries {
        let Some(Ok(array)) = only(node, CONTENT).map(Array::of) else { continue };
        let of_array = problems.iter_mut().filter(|problem| problem.span == Some(node.span));
        of_array.for_each(|problem| {
            problem.help.push(format!("`{}` is an array of {}", key.text, array.described()));
        });
    }
}

fn wrong(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error(codes::PARAMETER_OUT_OF_RANGE, span, message).label("not an array")
}

/// A NumPy file.
struct Array {
    bytes: Vec<u8>,
    header: Header,
    kind: u8,
    /// Bytes of an element.
    size: usize,
}

impl Array {
    /// The array with the `content` of a file.
    fn of(content: &Node) -> Result<Self, String> {
        let text = content.text().ok_or_else(|| format!("`{CONTENT}` must be text"))?;
        let bytes = BASE64_STANDARD.decode(text);
        Self::read(bytes.map_err(|error| format!("`{CONTENT}` must be base64: {error}"))?)
    }

    fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let header = Header::of_bytes(&bytes)?;
        let descr = header.descr.as_bytes();
        let (kind, size) = match descr {
            [b'<' | b'|', kind @ (b'i' | b'u'), size @ (b'1' | b'2' | b'4' | b'8')]
            | [b'<', kind @ b'f', size @ (b'4' | b'8')]
            | [b'<', kind @ b'c', size @ b'8'] => (*kind, usize::from(size - b'0')),
            b"<c16" => (b'c', 16),
            _ => {
                return Err(format!(
                    "NumPy type `{}` is not supported; use integers, `<f4`, `<f8`, `<c8` or `<c16`",
                    header.descr
                ));
            }
        };
        // The lists count, too: a long axis before one of length 0 or 1 makes as many lists.
        let mut lens = header.shape.iter().map(|len| usize::try_from(*len).ok());
        let counted = lens.try_fold((1_usize, 0_usize), |(all, lists), len| {
            let (all, lists) = (all.checked_mul(len?)?, lists.checked_add(all)?);
            (all <= MAX_ELEMENTS && lists <= 2 * MAX_ELEMENTS).then_some((all, lists))
        });
        let (elements, _) = counted.ok_or_else(|| {
            format!("an array must have at most {MAX_ELEMENTS} elements, got {}", shape(&header))
        })?;
        let data = bytes.len() - (header.data_offset as usize).min(bytes.len());
        if data != elements * size {
            return Err(format!(
                "an array of `{}` {} must have {} bytes of data, got {data}",
                header.descr,
                shape(&header),
                elements * size
            ));
        }
        Ok(Self { bytes, header, kind, size })
    }

    fn described(&self) -> String {
        format!("NumPy type `{}` and {}", self.header.descr, shape(&self.header))
    }

    /// Its elements in lists; complex ones are `{re, im}`.
    fn value(&self, span: Span) -> Value {
        let data = &self.bytes[self.header.data_offset as usize..];
        let lens: Vec<usize> = self.header.shape.iter().map(|len| *len as usize).collect();
        let mut elements = data.chunks_exact(self.size).map(|bytes| self.element(bytes, span));
        nested(&lens, &mut elements, span)
    }

    fn element(&self, bytes: &[u8], span: Span) -> Value {
        let part = |key: &str, bytes| {
            let key = Key { text: key.to_owned(), span };
            (key, Node::new(Value::Float(float(bytes)), span))
        };
        match self.kind {
            b'f' => Value::Float(float(bytes)),
            b'c' => {
                let (re, im) = bytes.split_at(self.size / 2);
                Value::Map(vec![part("re", re), part("im", im)])
            }
            kind => {
                let is_negative = kind == b'i' && bytes.last().is_some_and(|byte| *byte >= 0x80);
                let mut all = [if is_negative { 0xff } else { 0 }; 16];
                all[..bytes.len()].copy_from_slice(bytes);
                Value::Int(i128::from_le_bytes(all))
            }
        }
    }
}

fn shape(header: &Header) -> String {
    let lens: Vec<String> = header.shape.iter().map(u64::to_string).collect();
    format!("shape ({})", lens.join(", "))
}

fn float(bytes: &[u8]) -> f64 {
    match bytes {
        [a, b, c, d] => f64::from(f32::from_le_bytes([*a, *b, *c, *d])),
        _ => bytes.try_into().map_or(f64::NAN, f64::from_le_bytes),
    }
}

fn nested(lens: &[usize], elements: &mut impl Iterator<Item = Value>, span: Span) -> Value {
    match lens.split_first() {
        None => elements.next().unwrap_or(Value::Null),
        Some((len, inner)) => list((0..*len).map(|_| nested(inner, elements, span)), span),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph_core::access;
    use fxgraph_core::npy;
    use serde_json::{Value as Json, json};

    fn file(descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
        [npy::header(descr, shape, 0), data.to_vec()].concat()
    }

    fn given(value: Json) -> Node {
        Node::of_json(&json!({ "gains": value }), Span::default())
    }

    fn read(bytes: &[u8]) -> Result<Json, String> {
        let node = given(json!({ CONTENT: BASE64_STANDARD.encode(bytes) }));
        let read = expanded(&node).map(|node| node.value.to_json()["gains"].clone());
        read.map_err(|problems| problems[0].message.clone())
    }

    #[test]
    fn array_expands_to_lists_of_its_elements() {
        let complex: Vec<u8> =
            [1.0_f32, -2.0, 0.5, 0.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let expected = json!([[{"re": 1.0, "im": -2.0}, {"re": 0.5, "im": 0.0}]]);
        assert_eq!(read(&file("<c8", &[1, 2], &complex)), Ok(expected));
        assert_eq!(read(&file("<i2", &[2], &[0xff, 0xff, 1, 1])), Ok(json!([-1, 257])));
        assert_eq!(read(&file("|u1", &[], &[200])), Ok(json!(200)));
        assert_eq!(read(&file("<f8", &[1], &0.1_f64.to_le_bytes())), Ok(json!([0.1])));
        assert_eq!(read(&file("<f4", &[0, 3], &[])), Ok(json!([])));
    }

    #[test]
    fn hostile_arrays_are_rejected_with_type_and_shape() {
        let why = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(why(b"PK").contains("ends within its header"));
        assert!(why(&file("<M8", &[1], &[0; 8])).contains("`<M8` is not supported"));
        let said = why(&file("<c8", &[2, 3], &[0; 40]));
        assert_eq!(said, "an array of `<c8` shape (2, 3) must have 48 bytes of data, got 40");
        let lists = [1 << 20, 1, 1, 1];
        for shape in [&[u64::MAX, 2][..], &[1 << 30], &[1 << 20, 2], &[1 << 40, 0], &lists] {
            assert!(why(&file("<f4", shape, &[])).contains("at most 1048576 elements"));
        }
        let node = given(json!({ CONTENT: "?" }));
        assert!(expanded(&node).unwrap_err()[0].message.contains("must be base64"));
        assert!(expanded(&given(json!({ CONTENT: 1 }))).is_err());
    }

    #[test]
    fn file_is_replaced_by_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gains.npy");
        let bytes = file("<f4", &[1], &2.0_f32.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let mut node = given(json!({ FILE: path.display().to_string() }));
        let (mut problems, mut room) = (Vec::new(), Some(bytes.len()));
        let names = load(&mut node, &mut room, &access::ANY, &mut problems);
        assert_eq!((names, problems.len()), (vec![path.display().to_string()], 0));
        let content = &node.value.to_json()["gains"][CONTENT];
        assert_eq!((content, room), (&json!(BASE64_STANDARD.encode(bytes)), Some(0)));
        for (value, why) in [(json!("none.npy"), "cannot read `none.npy`"), (json!(1), "is text")] {
            let mut node = given(json!({ FILE: value }));
            load(&mut node, &mut room, &access::ANY, &mut problems);
            assert!(problems.pop().unwrap().message.contains(why));
        }
        let mut named = given(json!({ FILE: path.display().to_string() }));
        for _ in 0..2 {
            assert!(load(&mut named, &mut room, &access::ANY, &mut problems).is_empty());
            // Only the first file that exceeds the limit is read and reported.
            assert_eq!((problems.len(), problems[0].code, room), (1, codes::LIMIT, None));
        }
        (problems, room) = (Vec::new(), Some(MAX_ALL_BYTES));
        std::fs::write(&path, "no array at all").unwrap();
        load(
            &mut given(json!({ FILE: path.display().to_string() })),
            &mut room,
            &access::ANY,
            &mut problems,
        );
        assert!(problems[0].message.contains("not a .npy array"), "{problems:?}");
    }
}
