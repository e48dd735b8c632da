//! Checks of the cut with the kinds that send and receive.

use super::{SINK, SOURCE, Stream, receiver, sender, sink_parameters, source_parameters};
use crate::plan::configure::{configure, rejection};
use crate::plan::flowgraph::Plan;
use fxgraph_core::diagnostic::{Diagnostic, codes};
use fxgraph_core::kind::{AnyConfigured, CPU, Registry};
use fxgraph_core::port::PortType;
use fxgraph_core::tree::Node;
use serde_json::Value as Json;
use std::collections::HashSet;
use std::sync::Arc;

/// Checks that the plan can be cut, with the kinds of `registry` that send and receive.
pub(crate) fn check(plan: &Plan, registry: &Registry, problems: &mut Vec<Diagnostic>) {
    let streams = match plan.streams() {
        Ok(streams) => streams,
        Err(found) => return problems.extend(found),
    };
    let names: HashSet<&str> = plan.blocks.iter().map(|block| block.name.as_str()).collect();
    for stream in streams {
        let (block, port) = stream.source;
        let port = &plan.blocks[block].ports.outputs[port];
        for name in [sender(&stream.output), receiver(&stream.output)] {
            if names.contains(name.as_str()) {
                let message =
                    format!("the block that carries `{}` is called `{name}`", stream.output);
                problems.push(
                    Diagnostic::error(codes::CUT, stream.span, message)
                        .label("read on another host")
                        .help("rename the other block with this name"),
                );
            }
        }
        let sink = sink_parameters(stream.address, None);
        let source = source_parameters(stream.address, None, port);
        let inputs = std::slice::from_ref(port);
        let sent = end(SINK, &sink, inputs, &stream, registry);
        let received = end(SOURCE, &source, &[], &stream, registry);
        let is_exact = |source: &Arc<dyn AnyConfigured>| source.ports().outputs == inputs;
        match (sent, received) {
            (Ok(_), Ok(received)) if is_exact(&received) => {}
            (Ok(_), Ok(_)) => {
                let message =
                    format!("the type of `{}` cannot be described: {port}", stream.output);
                problems.push(Diagnostic::error(codes::CUT, stream.span, message));
            }
            // Both ends find the same in the type.
            (Err(found), _) | (_, Err(found)) => problems.extend(found),
        }
    }
}

/// One end of `stream`, of the kind `kind`.
fn end(
    kind: &str,
    parameters: &Json,
    inputs: &[PortType],
    stream: &Stream,
    registry: &Registry,
) -> Result<Arc<dyn AnyConfigured>, Vec<Diagnostic>> {
    let span = stream.span;
    let Some(entry) = registry.get(kind) else {
        let message =
            format!("`{}` is read on another host, which needs the kind `{kind}`", stream.output);
        let problem = Diagnostic::error(codes::CUT, span, message).label("read on another host");
        return Err(vec![problem.help("use a program with this kind")]);
    };
    let node = Node::of_json(parameters, span);
    let access = &fxgraph_core::access::ANY;
    let read = configure(entry, CPU.name, &node, span, access)?;
    read.connect(inputs).map_err(|rejections| {
        let found = rejections.into_iter().map(|each| rejection(each, &stream.output, |_| span));
        let explained = found.map(|problem| Diagnostic {
            code: codes::CUT,
            message: format!(
                "`{}` cannot be sent to another host: {}",
                stream.output, problem.message
            ),
            ..problem
        });
        explained.collect()
    })
}
