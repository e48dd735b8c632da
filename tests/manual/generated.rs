//! Pages of the manual's reference that are made from the program: kinds, commands, error codes, REST, metrics.

use super::http::Program;
use super::{fxgraph, root};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

const NOTE: &str =
    "<!-- Made from the program by tests/manual.rs; UPDATE_MANUAL=1 writes it. -->\n";

/// Path below `docs/src` and text of each generated page, and of the table of contents.
pub fn pages() -> BTreeMap<String, String> {
    let kinds: Value = serde_json::from_str(&output(&["list", "--json"])).unwrap();
    let kinds = kinds.as_array().unwrap();
    let mut pages = BTreeMap::new();
    for kind in kinds {
        let name = text(&kind["kind"]);
        pages.insert(format!("reference/kinds/{name}.md"), kind_page(kind, kinds));
    }
    pages.insert("reference/kinds.md".into(), overview(kinds));
    pages.insert("reference/commands.md".into(), commands());
    pages.insert("reference/errors.md".into(), errors());
    pages.insert("reference/rest.md".into(), rest());
    pages.insert("reference/metrics.md".into(), metrics());
    pages.insert("SUMMARY.md".into(), contents(kinds));
    pages
}

fn output(arguments: &[&str]) -> String {
    let output = fxgraph().args(arguments).output().unwrap();
    assert!(output.status.success(), "fxgraph {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace("\n\n", "<br>").replace('\n', " ").replace('|', "\\|")
}

/// The table of contents, with one line for each kind below "Kinds".
fn contents(kinds: &[Value]) -> String {
    let written = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let mut contents = String::new();
    for line in written.lines().filter(|line| !line.contains("(reference/kinds/")) {
        contents.push_str(&format!("{line}\n"));
        if line.contains("(reference/kinds.md)") {
            for kind in kinds {
                let name = text(&kind["kind"]);
                contents.push_str(&format!("  - [{name}](reference/kinds/{name}.md)\n"));
            }
        }
    }
    contents
}

fn overview(kinds: &[Value]) -> String {
    let mut page = format!(
        "# Kinds\n\n{NOTE}\nEach block of a flowgraph is of a kind. `fxgraph list KIND` shows the pages below in the terminal.\n"
    );
    // Directory of each family, and its name.
    let families = [
        ("io", "Sources and sinks"),
        ("f_engine", "F-engine"),
        ("x_engine", "Correlator and beamformer"),
        ("frb", "FRB search"),
        ("gnss", "GNSS"),
        ("util", "Utilities"),
    ];
    let mut rows = 0;
    for (directory, family) in families {
        let _ = write!(
            page,
            "\n## {family}\n\n| kind | summary | inputs | outputs | implementations |\n|---|---|---|---|---|\n"
        );
        let is_member = |kind: &&Value| {
            root().join("blocks").join(directory).join(text(&kind["kind"])).is_dir()
        };
        for kind in kinds.iter().filter(is_member) {
            let implementations = kind["implementations"].as_array().unwrap().iter();
            let names: Vec<_> =
                implementations.map(|each| format!("`{}`", text(&each["name"]))).collect();
            let name = text(&kind["kind"]);
            let (inputs, outputs) = (cell(text(&kind["inputs"])), cell(text(&kind["outputs"])));
            let summary = cell(text(&kind["summary"]));
            let names = names.join(", ");
            let _ = writeln!(
                page,
                "| [`{name}`](kinds/{name}.md) | {summary} | {inputs} | {outputs} | {names} |"
            );
            rows += 1;
        }
    }
    assert_eq!(rows, kinds.len(), "every kind is in a family");
    page
}

fn kind_page(kind: &Value, kinds: &[Value]) -> String {
    let mut page = String::new();
    for (index, line) in text(&kind["doc"]).lines().enumerate() {
        page.push_str(&with_links(line, kinds).replace("```sh", "```console"));
        page.push('\n');
        if index == 0 {
            page.push_str(&format!("\n{NOTE}"));
        }
    }
    page.push_str("\n## Interface\n\n");
    let _ = writeln!(
        page,
        "- Inputs: {}\n- Outputs: {}",
        text(&kind["inputs"]),
        text(&kind["outputs"])
    );
    page.push_str("\n| implementation | device | summary |\n|---|---|---|\n");
    for each in kind["implementations"].as_array().unwrap() {
        let cells = ["name", "device", "summary"].map(|key| cell(text(&each[key])));
        let _ = writeln!(page, "| `{}` | {} | {} |", cells[0], cells[1], cells[2]);
    }
    let schema = &kind["parameters"];
    if let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) {
        page.push_str("\n| parameter | type | default | live | meaning |\n|---|---|---|---|---|\n");
        for (name, parameter) in properties {
            let required = schema["required"].as_array();
            let is_required = required.is_some_and(|all| all.iter().any(|each| each == name));
            let default = match parameter.get("default") {
                Some(Value::Null) => "none".to_owned(),
                Some(value) => format!("`{value}`"),
                None if is_required => "required".to_owned(),
                None => "none".to_owned(),
            };
            let live = if parameter["x-live"] == true { "yes" } else { "" };
            let kind_of = cell(&type_of(parameter, schema));
            let doc = cell(text(&parameter["description"]));
            let _ =
                writeln!(page, "| `{name}` | {kind_of} | {} | {live} | {doc} |", cell(&default));
        }
    }
    if let Some(examples) = kind["examples"].as_array().filter(|all| !all.is_empty()) {
        page.push_str("\n## Examples\n");
        for example in examples {
            let _ = write!(page, "\n```yaml\n{}\n```\n", text(example).trim_end());
        }
    }
    page
}

/// Type, range and unit of a parameter, from its JSON Schema.
fn type_of(parameter: &Value, schema: &Value) -> String {
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

/// A line of a block's page, whose links to other blocks become links to their pages; others become text.
fn with_links(line: &str, kinds: &[Value]) -> String {
    let mut result = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, behind)) = after.split_once(')') else { break };
        let kind = kinds.iter().map(|kind| text(&kind["kind"])).find(|kind| {
            target
                .strip_suffix("/README.md")
                .is_some_and(|path| path.rsplit('/').next() == Some(kind))
        });
        if let Some(kind) = kind {
            let _ = write!(result, "{before}]({kind}.md)");
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

fn commands() -> String {
    let overview = output(&["help"]);
    let mut page = format!(
        "# Commands\n\n{NOTE}\nEvery command of the program, as `fxgraph help COMMAND` shows it, without the options \
         that all commands have.\n\n```text\n{}\n```\n",
        overview.trim_end()
    );
    let mut helps = Vec::new();
    for name in commands_in(&overview) {
        let help = output(&["help", &name]);
        let inner = if help.contains("\nCommands:\n") { commands_in(&help) } else { Vec::new() };
        helps.push((format!("## {name}"), help));
        for inner in inner {
            let help = output(&["help", &name, &inner]);
            helps.push((format!("### {name} {inner}"), help));
        }
    }
    let mut counts = BTreeMap::<String, usize>::new();
    for option in helps.iter().flat_map(|(_, help)| entries(help)) {
        *counts.entry(words(&option)).or_default() += 1;
    }
    let is_common = |entry: &str| {
        entry.trim_start().starts_with('-') && counts[&words(entry)] > helps.len() / 2
    };
    let mut sections = BTreeMap::<String, String>::new();
    for (heading, help) in &helps {
        let own: String = entries(help).into_iter().filter(|entry| !is_common(entry)).collect();
        let mut own = own.replace("\n\nOptions:\n\n", "\n\n");
        while own.contains("\n\n\n") {
            own = own.replace("\n\n\n", "\n\n");
        }
        let name = heading.trim_start_matches(['#', ' ']);
        let paragraphs = own.split("\n\n").map(|paragraph| {
            // Options that several commands share are described at the first one.
            let first = sections.entry(words(paragraph)).or_insert_with(|| name.to_owned());
            match paragraph.split_once(":\n") {
                Some((title @ ("Connection" | "Serving"), _)) if first != name => {
                    format!("{title}: as of `fxgraph {first}`")
                }
                _ => paragraph.to_owned(),
            }
        });
        let text = paragraphs.collect::<Vec<_>>().join("\n\n");
        let text = text.trim_end();
        let text = text.strip_suffix("\n\nOptions:").unwrap_or(text);
        let _ = write!(page, "\n{heading}\n\n```text\n{text}\n```\n");
    }
    page
}

/// Names of the commands that a help text lists.
fn commands_in(help: &str) -> Vec<String> {
    let listed = help.split_once("Commands:\n").unwrap().1;
    let listed = listed.split_once("\n\n").map_or(listed, |(list, _)| list);
    let names = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

/// Options of a help text, each with its lines, and the lines between them.
fn entries(help: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    for line in help.split_inclusive('\n') {
        let is_start = line.trim_start().starts_with('-') && line.starts_with("  ");
        if is_start || !line.starts_with("   ") {
            entries.push(String::new());
        }
        entries.last_mut().unwrap().push_str(line);
    }
    entries
}

/// `text` with one space between words: lines break elsewhere in other help texts.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn errors() -> String {
    let mut page = format!(
        "# Error codes\n\n{NOTE}\nEvery diagnostic of a flowgraph has a code. `fxgraph explain E0106` shows the section of one.\n"
    );
    for line in output(&["explain"]).lines() {
        let code = line.split(':').next().unwrap();
        let explanation = output(&["explain", code]);
        let _ = write!(page, "\n#{}\n", explanation.trim_end());
    }
    page
}

fn metrics() -> String {
    let mut page = format!(
        "# Metrics\n\n{NOTE}\nPrometheus reads these metrics at `/metrics`. Each also has the label `flowgraph`; \
         counters end in `_total`.\n\n| metric | labels | meaning, and action |\n|---|---|---|\n"
    );
    for metric in fxgraph_web::metric_families() {
        let labels: Vec<_> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            metric.name,
            labels.join(", "),
            cell(metric.help())
        );
    }
    page.push_str(
        "\nA block adds metrics of its own, with the labels `block`, `kind` and `device`: each counter of its page is \
         `fxgraph_NAME_total`, each gauge `fxgraph_NAME`.\n",
    );
    page
}

fn rest() -> String {
    let directory = tempfile::tempdir().unwrap();
    let flowgraph = output(&["examples", "13_live"]);
    let includes = output(&[
        "generate",
        "flowgraph",
        "live",
        "--from",
        "13",
        "--into",
        directory.path().to_str().unwrap(),
    ]);
    assert!(includes.contains("wrote"));
    let program = Program::start(directory.path(), &flowgraph, &["--hold"]);
    let description = program.get("/api/v1/openapi.json").json();
    let mut page = format!(
        "# REST\n\n{NOTE}\n{} A running flowgraph serves this description at `/api/v1/openapi.json`, and a page to try \
         the requests at `/docs/api/`.\n\n[`fxgraph fleet --listen`](#requests-of-a-fleet) answers most of these \
         requests for all parts of a deployment, and some of its own.\n",
        text(&description["info"]["description"])
    );
    let of_flowgraph = operations(&description);
    page.push_str(&overview_of(&of_flowgraph));
    page.push_str(&common_answers(&of_flowgraph));
    let deployment = directory.path().join("deployment");
    let deployment = deployment.to_str().unwrap();
    output(&["deploy", "example:19_hosts", "--engine", "systemd", "-o", deployment]);
    let fleet = Program::serving(directory.path(), &["fleet", deployment]);
    let description = fleet.get("/api/v1/openapi.json").json();
    let of_fleet = operations(&description);
    let common = common(&of_flowgraph);
    let details: String = of_flowgraph.iter().map(|each| detail(each, &common)).collect();
    page + &details
        + &fleet_section(text(&description["info"]["description"]), &of_flowgraph, &of_fleet)
}

/// An operation of a description.
struct Operation {
    /// Method and path.
    request: String,
    document: Value,
}

fn operations(description: &Value) -> Vec<Operation> {
    let mut all = Vec::new();
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, document) in operations.as_object().unwrap() {
            let request = format!("{} {path}", method.to_uppercase());
            all.push(Operation { request, document: document.clone() });
        }
    }
    all
}

/// Table of requests.
fn overview_of(operations: &[Operation]) -> String {
    let mut table = "\n| request | effect |\n|---|---|\n".to_owned();
    for Operation { request, document } in operations {
        let (summary, anchor) = (text(&document["summary"]), text(&document["operationId"]));
        let _ = writeln!(table, "| [`{request}`](#{anchor}) | {} |", cell(summary));
    }
    table
}

/// Rows of the answers to a request: status, meaning and body.
fn answers(document: &Value) -> Vec<String> {
    let answers = document["responses"].as_object().unwrap().iter();
    let row = |(status, answer): (&String, &Value)| {
        let (meaning, media) = (cell(text(&answer["description"])), media(&answer["content"]));
        format!("| {status} | {meaning} | {media} |\n")
    };
    answers.map(row).collect()
}

/// Answers that most requests have alike.
fn common(operations: &[Operation]) -> Vec<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    for row in operations.iter().flat_map(|each| answers(&each.document)) {
        *counts.entry(row).or_default() += 1;
    }
    counts.retain(|_, count| *count > operations.len() / 2);
    counts.into_keys().collect()
}

/// Section of the answers that most requests have alike.
fn common_answers(operations: &[Operation]) -> String {
    let rows = common(operations);
    assert!(rows.len() > 4, "{rows:?}");
    format!(
        "\n## Answers to most requests\n\nThe sections below do not repeat them. A status that a section has, too, means \
         there what the section says.\n\n| status | meaning | body |\n|---|---|---|\n{}",
        rows.concat()
    )
}

/// Section of a request, without the answers `common` to most.
fn detail(Operation { request, document }: &Operation, common: &[String]) -> String {
    let (summary, anchor) = (text(&document["summary"]), text(&document["operationId"]));
    let mut details = format!("\n## {anchor}\n\n`{request}`: {summary}.\n");
    if let Some(more) = document["description"].as_str() {
        let _ = write!(details, "\n{}\n", more.trim());
    }
    parameters(document, &mut details);
    body(&document["requestBody"], &mut details);
    details.push_str("\n| status | meaning | body |\n|---|---|---|\n");
    details.extend(answers(document).into_iter().filter(|row| !common.contains(row)));
    details
}

/// Requests that only a fleet answers, differences of the others, and requests that a fleet does not answer.
fn fleet_section(about: &str, of_flowgraph: &[Operation], of_fleet: &[Operation]) -> String {
    let mut page = format!(
        "\n## Requests of a fleet\n\n{about} The fleet serves its description at `/api/v1/openapi.json`, too.\n\n\
         Requests that only a fleet answers:\n"
    );
    let find = |all: &[Operation], request: &str| all.iter().any(|each| each.request == request);
    let (shared, own): (Vec<&Operation>, Vec<&Operation>) =
        of_fleet.iter().partition(|each| find(of_flowgraph, &each.request));
    assert!(!own.is_empty() && !shared.is_empty());
    let own: Vec<Operation> = own
        .into_iter()
        .map(|each| Operation { request: each.request.clone(), document: each.document.clone() })
        .collect();
    page.push_str(&overview_of(&own));
    page.push_str(
        "\nRequests that a fleet answers for its parts. 502 means that the part does not answer.\n\n\
         | request | at a fleet |\n|---|---|\n",
    );
    for Operation { request, document } in shared {
        let anchor = text(&document["operationId"]);
        let about = text(&document["description"]).rsplit("\n\n").next().unwrap_or_default();
        let _ = writeln!(page, "| [`{request}`](#{anchor}) | {} |", cell(about));
    }
    let missing: Vec<String> = of_flowgraph
        .iter()
        .filter(|each| !find(of_fleet, &each.request))
        .map(|each| format!("- `{}`\n", each.request))
        .collect();
    let _ = write!(page, "\nRequests that a fleet does not answer:\n\n{}", missing.concat());
    let common = common(of_flowgraph);
    page + &own.iter().map(|each| detail(each, &common)).collect::<String>()
}

fn parameters(operation: &Value, page: &mut String) {
    let Some(parameters) = operation["parameters"].as_array().filter(|all| !all.is_empty()) else {
        return;
    };
    page.push_str("\n| parameter | where | type | meaning |\n|---|---|---|---|\n");
    for each in parameters {
        let required = if each["required"] == true { ", required" } else { "" };
        let kind_of = cell(&type_of(&each["schema"], &Value::Null));
        let (name, place) = (text(&each["name"]), text(&each["in"]));
        let meaning = cell(text(&each["description"]));
        let _ = writeln!(page, "| `{name}` | {place}{required} | {kind_of} | {meaning} |");
    }
}

fn body(body: &Value, page: &mut String) {
    if body.is_null() {
        return;
    }
    let _ = write!(page, "\nBody ({}): {}.\n", media(&body["content"]), text(&body["description"]));
    for content in body["content"].as_object().into_iter().flat_map(|all| all.values()) {
        if let Some(example) = content.get("example") {
            let _ = write!(page, "\n```json\n{example:#}\n```\n");
        }
    }
}

/// Media types with their schemas.
fn media(content: &Value) -> String {
    let all = content.as_object().into_iter().flatten();
    let names = all.map(|(media, content)| {
        let schema = &content["schema"];
        let schema = text(&schema["$ref"]).rsplit('/').next().unwrap_or_default();
        let list = text(&content["schema"]["items"]["$ref"]).rsplit('/').next().unwrap_or_default();
        match (schema, list) {
            ("", "") => format!("`{media}`"),
            ("", list) => format!("`{media}`: list of `{list}`"),
            (schema, _) => format!("`{media}`: `{schema}`"),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}
