//! Loads a flowgraph file, or shows what is wrong with it.

use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::tuning;
use fxgraph::Registry;
use fxgraph::diagnostic::{Diagnostic, Severity, Style, render_all};
use fxgraph::flowgraph::{Loaded, Plan, Setting, load};
use fxgraph::memory;
use std::path::{Path, PathBuf};

/// A flowgraph file and the parameters to change in it.
#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// Flowgraph file
    pub file: PathBuf,

    /// Changes a parameter of the flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub set: Vec<Setting>,
}

/// All kinds this program knows.
pub fn registry() -> Registry {
    Registry::new(fxgraph_blocks::kinds())
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

/// How diagnostics are written to stderr.
pub fn style(terminal: &Terminal) -> Style {
    if terminal.coloured_notes { Style::Coloured } else { Style::Plain }
}

/// Loads a flowgraph file; too little memory for it on this machine is a problem of `severity`.
pub fn load_here(path: &Path, set: &[Setting], severity: Severity) -> Loaded {
    let mut loaded = load(path, set, &registry());
    let Ok(plan) = &mut loaded.result else { return loaded };
    if let Some(shortage) = memory::shortage(plan) {
        plan.warnings.push(Diagnostic { severity, ..shortage });
        if severity == Severity::Error {
            loaded.result = Err(std::mem::take(&mut plan.warnings));
        }
    }
    loaded
}

/// The plan of a flowgraph file; warnings go to stderr. `severity` is that of a lack of memory.
pub fn plan(target: &Target, severity: Severity, terminal: &Terminal) -> Result<Plan, Failure> {
    let Loaded { sources, result, .. } = load_here(&target.file, &target.set, severity);
    let mut plan = result.map_err(|diagnostics| {
        Failure::Configuration(render_all(&diagnostics, &sources, style(terminal)))
    })?;
    if !plan.warnings.is_empty() {
        terminal.note(render_all(&plan.warnings, &sources, style(terminal)).trim_end());
    }
    plan.tuning = tuning::usual()?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_kinds_have_one_name() {
        assert_eq!(super::registry().iter().count(), fxgraph_blocks::kinds().len());
    }
}
