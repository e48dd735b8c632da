//! Parameters with file names: every kind declares them as files.

use crate::kinds;
use serde_json::Value;

/// Words in the names of parameters for files.
const FILE_WORDS: [&str; 8] =
    ["path", "file", "folder", "directory", "pcap", "filename", "fifo", "navigation"];

/// Collects the names of text properties in `schema`, and whether they are declared as files.
fn texts(schema: &Value, found: &mut Vec<(String, bool)>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let types = &property["type"];
            if types == "string"
                || types.as_array().is_some_and(|all| all.contains(&"string".into()))
            {
                found.push((name.clone(), property.get("x-file").is_some()));
            }
        }
    }
    match schema {
        Value::Object(entries) => entries.values().for_each(|inner| texts(inner, found)),
        Value::Array(items) => items.iter().for_each(|inner| texts(inner, found)),
        _ => {}
    }
}

#[test]
fn parameters_with_file_names_are_declared_as_files() {
    let mut declared = 0;
    for kind in kinds().iter() {
        let mut found = Vec::new();
        texts(&(kind.schema)().to_value(), &mut found);
        for (name, is_declared) in found {
            let is_counted = name.ends_with("frames_per_file");
            let sounds_so = name.split('_').any(|word| FILE_WORDS.contains(&word)) && !is_counted;
            assert_eq!(sounds_so, is_declared, "`{name}` of `{}`", kind.name);
            declared += usize::from(is_declared);
        }
    }
    let others =
        "file_sink, file_source, image_sink, kernel, python, recorder, spead_source, uvh5_sink (2)";
    let formats = "DADA, filterbank, GUPPI, SigMF, VDIF: a sink and a source each";
    let radio = "gnss_position (3), gnss_signal_simulator, sample_sink, sample_source (2)";
    assert_eq!(declared, 26, "{others}; {formats}; {radio}");
}
