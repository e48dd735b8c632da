//! Inserts uploads and downloads where an edge crosses between host and GPU.

use super::PlannedBlock;
use super::pending::Pending;
use crate::{OnFault, Thread};
use fxgraph_core::device::DeviceName;
use fxgraph_core::kind::{AnyConfigured, Ports};
use fxgraph_cuda::transfer::{Connected, Transfer};
use std::collections::HashMap;
use std::sync::Arc;

/// Length of the queue before a transfer, in frames.
const QUEUE: usize = 2;

/// Inserts a transfer after every output that is read on another device. Readers of one output on the same device
/// share a transfer. Blocks keep their indices; transfers are appended.
pub(super) fn insert(blocks: &mut Vec<PlannedBlock>) {
    let mut made: HashMap<(usize, usize, DeviceName), usize> = HashMap::new();
    for reader in 0..blocks.len() {
        for input in 0..blocks[reader].inputs.len() {
            let source = blocks[reader].inputs[input];
            let at = blocks[reader].device;
            blocks[reader].inputs[input] = bring(blocks, &mut made, source, at);
        }
    }
}

/// Returns the output with the frames of `source` in host memory; adds a download if needed.
pub(super) fn to_host(blocks: &mut Vec<PlannedBlock>, source: (usize, usize)) -> (usize, usize) {
    let mut made = made(blocks);
    bring(blocks, &mut made, source, DeviceName::Cpu)
}

/// Connects the inputs of block `reader` on its device. The inputs were copied from a block that may run on another
/// device.
pub(super) fn feed(blocks: &mut Vec<PlannedBlock>, reader: usize) {
    for input in 0..blocks[reader].inputs.len() {
        let mut source = blocks[reader].inputs[input];
        while blocks[source.0].is_transfer() {
            source = blocks[source.0].inputs[0];
        }
        let mut made = made(blocks);
        let at = blocks[reader].device;
        blocks[reader].inputs[input] = bring(blocks, &mut made, source, at);
    }
}

/// Existing transfers by source (block, port) and destination device.
fn made(blocks: &[PlannedBlock]) -> HashMap<(usize, usize, DeviceName), usize> {
    let transfers = blocks.iter().enumerate().filter(|(_, block)| block.is_transfer());
    let made = transfers.map(|(index, block)| {
        ((block.inputs[0].0, block.inputs[0].1, block.output_device()), index)
    });
    made.collect()
}

/// Returns the output with the frames of `source` on the device `at`; adds transfers if needed.
fn bring(
    blocks: &mut Vec<PlannedBlock>,
    made: &mut HashMap<(usize, usize, DeviceName), usize>,
    source: (usize, usize),
    at: DeviceName,
) -> (usize, usize) {
    let from = blocks[source.0].output_device();
    let (on_host, device, way) = match (from, at) {
        (from, at) if from == at => return source,
        (DeviceName::Cpu, device) => (source, device, Transfer::Upload),
        (device, DeviceName::Cpu) => (source, device, Transfer::Download),
        // From one GPU to another through host memory, which every machine supports.
        (_, device) => (bring(blocks, made, source, DeviceName::Cpu), device, Transfer::Upload),
    };
    let known = made.entry((on_host.0, on_host.1, at)).or_insert(blocks.len());
    if *known == blocks.len() {
        blocks.push(transfer(blocks, on_host, device, way));
    }
    (*known, 0)
}

fn transfer(
    blocks: &[PlannedBlock],
    (from, port): (usize, usize),
    device: DeviceName,
    way: Transfer,
) -> PlannedBlock {
    let source = &blocks[from];
    let carries = source.ports.outputs[port].clone();
    let ports = Ports { inputs: vec![carries.clone()], outputs: vec![carries] };
    let configured: Arc<dyn AnyConfigured> = Arc::new(Connected { way, ports: ports.clone() });
    PlannedBlock {
        // Names in files have no `>`, so this name is free.
        name: format!(
            "{}.{}>{}",
            source.name,
            source.output_names[port],
            match way {
                Transfer::Upload => device,
                Transfer::Download => DeviceName::Cpu,
            }
        ),
        kind: way.kind(),
        templates: source.templates.clone(),
        parameters: serde_json::Value::Object(serde_json::Map::new()),
        resources: configured.resources(),
        configured,
        pending: Pending::default(),
        ports,
        input_names: vec!["input".to_owned()],
        output_names: vec!["output".to_owned()],
        inputs: vec![(from, port)],
        thread: Thread::Shared,
        queue: QUEUE,
        device,
        implementation: way.kind(),
        on_fault: OnFault::Stop,
        shadow: None,
        device_bytes: 0,
        span: source.span,
    }
}
