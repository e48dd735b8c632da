//! Faults of the process of a block.

use super::program::Program;
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Rejection};
use serde::Deserialize;
use std::time::Duration;

/// Reason why the process of a block is of no use any more, or did not compute a frame.
#[derive(Clone, Debug)]
pub enum Fault {
    /// An error that the process reported.
    Raised(Raised),
    /// The interpreter cannot be started.
    NoInterpreter(String),
    /// The process ended without a report.
    Died { how: String, last_lines: String },
    /// The process did not answer in time.
    Hung { after: Duration, stack: String },
    /// The operating system did not grant a resource.
    System(String),
}

/// An error that the process reported.
#[derive(Clone, Debug, Deserialize)]
pub struct Raised {
    /// Step in which it occurred: `interpreter`, `import`, `parameters`, `ports`, `start`, `work`, ...
    #[serde(rename = "where")]
    pub place: String,
    /// The error in one line.
    pub message: String,
    /// Line of the program.
    pub line: Option<u64>,
    /// Traceback, the lines of the author only.
    pub traceback: String,
    /// Parameter of the class that is wrong.
    pub parameter: Option<String>,
    /// Whether the process has ended.
    pub ended: bool,
}

impl Fault {
    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        !matches!(self, Self::Raised(Raised { ended: false, .. }))
    }

    /// The fault of a running block, with the traceback or stack as its cause.
    pub fn error(self, program: &Program) -> BlockError {
        let (name, class) = (&program.name, &program.class);
        let (text, trace) = match self {
            Self::Raised(Raised { place, message, line, traceback, .. }) => {
                let at = line.map_or_else(|| name.clone(), |line| format!("{name}, line {line}"));
                (format!("`{place}` of `{class}` failed ({at}): {message}"), traceback)
            }
            Self::NoInterpreter(why) => {
                (format!("cannot start `{}`: {why}", program.python), String::new())
            }
            Self::Died { how, last_lines } => {
                (format!("the process of `{class}` ended: {how}"), last_lines)
            }
            Self::Hung { after, stack } => {
                let seconds = after.as_secs_f64();
                (
                    format!(
                        "`{class}` must answer within `timeout_seconds`, got no answer for {seconds:.3} s"
                    ),
                    stack,
                )
            }
            Self::System(why) => (why, String::new()),
        };
        let error = BlockError::new(text);
        if trace.trim().is_empty() { error } else { error.because(Trace(trace)) }
    }

    /// The diagnostic for a fault before the start of the flowgraph.
    pub fn rejection(self, program: &Program) -> Rejection {
        let (name, class) = (&program.name, &program.class);
        let code = program.parameter();
        match self {
            Self::Raised(raised) if raised.place == "interpreter" => {
                let python = &program.python;
                let message = format!("`{python}` cannot run blocks: {}", raised.message);
                let help = if raised.message.contains("numpy") {
                    format!(
                        "install NumPy: `{python} -m pip install numpy`, or set `python` to another interpreter"
                    )
                } else {
                    "set `python` to the interpreter of an environment with NumPy".to_owned()
                };
                Rejection::parameter("python", message).label("this interpreter").help(help)
            }
            Self::Raised(Raised { message, parameter: Some(parameter), .. }) => {
                let at = match parameter.as_str() {
                    "class" => At::Parameter("class"),
                    "" => At::Parameter("values"),
                    name => At::Value(format!("values.{name}")),
                };
                Rejection::new(codes::PARAMETER_OUT_OF_RANGE, at, message)
            }
            Self::Raised(Raised { place, message, line, .. }) => {
                let at = line.map_or_else(|| name.clone(), |line| format!("{name}, line {line}"));
                let step = match place.as_str() {
                    "import" => format!("`{name}` cannot be imported"),
                    "parameters" => format!("`{class}` cannot be made"),
                    place => format!("`{place}` of `{class}` failed"),
                };
                let quoted = line.and_then(|line| Some((line, program.line(line)?)));
                let rejection = Rejection::parameter(code, format!("{step} ({at}): {message}"));
                match quoted.filter(|(_, text)| !text.is_empty()) {
                    Some((line, text)) => rejection.help(format!("correct line {line}: `{text}`")),
                    None => rejection,
                }
            }
            Self::NoInterpreter(why) => {
                let message = format!("cannot start `{}`: {why}", program.python);
                Rejection::parameter("python", message)
                    .label("this interpreter")
                    .help("set `python` to the interpreter of an environment with NumPy: `python: venv/bin/python`")
            }
            Self::Died { how, last_lines } => {
                let last = last_lines.lines().last().unwrap_or_default();
                let said = if last.is_empty() {
                    String::new()
                } else {
                    format!("; its last line: {last}")
                };
                Rejection::parameter(code, format!("the process of `{class}` ended: {how}{said}"))
            }
            Self::Hung { after, .. } => {
                let seconds = after.as_secs();
                let message =
                    format!("`{name}` must be imported within {seconds} s, got no answer");
                Rejection::parameter(code, message)
            }
            Self::System(why) => Rejection::parameter(code, why),
        }
    }
}

/// Traceback or last output of a process, as the cause of a fault.
#[derive(Debug, thiserror::Error)]
#[error("\n{0}")]
struct Trace(String);
