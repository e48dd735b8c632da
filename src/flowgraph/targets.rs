//! Checks of blocks that change live parameters of other blocks.

use super::expand::Instance;
use super::plan::PlannedBlock;
use fxgraph_core::Registry;
use fxgraph_core::diagnostic::{Diagnostic, codes, suggest};

/// Reports live parameters of other blocks that a block would change and that do not exist.
pub fn unknown(
    planned: &[Option<PlannedBlock>],
    instances: &[Instance<'_>],
    registry: &Registry,
    problems: &mut Vec<Diagnostic>,
) {
    for (block, instance) in planned.iter().zip(instances) {
        for target in block.iter().flat_map(|block| &block.resources.updates) {
            let given = instance.parameters.as_ref();
            let named_at = |path: &str| given.and_then(|node| node.at(path));
            let whole = target.named_by.split('.').next().unwrap_or_default();
            let node = named_at(&target.named_by).or_else(|| named_at(whole));
            let span = node.map_or(instance.key, |node| node.span);
            let Some(found) = instances.iter().find(|other| other.name == target.block) else {
                let known: Vec<&str> = instances.iter().map(|other| other.name.as_str()).collect();
                let message = format!("there is no block `{}`", target.block);
                problems.push(
                    Diagnostic::error(codes::UNKNOWN_BLOCK, span, message)
                        .label("no such block")
                        .maybe_help(suggest(&target.block, "block", &known)),
                );
                continue;
            };
            let kind = registry.get(found.kind.name);
            if kind.is_none_or(|kind| !kind.live.contains(&target.parameter)) {
                let message = format!(
                    "`{}` of kind `{}` has no live parameter `{}`",
                    target.block, found.kind.name, target.parameter
                );
                problems.push(
                    Diagnostic::error(codes::NOT_LIVE, span, message)
                        .label("cannot be changed while it runs")
                        .note(found.key, "the block is defined here"),
                );
            }
        }
    }
}
