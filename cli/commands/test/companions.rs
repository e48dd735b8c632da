//! Flowgraphs that run beside a tested one.

use crate::flowgraph;
use crate::terminal::Terminal;
use fxgraph::diagnostic::render_all;
use fxgraph::flowgraph::{Companion, Plan, load};
use fxgraph::runtime::{self, Running};
use std::path::Path;

/// Running companions, each with its file's name.
pub struct Companions(Vec<(String, Running)>);

/// A flowgraph's plan, or its diagnostics, line by line.
pub fn plan(
    file: &Path,
    set: &[(String, String)],
    terminal: &Terminal,
) -> Result<Plan, Vec<String>> {
    let loaded = load(file, set, &flowgraph::registry());
    loaded.result.map_err(|diagnostics| {
        let text = render_all(&diagnostics, &loaded.sources, flowgraph::style(terminal));
        text.lines().map(str::to_owned).collect()
    })
}

/// A plan, running.
pub fn start(plan: &Plan, probes: Vec<fxgraph::flowgraph::Probe>) -> Result<Running, Vec<String>> {
    let assembly = plan.build_with(probes).map_err(|e| vec![crate::failure::with_causes(&e)])?;
    runtime::start(assembly, super::super::run::options(plan))
        .map_err(|e| vec![crate::failure::with_causes(&e)])
}

impl Companions {
    /// Starts them one after the other: each has its sockets open before the next one begins.
    pub fn start(
        folder: &Path,
        companions: &[Companion],
        terminal: &Terminal,
    ) -> Result<Self, Vec<String>> {
        let mut running = Vec::new();
        for companion in companions {
            let plan = plan(&folder.join(&companion.flowgraph), &companion.set, terminal)?;
            running.push((companion.flowgraph.display().to_string(), start(&plan, Vec::new())?));
        }
        Ok(Self(running))
    }

    /// Stops those that still run; what went wrong in any of them.
    pub fn stop(self) -> Vec<String> {
        self.0.iter().for_each(|(_, running)| running.request_stop());
        let failures = |(name, running): (String, Running)| {
            let failures = running.wait().failures;
            failures.into_iter().map(move |failure| format!("{name}: {failure}"))
        };
        self.0.into_iter().flat_map(failures).collect()
    }
}
