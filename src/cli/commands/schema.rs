//! `fxgraph schema`

use crate::failure::Failure;
use crate::flowgraph;
use crate::terminal::Terminal;

/// Prints the JSON Schema of flowgraph files, for editors
#[derive(Debug, clap::Args)]
pub struct Schema {}

impl Schema {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        terminal.json(&fxgraph::flowgraph::schema(&flowgraph::registry()))
    }
}
