//! Frame sizes of sources in real time, and warnings about frames that are longer than the latency.

use crate::language::expand::Instance;
use crate::language::latency::{FrameReason, Latency, SHARE, SourceFrame, choose, milliseconds};
use crate::plan::block::PlannedBlock;
use crate::plan::configure::configure;
use fxgraph_core::access::FileAccess;
use fxgraph_core::diagnostic::{Diagnostic, codes};
use fxgraph_core::port::PortType;
use fxgraph_core::tree::{Key, Node, Value};

/// Axes along which a frame has several elements in time; a frame without them is one product, such as a dump.
const TIME_AXES: [&str; 3] = ["heap", "spectrum", "sample"];

/// Sets the frame size of each source in real time that has none, as if it were in the file.
pub(crate) fn choose_frames(
    instances: &mut [Instance<'_>],
    access: &FileAccess,
    problems: &mut Vec<Diagnostic>,
) {
    for instance in instances {
        instance.frame = frame_of(instance, access);
        let Some(frame) = &instance.frame else {
            // Errors of the parameters are reported when they are read to build the plan.
            if let Some(span) = instance.own_latency {
                let message = format!("`latency_seconds` has no effect on `{}`", instance.name);
                let problem = Diagnostic::warning(codes::LATENCY, span, message)
                    .label("not a source in real time that can choose its frames")
                    .help("set it for the whole flowgraph, or for such a source");
                problems.push(about(problem, &instance.name));
            }
            continue;
        };
        if frame.reason == FrameReason::Given {
            continue;
        }
        let entry = (
            Key { text: frame.parameter.to_owned(), span: instance.kind_span },
            Node::new(Value::Int(frame.samples.into()), instance.kind_span),
        );
        if let Some(Node { value, .. }) = &mut instance.parameters {
            match value {
                Value::Map(entries) => {
                    entries.retain(|(key, _)| key.text != frame.parameter);
                    entries.push(entry);
                }
                _ => *value = Value::Map(vec![entry]),
            }
        }
        if let (FrameReason::Smallest, Some(span)) = (frame.reason, instance.latency.span) {
            let message = format!(
                "`{}` cannot meet a latency of {} ms: its smallest frame of {} samples lasts {} ms",
                instance.name,
                milliseconds(frame.latency_seconds),
                frame.samples,
                milliseconds(frame.seconds)
            );
            let least = (frame.seconds / SHARE * 1e6).ceil() / 1e6;
            let problem = Diagnostic::warning(codes::LATENCY, span, message)
                .label(format!(
                    "a frame may last {} ms",
                    milliseconds(frame.latency_seconds * SHARE)
                ))
                .note(instance.kind_span, "the stream comes from here")
                .help(format!("give at least {least}, or use smaller heaps"));
            problems.push(about(problem, &instance.name));
        }
    }
}

/// Frame size of `instance`, if it is a source in real time.
fn frame_of(instance: &Instance<'_>, access: &FileAccess) -> Option<SourceFrame> {
    let node = instance.parameters.as_ref()?;
    let implementation = instance.placement.implementation;
    let sizes = configure(instance.kind, implementation, node, instance.owner, access)
        .ok()?
        .frame_sizes()?;
    let given = node.at(sizes.parameter).filter(|given| given.value != Value::Null);
    let chosen = choose(&sizes, instance.latency.seconds)?;
    let Some(given) = given else { return Some(chosen) };
    let samples = u64::try_from(given.value.whole()?).ok()?;
    let seconds = samples as f64 / sizes.adc_sample_rate_hz;
    Some(SourceFrame { samples, seconds, reason: FrameReason::Given, ..chosen })
}

/// Warns about blocks in real time whose frames last longer than the latency that the file gives.
pub(crate) fn check_latency(
    blocks: &[PlannedBlock],
    latency: Latency,
    problems: &mut Vec<Diagnostic>,
) {
    let Some(span) = latency.span else { return };
    let mut is_live = vec![false; blocks.len()];
    for _ in 0..blocks.len() {
        // One pass is enough unless a block comes before its source in the list.
        let before = is_live.clone();
        for (index, block) in blocks.iter().enumerate() {
            is_live[index] |=
                block.frame.is_some() || block.inputs.iter().any(|(from, _)| is_live[*from]);
        }
        if before == is_live {
            break;
        }
    }
    for (block, _) in blocks.iter().zip(&is_live).filter(|(_, is_live)| **is_live) {
        // Reported when the size was chosen.
        if block.frame.as_ref().is_some_and(|frame| frame.reason == FrameReason::Smallest) {
            continue;
        }
        let has_time = |port: &&PortType| {
            port.axes.iter().any(|axis| axis.len > 1 && TIME_AXES.contains(&axis.name))
        };
        let outputs = block.ports.outputs.iter().filter(has_time);
        let longest =
            outputs.map(|port| port.clock.frames_per_second().recip()).fold(0.0, f64::max);
        if longest <= latency.seconds {
            continue;
        }
        let message = format!(
            "`{}` cannot meet a latency of {} ms: its frames last {} ms",
            block.name,
            milliseconds(latency.seconds),
            milliseconds(longest)
        );
        let problem = Diagnostic::warning(codes::LATENCY, span, message)
            .label("shorter than a frame")
            .note(block.span, "the frames come from here")
            .help("give a longer latency, or fewer samples, spectra or heaps per frame");
        problems.push(about(problem, &block.name));
    }
}

fn about(mut problem: Diagnostic, block: &str) -> Diagnostic {
    problem.blocks.push(block.to_owned());
    problem
}
