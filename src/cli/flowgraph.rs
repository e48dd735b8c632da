//! Loads a flowgraph file, or prints its diagnostics.

use crate::examples;
use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph::Registry;
use fxgraph::diagnostic::{Diagnostic, Severity, Sources, Style, render_all};
use fxgraph::flowgraph::{Loaded, MAX_BYTES, Plan, Setting, load, load_standard_input, shortage};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The file name that means standard input.
const STANDARD_INPUT: &str = "-";

/// A flowgraph file and values for its parameters.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// Flowgraph file; `-` reads standard input, `example:NAME` is one of `fxgraph examples`
    pub file: PathBuf,

    /// Sets a parameter of the flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub set: Vec<Setting>,
}

static KINDS: OnceLock<Registry> = OnceLock::new();

/// Registers the kinds of blocks; called once, at the start of the program.
pub fn use_kinds(kinds: Registry) -> Result<(), Failure> {
    if let Some(name) = kinds.duplicate() {
        return Err(Failure::failed(format!("two kinds of blocks have the name `{name}`")));
    }
    KINDS.get_or_init(|| kinds);
    Ok(())
}

/// Returns all kinds of blocks in this program.
pub fn registry() -> Registry {
    KINDS.get_or_init(fxgraph_blocks::kinds).clone()
}

/// Reads `name=value`.
pub fn parse_setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok(Setting::typed(name.trim(), value.trim()))
        }
        _ => Err("give it as NAME=VALUE".to_owned()),
    }
}

/// Style of diagnostics on stderr.
pub fn style(terminal: &Terminal) -> Style {
    if terminal.coloured_notes { Style::Coloured } else { Style::Plain }
}

/// Loads the flowgraph file at `path`, standard input for `-` (read once, then reused), or the example of `example:NAME`.
pub fn load_file(path: &Path, set: &[Setting]) -> Loaded {
    static TEXT: OnceLock<io::Result<Vec<u8>>> = OnceLock::new();
    if let Some(name) = examples::name_in(path) {
        return examples::load(name, set, &registry());
    }
    if path != Path::new(STANDARD_INPUT) {
        return load(path, set, &registry());
    }
    let text = TEXT.get_or_init(|| {
        let mut text = Vec::new();
        // One byte above the limit shows that the text is too long.
        let limited = io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut text);
        limited.map(|_| text)
    });
    load_standard_input(text.as_deref(), set, &registry())
}

/// Loads a flowgraph file; a lack of memory on this machine is a diagnostic of `severity`.
pub fn load_here(path: &Path, set: &[Setting], severity: Severity) -> Loaded {
    let mut loaded = load_file(path, set);
    let Ok(plan) = &mut loaded.result else { return loaded };
    if let Some(shortage) = shortage(plan) {
        let shortage = Diagnostic { severity, ..shortage };
        let warnings = plan.warnings.iter().cloned().chain([shortage]);
        if severity == Severity::Error {
            loaded.result = Err(warnings.collect());
        } else {
            plan.warnings = warnings.collect();
        }
    }
    loaded
}

/// Returns the plan of a flowgraph file; warnings go to stderr. A lack of memory is a diagnostic of `severity`.
pub fn plan(target: &Target, severity: Severity, terminal: &Terminal) -> Result<Plan, Failure> {
    plan_and_sources(target, severity, terminal).map(|(plan, _)| plan)
}

/// [`plan`] with the files of the flowgraph, for further diagnostics.
pub fn plan_and_sources(
    target: &Target,
    severity: Severity,
    terminal: &Terminal,
) -> Result<(Plan, Sources), Failure> {
    let Loaded { sources, result, .. } = load_here(&target.file, &target.set, severity);
    let plan = result.map_err(|diagnostics| {
        Failure::Configuration(render_all(&diagnostics, &sources, style(terminal)))
    })?;
    if !plan.warnings.is_empty() {
        terminal.note(render_all(&plan.warnings, &sources, style(terminal)).trim_end());
    }
    Ok((plan, sources))
}

#[cfg(test)]
mod tests {
    #[test]
    fn use_kinds_rejects_duplicate_names() {
        assert_eq!(fxgraph_blocks::kinds().duplicate(), None);
        let twice = fxgraph_blocks::kinds().with(fxgraph_blocks::kinds());
        assert!(twice.duplicate().is_some());
    }
}
