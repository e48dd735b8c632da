//! `name=value` on the command line, the value in YAML.

use serde_json::Value;

/// A name and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub name: String,
    pub value: Value,
}

impl Assignment {
    /// Reads `name=value`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("give it as NAME=VALUE")?;
        let name = name.trim();
        if name.is_empty() {
            return Err("give it as NAME=VALUE".to_owned());
        }
        Ok(Self { name: name.to_owned(), value: parse_value(value)? })
    }
}

/// Reads a value in YAML, of which JSON is a part.
pub fn parse_value(text: &str) -> Result<Value, String> {
    let value = fxgraph::flowgraph::read_value(text);
    value
        .map(|value| value.to_json())
        .map_err(|error| format!("the value is not valid YAML: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn assignment_splits_at_first_equals_sign_and_reads_yaml() {
        let parsed = |text| Assignment::parse(text).map(|read| (read.name, read.value));
        assert_eq!(parsed("taps=8"), Ok(("taps".to_owned(), json!(8))));
        assert_eq!(parsed("x = {a: [1, 0.5]}"), Ok(("x".to_owned(), json!({"a": [1, 0.5]}))));
        assert_eq!(parsed("signals=cw(0.1, f=1)").unwrap().1, json!("cw(0.1, f=1)"));
        assert_eq!(parsed("path=").unwrap().1, json!(null));
        // Same rules as in flowgraph files.
        assert_eq!(parsed("name=010").unwrap().1, json!("010"));
        assert_eq!(parsed("gain=.nan").unwrap().1, json!(".nan"));
        assert!(parsed("x={a: 1, a: 2}").is_err());
        assert!(parsed("taps").is_err() && parsed("=8").is_err() && parsed("a=[1").is_err());
    }
}
