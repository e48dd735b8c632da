//! `fxgraph deploy`

use crate::deploy::{self, Engine, Options};
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use std::path::PathBuf;

/// Writes the files with which Slurm, Kubernetes or systemd runs a flowgraph on its hosts
#[derive(Debug, clap::Args)]
pub struct Deploy {
    #[command(flatten)]
    target: Target,

    /// Program that places and supervises the parts
    #[arg(long)]
    engine: Engine,

    /// Directory for the files
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Port of the server of the first part; each further part has the next one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,

    /// Path of the program on the hosts; by default that of this program
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

impl Deploy {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(&self.target, Severity::Warning, terminal)?;
        let program = match self.program {
            Some(program) => program,
            None => std::env::current_exe().map_err(|error| {
                Failure::because("cannot find the path of this program", &error)
            })?,
        };
        let options = Options { engine: self.engine, first_port: self.port, program };
        let manifest = deploy::write(&plan, &options, &self.output)?;
        let mut text = String::new();
        for part in &manifest.parts {
            text.push_str(&format!("{}: port {}\n", part.name, part.port));
        }
        terminal.results(&text)
    }
}
