//! The generated pages have everything that the program knows.

#![allow(clippy::unwrap_used)]

use super::{commands, errors, kinds, metrics, pages, rest};
use crate::flowgraph::registry;
use fxgraph::diagnostic::all_explanations;
use fxgraph::{KindEntry, Registry};
use serde_json::Value;

/// Cells of each row of the tables of a page.
fn rows(page: &str) -> Vec<Vec<String>> {
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| {
        let row = row.replace("\\|", "\0");
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
    };
    rows.map(cells).collect()
}

#[test]
fn every_kind_has_a_page_with_type_default_and_meaning_of_each_parameter() {
    let (pages, registry) = (pages(), registry());
    let overview = rows(&pages["reference/kinds.md"]);
    let mut parameters = 0;
    for kind in registry.iter() {
        let link = format!("[`{0}`](kinds/{0}.md)", kind.name);
        let row = overview.iter().find(|row| row[0] == link).unwrap();
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let page = &pages[&format!("reference/kinds/{}.md", kind.name)];
        let rows = rows(page);
        for implementation in &kind.implementations {
            assert!(rows.iter().any(|row| row[0] == format!("`{}`", implementation.name)));
        }
        let schema = (kind.schema)().to_value();
        let (_, table) = page
            .split_once("\n| parameter | type | default | live | meaning |\n")
            .unwrap_or_default();
        let rows = self::rows(table);
        for name in schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name) {
            let row = rows.iter().find(|row| row[0] == format!("`{name}`"));
            let row = row.unwrap_or_else(|| panic!("{}: {name}", kind.name));
            let live = if kind.live.contains(&name.as_str()) { "yes" } else { "" };
            assert!(!row[1].is_empty() && !row[2].is_empty() && !row[4].is_empty(), "{row:?}");
            assert_eq!(row[3], live, "{}: {name}", kind.name);
            parameters += 1;
        }
        let examples = page.rsplit_once("\n## Examples\n").map_or("", |(_, examples)| examples);
        let examples = examples.matches("```yaml\n").count();
        assert_eq!(examples, kind.examples.len(), "{}", kind.name);
    }
    assert!(parameters > 200, "{parameters} parameters");
}

#[test]
fn kind_of_another_crate_has_a_page_and_a_row() {
    let entry = registry().get("fft").unwrap().clone();
    let other = KindEntry { name: "their_fft", family: "", ..entry };
    let registry = registry().with(Registry::new(vec![other]));
    let overview = kinds::overview(&registry);
    let (_, others) = overview.split_once("\n## Kinds of other crates\n").unwrap();
    assert!(others.contains("\n| [`their_fft`](kinds/their_fft.md) |"), "{others}");
    assert!(!kinds::overview(&super::flowgraph::registry()).contains("other crates"));
}

#[test]
fn page_of_commands_has_every_command_and_option() {
    let page = commands::page();
    let program = crate::command_line();
    let mut options = 0;
    for command in program.get_subcommands() {
        let name = command.get_name();
        let (_, section) = page.split_once(&format!("\n## {name}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let inner = command.get_subcommands().map(|inner| {
            let (_, section) =
                section.split_once(&format!("\n### {name} {}\n", inner.get_name())).unwrap();
            (inner, section)
        });
        for (command, section) in inner.chain([(command, section)]) {
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                let Some(long) = option.get_long() else { continue };
                let heading = option.get_help_heading().unwrap_or("Options");
                let is_shared = section.contains(&format!("{heading}: as of `fxgraph "));
                assert!(is_shared || section.contains(&format!("--{long}")), "{name} {long}");
                options += 1;
            }
        }
    }
    assert!(options > 100, "{options} options");
}

#[test]
fn page_of_rest_has_every_request_parameter_and_status() {
    let (flowgraph, fleet) = (fxgraph_web::openapi(), fxgraph_web::fleet::openapi());
    let page = rest::page(&flowgraph, &fleet);
    let (_, common) = page.split_once("\n## Answers to most requests\n").unwrap();
    let common = rows(common.split("\n## ").next().unwrap());
    let mut statuses = 0;
    for (path, methods) in flowgraph["paths"].as_object().unwrap() {
        for (method, document) in methods.as_object().unwrap() {
            let request = format!("{} {path}", method.to_uppercase());
            let anchor = document["operationId"].as_str().unwrap();
            assert!(page.contains(&format!("| [`{request}`](#{anchor}) |")), "{request}");
            let (_, section) = page.split_once(&format!("\n## {anchor}\n\n`{request}`: ")).unwrap();
            let section = rows(section.split("\n## ").next().unwrap());
            for parameter in document["parameters"].as_array().into_iter().flatten() {
                let name = format!("`{}`", parameter["name"].as_str().unwrap());
                let row = section.iter().find(|row| row[0] == name).unwrap();
                assert!(row.len() == 4 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
            }
            for (status, answer) in document["responses"].as_object().unwrap() {
                let meaning = super::cell(answer["description"].as_str().unwrap());
                let is_it = |row: &&Vec<String>| row[0] == *status && row[1] == meaning;
                assert!(
                    section.iter().chain(&common).any(|row| is_it(&row)),
                    "{request}: {status}"
                );
                statuses += 1;
            }
        }
    }
    assert!(statuses > 250, "{statuses} statuses");
    for (path, methods) in fleet["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let request = format!("{} {path}", method.to_uppercase());
            let (_, section) = page.split_once("\n## Requests of a fleet\n").unwrap();
            assert!(section.contains(&format!("| [`{request}`](#")), "{request}");
        }
    }
}

#[test]
fn pages_have_every_error_code_and_metric() {
    let (errors, metrics) = (errors(), rows(&metrics()));
    for (code, _) in all_explanations() {
        assert!(errors.contains(&format!("\n## {code}: ")), "{code}");
    }
    for metric in fxgraph_web::metric_families() {
        let row = metrics.iter().find(|row| row[0] == format!("`{}`", metric.name)).unwrap();
        assert!(row.len() == 3 && !row[2].is_empty(), "{row:?}");
    }
}

#[test]
fn type_of_a_parameter_has_its_range_unit_and_words() {
    let schema = serde_json::json!({"$defs": {"Window": {"oneOf": [{"const": "hann"}, {"enum": ["rect"]}]}}});
    let type_of = |parameter: Value| kinds::type_of(&parameter, &schema);
    let number = serde_json::json!({"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 9, "x-unit": "Hz"});
    assert_eq!(type_of(number), "number > 0 <= 9, in Hz");
    let window = serde_json::json!({"anyOf": [{"$ref": "#/$defs/Window"}, {"type": "null"}]});
    assert_eq!(type_of(window), "`hann` or `rect`");
    let list = serde_json::json!({"type": "array", "items": {"type": "integer"}});
    assert_eq!(type_of(list), "list of integer");
}
