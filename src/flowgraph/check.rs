//! From written-out blocks to checked ones: parameters read, ports known from source to sink.

use super::document::ENTRY_KEYS;
use super::expand::Instance;
use super::order::Order;
use super::pending::Pending;
use super::place::Placement;
use super::plan::PlannedBlock;
use super::resolve::{Feed, port_name};
use crate::OnFault;
use fxgraph_core::access::FileAccess;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::kind::{
    AnyConfigured, AnyParameters, At, KindEntry, PortNames, Ports, Refusal, Resources,
};
use fxgraph_core::port::{Axis, Origin, PortType};
use fxgraph_core::tree::{Node, Problem, ReadError, Reader, Value};
use fxgraph_cuda::{self as cuda, IN_FLIGHT};

/// Blocks of a circle that a message names.
const CIRCLE_SHOWN: usize = 12;
/// Axes of one port.
const MAX_AXES: usize = 16;
/// Bytes of one frame.
const MAX_FRAME_BYTES: u128 = 1 << 40;

/// All blocks, checked; those that are wrong, and all behind them, are `None`.
pub(super) fn check(
    instances: &[Instance<'_>],
    feeds: &[Option<Vec<Feed>>],
    access: &FileAccess,
    problems: &mut Vec<Diagnostic>,
) -> Vec<Option<PlannedBlock>> {
    let mut found: Vec<Option<Box<dyn AnyParameters>>> = Vec::new();
    for instance in instances {
        found.push(instance.parameters.as_ref().and_then(|node| {
            let form = instance.placement.implementation;
            let read = configure(instance.kind, form, node, instance.owner, access);
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
        planned[index] = block;
    }
    planned
}

/// Reads the parameters of a block; on trouble, everything that can be said at once.
pub(super) fn configure(
    kind: &KindEntry,
    implementation: &str,
    node: &Node,
    owner: Span,
    access: &FileAccess,
) -> Result<Box<dyn AnyParameters>, Vec<Diagnostic>> {
    let reader = Reader::new(node, owner).with_access(access);
    let errors = match (kind.read)(reader, implementation) {
        Ok(parameters) => return Ok(parameters),
        Err(errors) => errors,
    };
    Err(errors.iter().map(|error| diagnostic(kind, error, node, owner)).collect())
}

/// What is wrong with the `parameters` of a block.
fn diagnostic(kind: &KindEntry, error: &ReadError, parameters: &Node, owner: Span) -> Diagnostic {
    let is_own_key = |key: &String| {
        let Value::Map(entries) = &parameters.value else { return false };
        ENTRY_KEYS.contains(&key.as_str())
            && entries.iter().any(|(own, _)| Some(own.span) == error.span)
    };
    let message = match &error.problem {
        Problem::UnknownKey(key) => format!("`{}` has no parameter `{key}`", kind.name),
        Problem::MissingKey(key) => format!("`{}` needs the parameter `{key}`", kind.name),
        _ => error.message.clone(),
    };
    let help = match &error.problem {
        Problem::UnknownKey(key) if is_own_key(key) => {
            Some(format!("`{key}` is a key of the block itself: it belongs beside `parameters`"))
        }
        Problem::MissingKey(_) | Problem::UnknownKey(_) => error
            .help
            .clone()
            .or_else(|| Some(format!("`fxgraph list {}` shows its parameters", kind.name))),
        _ => error.help.clone(),
    };
    Diagnostic::error(error.code(), error.span.unwrap_or(owner), message)
        .label(error.label.clone())
        .maybe_help(help)
}

/// Blocks in an order in which everything that feeds a block stands before it; circles are
/// complained about and left out, with all behind them.
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
        // From a block to what feeds it; frames go the other way.
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
        let message = format!("blocks feed each other in a circle: {}", names.join(" -> "));
        let mut problem =
            Diagnostic::error(codes::CYCLE, *first, message).label("this closes the circle").help(
                "the graph has a cycle: connect one of these blocks to an input outside the cycle",
            );
        for other in spans[1..].iter().filter(|other| *other != first).take(CIRCLE_SHOWN) {
            problem = problem.note(*other, "part of the circle");
        }
        problems.push(problem);
    }
    order
}

/// The block with its ports; `planned` gives those that feed it.
pub(super) fn plan_block<'p>(
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
                .help(format!("with its parameters it has {count} of them")),
            );
            return None;
        };
        inputs.push(port.clone());
    }
    let configured = match parameters.connect(&inputs) {
        Ok(configured) => configured,
        Err(refusals) => {
            let place = |at: &At| place(at, instance, feeds, &inputs);
            let refused = refusals.into_iter().map(|each| refusal(each, &instance.name, place));
            problems.extend(refused);
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
    let input_names = (0..inputs.len()).map(|i| port_name(instance.kind.inputs, i)).collect();
    let output_names = (0..outputs.len()).map(|i| port_name(instance.kind.outputs, i)).collect();
    let ports = Ports { inputs, outputs };
    let parameters = instance.parameters.as_ref().map(|node| match &node.value {
        Value::Null => serde_json::Value::Object(serde_json::Map::new()),
        value => value.to_json(),
    });
    let Placement { device, implementation, .. } = instance.placement;
    let refused = implementation_problems(instance, configured.as_ref(), feeds, &ports);
    if !refused.is_empty() {
        problems.extend(refused);
        return None;
    }
    let on_host = device == DeviceName::Cpu;
    let device_bytes = if on_host { 0 } else { configured.device_bytes() };
    let resources = configured.resources();
    let resources = if on_host { resources } else { on_device(resources, &ports) };
    Some(PlannedBlock {
        name: instance.name.clone(),
        kind: instance.kind.name,
        templates: instance.templates.clone(),
        parameters: parameters.unwrap_or_default(),
        configured,
        pending: Pending::default(),
        resources,
        ports,
        input_names,
        output_names,
        inputs: feeds.iter().map(|feed| (feed.block, feed.port)).collect(),
        thread: instance.thread,
        queue: instance.queue,
        device,
        implementation,
        on_fault: instance.on_fault.0,
        shadow: instance.shadow.as_ref().map(|node| node.value.to_json()),
        device_bytes,
        span: instance.key,
    })
}

/// What is to be said if the block cannot do what its `on_fault` asks for.
pub(super) fn impossible_policy(
    instance: &Instance<'_>,
    parameters: &dyn AnyParameters,
) -> Option<Diagnostic> {
    let (policy, span) = instance.on_fault;
    let name = instance.kind.name;
    let refuse = |message: String| {
        let mut problem = Diagnostic::error(codes::FAULT_POLICY, span, message)
            .label("not for this block")
            .help("without `on_fault` a fault stops the flowgraph, with its cause");
        problem.blocks.push(instance.name.clone());
        Some(problem)
    };
    match (policy, parameters.cannot_restart()) {
        (OnFault::Restart, Some(why)) => refuse(format!("`{name}` cannot be restarted: {why}")),
        (OnFault::Skip, _) if instance.kind.inputs == PortNames::Fixed(&[]) => {
            refuse(format!("`{name}` has no inputs, so there is no frame to skip"))
        }
        _ => None,
    }
}

/// What is wrong with a stream that no block can read.
fn output_problem(instance: &Instance<'_>, port: &PortType) -> Option<Diagnostic> {
    let kind = instance.kind.name;
    let problem = |code, message| Diagnostic::error(code, instance.key, message);
    if let Some(why) = port.impossible() {
        let message = format!("`{kind}` would make an impossible stream: {why}");
        return Some(
            problem(codes::PARAMETER_OUT_OF_RANGE, message)
                .label(format!("it would make {port}"))
                .help("check the parameters that its axes and its clock come from"),
        );
    }
    if port.axes.len().max(port.validity.axes.len()) > MAX_AXES {
        let message = format!("a frame of `{kind}` has more than {MAX_AXES} axes");
        let problem = problem(codes::LIMIT, message).label("too many");
        return Some(problem.help("join some of them to one"));
    }
    if frame_bytes(port).is_none_or(|bytes| bytes > MAX_FRAME_BYTES) {
        let message = format!("one frame of `{kind}` needs more than 1 TiB");
        return Some(problem(codes::MEMORY, message).label("too large"));
    }
    None
}

/// Why the implementation that was chosen cannot do it.
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
    let refusals = configured.check(gpu.as_ref()).into_iter();
    let problem = |mut refused: Refusal| {
        refused.help.get_or_insert_with(|| "`implementation: cpu` can do it".to_owned());
        let chosen = format!("this chooses `{implementation}`");
        let place = |at: &At| place(at, instance, feeds, &ports.inputs);
        refusal(refused.note(At::Implementation, chosen), &instance.name, place)
    };
    refusals.map(problem).collect()
}

/// What a block needs on the host if it runs on a device: no memory but frames for all jobs in
/// flight.
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

/// Where a parameter is given, or else where it would be.
fn parameter_span(instance: &Instance<'_>, path: &str) -> Span {
    let given = instance.parameters.as_ref().and_then(|node| node.at(path));
    given.map_or(instance.kind_span, |node| node.span)
}

/// Where something in the terms of a block stands in the file.
fn place(at: &At, instance: &Instance<'_>, feeds: &[Feed], inputs: &[PortType]) -> Span {
    match at {
        At::Block => instance.key,
        At::Parameter(path) => parameter_span(instance, path),
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

/// What `block` refuses, with the places of the file.
pub(super) fn refusal(refusal: Refusal, block: &str, place: impl Fn(&At) -> Span) -> Diagnostic {
    let mut problem = Diagnostic::error(refusal.code, place(&refusal.at), refusal.message)
        .label(refusal.label)
        .maybe_help(refusal.help);
    for (at, text) in &refusal.notes {
        let span = place(at);
        // Two labels under one place would read twice.
        if Some(span) != problem.span {
            problem = problem.note(span, text.clone());
        }
    }
    problem.blocks.push(block.to_owned());
    problem
}
