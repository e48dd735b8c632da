//! Example flowgraphs inside the program: those of `flowgraphs/` in the repository.

use fxgraph::Registry;
use fxgraph::diagnostic::{Diagnostic, Sources, codes, suggest};
use fxgraph::flowgraph::{Loaded, Setting, load_in};
use fxgraph::lock::lock;
use std::path::Path;
use std::sync::Mutex;
use std::{fs, io};
use tempfile::TempDir;

/// Marks the name of an example where a file may be named: `example:01_first_light`.
const PREFIX: &str = "example:";

/// A flowgraph of the program.
pub struct Example {
    /// `01_first_light`
    pub name: &'static str,
    pub text: &'static str,
}

/// All examples, sorted by name.
pub const EXAMPLES: &[Example] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// Path relative to an example, and text, of each file that examples include.
pub const INCLUDES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/includes.rs"));

impl Example {
    /// The flowgraph's description in one line.
    pub fn summary(&self) -> String {
        let document: serde_yaml::Value = serde_yaml::from_str(self.text).unwrap_or_default();
        document["doc"].as_str().unwrap_or_default().trim().replace('\n', " ")
    }

    /// Path relative to this example, and text, of each file that it names: what it includes, and the flowgraphs
    /// that its tests run beside it, with theirs.
    pub fn files_beside(&self) -> Vec<(String, &'static str)> {
        let mut found: Vec<(String, &str)> = Vec::new();
        let mut texts = vec![self.text];
        while let Some(text) = texts.pop() {
            for (path, other) in files() {
                let is_new = found.iter().all(|(known, _)| *known != path);
                if is_new && other != self.text && text.contains(&path) {
                    texts.push(other);
                    found.push((path, other));
                }
            }
        }
        found
    }
}

/// Path and text of every file: examples, and what they include.
fn files() -> impl Iterator<Item = (String, &'static str)> {
    let examples = EXAMPLES.iter().map(|example| (format!("{}.yaml", example.name), example.text));
    examples.chain(INCLUDES.iter().map(|(path, text)| ((*path).to_owned(), *text)))
}

/// The name in `example:NAME`.
pub fn name_in(file: &Path) -> Option<&str> {
    file.to_str()?.strip_prefix(PREFIX)
}

/// The example `name`, or why there is none; `02_f_engine.yaml` and `02` name `02_f_engine` too.
pub fn find(name: &str) -> Result<&'static Example, String> {
    let name = name.trim_end_matches(".yaml");
    let is_meant = |example: &&Example| {
        let number = example.name.split_once('_').map(|(number, _)| number);
        example.name == name || number == Some(name)
    };
    EXAMPLES.iter().find(is_meant).ok_or_else(|| {
        let known: Vec<&str> = EXAMPLES.iter().map(|example| example.name).collect();
        let help = suggest(name, "example", &known).map(|help| format!("; {help}"));
        let help = help.unwrap_or_default();
        format!("there is no example `{name}`{help}; `fxgraph examples` lists them")
    })
}

/// Directory of all files while the program runs.
static DIRECTORY: Mutex<Option<TempDir>> = Mutex::new(None);

/// Reads and checks the example `name`.
pub fn load(name: &str, set: &[Setting], registry: &Registry) -> Loaded {
    let failed = |problem| Loaded {
        sources: Sources::default(),
        result: Err(vec![problem]),
        tests: Vec::new(),
    };
    let example = match find(name) {
        Ok(example) => example,
        Err(reason) => return failed(Diagnostic::nowhere(codes::UNREADABLE, reason)),
    };
    let mut kept = lock(&DIRECTORY);
    let written = match kept.take() {
        Some(written) => Ok(written),
        None => write_files(),
    };
    let directory = match written {
        Ok(written) => kept.insert(written).path().to_owned(),
        Err(error) => {
            let message =
                format!("the examples cannot be written to a temporary directory: {error}");
            return failed(Diagnostic::nowhere(codes::UNREADABLE, message));
        }
    };
    drop(kept);
    let called = format!("{PREFIX}{}", example.name);
    load_in(&directory, Path::new(&called), example.text, set, registry)
}

fn write_files() -> io::Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("fxgraph-examples-").tempdir()?;
    for (path, text) in files() {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(directory.path()))?;
        fs::write(path, text)?;
    }
    Ok(directory)
}

/// Removes these files, at the end of the program.
pub fn remove() {
    lock(&DIRECTORY).take();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_example_loads_and_has_a_summary() {
        let registry = fxgraph_blocks::kinds();
        assert!(EXAMPLES.len() >= 13);
        for example in EXAMPLES {
            let loaded = load(example.name, &[], &registry);
            let problems = loaded.result.err().unwrap_or_default();
            assert!(problems.is_empty(), "{}: {}", example.name, problems[0].message);
            assert!(!example.summary().is_empty(), "{}", example.name);
        }
        remove();
    }

    #[test]
    fn files_beside_are_includes_and_flowgraphs_of_tests() {
        let paths: Vec<_> =
            find("02").unwrap().files_beside().into_iter().map(|(path, _)| path).collect();
        assert!(paths.contains(&"include/f_engine.yaml".to_owned()), "{paths:?}");
        assert!(paths.contains(&"05_digitisers.yaml".to_owned()), "{paths:?}");
    }

    #[test]
    fn example_is_found_by_name_file_and_number() {
        for name in ["02_f_engine", "02_f_engine.yaml", "02"] {
            assert_eq!(find(name).unwrap().name, "02_f_engine");
        }
        assert!(find("02_f_engin").err().unwrap().contains("`02_f_engine`"));
    }
}
