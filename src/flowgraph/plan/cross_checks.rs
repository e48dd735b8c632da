//! Checks across blocks: names, hosts, sockets, files, outputs, and live parameters of other blocks.

use crate::language::expand::Instance;
use crate::language::hosts::{self, Host, Hosts};
use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::Plan;
use crate::text::document::doubled;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, codes, suggest};
use fxgraph_core::kind::PortNames;
use fxgraph_core::tree::Key;
use fxgraph_core::{Registry, Resources};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Reports blocks whose name in the file equals the full name of a block from a template or `replicate`.
pub(crate) fn named_twice(instances: &[Instance<'_>], problems: &mut Vec<Diagnostic>) {
    let mut seen = HashMap::new();
    for block in instances {
        if let Some(first) = seen.insert(&block.name, block.key) {
            let key = Key { text: block.name.clone(), span: block.key };
            problems.push(doubled("block", &key, first));
        }
    }
}

/// Reports blocks without a host, and blocks on a GPU that their host does not have.
pub(crate) fn check_placement(
    blocks: &[Instance<'_>],
    classes: Option<&Hosts>,
    problems: &mut Vec<Diagnostic>,
) {
    let Some(classes) = classes else { return };
    // The host of such a block may be wrong, which is already reported.
    let is_reported = problems.iter().any(|problem| problem.code == codes::HOSTS);
    for block in blocks {
        let Some(host) = block.host else {
            if !is_reported {
                let message = "a flowgraph with `hosts` needs a `host` for every block";
                let mut problem = hosts::wrong(block.key, message)
                    .label("without `host`")
                    .note(classes.span, "the hosts are defined here")
                    .help(format!("add `host: {}`", Host { class: 0, index: 0 }.example(classes)));
                problem.blocks.push(block.name.clone());
                problems.push(problem);
            }
            continue;
        };
        let class = &classes.classes[host.class];
        if let (DeviceName::Cuda(number), Some(gpus)) = (block.placement.device, class.gpus)
            && number >= gpus
        {
            let message = format!(
                "`{}` has {gpus} GPUs, `{}` needs `{}`",
                class.name, block.name, block.placement.device
            );
            let span = block.placement.chosen.unwrap_or(block.key);
            let mut problem = hosts::wrong(span, message)
                .label("no such GPU there")
                .note(class.span, "the class is defined here");
            problem.blocks.push(block.name.clone());
            problems.push(problem);
        }
    }
}

/// Reports sockets and files that two blocks use.
pub(crate) fn claimed_twice(
    planned: &[Option<PlannedBlock>],
    instances: &[Instance<'_>],
    problems: &mut Vec<Diagnostic>,
) {
    let mut seen: HashMap<(&str, String), usize> = HashMap::new();
    for (index, block) in planned.iter().enumerate() {
        let Some(Resources { binds, writes, .. }) = block.as_ref().map(|block| &block.resources)
        else {
            continue;
        };
        let sockets = binds.iter().map(|socket| ("binds", socket.clone()));
        let files = writes.iter().map(|path| ("writes", plain(path).display().to_string()));
        for (verb, name) in sockets.chain(files) {
            let Some(first) = seen.get(&(verb, name.clone())) else {
                seen.insert((verb, name), index);
                continue;
            };
            let (one, two) = (&instances[*first], &instances[index]);
            let (code, both, help) = match verb {
                "binds" => (codes::BOUND_TWICE, "bind", "give each its own port or address"),
                _ => (codes::WRITTEN_TWICE, "write", "give each its own path"),
            };
            let message = if *first == index {
                format!("`{}` {verb} {name} twice", two.name)
            } else {
                format!("`{}` and `{}` both {both} {name}", one.name, two.name)
            };
            let mut problem = Diagnostic::error(code, two.key, message)
                .label(format!("{verb} it again"))
                .help(help);
            if one.key != two.key {
                problem = problem.note(one.key, format!("{verb} it first"));
            }
            problems.push(problem);
        }
    }
}

/// `path` without `.` and empty components: `./out//a` is `out/a`.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|step| *step != Component::CurDir).collect()
}

/// Warns of outputs that no block reads.
pub(crate) fn unread(plan: &Plan, registry: &Registry, problems: &mut Vec<Diagnostic>) {
    let mut readers: Vec<Vec<Vec<&PlannedBlock>>> =
        plan.blocks.iter().map(|block| vec![Vec::new(); block.ports.outputs.len()]).collect();
    for reader in &plan.blocks {
        for (source, port) in &reader.inputs {
            readers[*source][*port].push(reader);
        }
    }
    for (block, readers) in plan.blocks.iter().zip(&readers) {
        let for_several = readers.iter().flatten().find_map(|reader| {
            let PortNames::Optional { names, .. } = registry.get(reader.kind)?.inputs else {
                return None;
            };
            // The reader of some of the outputs has inputs for all of them.
            let fits = readers.len() <= names.len() && reader.inputs.len() < readers.len();
            fits.then(|| for_all_outputs(block, reader))
        });
        for port in (0..readers.len()).filter(|port| readers[*port].is_empty()) {
            let message = format!(
                "output `{}` of `{}` is not connected",
                block.output_names[port], block.kind
            );
            let mut problem = Diagnostic::warning(codes::UNREAD_OUTPUT, block.span, message)
                .label("its data is discarded")
                .maybe_help(for_several.clone())
                .help("connect it to a `null_sink` if this is intended");
            problem.blocks.push(block.name.clone());
            problems.push(problem);
        }
    }
}

/// Help for a `reader` of some outputs of `block` that has inputs for all of them, the same for all replicas.
fn for_all_outputs(block: &PlannedBlock, reader: &PlannedBlock) -> String {
    // The name in the file, and whether it is one of several replicas.
    let written = |block: &PlannedBlock| {
        let name = block.name.rsplit('.').next().unwrap_or_default();
        name.split_once('[').map_or((name.to_owned(), false), |(name, _)| (name.to_owned(), true))
    };
    let (source, is_replica) = written(block);
    let output = |output: &String| {
        if is_replica {
            format!("\"{source}[${{index}}].{output}\"")
        } else {
            format!("{source}.{output}")
        }
    };
    let outputs: Vec<String> = block.output_names.iter().map(output).collect();
    let (reader, _) = written(reader);
    format!("to connect all outputs to `{reader}`, write `inputs: [{}]` there", outputs.join(", "))
}

/// Reports live parameters of other blocks that a block would change and that do not exist.
pub(crate) fn unknown_targets(
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
