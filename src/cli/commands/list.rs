//! `fxgraph list`

use crate::failure::Failure;
use crate::flowgraph;
use crate::prose::{fit, wrap};
use crate::table::{Align, Table, width};
use crate::terminal::{Paint, Terminal};
use fxgraph::diagnostic::suggest;
use fxgraph::{KindEntry, Registry};
use serde_json::{Value, json};

/// Lists the kinds of blocks, or shows page, ports and parameters of one kind
#[derive(Debug, clap::Args)]
pub struct List {
    /// Kind to show
    kind: Option<String>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let registry = flowgraph::registry();
        let Some(name) = &self.kind else {
            return if self.json {
                terminal.json(&registry.iter().map(as_json).collect::<Value>())
            } else {
                let table = overview(&registry, terminal);
                terminal.results(&table)
            };
        };
        let Some(kind) = registry.get(name) else {
            if let Some(feature) = registry.feature_of(name) {
                return Err(Failure::absent(feature, &format!("kind `{name}`")));
            }
            let known: Vec<&str> = registry.iter().map(|kind| kind.name).collect();
            let help = suggest(name, "kind", &known).map(|help| format!("; {help}"));
            let help = help.unwrap_or_default();
            return Err(Failure::failed(format!("there is no kind of block `{name}`{help}")));
        };
        if self.json {
            return terminal.json(&as_json(kind));
        }
        let page = page(kind, terminal);
        terminal.results(&page)
    }
}

fn overview(registry: &Registry, terminal: &Terminal) -> String {
    let columns = [
        ("kind", Align::Left),
        ("inputs", Align::Left),
        ("outputs", Align::Left),
        ("summary", Align::Left),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for kind in registry.iter() {
        table.row([
            kind.name.to_owned(),
            kind.inputs.to_string(),
            kind.outputs.to_string(),
            kind.summary(),
        ]);
    }
    table.finish()
}

fn page(kind: &KindEntry, terminal: &Terminal) -> String {
    let heading = |text: &str| terminal.paint(Paint::Bold, text);
    let mut text = String::new();
    for line in fit(kind.page().trim_end(), width()).lines() {
        text.push_str(&if line.starts_with('#') { heading(line) } else { line.to_owned() });
        text.push('\n');
    }
    text.push_str(&format!("\n{}\n", heading("## Reference")));
    text.push_str(&format!("inputs:  {}\n", kind.inputs));
    text.push_str(&format!("outputs: {}\n", kind.outputs));
    for implementation in &kind.implementations {
        let line = format!(
            "implementation `{}` ({}): {}",
            implementation.name, implementation.device, implementation.summary
        );
        text.push_str(&wrap(&line, 0, 4, width()));
        text.push('\n');
    }
    let schema = (kind.schema)().to_value();
    let parameters = parameters(&schema);
    if parameters.is_empty() {
        text.push_str("parameters: none\n");
        return text;
    }
    let live = parameters.iter().any(|parameter| parameter.is_live);
    let live = if live { " (live: can change while the block runs)" } else { "" };
    text.push_str(&format!("parameters{live}:\n"));
    for parameter in parameters {
        let default = match &parameter.default {
            Some(Value::Null) => "optional".to_owned(),
            Some(value) => format!("default {value}"),
            None if parameter.is_required => "required".to_owned(),
            None => "optional".to_owned(),
        };
        let live = if parameter.is_live { ", live" } else { "" };
        let note = format!("{}, {default}{live}", parameter.sort);
        let taken = parameter.name.chars().count() + 4;
        let note = terminal.paint(Paint::Dim, &wrap(&note, taken, 6, width()));
        text.push_str(&format!("  {}  {note}\n", heading(&parameter.name)));
        let room = width().map(|width| width.saturating_sub(6));
        for line in fit(&parameter.doc, room).lines() {
            text.push_str(&format!("      {line}\n"));
        }
    }
    text
}

/// Documentation of one parameter.
struct Parameter {
    /// Name, with dots for nested parameters.
    name: String,
    sort: String,
    is_required: bool,
    /// Whether it can change while the block runs.
    is_live: bool,
    default: Option<Value>,
    doc: String,
}

/// Collects all parameters of a schema; parameters of nested objects follow their parent.
fn parameters(schema: &Value) -> Vec<Parameter> {
    let mut found = Vec::new();
    collect(schema, schema, "", 0, &mut found);
    found
}

fn collect(root: &Value, object: &Value, prefix: &str, depth: usize, found: &mut Vec<Parameter>) {
    // Deeper levels are documented in the text of the parameter; a schema may refer to itself.
    if depth > 3 {
        return;
    }
    for alternative in
        [Some(object), object.get("oneOf"), object.get("anyOf")].into_iter().flatten()
    {
        for part in alternative.as_array().map_or(std::slice::from_ref(alternative), Vec::as_slice)
        {
            let part = resolve(root, part);
            let required = part["required"].as_array().cloned().unwrap_or_default();
            for (name, value) in part["properties"].as_object().into_iter().flatten() {
                let full = format!("{prefix}{name}");
                if found.iter().any(|known| known.name == full) {
                    continue;
                }
                let inner = resolve(root, value);
                let doc = value["description"].as_str().or(inner["description"].as_str());
                found.push(Parameter {
                    name: full.clone(),
                    sort: sort(root, value),
                    is_required: required.iter().any(|known| known == name),
                    is_live: value["x-live"] == true,
                    default: value.get("default").cloned(),
                    doc: doc.unwrap_or_default().to_owned(),
                });
                collect(root, inner, &format!("{full}."), depth + 1, found);
                let items = resolve(root, &inner["items"]);
                collect(root, items, &format!("{full}[]."), depth + 1, found);
            }
        }
    }
}

/// Resolves `$ref` and `Option<T>` to the schema of the value.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let target =
        schema["$ref"].as_str().and_then(|path| root.pointer(path.trim_start_matches('#')));
    let schema = target.unwrap_or(schema);
    match schema["anyOf"].as_array().map(Vec::as_slice) {
        Some([one, nothing]) if nothing["type"] == "null" => resolve(root, one),
        _ => schema,
    }
}

/// The type of a value in words: `integer >= 1`, `one of "hann", "rect"`, `list of numbers`.
fn sort(root: &Value, schema: &Value) -> String {
    let schema = resolve(root, schema);
    let words = |all: &[Value]| {
        let all: Vec<String> = all.iter().map(Value::to_string).collect();
        format!("one of {}", all.join(", "))
    };
    if let Some(values) = schema["enum"].as_array() {
        return words(values);
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(alternatives) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        // Documented words are separate `const` entries, the others are in one list.
        let constants: Option<Vec<Vec<Value>>> = alternatives
            .iter()
            .map(|alternative| match alternative.get("const") {
                Some(word) => Some(vec![word.clone()]),
                None => alternative["enum"].as_array().cloned(),
            })
            .collect();
        if let Some(constants) = constants {
            return words(&constants.concat());
        }
        let mut sorts: Vec<String> = Vec::new();
        for alternative in alternatives.iter().filter(|alternative| alternative["type"] != "null") {
            let word = sort(root, alternative);
            if !sorts.contains(&word) {
                sorts.push(word);
            }
        }
        return sorts.join(" or ");
    }
    let named = match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.collect::<Vec<_>>().join(" or ")
        }
        _ => return "any value".to_owned(),
    };
    match named.as_str() {
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        "object" => "mapping".to_owned(),
        "array" => match &schema["items"] {
            Value::Null => "list".to_owned(),
            items => format!("list of {}", sort(root, items)),
        },
        _ => named + &range(schema),
    }
}

/// Range in the schema, like ` >= 1` or ` <= 65536`, without the limits of machine integers.
fn range(schema: &Value) -> String {
    let mut text = String::new();
    if let Some(least) = schema["minimum"].as_f64().filter(|v| *v > -128.0) {
        text.push_str(&format!(" >= {least}"));
    }
    if let Some(most) =
        schema["maximum"].as_f64().filter(|v| *v < 65535.0 && (*v - 255.0).abs() > 0.5)
    {
        text.push_str(&format!(" <= {most}"));
    }
    text
}

fn as_json(kind: &KindEntry) -> Value {
    let implementations = kind
        .implementations
        .iter()
        .map(|implementation| json!({"name": implementation.name, "device": implementation.device, "summary": implementation.summary}));
    json!({
        "kind": kind.name,
        "summary": kind.summary(),
        "inputs": kind.inputs.to_string(),
        "outputs": kind.outputs.to_string(),
        "implementations": implementations.collect::<Vec<_>>(),
        "parameters": (kind.schema)().to_value(),
        "doc": kind.doc,
        "examples": kind.examples,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use schemars::JsonSchema;

    /// Window functions.
    #[derive(JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)]
    enum Window {
        /// A raised cosine.
        Hann,
        Rect,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Inner {
        /// Depth in metres.
        depth: f32,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Outer {
        /// Number of taps.
        #[schemars(range(min = 1, max = 64))]
        taps: usize,
        #[serde(default)]
        window: Option<Window>,
        inner: Vec<Inner>,
    }

    #[test]
    fn readme_links_the_page_of_each_kind() {
        let readme = include_str!("../../../README.md");
        for kind in flowgraph::registry().iter() {
            let link = format!("[`{}`](blocks/", kind.name);
            let page = format!("/{}/README.md)", kind.name);
            let is_there = |line: &str| line.contains(&link) && line.contains(&page);
            assert!(readme.lines().any(is_there), "{}", kind.name);
        }
    }

    #[test]
    fn parameters_include_types_and_nested_objects() {
        let schema = schemars::schema_for!(Outer).to_value();
        let all = parameters(&schema);
        let told: Vec<String> =
            all.iter().map(|p| format!("{}: {}, {}", p.name, p.sort, p.is_required)).collect();
        let expected = [
            "taps: integer >= 1 <= 64, true",
            "window: one of \"rect\", \"hann\", false",
            "inner: list of mapping, true",
            "inner[].depth: number, true",
        ];
        assert_eq!(told, expected);
        assert_eq!(all[3].doc, "Depth in metres.");
    }
}
