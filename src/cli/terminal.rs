//! Output to stdout and stderr, and its colours.

use crate::failure::Failure;
use fxgraph::lock::lock;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    // Plain comments: with documented values the help of every command grows by ten lines.
    Auto,
    Always,
    Never,
}

impl Color {
    /// Reads `--color` before the command line is parsed, for the colours of usage errors.
    pub fn before_parsing(arguments: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = arguments.collect();
        let says = |word: &str| {
            words.iter().any(|w| *w == *format!("--color={word}"))
                || words.windows(2).any(|pair| pair[0] == "--color" && pair[1] == word)
        };
        match (says("always"), says("never")) {
            (true, _) => Self::Always,
            (_, true) => Self::Never,
            _ => Self::Auto,
        }
    }

    fn on(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                is_terminal && !no_color && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
            }
        }
    }
}

/// Emphasis of a text.
#[derive(Clone, Copy, Debug)]
pub enum Paint {
    /// Headings and names.
    Bold,
    /// Less important text.
    Dim,
    /// Success.
    Good,
    /// Warnings.
    Warning,
    /// Errors.
    Bad,
}

/// Returns `text` with escape codes for `paint`, or unchanged unless `coloured`.
pub fn paint(coloured: bool, paint: Paint, text: &str) -> String {
    let code = match paint {
        Paint::Bold => "1",
        Paint::Dim => "2",
        Paint::Good => "32",
        Paint::Warning => "1;33",
        Paint::Bad => "1;31",
    };
    if coloured && !text.is_empty() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// The progress line on stderr, if one is shown; logs are written above it.
static PROGRESS: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// The program's stdout and stderr.
#[derive(Clone)]
pub struct Terminal {
    /// Whether results have colours.
    pub coloured_results: bool,
    /// Whether errors, notes and progress have colours.
    pub coloured_notes: bool,
    /// Whether results go to stderr, because a block writes to stdout.
    results_to_stderr: bool,
}

/// Returns the first part of a log filter that is neither a level nor one for a crate: the filter would take a typing
/// error for the name of a crate.
fn unknown_level(filter: &str) -> Option<&str> {
    let is_unknown = |part: &&str| {
        !part.is_empty() && !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err()
    };
    filter.split(',').map(str::trim).find(is_unknown)
}

impl Terminal {
    /// Uses the program's stdout and stderr.
    pub fn new(color: Color) -> Self {
        Self {
            coloured_results: color.on(io::stdout().is_terminal()),
            coloured_notes: color.on(io::stderr().is_terminal()),
            results_to_stderr: false,
        }
    }

    /// Leaves stdout to a block: results go to stderr from now on.
    pub fn offer_stdout(&mut self) {
        self.coloured_results = self.coloured_notes;
        self.results_to_stderr = true;
        fxgraph::stdout::offer();
    }

    /// Starts logging to stderr with `filter`. Called once, before any flowgraph is built.
    pub fn start_logging(&self, filter: &str) -> Result<(), Failure> {
        if let Some(word) = unknown_level(filter) {
            return Err(Failure::failed(format!(
                "invalid filter `--log {filter}`: there is no level `{word}`; give `off`, `error`, `warn`, `info`, \
                 `debug` or `trace`, or one of them for a crate, as in `fxgraph_blocks=debug`"
            )));
        }
        let filter = EnvFilter::try_new(filter).map_err(|error| {
            Failure::because(&format!("invalid filter `--log {filter}`"), &error)
        })?;
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(self.coloured_notes)
            .with_target(true)
            .with_writer(AboveProgress::default)
            .init();
        Ok(())
    }

    /// Writes all of `text` to stdout, or to stderr if stdout is a block's.
    pub fn results(&self, text: &str) -> Result<(), Failure> {
        if self.results_to_stderr {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            return Ok(write!(AboveProgress, "{text}{end}")?);
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            stdout.write_all(b"\n")?;
        }
        Ok(stdout.flush()?)
    }

    /// Writes results as JSON.
    pub fn json(&self, value: &serde_json::Value) -> Result<(), Failure> {
        self.results(&format!("{value:#}\n"))
    }

    /// Returns `text`, a part of the results, with `how` applied.
    pub fn paint(&self, how: Paint, text: &str) -> String {
        paint(self.coloured_results, how, text)
    }

    /// Writes a line to stderr; a failed write is ignored.
    pub fn note(&self, text: &str) {
        let _ = writeln!(AboveProgress, "{text}");
    }

    /// Writes an error that is not a diagnostic of a file.
    pub fn error(&self, text: &str) {
        let word = paint(self.coloured_notes, Paint::Bad, "error");
        self.note(&format!("{word}: {text}"));
    }

    /// Writes a warning.
    pub fn warning(&self, text: &str) {
        let word = paint(self.coloured_notes, Paint::Warning, "warning");
        self.note(&format!("{word}: {text}"));
    }

    /// Shows a progress line if stderr is a terminal.
    pub fn progress(&self) -> Option<ProgressLine> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let bar = ProgressBar::new_spinner();
        *lock(&PROGRESS) = Some(bar.clone());
        Some(ProgressLine(bar))
    }
}

/// Removes the progress line and writes a last line, for a program that ends at once.
pub fn last_note(text: &str) {
    if let Some(bar) = lock(&PROGRESS).take() {
        bar.finish_and_clear();
    }
    let _ = writeln!(io::stderr(), "{text}");
}

/// Progress line on stderr, removed when dropped.
pub struct ProgressLine(pub ProgressBar);

impl ProgressLine {
    /// Shows the text that `text` returns, until [`show`](Self::show).
    pub fn follow(&self, text: impl Fn() -> String + Send + Sync + Clone + 'static) {
        let template = ProgressStyle::with_template("{spinner} {text}");
        let style = template.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let write = move |_: &ProgressState, to: &mut dyn fmt::Write| {
            let _ = to.write_str(&text());
        };
        self.0.set_style(style.with_key("text", write));
        self.0.enable_steady_tick(Duration::from_millis(100));
    }

    /// Shows `text` from now on.
    pub fn show(&self, text: String) {
        self.0.disable_steady_tick();
        self.0.set_style(ProgressStyle::default_spinner());
        self.0.set_message(text);
        self.0.tick();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        *lock(&PROGRESS) = None;
    }
}

/// Stderr, above the progress line if there is one.
#[derive(Default)]
struct AboveProgress;

impl Write for AboveProgress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let progress = lock(&PROGRESS).clone();
        match progress {
            Some(bar) => bar.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_parsing_reads_color_in_both_spellings() {
        let said = |words: &[&str]| Color::before_parsing(words.iter().map(OsString::from));
        assert_eq!(said(&["fxgraph", "--color", "never", "list"]), Color::Never);
        assert_eq!(said(&["fxgraph", "list", "--color=always"]), Color::Always);
        assert_eq!(said(&["fxgraph", "list"]), Color::Auto);
    }

    #[test]
    fn log_filter_with_a_typing_error_is_rejected() {
        assert_eq!(unknown_level("warn, fxgraph_blocks=trace,off,DEBUG"), None);
        assert_eq!(unknown_level("info,loud"), Some("loud"));
    }
}
