//! `fxgraph graph`

use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use fxgraph::flowgraph::draw::Drawing;

/// Draws a flowgraph, as text for Mermaid or Graphviz (dot)
#[derive(Debug, clap::Args)]
pub struct Graph {
    #[command(flatten)]
    target: Target,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Json,
}

impl Graph {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let drawing = Drawing::of(&flowgraph::plan(&self.target, Severity::Warning, terminal)?);
        match self.format {
            Format::Mermaid => terminal.results(&drawing.mermaid()),
            Format::Dot => terminal.results(&drawing.dot()),
            Format::Json => terminal.json(&drawing.json()),
        }
    }
}
