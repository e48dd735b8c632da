//! The file of a kernel and its reference.

use super::Kernel;
use super::declaration::{Declared, Problem};
use crate::util::python::{BYTE_ORDER_MARK, text_of};
use fxgraph::access::ExecutedPath;
use fxgraph::cuda::includes;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Rejection};
use fxgraph_kernels::HEADERS;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of inline texts in errors.
const INLINE: &str = "<code>";
const INLINE_REFERENCE: &str = "<reference_code>";

/// Text of a reference in Python.
#[derive(Clone, Debug, Hash)]
pub struct Reference {
    /// Path as given, or `<reference_code>`.
    pub name: String,
    /// Directory of the file, from which it may import others.
    pub directory: Option<PathBuf>,
    pub text: Arc<str>,
}

/// Text of a kernel with its declaration.
#[derive(Clone, Debug)]
pub struct KernelFile {
    /// Path as given, or `<code>`.
    pub name: String,
    /// Parameter that gives the text.
    pub parameter: &'static str,
    pub text: Arc<str>,
    pub declared: Declared,
    /// Name of the kernel and of the function.
    pub kernel: String,
    pub reference: Option<Reference>,
}

impl KernelFile {
    /// Reads the texts that `parameters` name.
    pub fn read(parameters: &Kernel) -> Result<Self, Vec<Rejection>> {
        let Kernel { file, code, reference_code, .. } = parameters;
        let (name, parameter, text) = match (file, code) {
            (Some(file), None) => {
                let text = text_of(file).map_err(|why| {
                    let message = format!("cannot read `{}`: {why}", &**file);
                    vec![Rejection::parameter("file", message).help("name a text file in UTF-8")]
                })?;
                (file.to_string(), "file", text)
            }
            (None, Some(code)) => {
                let text = code.strip_prefix(BYTE_ORDER_MARK).unwrap_or(code);
                (INLINE.to_owned(), "code", text.to_owned())
            }
            (Some(_), Some(_)) => {
                let message = "`file` and `code` must not be given together";
                return Err(vec![Rejection::parameter("code", message).help("remove one of them")]);
            }
            (None, None) => {
                let message = "`kernel` needs the parameter `file` or `code`";
                let help = "name the file with the kernel: `file: gain.cu`";
                let rejection = Rejection::new(codes::MISSING_KEY, At::Block, message);
                return Err(vec![rejection.label("no code").help(help)]);
            }
        };
        let rejected = |problem| vec![rejection(parameter, &name, &text, problem)];
        reject_zero_bytes(&text).map_err(rejected)?;
        let declared = Declared::read(&text).map_err(rejected)?;
        reject_includes(&text).map_err(rejected)?;
        let stem = if file.is_some() { stem(&name) } else { "kernel" };
        let kernel = declared.declaration.kernel.clone().unwrap_or_else(|| stem.to_owned());
        if !super::declaration::is_name(&kernel) {
            let message = format!("`{kernel}` cannot be the name of a kernel");
            let help = "give `kernel` in the declaration the name of the kernel";
            return Err(rejected(Problem::of_file(message).help(help)));
        }
        let declared_reference = declared.declaration.reference.as_deref();
        let found = match (file, reference_code) {
            (Some(_), Some(_)) => {
                let message = "`reference_code` must be given with `code`, not with `file`";
                let help = "write `reference: NAME.py` into the declaration";
                return Err(vec![Rejection::parameter("reference_code", message).help(help)]);
            }
            (Some(file), None) => {
                let beside = reference(file, declared_reference);
                match (text_of(&beside), declared_reference) {
                    (Ok(text), _) => {
                        let whole = Path::new(&*beside).canonicalize().unwrap_or_default();
                        let directory = whole.parent().map(Path::to_owned);
                        Some(Reference { name: beside.to_string(), directory, text: text.into() })
                    }
                    (Err(_), None) => None,
                    (Err(why), Some(_)) => {
                        let message = format!("cannot read `{}`: {why}", &*beside);
                        return Err(rejected(declared.problem("reference", message)));
                    }
                }
            }
            (None, Some(code)) => {
                let name = INLINE_REFERENCE.to_owned();
                Some(Reference { name, directory: None, text: (**code).into() })
            }
            (None, None) => None,
        };
        Ok(Self { parameter, declared, kernel, reference: found, text: text.into(), name })
    }

    /// The diagnostic for `problem`, with its line.
    pub fn rejection(&self, problem: Problem) -> Rejection {
        rejection(self.parameter, &self.name, &self.text, problem)
    }
}

/// Path of the reference of the kernel in `file`, which the declaration may name.
pub fn reference(file: &ExecutedPath, declared: Option<&str>) -> ExecutedPath {
    file.beside(&declared.map_or_else(|| format!("{}.py", stem(file)), str::to_owned))
}

/// Name of the file at `path` without its extension.
fn stem(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// The error of the first `#include` that is not a header of fxgraph.
fn reject_includes(text: &str) -> Result<(), Problem> {
    let is_other = |name: &str| HEADERS.iter().all(|header| header.name != name);
    let Some((line, name)) = includes(text).find(|(_, name)| is_other(name)) else { return Ok(()) };
    let message = if name.is_empty() {
        "`#include` must have the name of a header in its line".to_owned()
    } else {
        format!("`#include` must name a header of fxgraph, got `{name}`")
    };
    let problem = Problem { line: Some(line), ..Problem::of_file(message) };
    Err(problem.help("remove the line, also from a comment, or name a header such as `packed.cuh`"))
}

/// The error of the first zero byte, at which the compiler's text would end.
fn reject_zero_bytes(text: &str) -> Result<(), Problem> {
    let Some((before, _)) = text.split_once('\0') else { return Ok(()) };
    let line = Some(before.matches('\n').count() + 1);
    let problem = Problem::of_file("the file must be text, and has a zero byte");
    Err(Problem { line, ..problem }.help("remove the zero byte"))
}

fn rejection(parameter: &'static str, name: &str, text: &str, problem: Problem) -> Rejection {
    let Problem { line, message, help } = problem;
    let at = line.map_or_else(|| name.to_owned(), |line| format!("{name}:{line}"));
    let rejection =
        Rejection::parameter(parameter, format!("{at}: {message}")).label("this kernel");
    let quoted = line.and_then(|line| text.lines().nth(line.checked_sub(1)?)).map(str::trim);
    let quoted = quoted.filter(|quoted| !quoted.is_empty());
    let correct =
        line.zip(quoted).map(|(line, quoted)| format!("correct line {line}: `{quoted:.120}`"));
    match help.or(correct) {
        Some(help) => rejection.help(help),
        None => rejection.help("correct the file"),
    }
}
