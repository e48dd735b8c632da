//! The page of the REST API, from the OpenAPI descriptions of a flowgraph and of a fleet.

use super::kinds::type_of;
use super::{cell, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// An operation of a description.
struct Operation<'a> {
    /// Method and path.
    request: String,
    document: &'a Value,
}

impl Operation<'_> {
    fn summary(&self) -> &str {
        text(&self.document["summary"])
    }

    fn anchor(&self) -> &str {
        text(&self.document["operationId"])
    }
}

/// The page, from both descriptions.
pub fn page(flowgraph: &Value, fleet: &Value) -> String {
    let of_flowgraph = operations(flowgraph);
    let common = common(&of_flowgraph);
    let mut page = format!(
        "# REST\n\n{} A running flowgraph serves this description at `/api/v1/openapi.json`, and a page to try the \
         requests at `/docs/api/`.\n\n[`fxgraph fleet --listen`](#requests-of-a-fleet) answers most of these requests for \
         all parts of a deployment, and some of its own.\n{}\n## Answers to most requests\n\nThe sections below do not \
         repeat them. A status that a section has, too, means there what the section says.\n\n\
         | status | meaning | body |\n|---|---|---|\n{}",
        text(&flowgraph["info"]["description"]),
        overview(&of_flowgraph),
        common.concat()
    );
    page.extend(of_flowgraph.iter().map(|each| detail(each, &common)));
    fleet_section(fleet, &of_flowgraph, &common, &mut page);
    page
}

fn operations(description: &Value) -> Vec<Operation<'_>> {
    let mut all = Vec::new();
    for (path, operations) in description["paths"].as_object().into_iter().flatten() {
        for (method, document) in operations.as_object().into_iter().flatten() {
            all.push(Operation { request: format!("{} {path}", method.to_uppercase()), document });
        }
    }
    all
}

/// Table of requests.
fn overview<'a>(operations: impl IntoIterator<Item = &'a Operation<'a>>) -> String {
    let mut table = "\n| request | effect |\n|---|---|\n".to_owned();
    for each in operations {
        let (request, anchor, summary) = (&each.request, each.anchor(), cell(each.summary()));
        let _ = writeln!(table, "| [`{request}`](#{anchor}) | {summary} |");
    }
    table
}

/// Rows of the answers to a request: status, meaning and body.
fn answers(document: &Value) -> Vec<String> {
    let answers = document["responses"].as_object().into_iter().flatten();
    let row = |(status, answer): (&String, &Value)| {
        let (meaning, media) = (cell(text(&answer["description"])), media(&answer["content"]));
        format!("| {status} | {meaning} | {media} |\n")
    };
    answers.map(row).collect()
}

/// Rows of the answers that most requests have alike.
fn common(operations: &[Operation]) -> Vec<String> {
    let mut counts = BTreeMap::<String, usize>::new();
    for row in operations.iter().flat_map(|each| answers(each.document)) {
        *counts.entry(row).or_default() += 1;
    }
    counts.retain(|_, count| *count > operations.len() / 2);
    counts.into_keys().collect()
}

/// Section of a request, without the answers `common` to most.
fn detail(operation: &Operation, common: &[String]) -> String {
    let Operation { request, document } = operation;
    let mut details =
        format!("\n## {}\n\n`{request}`: {}.\n", operation.anchor(), operation.summary());
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
fn fleet_section(
    description: &Value,
    of_flowgraph: &[Operation],
    common: &[String],
    page: &mut String,
) {
    let of_fleet = operations(description);
    let has =
        |all: &[Operation], one: &Operation| all.iter().any(|each| each.request == one.request);
    let (shared, own): (Vec<_>, Vec<_>) = of_fleet.iter().partition(|each| has(of_flowgraph, each));
    let _ = write!(
        page,
        "\n## Requests of a fleet\n\n{} The fleet serves its description at `/api/v1/openapi.json`, too.\n\n\
         Requests that only a fleet answers:\n{}\n\
         Requests that a fleet answers for its parts. 502 means that the part does not answer.\n\n\
         | request | at a fleet |\n|---|---|\n",
        text(&description["info"]["description"]),
        overview(own.iter().copied())
    );
    for each in shared {
        let about = text(&each.document["description"]).rsplit("\n\n").next().unwrap_or_default();
        let _ = writeln!(page, "| [`{}`](#{}) | {} |", each.request, each.anchor(), cell(about));
    }
    page.push_str("\nRequests that a fleet does not answer:\n\n");
    for each in of_flowgraph.iter().filter(|each| !has(&of_fleet, each)) {
        let _ = writeln!(page, "- `{}`", each.request);
    }
    page.extend(own.iter().map(|each| detail(each, common)));
}

fn parameters(operation: &Value, page: &mut String) {
    let Some(parameters) = operation["parameters"].as_array().filter(|all| !all.is_empty()) else {
        return;
    };
    page.push_str("\n| parameter | where | type | meaning |\n|---|---|---|---|\n");
    for each in parameters {
        let required = if each["required"] == true { ", required" } else { "" };
        let type_name = cell(&type_of(&each["schema"], &Value::Null));
        let (name, place) = (text(&each["name"]), text(&each["in"]));
        let meaning = cell(text(&each["description"]));
        let _ = writeln!(page, "| `{name}` | {place}{required} | {type_name} | {meaning} |");
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
        let name = |schema: &Value| {
            text(&schema["$ref"]).rsplit('/').next().unwrap_or_default().to_owned()
        };
        match (&*name(&content["schema"]), &*name(&content["schema"]["items"])) {
            ("", "") => format!("`{media}`"),
            ("", list) => format!("`{media}`: list of `{list}`"),
            (schema, _) => format!("`{media}`: `{schema}`"),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}
