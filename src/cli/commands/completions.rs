//! `fxgraph completions`

use crate::failure::Failure;
use crate::terminal::Terminal;

/// Prints a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: fxgraph completions bash > ~/.local/share/bash-completion/completions/fxgraph"
)]
pub struct Completions {
    /// Shell to complete for
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        // Into memory first: the generator panics if the reader closes the pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command_line(), "fxgraph", &mut script);
        terminal.results(&String::from_utf8_lossy(&script))
    }
}
