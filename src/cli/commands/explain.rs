//! `fxgraph explain`

use crate::failure::Failure;
use crate::prose;
use crate::table::width;
use crate::terminal::Terminal;
use fxgraph::diagnostic::{all_explanations, explain, nearest};

/// Explains an error code, or lists all of them
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// Error code, like E0203 or 203
    code: Option<String>,
}

impl Explain {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let Some(code) = self.code else {
            let titles = all_explanations().filter_map(|(_, page)| page.lines().next());
            let list: Vec<&str> = titles.map(|title| title.trim_start_matches("# ")).collect();
            return terminal.results(&list.join("\n"));
        };
        let number = code.trim_start_matches(['e', 'E']);
        if let Some(page) = explain(&format!("E{number:0>4}")) {
            terminal.results(&prose::fit(page, width()))
        } else {
            let near = nearest(&code, all_explanations().map(|(known, _)| known));
            let help = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            Err(Failure::failed(format!(
                "unknown error code `{code}`{help} (`fxgraph explain` lists all codes)"
            )))
        }
    }
}
