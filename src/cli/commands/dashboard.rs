//! `fxgraph dashboard`

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use fxgraph_web::dashboard;

/// Writes a Grafana dashboard or Prometheus alert rules for a flowgraph
#[derive(Debug, clap::Args)]
pub struct Dashboard {
    #[command(flatten)]
    target: Target,

    /// Writes a Grafana dashboard (JSON); the default
    #[arg(long, conflicts_with = "rules")]
    grafana: bool,

    /// Writes Prometheus alert rules (YAML)
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
            .map_err(|error| Failure::because("cannot convert the rules to YAML", &error))?;
        terminal.results(&text)
    }
}
