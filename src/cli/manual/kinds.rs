//! Pages of kinds, and the table of all kinds.

use super::{cell, text};
use fxgraph::{KindEntry, Registry};
use serde_json::Value;
use std::fmt::Write as _;

/// Family of kinds, and its heading. Kinds of other crates have no family.
const FAMILIES: [(&str, &str); 8] = [
    ("io", "Sources and sinks"),
    ("radio", "Radios and other programs"),
    ("f_engine", "F-engine"),
    ("x_engine", "Correlator and beamformer"),
    ("frb", "FRB search"),
    ("gnss", "GNSS"),
    ("util", "Utilities"),
    ("", "Kinds of other crates"),
];

/// The table of all kinds.
pub fn overview(registry: &Registry) -> String {
    let mut page = "# Kinds\n\nEach block of a flowgraph is of a kind. `fxgraph list KIND` shows the pages below in the \
                    terminal.\n"
        .to_owned();
    for (family, heading) in FAMILIES {
        let kinds: Vec<&KindEntry> = registry.iter().filter(|kind| kind.family == family).collect();
        if kinds.is_empty() {
            continue;
        }
        let columns =
            "| kind | summary | inputs | outputs | implementations |\n|---|---|---|---|---|";
        let _ = write!(page, "\n## {heading}\n\n{columns}\n");
        for kind in kinds {
            let name = kind.name;
            let implementations: Vec<_> =
                kind.implementations.iter().map(|each| format!("`{}`", each.name)).collect();
            let _ = writeln!(
                page,
                "| [`{name}`](kinds/{name}.md) | {} | {} | {} | {} |",
                cell(&kind.summary()),
                cell(&kind.inputs.to_string()),
                cell(&kind.outputs.to_string()),
                implementations.join(", ")
            );
        }
    }
    page
}

/// The page of a kind: the text of its author, its interface, its examples.
pub fn page(kind: &KindEntry, registry: &Registry) -> String {
    let mut page = String::new();
    for line in kind.doc.lines() {
        page.push_str(&with_links(line, registry).replace("```sh", "```console"));
        page.push('\n');
    }
    let _ =
        write!(page, "\n## Interface\n\n- Inputs: {}\n- Outputs: {}\n", kind.inputs, kind.outputs);
    page.push_str("\n| implementation | device | summary |\n|---|---|---|\n");
    for each in &kind.implementations {
        let device = serde_json::to_value(each.device).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {} | {} |", each.name, text(&device), cell(each.summary));
    }
    parameters(&(kind.schema)().to_value(), &mut page);
    if !kind.examples.is_empty() {
        page.push_str("\n## Examples\n");
    }
    for example in kind.examples {
        let _ = write!(page, "\n```yaml\n{}\n```\n", example.trim_end());
    }
    page
}

/// Table of the parameters in a schema, if there are any.
fn parameters(schema: &Value, page: &mut String) {
    let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) else {
        return;
    };
    page.push_str("\n| parameter | type | default | live | meaning |\n|---|---|---|---|---|\n");
    for (name, parameter) in properties {
        let required = schema["required"].as_array();
        let is_required = required.is_some_and(|all| all.iter().any(|each| each == name));
        let default = match parameter.get("default") {
            None if is_required => "required".to_owned(),
            None | Some(Value::Null) => "none".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let live = if parameter["x-live"] == true { "yes" } else { "" };
        let type_name = cell(&type_of(parameter, schema));
        let doc = cell(text(&parameter["description"]));
        let _ = writeln!(page, "| `{name}` | {type_name} | {} | {live} | {doc} |", cell(&default));
    }
}

/// Type, range and unit of a parameter, from its JSON Schema.
pub fn type_of(parameter: &Value, schema: &Value) -> String {
    if let Some(name) = text(&parameter["$ref"]).strip_prefix("#/$defs/") {
        return type_of(&schema["$defs"][name], schema);
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(all) = parameter[key].as_array() {
            let mut types: Vec<_> = all.iter().map(|each| type_of(each, schema)).collect();
            types.retain(|each| each != "null");
            types.dedup();
            return types.join(" or ");
        }
    }
    if let Some(word) = parameter.get("const") {
        return format!("`{}`", text(word));
    }
    if let Some(words) = parameter["enum"].as_array() {
        let words: Vec<_> = words.iter().map(|word| format!("`{}`", text(word))).collect();
        return words.join(" or ");
    }
    let name = match &parameter["type"] {
        Value::Array(types) => types.iter().map(text).find(|each| *each != "null").unwrap_or(""),
        name => text(name),
    };
    let mut found = match name {
        "array" => format!("list of {}", type_of(&parameter["items"], schema)),
        "object" => "mapping".to_owned(),
        "" => "any".to_owned(),
        name => name.to_owned(),
    };
    let bounds = [
        ("minimum", ">="),
        ("exclusiveMinimum", ">"),
        ("maximum", "<="),
        ("exclusiveMaximum", "<"),
    ];
    for (key, sign) in bounds {
        if let Some(bound) = parameter.get(key) {
            let _ = write!(found, " {sign} {bound}");
        }
    }
    if let Some(unit) = parameter["x-unit"].as_str() {
        let _ = write!(found, ", in {unit}");
    }
    found
}

/// A line of a kind's page. Links to other kinds and to the manual lead to their pages; other links become text.
fn with_links(line: &str, registry: &Registry) -> String {
    let mut result = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        let directory = target.strip_suffix("/README.md").and_then(|path| path.rsplit('/').next());
        let kind = directory.and_then(|name| registry.get(name));
        let page = target.split_once("docs/src/").map(|(_, page)| page);
        if let Some(kind) = kind {
            let _ = write!(result, "{before}]({}.md)", kind.name);
        } else if let Some(page) = page {
            let _ = write!(result, "{before}](../../{page})");
        } else if target.starts_with("http") || target.starts_with('#') {
            let _ = write!(result, "{before}]({target})");
        } else {
            let (head, label) = before.rsplit_once('[').unwrap_or((before, ""));
            let _ = write!(result, "{head}{label}");
        }
        rest = behind;
    }
    result + rest
}
