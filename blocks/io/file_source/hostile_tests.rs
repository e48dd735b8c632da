//! Modified recordings: each is played, or rejected with the name of the file and the fault.
#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::Dtype;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tests::{play, record, source};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// Returns a directory with the recording `a.{extension}`.
fn recorded(extension: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("a.{extension}"));
    record(&path.display().to_string(), Dtype::Ci8);
    (directory, path)
}

/// Returns the error about the recording at `path`; `None` if it can be played.
fn said(path: &Path) -> Option<String> {
    let said = play(&source(&path.display().to_string())).err()?;
    // The other arrays of `a.npy` are in files of the same directory.
    let stem = path.with_extension("").display().to_string();
    assert!(said.contains(&stem), "names no file: {said}");
    assert!(!said.chars().any(char::is_control), "{said:?}");
    assert!(said.len() < 600, "{said}");
    Some(said.replace(&stem, "a"))
}

/// Returns the JSON pointers of all values in `value`.
fn pointers(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Array(items) => {
            items.iter().enumerate().map(|(n, item)| (format!("/{n}"), item)).collect()
        }
        Value::Object(entries) => entries.iter().map(|(k, v)| (format!("/{k}"), v)).collect(),
        _ => Vec::new(),
    };
    let behind = inner.into_iter().flat_map(|(step, value)| {
        let inner = pointers(value).into_iter().map(move |rest| format!("{step}{rest}"));
        inner.collect::<Vec<_>>()
    });
    [String::new()].into_iter().chain(behind).collect()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "mapping",
    }
}

fn wrong_values() -> Vec<Value> {
    let numbers =
        [json!(0), json!(-1), json!(0.5), json!(1e300), json!(u64::MAX), json!(1u64 << 40)];
    let others = [json!(null), json!(true), json!("\u{1b}[2J"), json!([]), json!({}), json!("x")];
    let long = [json!("y".repeat(100_000)), json!(vec![1; 3000])];
    numbers.into_iter().chain(others).chain(long).collect()
}

/// Replaces the description in the archive at `path`.
fn describe(path: &Path, description: &str) {
    let mut old = ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut members = Vec::new();
    for n in 0..old.len() {
        let mut member = old.by_index(n).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        members.push((member.name().unwrap().into_owned(), bytes));
    }
    let mut new = ZipWriter::new(fs::File::create(path).unwrap());
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (name, bytes) in members {
        let is_description = name == fxgraph::recording::DESCRIPTION;
        new.start_file(name, options).unwrap();
        new.write_all(if is_description { description.as_bytes() } else { &bytes }).unwrap();
    }
    new.finish().unwrap();
}

#[test]
fn recording_json_with_a_wrong_value_is_rejected_by_its_key() {
    let (_directory, path) = recorded("npy");
    let side = format!("{}.json", path.display());
    let good: Value = serde_json::from_str(&fs::read_to_string(&side).unwrap()).unwrap();
    let mut rejected = 0;
    for pointer in pointers(&good) {
        for wrong in wrong_values() {
            let mut bad = good.clone();
            let before = std::mem::replace(bad.pointer_mut(&pointer).unwrap(), wrong.clone());
            fs::write(&side, bad.to_string()).unwrap();
            let said = said(&path);
            rejected += usize::from(said.is_some());
            let is_other_kind = kind_of(&before) != kind_of(&wrong);
            let may_be_null = before.is_null() || wrong.is_null();
            if is_other_kind && !may_be_null {
                let key = pointer.rsplit('/').find(|step| step.parse::<usize>().is_err());
                let said = said.unwrap_or_else(|| panic!("{wrong} is played at {pointer}"));
                assert!(said.contains("a.npy.json is wrong: "), "{said}");
                assert!(said.contains(key.unwrap_or_default()), "{wrong} at {pointer}: {said}");
            }
        }
    }
    assert!(rejected > 200, "{rejected}");
}

#[test]
fn recording_json_without_a_key_is_rejected_by_its_key() {
    let (_directory, path) = recorded("npz");
    let file = fs::read(&path).unwrap();
    let inside = side_text(&path);
    let good: Value = serde_json::from_str(&inside).unwrap();
    let optional = ["band", "first_timestamp", "start_unix_seconds"];
    for key in good.as_object().unwrap().keys().filter(|key| !optional.contains(&key.as_str())) {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(key);
        describe(&path, &bad.to_string());
        let expected = format!("recording.json of a.npz is wrong: the key `{key}` is missing");
        assert_eq!(said(&path), Some(expected));
        fs::write(&path, &file).unwrap();
    }
    describe(&path, &inside.replacen("\"frames\"", "frames", 1));
    let said = said(&path).unwrap();
    assert!(
        said.starts_with("recording.json of a.npz is wrong: key must be a string (line "),
        "{said}"
    );
}

fn side_text(path: &Path) -> String {
    let mut archive = ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut text = String::new();
    archive.by_name("recording.json").unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn archive_with_too_many_members_is_rejected() {
    let (_directory, path) = recorded("npz");
    let mut new = ZipWriter::new(fs::File::create(&path).unwrap());
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for n in 0..70_000 {
        new.start_file(format!("{n}.npy"), options).unwrap();
    }
    new.finish().unwrap();
    fs::remove_file(format!("{}.json", path.display())).unwrap();
    let expected = "cannot read a.npz: it has 70000 members, more than the limit of 1024";
    assert_eq!(said(&path).unwrap(), expected);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 30]).unwrap();
    assert!(said(&path).unwrap().ends_with("it has more members than the limit of 1024"));
}

#[test]
fn archive_without_description_is_rejected() {
    let (_directory, path) = recorded("npz");
    fs::remove_file(format!("{}.json", path.display())).unwrap();
    let mut new = ZipWriter::new(fs::File::create(&path).unwrap());
    new.start_file("arr_0.npy", SimpleFileOptions::default()).unwrap();
    new.finish().unwrap();
    assert!(said(&path).unwrap().contains("a.npz is not a recording"));
}

#[test]
fn compressed_member_is_rejected() {
    let (_directory, path) = recorded("npz");
    // The method of compression of the last member, in its header and in the directory.
    let mut bytes = fs::read(&path).unwrap();
    for (mark, method) in [(b"PK\x03\x04", 8), (b"PK\x01\x02", 10)] {
        let at = bytes.windows(4).rposition(|window| window == mark).unwrap();
        bytes[at + method] = 8;
    }
    fs::write(&path, bytes).unwrap();
    let said = said(&path).unwrap();
    assert!(said.starts_with("cannot read data.npy of a.npz: it is compressed"), "{said}");
}

#[test]
fn pipe_instead_of_a_file_is_rejected() {
    for (extension, name) in [("npy", "a.npy"), ("npy", "a.npy.json"), ("npz", "a.npz")] {
        let (directory, path) = recorded(extension);
        let pipe = directory.path().join(name);
        fs::remove_file(&pipe).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let said = said(&path).unwrap();
        assert!(said.contains("it is not a regular file"), "{said}");
    }
}

/// A change of bytes.
#[derive(Clone, Debug)]
enum Edit {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Insert(prop::sample::Index, Vec<u8>),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<prop::sample::Index>;
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(b"0123456789',(){}[]\":-e \xff".to_vec())];
    let edit = prop_oneof![
        6 => (at(), byte).prop_map(|(at, byte)| Edit::Set(at, byte)),
        1 => at().prop_map(Edit::Cut),
        1 => (at(), 1..40usize).prop_map(|(at, count)| Edit::Remove(at, count)),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, b)| Edit::Insert(at, b)),
    ];
    prop::collection::vec(edit, 1..4)
}

/// Returns `bytes` with the `edits`, applied to the first `among` bytes.
fn edited(bytes: &[u8], edits: Vec<Edit>, among: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for edit in edits {
        let len = bytes.len().min(among);
        if len == 0 {
            break;
        }
        match edit {
            Edit::Set(at, byte) => bytes[at.index(len)] = byte,
            Edit::Cut(at) => bytes.truncate(at.index(len)),
            Edit::Remove(at, count) => {
                let at = at.index(len);
                bytes.drain(at..(at + count).min(len));
            }
            Edit::Insert(at, new) => {
                let at = at.index(len);
                bytes.splice(at..at, new);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn recording_json_with_edits_is_played_or_rejected_by_name(edits in edits()) {
        let (_directory, path) = recorded("npz");
        let text = side_text(&path);
        describe(&path, &String::from_utf8_lossy(&edited(text.as_bytes(), edits, usize::MAX)));
        said(&path);
    }

    #[test]
    fn archive_with_edits_is_played_or_rejected_by_name(edits in edits(), alone: bool) {
        let (_directory, path) = recorded("npz");
        if alone {
            fs::remove_file(format!("{}.json", path.display())).unwrap();
        }
        let bytes = edited(&fs::read(&path).unwrap(), edits, usize::MAX);
        fs::write(&path, bytes).unwrap();
        said(&path);
    }

    #[test]
    fn array_header_with_edits_is_played_or_rejected_by_name(edits in edits(), array in 0..7usize) {
        let (_directory, path) = recorded("npy");
        let names = ["", ".sequence", ".timestamp", ".config_id", ".validity", ".saturated", ".checksum"];
        let array = path.with_extension(format!("{}.npy", names[array]).trim_start_matches('.'));
        let bytes = edited(&fs::read(&array).unwrap(), edits, 128);
        fs::write(&array, bytes).unwrap();
        said(&path);
    }
}
