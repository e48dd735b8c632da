//! `fxgraph manual`

use crate::failure::Failure;
use crate::manual;
use crate::terminal::Terminal;
use std::path::PathBuf;

/// Writes the manual of this program, with its kinds and commands, as HTML or Markdown
#[derive(Debug, clap::Args)]
pub struct Manual {
    /// Directory for the files; files of the same names are replaced
    directory: PathBuf,

    /// Writes Markdown
    #[arg(long)]
    markdown: bool,
}

impl Manual {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let files = manual::write(&self.directory, self.markdown)?;
        let first = if self.markdown { "SUMMARY.md" } else { "index.html" };
        let first = self.directory.join(first);
        terminal.note(&format!("wrote {files} files; the manual begins with {}", first.display()));
        Ok(())
    }
}
