//! Bands and labels of ports, which follow from parameters and from the inputs of a block.

use crate::plan::block::{Planned, PlannedBlock};
use crate::plan::flowgraph::Plan;
use fxgraph_core::port::PortType;

/// Updates bands and identity of `plan` after a change.
pub(crate) fn seal(plan: &mut Plan) {
    carry_bands(&mut plan.blocks);
    plan.identify();
}

/// Propagates bands along the edges, after a block's parameters and with them its output band changed.
fn carry_bands(blocks: &mut [PlannedBlock]) {
    // One pass is enough unless a block comes before its source in the list.
    for _ in 0..blocks.len() {
        let mut is_settled = true;
        for index in 0..blocks.len() {
            for input in 0..blocks[index].inputs.len() {
                let (from, port) = blocks[index].inputs[input];
                let band = blocks[from].ports.outputs[port].band;
                if blocks[index].ports.inputs[input].band != band {
                    is_settled = false;
                    blocks[index].ports.inputs[input].band = band;
                    carry_band(&mut blocks[index]);
                }
            }
        }
        if is_settled {
            return;
        }
    }
}

/// Gives the outputs of a block the bands that follow from its inputs.
fn carry_band(block: &mut Planned) {
    // Inputs that do not fit each other yet may fit once the next one has changed.
    let Ok(configured) = block.configured.connect(&block.ports.inputs) else { return };
    for (port, other) in block.ports.outputs.iter_mut().zip(&configured.ports().outputs) {
        if port.is_read_like(other) && other.impossible().is_none() {
            port.band = other.band;
        }
    }
    block.configured = configured;
    block.pending.connect(&block.ports.inputs);
}

/// Copies the labels of axes and the bands from `others`, which are compatible with `ports`.
pub(crate) fn take_labels(ports: &mut [PortType], others: &[PortType]) {
    for (port, other) in ports.iter_mut().zip(others) {
        port.band = other.band;
        for (axis, other) in port.axes.iter_mut().zip(&other.axes) {
            axis.labels.clone_from(&other.labels);
        }
    }
}
