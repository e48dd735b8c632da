//! Why a command did not succeed, and the exit code that says so.

use crate::terminal::Terminal;
use std::error::Error;
use std::io;
use std::process::ExitCode;

/// `EX_CONFIG` of sysexits.h: the flowgraph is wrong, nothing was started.
const CONFIGURATION: u8 = 78;

/// Why a command did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The flowgraph is wrong; the text is its diagnostics.
    #[error("{0}")]
    Configuration(String),
    /// Something went wrong; the text says what, where and why.
    #[error("{0}")]
    Failed(String),
    /// What went wrong is part of the results, which are out already.
    #[error("")]
    Shown,
    /// The results could not be written.
    #[error("cannot write the results: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Tells the user, and says what to exit with.
    pub fn report(&self, terminal: &mut Terminal) -> ExitCode {
        match self {
            Self::Configuration(diagnostics) => {
                terminal.note(diagnostics.trim_end());
                ExitCode::from(CONFIGURATION)
            }
            Self::Shown => ExitCode::FAILURE,
            // Whoever read the results has seen enough: `fxgraph list | head -1`.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Self::Failed(_) | Self::Output(_) => {
                terminal.error(&self.to_string());
                ExitCode::FAILURE
            }
        }
    }

    /// A failure that says `what`, and the whole chain of causes in `error`.
    pub fn because(what: &str, error: &dyn Error) -> Self {
        Self::Failed(format!("{what}: {}", with_causes(error)))
    }
}

/// `error` and what caused it, joined by colons; a cause that the text before it quotes already is
/// left out.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
