//! Tests of declaration, reading and schema of parameters.

#![allow(clippy::unwrap_used)]

use super::parameters::{MAX_ERRORS, schema};
use super::read;
use crate::{
    BlockError, Checked, Implementation, Implementations, Kind, KindSpec, Parameters, PortType,
};
use serde_json::{Map, Value as Json, json};

/// A kind with all types of parameters: required, with default, optional, in a group.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sorts", page = "test_page.md")]
struct Sorts {
    /// Must be given.
    must: u32,
    /// Each within a range.
    #[param(default = vec![1.0], range = 0..=10, unit = "V")]
    levels: Vec<f64>,
    /// May be left out.
    #[param(range = 1..)]
    may: Option<u64>,
    #[param(flatten)]
    group: Group,
}

/// Shared by several kinds.
#[derive(Clone, Debug, Parameters)]
struct Group {
    /// A word.
    #[param(default = "word")]
    word: String,
}

impl KindSpec for Sorts {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|_, _| Err(BlockError::new("never built")))];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }
}

fn errors(json: &Json) -> Vec<String> {
    let errors = read::<Sorts>(json).unwrap_err();
    errors.into_iter().map(|error| error.message).collect()
}

#[test]
fn read_fills_defaults_and_groups() {
    let sorts: Sorts = read(&json!({"must": 3, "word": "other"})).unwrap();
    assert_eq!((sorts.must, sorts.levels.as_slice(), sorts.may), (3, &[1.0][..], None));
    assert_eq!(sorts.group.word, "other");
    let sorts: Sorts = read(&json!({"must": 3, "may": null})).unwrap();
    assert_eq!((sorts.may, sorts.group.word.as_str()), (None, "word"));
}

#[test]
fn read_reports_all_errors() {
    let wrong = json!({"levels": [3, 11, -1], "may": 0, "word": 5, "wrod": "x"});
    assert_eq!(
        errors(&wrong),
        [
            "the key `must` is missing",
            "`levels.1` must be between 0 and 10 V, got 11",
            "`levels.2` must be between 0 and 10 V, got -1",
            "`may` must be at least 1, got 0",
            "expected text, found `5`",
            "unknown key `wrod`",
        ]
    );
    assert_eq!(errors(&json!([])), ["expected a mapping, found a list"]);
}

#[test]
fn read_limits_number_of_errors() {
    let levels = vec![11.0; 100_000];
    assert_eq!(errors(&json!({"must": 1, "levels": levels})).len(), MAX_ERRORS);
    let keys: Map<String, Json> = (0..100_000).map(|n| (format!("k{n}"), json!(0))).collect();
    assert_eq!(errors(&Json::Object(keys)).len(), MAX_ERRORS);
}

#[test]
fn schema_matches_declaration() {
    let schema = schema::<Sorts>().to_value();
    assert_eq!(schema["required"], json!(["must"]));
    let levels = &schema["properties"]["levels"];
    assert_eq!((&levels["default"], &levels["x-unit"]), (&json!([1.0]), &json!("V")));
    let items = &levels["items"];
    assert_eq!((&items["minimum"], &items["maximum"]), (&json!(0), &json!(10)));
    assert_eq!(schema["properties"]["word"]["default"], "word");
}
