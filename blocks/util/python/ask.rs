//! Ports and parameters of a block, asked of a process that runs its program once.

use super::fault::Fault;
use super::port::Described;
use super::process::{Process, START_LIMIT};
use super::program::Program;
use fxgraph::PortType;
use fxgraph::lock::lock;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

/// Number of answers that are kept.
const KEPT: usize = 64;

/// Description of a block by its process.
#[derive(Clone, Debug, Deserialize)]
pub struct Hello {
    /// Parameters of the class.
    pub parameters: Vec<Parameter>,
    /// Path, time of change in nanoseconds and size of the files beside the program that it has imported.
    files: Vec<(String, i64, u64)>,
    /// Versions of Python and NumPy.
    pub python: String,
    pub numpy: String,
    /// Output port, if there is one.
    pub output: Option<Described>,
}

/// A parameter of a class.
#[derive(Clone, Debug, Deserialize)]
pub struct Parameter {
    pub name: String,
    /// Whether it may change while the block runs.
    pub live: bool,
}

/// Question to a process.
#[derive(PartialEq)]
struct Question {
    program: Program,
    values: Map<String, Value>,
    inputs: Vec<Value>,
}

/// Answers, the oldest first.
static ANSWERS: Mutex<VecDeque<(Question, Arc<Hello>)>> = Mutex::new(VecDeque::new());

/// Returns the description of the block, from a process or from an earlier answer to the same question.
pub fn hello(
    program: &Program,
    values: &Map<String, Value>,
    inputs: &[PortType],
) -> Result<Arc<Hello>, Fault> {
    let question = Question {
        program: program.clone(),
        values: values.clone(),
        inputs: inputs.iter().map(super::port::to_json).collect(),
    };
    let kept = || lock(&ANSWERS);
    let known =
        kept().iter().find(|(asked, _)| *asked == question).map(|(_, hello)| Arc::clone(hello));
    if let Some(hello) = known.filter(|hello| hello.is_current()) {
        return Ok(hello);
    }
    let mut process = Process::start(program, values, inputs, None, Box::new(|_, _| {}))?;
    let hello = Arc::new(described(process.hear(START_LIMIT)?)?);
    drop(process);
    let mut answers = kept();
    answers.retain(|(asked, _)| *asked != question);
    if answers.len() == KEPT {
        answers.pop_front();
    }
    answers.push_back((question, Arc::clone(&hello)));
    Ok(hello)
}

/// Reads the first message of a process.
pub fn described(mut message: Value) -> Result<Hello, Fault> {
    serde_json::from_value(message["hello"].take()).map_err(|error| {
        Fault::System(format!("`ports` must return a Port with whole numbers: {error}"))
    })
}

impl Hello {
    /// Whether the files beside the program are those that it has imported.
    fn is_current(&self) -> bool {
        self.files.iter().all(|(path, changed, size)| {
            let Ok(found) = std::fs::metadata(path) else { return false };
            let time = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            found.len() == *size && time.is_some_and(|time| time.as_nanos() as i64 == *changed)
        })
    }

    /// Paths of the imported files.
    pub fn imported(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(path, _, _)| path.as_str())
    }

    /// Texts that identify the imported files.
    pub fn files(&self) -> impl Iterator<Item = String> {
        self.files.iter().map(|(path, changed, size)| format!("{path} {changed} {size}"))
    }
}
