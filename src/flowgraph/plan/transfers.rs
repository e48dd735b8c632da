//! Inserts transfers where an edge crosses between host and GPU, or between two GPUs.

use crate::language::on_fault::OnFault;
use crate::language::queue::QueueLength;
use crate::language::thread::Thread;
use crate::plan::block::{Planned, PlannedBlock};
use crate::plan::pending::Pending;
use fxgraph_core::device::DeviceName;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::kind::{AnyConfigured, Ports};
use fxgraph_cuda::transfer::{Connected, Transfer};
use fxgraph_cuda::{self as cuda, Link};
use std::collections::HashMap;
use std::sync::Arc;

/// Length of the queue before a transfer, in frames.
const QUEUE: usize = 2;

/// Inserts a transfer after every output that is read on another device. Readers of one output on the same device
/// share a transfer. Blocks keep their indices; transfers are appended.
pub(crate) fn insert(blocks: &mut Vec<PlannedBlock>) {
    insert_with(blocks, &cuda::link);
}

/// Link between two GPUs, given the numbers of the one that writes and the one that reads; see [`cuda::link`].
type Links<'a> = &'a dyn Fn(usize, usize) -> Option<Link>;

fn insert_with(blocks: &mut Vec<PlannedBlock>, links: Links<'_>) {
    let mut made: HashMap<(usize, usize, DeviceName), usize> = HashMap::new();
    for reader in 0..blocks.len() {
        for input in 0..blocks[reader].inputs.len() {
            let source = blocks[reader].inputs[input];
            let at = blocks[reader].device;
            blocks[reader].inputs[input] = bring(blocks, &mut made, source, at, links);
        }
    }
}

/// Returns the output with the frames of `source` in host memory; adds a download if needed.
pub(crate) fn to_host(blocks: &mut Vec<PlannedBlock>, source: (usize, usize)) -> (usize, usize) {
    let mut made = made(blocks);
    bring(blocks, &mut made, source, DeviceName::Cpu, &cuda::link)
}

/// Connects the inputs of block `reader` on its device. The inputs were copied from a block that may run on another
/// device.
pub(crate) fn feed(blocks: &mut Vec<PlannedBlock>, reader: usize) {
    for input in 0..blocks[reader].inputs.len() {
        let mut source = blocks[reader].inputs[input];
        while blocks[source.0].is_transfer() {
            source = blocks[source.0].inputs[0];
        }
        let mut made = made(blocks);
        let at = blocks[reader].device;
        blocks[reader].inputs[input] = bring(blocks, &mut made, source, at, &cuda::link);
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
    links: Links<'_>,
) -> (usize, usize) {
    let from = blocks[source.0].output_device();
    let (source, device, way) = match (from, at) {
        (from, at) if from == at => return source,
        (DeviceName::Cpu, device) => (source, device, Transfer::Upload),
        (device, DeviceName::Cpu) => (source, device, Transfer::Download),
        (DeviceName::Cuda(from), DeviceName::Cuda(to)) => match links(from, to) {
            Some(link) => (source, at, Transfer::Peer { from, link }),
            // Through host memory, which every machine supports.
            None => (bring(blocks, made, source, DeviceName::Cpu, links), at, Transfer::Upload),
        },
    };
    let known = made.entry((source.0, source.1, at)).or_insert(blocks.len());
    if *known == blocks.len() {
        blocks.push(transfer(blocks, source, device, way));
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
    let planned = Planned {
        // Names in files have no `>`, so this name is free.
        name: format!(
            "{}.{}>{}",
            source.name,
            source.output_names[port],
            match way {
                Transfer::Upload | Transfer::Peer { .. } => device,
                Transfer::Download => DeviceName::Cpu,
            }
        ),
        kind: way.kind(),
        templates: source.templates.clone(),
        parameters: serde_json::Value::Object(serde_json::Map::new()).into(),
        resources: configured.resources(),
        configured,
        pending: Pending::default(),
        ports,
        input_names: vec!["input".to_owned()],
        output_names: vec!["output".to_owned()],
        inputs: vec![(from, port)],
        input_spans: vec![source.span],
        host: source.host,
        thread: Thread::Shared,
        queue: QueueLength::Frames(QUEUE),
        when_full: vec![WhenFull::Wait],
        frame: None,
        device,
        implementation: way.implementation(),
        on_fault: OnFault::Stop,
        shadow: None,
        device_bytes: 0,
        span: source.span,
    };
    planned.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kinds::registry;
    use crate::{Plan, load_text};

    const TWO_GPUS: &str = "flowgraph: g
blocks:
  s: {kind: source}
  a: {kind: turner, input: s.pol0, device: \"cuda:1\"}
  b: {kind: turner, input: a, device: \"cuda:0\"}
  ob: {kind: sink, input: b}
  od: {kind: sink, input: s.pol1}
";

    /// The plan of `text` on a machine whose GPUs have these links.
    fn plan(text: &str, links: Links<'_>) -> Plan {
        let mut plan = load_text("g.yaml", text, &[], &registry()).result.unwrap();
        let own = plan.blocks.iter().filter(|block| !block.is_transfer()).count();
        for reader in 0..own {
            for input in 0..plan.blocks[reader].inputs.len() {
                let mut source = plan.blocks[reader].inputs[input];
                while plan.blocks[source.0].is_transfer() {
                    source = plan.blocks[source.0].inputs[0];
                }
                plan.blocks[reader].inputs[input] = source;
            }
        }
        plan.blocks.truncate(own);
        insert_with(&mut plan.blocks, links);
        plan
    }

    fn transfers(plan: &Plan) -> Vec<(&str, &str, String)> {
        let transfers = plan.blocks.iter().filter(|block| block.is_transfer());
        transfers.map(|block| (block.name.as_str(), block.kind, block.place())).collect()
    }

    #[test]
    fn gpus_with_a_link_copy_directly() {
        let plan = plan(TWO_GPUS, &|writer, reader| {
            assert_eq!((writer, reader), (1, 0));
            Some(Link::NvLink)
        });
        let expected = [
            ("s.pol0>cuda:1", "upload", "cuda:1".to_owned()),
            ("a.output>cuda:0", "peer_copy", "cuda:0 by NVLink".to_owned()),
            ("b.output>cpu", "download", "cuda:0".to_owned()),
        ];
        assert_eq!(transfers(&plan), expected);
        let b = plan.blocks.iter().find(|block| block.name == "b").unwrap();
        let copy = &plan.blocks[b.inputs[0].0];
        assert_eq!(copy.output_device(), DeviceName::Cuda(0));
        assert_eq!(plan.blocks[copy.inputs[0].0].name, "a");
    }

    #[test]
    fn gpus_without_a_link_copy_through_the_host() {
        let plan = plan(TWO_GPUS, &|_, _| None);
        let kinds: Vec<&str> = transfers(&plan).into_iter().map(|(_, kind, _)| kind).collect();
        assert_eq!(kinds, ["upload", "download", "upload", "download"]);
    }
}
