//! The part of one host: its blocks, and those that send and receive for it.

use super::{
    Loopback, PartPlan, Rate, SINK, SOURCE, Stream, gbit_per_second, receiver, sender,
    sink_parameters, source_parameters,
};
use crate::language::hosts::{Host, Hosts};
use crate::language::scope::plainly;
use crate::plan::block::PlannedBlock;
use crate::plan::flowgraph::Plan;
use crate::plan::identity::{resolved_block, resolved_parameters};
use serde_json::{Map, Value as Json, json};
use std::net::{Ipv4Addr, SocketAddr};

/// First of the IPv4 groups that parts of one machine use in place of IPv6 groups.
const LOOPBACK_GROUPS: Ipv4Addr = Ipv4Addr::new(239, 102, 0, 0);

/// A flowgraph whose streams between hosts are known.
pub(crate) struct Cut<'a> {
    pub plan: &'a Plan,
    pub hosts: &'a Hosts,
    pub streams: Vec<Stream>,
    pub loopback: Option<Loopback>,
}

impl Cut<'_> {
    /// The part of `host`, unless it has no blocks.
    pub fn part(&self, host: Host) -> Option<PartPlan> {
        let plan = self.plan;
        let here = |block: &&PlannedBlock| block.host == Some(host) && !block.is_transfer();
        let own: Vec<&PlannedBlock> = plan.blocks.iter().filter(here).collect();
        if own.is_empty() {
            return None;
        }
        let received: Vec<&Stream> =
            self.streams.iter().filter(|stream| stream.to.contains(&host)).collect();
        let sent: Vec<&Stream> = self.streams.iter().filter(|stream| stream.from == host).collect();
        let mut blocks = Map::new();
        for stream in &received {
            blocks.insert(receiver(&stream.output), self.receiver(stream, host));
        }
        for block in &own {
            let inputs: Vec<String> = (0..block.inputs.len())
                .map(|input| {
                    let source = plan.source(block, input);
                    let remote = received.iter().find(|stream| stream.source == source);
                    match remote {
                        Some(stream) => receiver(&stream.output),
                        None => plan.output_name(source.0, source.1),
                    }
                })
                .collect();
            blocks.insert(
                block.name.clone(),
                resolved_block(block, json!(inputs), plainly(&block.parameters)),
            );
        }
        for stream in &sent {
            blocks.insert(sender(&stream.output), self.sender(stream, host));
        }
        let document = json!({
            "flowgraph": plan.name,
            "parameters": resolved_parameters(plan),
            "blocks": blocks,
        });
        let rate = |stream: &&Stream| Rate {
            name: stream.output.clone(),
            address: Some(self.address(stream)),
            gbit_per_second: stream.gbit_per_second,
        };
        let mut part = PartPlan {
            name: self.hosts.name(host),
            host,
            class: self.hosts.classes[host.class].name.clone(),
            index: host.index,
            blocks: own.iter().map(|block| block.name.clone()).collect(),
            yaml: serde_yaml::to_string(&document).unwrap_or_default(),
            sent: sent.iter().map(rate).collect(),
            received: received.iter().map(rate).collect(),
        };
        for block in own {
            let Some((is_input, rate)) = network_use(block) else { continue };
            if is_input { part.received.push(rate) } else { part.sent.push(rate) }
        }
        Some(part)
    }

    fn address(&self, stream: &Stream) -> SocketAddr {
        let Some(Loopback { port }) = self.loopback else { return stream.address };
        let ip = if stream.address.is_ipv4() {
            stream.address.ip()
        } else {
            // Linux has no route for IPv6 groups on the loopback interface. There are fewer streams than groups.
            let number = self.streams.iter().position(|one| one.source == stream.source);
            Ipv4Addr::from_bits(LOOPBACK_GROUPS.to_bits() + number.unwrap_or_default() as u32)
                .into()
        };
        SocketAddr::new(ip, port)
    }

    fn interface(&self, host: Host) -> Option<String> {
        match self.loopback {
            Some(_) => Some(Ipv4Addr::LOCALHOST.to_string()),
            None => self.hosts.classes[host.class].interface.clone(),
        }
    }

    fn sender(&self, stream: &Stream, host: Host) -> Json {
        let parameters = sink_parameters(self.address(stream), self.interface(host));
        json!({ "kind": SINK, "inputs": [stream.output], "parameters": plainly(&parameters) })
    }

    fn receiver(&self, stream: &Stream, host: Host) -> Json {
        let (block, port) = stream.source;
        let port = &self.plan.blocks[block].ports.outputs[port];
        let parameters = source_parameters(self.address(stream), self.interface(host), port);
        json!({ "kind": SOURCE, "parameters": plainly(&parameters) })
    }
}

/// Rate of a block that uses the network for itself, and whether it receives.
fn network_use(block: &PlannedBlock) -> Option<(bool, Rate)> {
    if block.resources.binds.is_empty() && block.resources.sockets.is_empty() {
        return None;
    }
    let (is_input, ports) = match (block.inputs.is_empty(), block.ports.outputs.is_empty()) {
        (true, false) => (true, &block.ports.outputs),
        (false, true) => (false, &block.ports.inputs),
        _ => return None,
    };
    let gbit_per_second = ports.iter().map(|port| gbit_per_second(port, false)).sum();
    Some((is_input, Rate { name: block.name.clone(), address: None, gbit_per_second }))
}
