//! `fxgraph dashboard`

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use fxgraph_web::dashboard;

/// Writes what to watch of a flowgraph that serves `/metrics`: a dashboard, or alert rules
#[derive(Debug, clap::Args)]
pub struct Dashboard {
    #[command(flatten)]
    target: Target,

    /// Writes a dashboard for Grafana (JSON), as without this flag
    #[arg(long, conflicts_with = "rules")]
    grafana: bool,

    /// Writes alert rules for Prometheus (YAML)
    #[arg(long)]
    rules: bool,
}

impl Dashboard {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(&self.target, Severity::Warning, terminal)?;
        if !self.rules {
            return terminal.json(&dashboard::grafana(&plan));
        }
        let text = serde_yaml::to_string(&dashboard::rules(&plan))
            .map_err(|error| Failure::because("the rules cannot be written", &error))?;
        terminal.results(&text)
    }
}
