//! The cut: one part of a flowgraph for each of its hosts, with a sender and receivers in place of each output that is
//! read on other hosts.

mod check;
mod part;

pub(crate) use check::check;

use crate::language::hosts::{Host, Network};
use crate::plan::flowgraph::Plan;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::port::PortType;
use fxgraph_recording::StreamType;
use part::Cut;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// Kinds that send and receive frames between hosts.
const SINK: &str = "stream_sink";
const SOURCE: &str = "stream_source";
/// Payload of a full packet between hosts, in bytes.
const PACKET_BYTES: usize = 8192;
/// Ethernet (with preamble and gap), IPv4, UDP and SPEAD headers of a packet, in bytes.
const HEADER_BYTES: usize = 38 + 20 + 8 + 120;
/// Bytes that an IPv6 header has more.
const MORE_IN_V6: usize = 20;

/// An output that is read on other hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Name of the output: `f[0].postproc.output`.
    pub output: String,
    /// Block and output port.
    pub source: (usize, usize),
    /// Host of the block.
    pub from: Host,
    /// Hosts that read it, in order.
    pub to: Vec<Host>,
    /// Multicast group and port.
    pub address: SocketAddr,
    /// Estimated rate with the headers of packets.
    pub gbit_per_second: f64,
    /// Place of the first reference from another host.
    pub span: Span,
}

/// A stream that a part sends or receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    /// Name of the output, or of the block that uses the network for itself.
    pub name: String,
    /// Multicast group and port; `None` for a block that uses the network for itself.
    pub address: Option<SocketAddr>,
    /// Estimated rate with the headers of packets.
    pub gbit_per_second: f64,
}

/// The part of a flowgraph that one host runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PartPlan {
    /// Name of the host in the file: `f_host[0]`.
    pub name: String,
    /// Its host.
    pub host: Host,
    /// Class of the host.
    pub class: String,
    /// Number of the host within its class.
    pub index: usize,
    /// Names of the blocks of the flowgraph that it runs, without senders and receivers.
    pub blocks: Vec<String>,
    /// A flowgraph without hosts, complete in itself.
    pub yaml: String,
    /// Streams that it sends.
    pub sent: Vec<Rate>,
    /// Streams that it receives.
    pub received: Vec<Rate>,
}

/// Addresses of parts that run as processes of one machine.
#[derive(Clone, Copy, Debug)]
pub struct Loopback {
    /// UDP port of all groups.
    pub port: u16,
}

impl PartPlan {
    /// Name for files: `f_host_0`.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}_{}", self.class, self.index)
    }

    /// Rate of all that it sends.
    #[must_use]
    pub fn gbit_out(&self) -> f64 {
        self.sent.iter().map(|rate| rate.gbit_per_second).sum()
    }

    /// Rate of all that it receives.
    #[must_use]
    pub fn gbit_in(&self) -> f64 {
        self.received.iter().map(|rate| rate.gbit_per_second).sum()
    }
}

/// Estimated rate of `port` on the network, with validity and the headers of packets.
fn gbit_per_second(port: &PortType, is_ipv6: bool) -> f64 {
    let payload = port.frame_bytes() + size_of::<u32>() * port.validity.units();
    let header = HEADER_BYTES + if is_ipv6 { MORE_IN_V6 } else { 0 };
    let headers = payload.div_ceil(PACKET_BYTES) * header;
    (payload + headers) as f64 * port.clock.frames_per_second() * 8.0 / 1e9
}

impl Plan {
    /// Outputs that are read on other hosts, in order of the file.
    pub fn streams(&self) -> Result<Vec<Stream>, Vec<Diagnostic>> {
        let Some(hosts) = &self.hosts else { return Ok(Vec::new()) };
        let mut cut: BTreeMap<(usize, usize), (BTreeSet<Host>, Span)> = BTreeMap::new();
        for block in self.blocks.iter().filter(|block| !block.is_transfer()) {
            for input in 0..block.inputs.len() {
                let source = self.source(block, input);
                if let (Some(from), Some(to)) = (self.blocks[source.0].host, block.host)
                    && from != to
                {
                    let span = block.input_spans.get(input).copied().unwrap_or(block.span);
                    let (readers, _) = cut.entry(source).or_insert((BTreeSet::new(), span));
                    readers.insert(to);
                }
            }
        }
        let mut problems = self.unreachable_targets();
        let addresses = match (&hosts.network, cut.iter().next()) {
            (Some(network), _) => self.addresses(network, &cut, &mut problems),
            (None, None) => Vec::new(),
            (None, Some((source, (_, span)))) => {
                let output = self.output_name(source.0, source.1);
                let message =
                    format!("`{output}` is read on another host, which needs the key `network`");
                problems.push(
                    Diagnostic::error(codes::CUT, *span, message)
                        .label("read on another host")
                        .note(self.blocks[source.0].span, "the block that writes it")
                        .help("add a range of multicast groups: `network: {multicast: 239.102.0.0/16}`"),
                );
                Vec::new()
            }
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let streams = cut.into_iter().zip(addresses);
        let stream = |((source, (to, span)), address): ((_, (BTreeSet<Host>, _)), SocketAddr)| {
            let (block, port): (usize, usize) = source;
            Some(Stream {
                output: self.output_name(block, port),
                source,
                from: self.blocks[block].host?,
                to: to.into_iter().collect(),
                address,
                gbit_per_second: gbit_per_second(
                    &self.blocks[block].ports.outputs[port],
                    address.is_ipv6(),
                ),
                span,
            })
        };
        Ok(streams.filter_map(stream).collect())
    }

    /// Group of each output in `cut`, in order of the file; groups that the file pins are left out.
    fn addresses(
        &self,
        network: &Network,
        cut: &BTreeMap<(usize, usize), (BTreeSet<Host>, Span)>,
        problems: &mut Vec<Diagnostic>,
    ) -> Vec<SocketAddr> {
        let mut pinned: HashMap<(usize, usize), (IpAddr, Span)> = HashMap::new();
        for (tap, address) in &network.groups {
            let output = match self.find(tap) {
                Ok(output) => output,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let reject = |message: String| {
                Diagnostic::error(codes::HOSTS, tap.span, message).label("has a group here")
            };
            if !cut.contains_key(&output) {
                let message = format!("`{}` is not read on another host", tap.text);
                problems.push(reject(message).help("remove its group"));
            } else if let Some((_, first)) = pinned.insert(output, (*address, tap.span)) {
                let message = format!("`{}` has two groups", tap.text);
                problems.push(reject(message).note(first, "first here"));
            }
        }
        let taken: HashSet<IpAddr> = network.groups.iter().map(|(_, address)| *address).collect();
        let mut free = network.addresses().filter(|address| !taken.contains(address));
        let mut addresses = Vec::new();
        for output in cut.keys() {
            let pin = pinned.get(output).map(|(address, _)| *address);
            let Some(address) = pin.or_else(|| free.next()) else {
                let message = format!(
                    "`multicast` must have a group for each of the {} outputs that are read on other \
                     hosts, {} has {}",
                    cut.len(),
                    network.range(),
                    network.group_count()
                );
                problems.push(
                    Diagnostic::error(codes::HOSTS, network.span, message)
                        .label("too few groups")
                        .help(if network.first.is_ipv4() {
                            "give a shorter prefix, for example 239.102.0.0/16"
                        } else {
                            "give a shorter prefix, for example ff05::102:0/112"
                        }),
                );
                break;
            };
            addresses.push(SocketAddr::new(address, network.port));
        }
        addresses
    }

    /// Diagnostics for blocks that change live parameters of blocks on other hosts.
    fn unreachable_targets(&self) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        for block in &self.blocks {
            for target in &block.resources.updates {
                let Some(other) = self.block(&target.block).map(|index| &self.blocks[index]) else {
                    continue;
                };
                if other.host == block.host {
                    continue;
                }
                let message = format!(
                    "`{}` changes `{}` of `{}`, which is on another host",
                    block.name, target.parameter, target.block
                );
                let mut problem = Diagnostic::error(codes::CUT, block.span, message)
                    .label("changes a block on another host")
                    .note(other.span, "the other block")
                    .help("give both blocks the same `host`");
                problem.blocks.push(block.name.clone());
                problems.push(problem);
            }
        }
        problems
    }

    /// Parts of the flowgraph, one for each host with blocks, in order of the hosts. With `loopback`, the parts can
    /// run on one machine.
    pub fn parts(&self, loopback: Option<Loopback>) -> Result<Vec<PartPlan>, Vec<Diagnostic>> {
        let Some(hosts) = &self.hosts else { return Ok(Vec::new()) };
        let streams = self.streams()?;
        let cut = Cut { plan: self, hosts, streams, loopback };
        Ok(hosts.all().filter_map(|host| cut.part(host)).collect())
    }

    /// Diagnostics for hosts that send or receive more than the limit of the network.
    #[must_use]
    pub fn overloads(&self, parts: &[PartPlan]) -> Vec<Diagnostic> {
        let network = self.hosts.as_ref().and_then(|hosts| hosts.network.as_ref());
        let Some((network, limit)) =
            network.and_then(|network| Some((network, network.limit_gbit_per_second?)))
        else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        for part in parts {
            let (sent, received) = (
                ("sends", part.gbit_out(), &part.sent),
                ("receives", part.gbit_in(), &part.received),
            );
            for (verb, sum, rates) in [sent, received] {
                if sum <= limit {
                    continue;
                }
                let message = format!(
                    "`{}` does not fit, because it {verb} {} Gbit/s and `limit_gbit_per_second` is {limit}",
                    part.name,
                    rounded(sum)
                );
                let mut largest: Vec<&Rate> = rates.iter().collect();
                largest.sort_by(|a, b| b.gbit_per_second.total_cmp(&a.gbit_per_second));
                let largest: Vec<String> = largest
                    .iter()
                    .take(3)
                    .map(|rate| format!("{} for `{}`", rounded(rate.gbit_per_second), rate.name))
                    .collect();
                problems.push(
                    Diagnostic::error(codes::NETWORK, network.limit_span, message)
                        .label("limit of each host")
                        .help(format!("largest streams in Gbit/s: {}", largest.join(", ")))
                        .help("give some of its blocks another host"),
                );
            }
        }
        problems
    }
}

/// `value` with three digits after the point.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Name of the block that sends `output`.
fn sender(output: &str) -> String {
    format!("send.{output}")
}

/// Name of the block that receives `output`.
fn receiver(output: &str) -> String {
    format!("receive.{output}")
}

/// Parameters of the sender of a stream to `to`.
fn sink_parameters(to: SocketAddr, interface: Option<String>) -> Json {
    let mut parameters = endpoint("destination", to, interface);
    // Explicit, so that a part that took streams over has the configuration of its file again.
    parameters["enabled"] = json!(true);
    parameters
}

/// Parameters of a receiver of a stream of `port` from `from`. Its type is checked before a packet arrives.
fn source_parameters(from: SocketAddr, interface: Option<String>, port: &PortType) -> Json {
    let mut parameters = endpoint("source", from, interface);
    parameters["type"] = json!(StreamType::of(port));
    parameters
}

fn endpoint(key: &str, address: SocketAddr, interface: Option<String>) -> Json {
    let mut parameters = json!({ key: address.to_string() });
    if let Some(interface) = interface {
        parameters["interface"] = json!(interface);
    }
    parameters
}
