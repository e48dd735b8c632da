//! The program of a block: its text, the class in it, and the interpreter that runs it.

use super::{FILE_LIMIT_BYTES, Python};
use fxgraph::access::ExecutedPath;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Rejection};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Name of inline code in errors and tracebacks.
const INLINE: &str = "<code>";

/// A class in the text of a program, and the interpreter for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Path of the interpreter.
    pub python: String,
    /// Name of the text in errors: the path as given, or `<code>`.
    pub name: String,
    /// Directory of the file, from which the program may import other files.
    pub directory: Option<PathBuf>,
    /// The text.
    pub text: Arc<str>,
    /// Name of the class.
    pub class: String,
    /// Limit of the private memory of the process, in bytes; 0 for none.
    pub memory_limit_bytes: u64,
    /// Declaration of a function that the text has instead of a class: `parameters`, pairs of name and type; `live`, names;
    /// `output`, a port; `buffers`, names with dtype and length; `counters`, names; `validity`, the rule
    /// `same`, `whole` or `units`.
    pub function: Option<Value>,
}

impl Program {
    /// Reads the program of a block with these `parameters`.
    pub fn read(parameters: &Python) -> Result<Self, Vec<Rejection>> {
        let (name, directory, text) = match (&parameters.file, &parameters.code) {
            (Some(file), None) => {
                let text = text_of(file).map_err(|why| {
                    let message = format!("cannot read `{}`: {why}", &**file);
                    vec![Rejection::parameter("file", message)]
                })?;
                let whole = Path::new(&**file).canonicalize().unwrap_or_default();
                (file.to_string(), whole.parent().map(Path::to_owned), text)
            }
            (None, Some(code)) => (INLINE.to_owned(), None, code.to_string()),
            (Some(_), Some(_)) => {
                let message = "`file` and `code` must not be given together";
                let rejection = Rejection::parameter("code", message);
                return Err(vec![rejection.help("remove one of them")]);
            }
            (None, None) => {
                let message = "`python` needs the parameter `file` or `code`";
                let help = "name the file with the class: `file: my_block.py`";
                let rejection = Rejection::new(codes::MISSING_KEY, At::Block, message);
                return Err(vec![rejection.label("no code").help(help)]);
            }
        };
        Ok(Self {
            python: parameters.interpreter.path(),
            name,
            directory,
            text: text.into(),
            class: parameters.class.clone(),
            memory_limit_bytes: parameters.interpreter.memory_limit_bytes,
            function: None,
        })
    }

    /// Parameter that gives the text.
    pub fn parameter(&self) -> &'static str {
        if self.name == INLINE { "code" } else { "file" }
    }

    /// Line of the text, from 1.
    pub fn line(&self, number: u64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.text.lines().nth(index).map(str::trim)
    }
}

/// Byte-order mark, which some editors write at the start of a text.
pub const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns the text of `file`, which has at most 1 MiB, without a byte-order mark.
pub fn text_of(file: &ExecutedPath) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    // Not a pipe, which could make the reader wait.
    let file = file.open().map_err(said)?;
    let mut text = String::new();
    file.take(FILE_LIMIT_BYTES + 1).read_to_string(&mut text).map_err(said)?;
    if text.len() as u64 > FILE_LIMIT_BYTES {
        return Err(format!("it must have at most {FILE_LIMIT_BYTES} bytes"));
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

/// Default interpreter: that of the active virtual environment, or else `python3`.
pub fn interpreter() -> String {
    #[cfg(test)]
    if let Some(python) = super::tests::interpreter() {
        return python;
    }
    let active = std::env::var_os("VIRTUAL_ENV").map(|root| Path::new(&root).join("bin/python"));
    let active = active.filter(|python| python.exists());
    active.map_or_else(|| "python3".to_owned(), |python| python.display().to_string())
}

/// Whether the default interpreter has NumPy; if not, the log says that `skipped` is skipped.
pub fn has_numpy(skipped: &str) -> bool {
    let python = interpreter();
    let mut numpy = Command::new(&python);
    numpy
        .args(["-c", "import numpy"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let has_numpy = numpy.status().is_ok_and(|status| status.success());
    if !has_numpy {
        tracing::warn!("{skipped}: skipped, because `{python}` has no NumPy");
    }
    has_numpy
}
