//! Failure of a command, with its exit code.

use crate::terminal::Terminal;
use fxgraph::files::reason;
use fxgraph::runtime;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// `EX_CONFIG` of sysexits.h: the flowgraph has errors and was not started.
const CONFIGURATION: u8 = 78;
/// Exit code that shells report for a program ended by SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The flowgraph has errors; the text contains the diagnostics.
    Configuration(String),
    /// One or more errors while running.
    Failed(Vec<String>),
    /// The errors are part of the results, which have been written.
    Shown,
    /// The user interrupted the command.
    Interrupted,
    /// The results could not be written.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    /// Creates a failure with one error.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(vec![what.into()])
    }

    /// Creates the failure of a program without the Cargo feature that `what` needs.
    pub fn absent(feature: &str, what: &str) -> Self {
        let text = format!("this program was built without `{feature}`, which {what} needs");
        let help = fxgraph::diagnostic::build_with(feature);
        Self::failed(crate::client::with_help(&text, [&*help]))
    }

    /// Creates a failure with the text `what` and the chain of causes of `error`.
    pub fn because(what: &str, error: &(dyn Error + 'static)) -> Self {
        let of_system = error.downcast_ref::<io::Error>().filter(|e| e.raw_os_error().is_some());
        let cause = of_system.map_or_else(|| runtime::with_causes(error), reason);
        Self::failed(format!("{what}: {cause}"))
    }

    /// Returns the first error, in one line.
    pub fn first_line(&self) -> String {
        let text = match self {
            Self::Configuration(text) => text.clone(),
            Self::Failed(reasons) => reasons.concat(),
            Self::Output(error) => error.to_string(),
            Self::Shown | Self::Interrupted => String::new(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Prints the failure and returns the exit code.
    pub fn report(&self, terminal: &Terminal) -> ExitCode {
        match self {
            Self::Configuration(diagnostics) => {
                terminal.note(diagnostics.trim_end());
                ExitCode::from(CONFIGURATION)
            }
            Self::Shown => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
            // The reader closed the pipe on purpose: `fxgraph list | head -1`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Output(error) => {
                terminal.error(&format!("cannot write the results: {error}"));
                ExitCode::FAILURE
            }
            Self::Failed(reasons) => {
                reasons.iter().for_each(|reason| terminal.error(reason));
                ExitCode::FAILURE
            }
        }
    }
}

/// Returns an error if `--only` has left none of the things called `what`.
pub fn reject_none(count: usize, what: &str, only: Option<&str>) -> Result<(), Failure> {
    match only {
        Some(only) if count == 0 => {
            Err(Failure::failed(format!("no {what} name contains `{only}`")))
        }
        _ => Ok(()),
    }
}

/// Returns a failed verdict in preference to an error while writing the results, since the reader
/// may have closed the pipe.
pub fn judge(
    verdict: Result<(), Failure>,
    written: Result<(), Failure>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    if let (Err(_), Err(lost)) = (&verdict, &written) {
        let _ = lost.report(terminal);
    }
    verdict.and(written)
}
