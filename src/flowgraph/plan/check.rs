//! Checks expanded blocks: reads their parameters and computes their ports, from sources to sinks.

use crate::language::expand::Instance;
use crate::language::on_fault::OnFault;
use crate::language::order::Order;
use crate::language::place::Placement;
use crate::language::queue;
use crate::language::resolve::{Feed, port_name};
use crate::language::thread::Thread;
use crate::plan::block::{Planned, PlannedBlock};
use crate::plan::configure::{configure, rejection};
use crate::plan::pending::Pending;
use fxgraph_core::access::FileAccess;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, Severity, Span, codes};
use fxgraph_core::kind::{
    AnyConfigured, AnyParameters, At, PortNames, Ports, Rejection, Resources,
};
use fxgraph_core::port::{Axis, Origin, PortType};
use fxgraph_core::tree::Value;
use fxgraph_cuda::{self as cuda, IN_FLIGHT};

/// Number of blocks of a cycle that a message names.
const CIRCLE_SHOWN: usize = 12;
/// Limit of the axes of one port.
const MAX_AXES: usize = 16;
/// Limit of the size of one frame, in bytes.
const MAX_FRAME_BYTES: u128 = 1 << 40;

/// Checks all blocks. Blocks with errors, and blocks downstream of them, are `None`.
pub(crate) fn check(
    instances: &[Instance<'_>],
    feeds: &[Option<Vec<Feed>>],
    access: &FileAccess,
    problems: &mut Vec<Diagnostic>,
) -> Vec<Option<PlannedBlock>> {
    let mut found: Vec<Option<Box<dyn AnyParameters>>> = Vec::new();
    for instance in instances {
        found.push(instance.parameters.as_ref().and_then(|node| {
            let implementation = instance.placement.implementation;
            let read = configure(instance.kind, implementation, node, instance.owner, access);
            read.map_err(|errors| {
                for mut problem in errors {
                    problem.blocks.push(instance.name.clone());
                    problems.push(problem);
                }
            })
            .ok()
        }));
    }
    let order = order(instances, feeds, problems);
    let mut planned: Vec<Option<PlannedBlock>> = (0..instances.len()).map(|_| None).collect();
    for index in order {
        let (Some(parameters), Some(feeds)) = (&found[index], &feeds[index]) else { continue };
        let known = |index: usize| planned[index].as_ref();
        let parameters = parameters.as_ref();
        let block = plan_block(&instances[index], parameters, feeds, known, instances, problems);
        problems.extend(impossible_policy(&instances[index], parameters));
        if let Some(block) = &block {
            problems.extend(warnings(&instances[index], block, feeds));
            problems.extend(threads_on_one_core(block));
        }
        planned[index] = block;
    }
    planned
}

/// Topological order of the blocks: each block comes after its sources. Cycles are reported; they and the blocks
/// downstream of them are left out.
fn order(
    instances: &[Instance<'_>],
    feeds: &[Option<Vec<Feed>>],
    problems: &mut Vec<Diagnostic>,
) -> Vec<usize> {
    let sources = |feeds: &Option<Vec<Feed>>| -> Vec<usize> {
        feeds.iter().flatten().map(|feed| feed.block).collect()
    };
    let needs: Vec<Vec<usize>> = feeds.iter().map(sources).collect();
    let Order { good: order, circles, .. } = Order::of(&needs);
    for circle in circles {
        // From a block to its source; frames go the other way.
        let reads = |at: usize| {
            let source = circle[(at + 1) % circle.len()];
            let feeds = feeds[circle[at]].iter().flatten();
            feeds.filter(move |feed| feed.block == source).map(|feed| feed.span).next()
        };
        let spans: Vec<Span> = (0..circle.len()).filter_map(reads).collect();
        let Some(first) = spans.first() else { continue };
        let mut names: Vec<String> =
            circle.iter().rev().map(|block| format!("`{}`", instances[*block].name)).collect();
        names.extend(names.first().cloned());
        if names.len() > CIRCLE_SHOWN {
            names.splice(CIRCLE_SHOWN / 2..names.len() - 2, ["...".to_owned()]);
        }
        let message = format!("the graph has a cycle: {}", names.join(" -> "));
        let mut problem = Diagnostic::error(codes::CYCLE, *first, message)
            .label("closes the cycle")
            .help("connect one of these inputs to a block outside the cycle");
        for other in spans[1..].iter().filter(|other| *other != first).take(CIRCLE_SHOWN) {
            problem = problem.note(*other, "part of the cycle");
        }
        problems.push(problem);
    }
    order
}

/// Checks one block and computes its ports; `planned` returns its sources.
pub(crate) fn plan_block<'p>(
    instance: &Instance<'_>,
    parameters: &dyn AnyParameters,
    feeds: &[Feed],
    planned: impl Fn(usize) -> Option<&'p PlannedBlock>,
    instances: &[Instance<'_>],
    problems: &mut Vec<Diagnostic>,
) -> Option<PlannedBlock> {
    let mut inputs = Vec::new();
    for feed in feeds {
        let source = planned(feed.block)?;
        let Some(port) = source.ports.outputs.get(feed.port) else {
            let name = port_name(instances[feed.block].kind.outputs, feed.port);
            let count = source.ports.outputs.len();
            problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_PORT,
                    feed.span,
                    format!("`{}` has no output `{name}`", source.name),
                )
                .label("no such output")
                .help(format!("number of its outputs with these parameters: {count}")),
            );
            return None;
        };
        inputs.push(port.clone());
    }
    let configured = match parameters.connect(&inputs) {
        Ok(configured) => configured,
        Err(rejections) => {
            let place = |at: &At| place(at, instance, feeds, &inputs);
            let rejected =
                rejections.into_iter().map(|each| rejection(each, &instance.name, place));
            problems.extend(rejected);
            return None;
        }
    };
    let mut outputs = configured.ports().outputs.clone();
    for port in &mut outputs {
        let axes = port.axes.iter_mut().chain(&mut port.validity.axes);
        for axis in axes {
            if let Origin::Parameter(path) = axis.origin {
                axis.origin = Origin::Span(parameter_span(instance, path));
            }
        }
        if let Some(mut problem) = output_problem(instance, port) {
            problem.blocks.push(instance.name.clone());
            problems.push(problem);
            return None;
        }
    }
    let input_names: Vec<String> =
        (0..inputs.len()).map(|i| port_name(instance.kind.inputs, i)).collect();
    let output_names = (0..outputs.len()).map(|i| port_name(instance.kind.outputs, i)).collect();
    let of_kind = (instance.kind.name, &input_names[..]);
    let when_full = queue::actions(instance.when_full.as_ref(), of_kind, problems);
    problems.extend(queue::too_long(instance.queue, &inputs, &input_names));
    let ports = Ports { inputs, outputs };
    let parameters = instance.parameters.as_ref().map(|node| match &node.value {
        Value::Null => serde_json::Value::Object(serde_json::Map::new()),
        value => value.to_json(),
    });
    let Placement { device, implementation, .. } = instance.placement;
    let rejected = implementation_problems(instance, configured.as_ref(), feeds, &ports);
    if !rejected.is_empty() {
        problems.extend(rejected);
        return None;
    }
    let on_host = device == DeviceName::Cpu;
    let device_bytes = if on_host { 0 } else { configured.device_bytes() };
    let resources = configured.resources();
    let resources = if on_host { resources } else { on_device(resources, &ports) };
    let planned = Planned {
        name: instance.name.clone(),
        kind: instance.kind.name,
        templates: instance.templates.clone(),
        parameters: parameters.unwrap_or_default().into(),
        configured,
        pending: Pending::default(),
        resources,
        ports,
        input_names,
        output_names,
        inputs: feeds.iter().map(|feed| (feed.block, feed.port)).collect(),
        input_spans: feeds.iter().map(|feed| feed.span).collect(),
        host: instance.host,
        thread: instance.thread,
        queue: instance.queue.0,
        when_full,
        frame: instance.frame.clone(),
        device,
        implementation,
        on_fault: instance.on_fault.0,
        shadow: instance.shadow.as_ref().map(|node| node.value.to_json()),
        device_bytes,
        span: instance.key,
    };
    Some(planned.into())
}

/// Diagnostic for an `on_fault` policy that the block does not support.
pub(crate) fn impossible_policy(
    instance: &Instance<'_>,
    parameters: &dyn AnyParameters,
) -> Option<Diagnostic> {
    let (policy, span) = instance.on_fault;
    let name = instance.kind.name;
    let reject = |message: String| {
        let mut problem = Diagnostic::error(codes::FAULT_POLICY, span, message)
            .label("not possible for this block")
            .help("leave out `on_fault`: a fault then stops the flowgraph and reports its cause");
        problem.blocks.push(instance.name.clone());
        Some(problem)
    };
    match (policy, parameters.cannot_restart()) {
        (OnFault::Restart, Some(why)) => reject(format!("`{name}` cannot be restarted: {why}")),
        (OnFault::Skip, _) if instance.kind.inputs == PortNames::Fixed(&[]) => {
            reject(format!("`{name}` has no inputs, so there is no frame to skip"))
        }
        _ => None,
    }
}

/// Warnings of a block about implausible values.
fn warnings(instance: &Instance<'_>, block: &PlannedBlock, feeds: &[Feed]) -> Vec<Diagnostic> {
    let place = |at: &At| place(at, instance, feeds, &block.ports.inputs);
    let warning =
        |each| Diagnostic { severity: Severity::Warning, ..rejection(each, &instance.name, place) };
    block.configured.warnings().into_iter().map(warning).collect()
}

/// Warning of a block that has chosen several threads, which share the core that it is bound to.
fn threads_on_one_core(block: &PlannedBlock) -> Option<Diagnostic> {
    let Thread::Own { core: Some(core) } = block.thread else { return None };
    let chosen = block.configured.chosen().into_iter().find(|each| each.parameter == "threads")?;
    let threads = chosen.value.as_u64().filter(|threads| *threads > 1)?;
    let message = format!("`{}` has {threads} threads, all of them on core {core}", block.name);
    let mut problem = Diagnostic::warning(codes::IMPLAUSIBLE, block.span, message)
        .label(format!("chosen: {}", chosen.why))
        .help("set `threads: 1`, or `thread: own` so that they run on all cores");
    problem.blocks.push(block.name.clone());
    Some(problem)
}

/// Diagnostic for an output type that no block can read.
fn output_problem(instance: &Instance<'_>, port: &PortType) -> Option<Diagnostic> {
    let kind = instance.kind.name;
    let problem = |code, message| Diagnostic::error(code, instance.key, message);
    if let Some(why) = port.impossible() {
        let message = format!("`{kind}` cannot have this output: {why}");
        return Some(
            problem(codes::PARAMETER_OUT_OF_RANGE, message)
                .label(format!("output would be {port}"))
                .help("check the parameters that set its axes and its sample rate"),
        );
    }
    if port.axes.len().max(port.validity.axes.len()) > MAX_AXES {
        let message = format!("a frame of `{kind}` must have at most {MAX_AXES} axes");
        let problem = problem(codes::LIMIT, message).label("too many axes");
        return Some(problem.help("merge axes"));
    }
    if frame_bytes(port).is_none_or(|bytes| bytes > MAX_FRAME_BYTES) {
        let message = format!("a frame of `{kind}` must have at most 1 TiB");
        return Some(problem(codes::MEMORY, message).label("too large"));
    }
    None
}

/// Diagnostics for parameters or inputs that the chosen implementation does not support.
fn implementation_problems(
    instance: &Instance<'_>,
    configured: &dyn AnyConfigured,
    feeds: &[Feed],
    ports: &Ports,
) -> Vec<Diagnostic> {
    let Placement { device, implementation, .. } = instance.placement;
    let gpu = match device {
        DeviceName::Cpu => None,
        DeviceName::Cuda(ordinal) => cuda::properties(ordinal).ok(),
    };
    let rejections = configured.check(gpu.as_ref()).into_iter();
    let problem = |mut rejected: Rejection| {
        rejected.help.get_or_insert_with(|| "use `implementation: cpu`".to_owned());
        let chosen = format!("this chooses `{implementation}`");
        let place = |at: &At| place(at, instance, feeds, &ports.inputs);
        rejection(rejected.note(At::Implementation, chosen), &instance.name, place)
    };
    rejections.map(problem).collect()
}

/// Host resources of a block that runs on a GPU: no memory, and frames for all jobs in flight.
fn on_device(mut needs: Resources, ports: &Ports) -> Resources {
    needs.host_bytes = 0;
    needs.holds.resize(ports.inputs.len(), 0);
    needs.holds.iter_mut().for_each(|frames| *frames += IN_FLIGHT);
    needs.fills.resize(ports.outputs.len(), 1);
    needs.fills.iter_mut().for_each(|frames| *frames += IN_FLIGHT - 1);
    needs
}

fn frame_bytes(port: &PortType) -> Option<u128> {
    let elements = |axes: &[Axis]| {
        axes.iter().try_fold(1u128, |product, axis| product.checked_mul(axis.len as u128))
    };
    let payload = elements(&port.axes)?.checked_mul(port.dtype.bits() as u128)? / 8;
    payload.checked_add(elements(&port.validity.axes)?.checked_mul(4)?)
}

/// Place of a parameter in the file; the place of the kind if the parameter is not given.
fn parameter_span(instance: &Instance<'_>, path: &str) -> Span {
    let given = instance.parameters.as_ref().and_then(|node| node.at(path));
    given.map_or(instance.kind_span, |node| node.span)
}

/// Place in the file of something that a block names in its own terms.
fn place(at: &At, instance: &Instance<'_>, feeds: &[Feed], inputs: &[PortType]) -> Span {
    match at {
        At::Block => instance.key,
        At::Parameter(path) => parameter_span(instance, path),
        At::Value(path) => parameter_span(instance, path),
        At::Implementation => instance.placement.chosen.unwrap_or(instance.kind_span),
        At::Input(input) => feeds.get(*input).map_or(instance.key, |feed| feed.span),
        At::InputAxis(input, name) => {
            let reference = feeds.get(*input).map_or(instance.key, |feed| feed.span);
            let axis = inputs.get(*input).and_then(|port| {
                port.axes.iter().chain(&port.validity.axes).find(|axis| axis.name == *name)
            });
            match axis.map(|axis| &axis.origin) {
                Some(Origin::Span(span)) => *span,
                _ => reference,
            }
        }
    }
}
