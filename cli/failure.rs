//! Why a command did not succeed, and the exit code that says so.

use crate::terminal::Terminal;
use fxgraph::runtime;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// `EX_CONFIG` of sysexits.h: the flowgraph is wrong, nothing was started.
const CONFIGURATION: u8 = 78;
/// What shells give a program that SIGINT ended.
pub const INTERRUPTED: u8 = 130;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The flowgraph is wrong; the text is its diagnostics.
    Configuration(String),
    /// Something went wrong, at least one thing; each text says what, where and why.
    Failed(Vec<String>),
    /// What went wrong is part of the results, which are out already.
    Shown,
    /// It was ended at once, before it was done.
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
    /// One thing went wrong.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(vec![what.into()])
    }

    /// A failure that says `what`, and the whole chain of causes in `error`.
    pub fn because(what: &str, error: &dyn Error) -> Self {
        Self::failed(format!("{what}: {}", runtime::with_causes(error)))
    }

    /// What went wrong first, in one line.
    pub fn first_line(&self) -> String {
        let text = match self {
            Self::Configuration(text) => text.clone(),
            Self::Failed(reasons) => reasons.concat(),
            Self::Output(error) => error.to_string(),
            Self::Shown | Self::Interrupted => String::new(),
        };
        text.lines().next().unwrap_or_default().to_owned()
    }

    /// Tells the user, and says what to exit with.
    pub fn report(&self, terminal: &Terminal) -> ExitCode {
        match self {
            Self::Configuration(diagnostics) => {
                terminal.note(diagnostics.trim_end());
                ExitCode::from(CONFIGURATION)
            }
            Self::Shown => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
            // Whoever read the results has seen enough: `fxgraph list | head -1`.
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

/// What a command that judges something ends with: its verdict, if that is bad, whatever became
/// of the results; they may go to a pipe that nobody reads.
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
