//! `fxgraph array`

use crate::deploy::slurm::array;
use crate::deploy::slurm::directory::Directory;
use crate::deploy::slurm::update::{self, Options};
use crate::failure::Failure;
use crate::terminal::Terminal;
use std::path::PathBuf;

/// Runs the parts of a deployment on hosts of Slurm; `array.sh` of the deployment calls it
///
/// Slurm reads further options from the environment: SALLOC_PARTITION, SALLOC_TIMELIMIT, SALLOC_ACCOUNT.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example: fxgraph array /shared/array1 start")]
pub struct Array {
    /// Directory that `fxgraph deploy --engine slurm` has written, on a file system that all hosts share
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Allocates hosts, starts the parts, and keeps them running until they end
    Start,
    /// Ends the parts and releases the hosts
    Stop,
    /// Shows name, host, address and state of each part
    Status,
    /// Ends parts and starts them again; the time that this takes is missing in their output
    Restart {
        #[arg(value_name = "PART", required = true)]
        parts: Vec<String>,
    },
    /// Replaces the running array by another deployment, part by part, without a missing frame
    ///
    /// Each changed part starts in its new version beside the old one, and takes its streams over (`fxgraph takeover`). Then
    /// NEW has the array, and this command supervises its parts as `start` does. If a part fails, the parts before it are
    /// taken back, and nothing has changed.
    Update {
        /// Directory that `fxgraph deploy --engine slurm` has written
        #[arg(value_name = "NEW")]
        to: PathBuf,
        #[command(flatten)]
        options: Options,
    },
    /// The same, called by the program of the running array for that of the other deployment
    #[command(hide = true)]
    UpdateFrom {
        #[arg(value_name = "DIR")]
        from: PathBuf,
        #[command(flatten)]
        options: Options,
    },
}

impl Array {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let directory = Directory::open(&self.directory)?;
        match self.action {
            Action::Update { to, options } => update::hand_over(&directory, &to, &options),
            Action::UpdateFrom { from, options } => {
                update::update_from(&from, directory, &options, terminal)
            }
            Action::Start => array::Array::new(directory, terminal).start(),
            Action::Stop => array::Array::new(directory, terminal).stop(),
            Action::Status => array::Array::new(directory, terminal).status(),
            Action::Restart { parts } => array::Array::new(directory, terminal).restart(&parts),
        }
    }
}
