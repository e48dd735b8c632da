//! `fxgraph validate`

use crate::failure::{Failure, judge};
use crate::flowgraph::{self, parse_setting};
use crate::terminal::{Paint, Terminal};
use fxgraph::diagnostic::{Severity, first, render_all, to_json};
use fxgraph::flowgraph::Setting;
use serde_json::json;
use std::path::PathBuf;

/// Checks flowgraphs without running them: names, types, shapes, rates, memory
#[derive(Debug, clap::Args)]
pub struct Validate {
    /// Flowgraph files; `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Sets a parameter in each flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    set: Vec<Setting>,

    /// Writes the diagnostics as JSON to stdout
    #[arg(long)]
    json: bool,
}

impl Validate {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let mut rejected = Vec::new();
        let mut reports = Vec::new();
        let mut written = Ok(());
        for file in &self.files {
            let loaded = flowgraph::load_here(file, &self.set, Severity::Warning);
            let (diagnostics, is_ok) = match &loaded.result {
                Ok(plan) => (&*plan.warnings, true),
                Err(diagnostics) => (diagnostics.as_slice(), false),
            };
            if self.json {
                let shown: Vec<_> =
                    first(diagnostics).map(|d| to_json(d, &loaded.sources)).collect();
                let more = diagnostics.len() - shown.len();
                reports.push(
                    json!({"file": file, "ok": is_ok, "diagnostics": shown, "not_shown": more}),
                );
            }
            let text = render_all(diagnostics, &loaded.sources, flowgraph::style(terminal));
            if !is_ok {
                rejected.push(text);
                continue;
            }
            if !text.is_empty() {
                terminal.note(text.trim_end());
            }
            if !self.json {
                let ok = terminal.paint(Paint::Good, "ok");
                written = written.and(terminal.results(&format!("{ok} {}", file.display())));
            }
        }
        if self.json {
            written = terminal.json(&json!(reports));
        }
        let verdict = if rejected.is_empty() {
            Ok(())
        } else {
            Err(Failure::Configuration(rejected.join("\n")))
        };
        judge(verdict, written, terminal)
    }
}
