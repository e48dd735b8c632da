//! Pages of the manual that the program generates from its kinds, commands, error codes, REST descriptions and metrics.

mod commands;
mod kinds;
mod rest;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use crate::flowgraph;
use fxgraph::diagnostic::all_explanations;
use fxgraph_manual::{Generated, Manual};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Path and text of each page.
pub fn pages() -> Generated {
    let registry = flowgraph::registry();
    let mut pages: Generated = registry
        .iter()
        .map(|kind| (format!("reference/kinds/{}.md", kind.name), kinds::page(kind, &registry)))
        .collect();
    let (flowgraph, fleet) = (fxgraph_web::openapi(), fxgraph_web::fleet::openapi());
    let others = [
        ("reference/kinds.md", kinds::overview(&registry)),
        ("reference/commands.md", commands::page()),
        ("reference/errors.md", errors()),
        ("reference/rest.md", rest::page(&flowgraph, &fleet)),
        ("reference/metrics.md", metrics()),
    ];
    pages.extend(others.map(|(path, text)| (path.to_owned(), text)));
    pages
}

/// Writes all files of the manual below `directory`, and returns their number.
pub fn write(directory: &Path, as_markdown: bool) -> Result<usize, Failure> {
    let manual = Manual::new(pages());
    let files: Vec<(&str, &[u8])> = if as_markdown {
        let pages = manual.markdown().map(|(path, text)| (path, text.as_bytes()));
        pages.chain(manual.pictures()).collect()
    } else {
        manual.paths().filter_map(|path| Some((path, manual.file(path)?))).collect()
    };
    for (path, content) in &files {
        let path = directory.join(path);
        let directory = path.parent().unwrap_or(directory);
        fs::create_dir_all(directory).and_then(|()| fs::write(&path, content)).map_err(
            |error| Failure::because(&format!("cannot write `{}`", path.display()), &error),
        )?;
    }
    Ok(files.len())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.trim().replace("\n\n", "<br>").replace('\n', " ").replace('|', "\\|")
}

fn errors() -> String {
    let mut page = "# Error codes\n\nEvery diagnostic of a flowgraph has a code. `fxgraph explain E0106` shows the section of \
                    one.\n"
        .to_owned();
    for (_, explanation) in all_explanations() {
        page.push_str(&format!("\n#{}\n", explanation.trim_end()));
    }
    page
}

fn metrics() -> String {
    let mut page = "# Metrics\n\nPrometheus reads these metrics at `/metrics`. Each also has the label `flowgraph`; counters \
                    end in `_total`.\n\n| metric | labels | meaning, and action |\n|---|---|---|\n"
        .to_owned();
    for metric in fxgraph_web::metric_families() {
        let labels: Vec<_> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let (labels, help) = (labels.join(", "), cell(metric.help()));
        page.push_str(&format!("| `{}` | {labels} | {help} |\n", metric.name));
    }
    page + "\nA block adds metrics of its own, with the labels `block`, `kind` and `device`: each counter of its page is \
            `fxgraph_NAME_total`, each gauge `fxgraph_NAME`.\n"
}
