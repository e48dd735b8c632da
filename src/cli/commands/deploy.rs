//! `fxgraph deploy`

use crate::deploy::{self, Engine, Options};
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::table::{Align, Table};
use crate::terminal::Terminal;
use fxgraph::diagnostic::Severity;
use std::fmt::Write as _;
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
    #[arg(long, value_name = "PORT", default_value_t = 8080, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Path of the program on the hosts; by default that of this program (Slurm) or /usr/bin/fxgraph (systemd)
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,

    /// Starts the deployment: runs `array.sh start` (Slurm), `install.sh` (systemd) or `kubectl apply -k` (Kubernetes)
    #[arg(long)]
    submit: bool,

    /// Container image with fxgraph and bash (Kubernetes)
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Machine of a part, like `f_host[0]=node7`; may be given several times. By default a machine is named as its part:
    /// `f-host-0` (systemd), or chosen by Kubernetes
    #[arg(long, value_name = "PART=MACHINE", value_parser = machine)]
    machine: Vec<(String, String)>,
}

impl Deploy {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let plan = flowgraph::plan(&self.target, Severity::Warning, terminal)?;
        let options = Options {
            engine: self.engine,
            first_port: self.port,
            program: self.program,
            image: self.image,
            machines: self.machine,
        };
        let manifest = deploy::write(&plan, &options, &self.output)?;
        let columns = [("part", Align::Left), ("server", Align::Left)];
        let mut table = Table::new(terminal.coloured_results, &columns);
        for part in &manifest.parts {
            let address =
                part.address(&self.output).unwrap_or_else(|| format!("port {}", part.port));
            table.row([part.name.clone(), address]);
        }
        let mut text = table.finish();
        if !self.submit {
            text.push_str("\nnext:\n");
            let steps = self.engine.next_steps(&self.output, &manifest);
            let width = steps.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
            for (command, effect) in steps {
                let _ = writeln!(text, "  {command:width$}  # {effect}");
            }
        }
        terminal.results(&text)?;
        if self.submit { self.engine.submit(&self.output) } else { Ok(()) }
    }
}

/// Reads `PART=MACHINE`.
fn machine(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((part, machine)) if !part.is_empty() && !machine.is_empty() => {
            Ok((part.to_owned(), machine.to_owned()))
        }
        _ => Err("give it as PART=MACHINE".to_owned()),
    }
}
