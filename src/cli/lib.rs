//! The `fxgraph` program, as a library: a program with blocks of its own has every command, the REST
//! interface and the page.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     // `.with(my_blocks::kinds())` adds the kinds of another crate.
//!     fxgraph_cli::main(fxgraph_blocks::kinds())
//! }
//! ```
//!
//! # Layout
//! - `commands`: one file per command
//! - `terminal`: output to stdout and stderr, and its colours
//! - `table`, `units`, `replicas`: formatting of results
//! - `drawing`: drawings made of characters
//! - `flowgraph`: loads a file or prints its diagnostics
//! - `examples`: flowgraphs inside the program
//! - `client`: REST client for a running flowgraph
//! - `chosen`: parameters that blocks have chosen themselves
//! - `assignment`: `name=value` on the command line
//! - `parts`, `deploy`: parts of a flowgraph with hosts, and the files with which an engine runs them
//! - `kernel_directory`: directories with edited kernels
//! - `reload`: the flowgraph file of a run, applied again while the flowgraph runs
//! - `edits`: edits of files, noticed by looking at the files again and again
//! - `manual`: the pages of the manual that the program generates
//! - `serve`: options of the HTTP server
//! - `state`: the file with live values that survive the process
//! - `heap`: configuration of the C library's heap
//! - `tuning`: file with the fastest launch configurations of GPU kernels
//! - `signals`: handling of SIGINT, SIGTERM, SIGHUP and SIGXFSZ
//! - `ending`: limits on the time in which a flowgraph starts and ends
//! - `failure`: failure of a command, with its exit code
//!
//! Stdout carries results only; progress, logs and errors go to stderr.

mod assignment;
mod chosen;
mod client;
mod commands;
mod deploy;
#[cfg(feature = "tui")]
mod drawing;
mod edits;
mod ending;
mod estimates;
mod examples;
mod failure;
mod flowgraph;
mod heap;
mod kernel_directory;
#[cfg_attr(not(feature = "manual"), path = "manual/absent.rs")]
mod manual;
mod parts;
mod prose;
mod reload;
mod replicas;
mod runs;
mod serve;
mod shadows;
mod signals;
mod state;
mod table;
mod terminal;
mod tuning;
mod units;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser};
use commands::Command;
use fxgraph::Registry;
use fxgraph::diagnostic::nearest;
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::{Color, Terminal};

/// Program version and the commit of the build.
const BUILD: &str = concat!("fxgraph ", env!("CARGO_PKG_VERSION"), " ", env!("FXGRAPH_COMMIT"));

/// Signal chains of radio telescopes as graphs of blocks.
#[derive(Debug, Parser)]
#[command(name = "fxgraph", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// When to use colours; `auto` means on a terminal unless `NO_COLOR` is set
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,

    /// Log filter for stderr: a level like `debug`, or `fxgraph_blocks=trace`, separated by commas
    #[arg(long, global = true, default_value = "warn", value_name = "FILTER")]
    log: String,
}

const AFTER_HELP: &str = "\
Exit status: 0 success, 1 failure while running or failed test, 2 wrong usage,
78 errors in the flowgraph (not started), 130 interrupted.";

/// Returns all arguments and commands, from which clap derives parser, help and completions.
fn command_line() -> clap::Command {
    Arguments::command()
}

/// Runs the program with these kinds of blocks: parses the command line, executes the command and
/// returns the exit status.
#[must_use]
pub fn main(kinds: Registry) -> ExitCode {
    heap::configure();
    let color = Color::before_parsing(std::env::args_os());
    let choice = match color {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    };
    let words: Vec<OsString> = std::env::args_os().collect();
    let matches = match command_line().color(choice).try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error) => suggest_command(error, &words).exit(),
    };
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let mut terminal = Terminal::new(arguments.color);
    let result = flowgraph::use_kinds(kinds)
        .and_then(|()| terminal.start_logging(&arguments.log))
        .and_then(|()| signals::report_file_size_limit())
        .and_then(|()| arguments.command.execute(&mut terminal));
    examples::remove();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&terminal),
    }
}

/// Replaces the suggestions for a misspelt command: those of clap are words with the same letters, `kernels` for `rn`.
fn suggest_command(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let mut command = &command_line();
    for word in words.iter().skip(1).take_while(|other| *other != word.as_str()) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let known = command.get_subcommands().map(clap::Command::get_name);
    match nearest(word, known).map(str::to_owned) {
        Some(near) => {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near]))
        }
        None => error.remove(ContextKind::SuggestedSubcommand),
    };
    error
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_passes_claps_checks() {
        super::command_line().debug_assert();
    }

    #[test]
    fn misspelt_command_is_suggested_by_its_spelling() {
        let said = |words: &[&str]| {
            let words: Vec<_> = ["fxgraph"].iter().chain(words).map(Into::into).collect();
            let error = super::command_line().try_get_matches_from(&words).err();
            error.map(|error| super::suggest_command(error, &words).to_string()).unwrap_or_default()
        };
        let mistakes: [(&[&str], &str); 7] = [
            (&["rn", "test"], "run"),
            (&["rn"], "run"),
            (&["rnu", "x.yaml"], "run"),
            (&["tst"], "test"),
            (&["vlidate", "x.yaml"], "validate"),
            (&["kernel"], "kernels"),
            (&["--log", "debug", "generate", "blck"], "block"),
        ];
        for (words, near) in mistakes {
            let tip = format!("tip: a similar subcommand exists: '{near}'");
            assert!(said(words).contains(&tip), "{words:?}: {}", said(words));
        }
        assert!(!said(&["xyzzy"]).contains("tip"), "{}", said(&["xyzzy"]));
    }
}
