//! Classes of hosts, the network between them, and the host of each block.

use crate::language::expect::Tap;
use crate::language::scope::{Substitution, plainly};
use crate::text::document::{Document, Entry, is_name, map, text, unknown_key};
use fxgraph_core::device::decimal;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::tree::{Key, Node, Value};
use serde_json::{Map, Value as Json, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Limit of the hosts of one class.
pub(crate) const MAX_HOSTS: usize = 10_000;
/// Default of `port`: that of SPEAD streams.
const PORT: u16 = 7148;
/// Help for a missing or wrong range of groups.
const RANGE_HELP: &str = "give a range of multicast groups: `multicast: 239.102.0.0/16`, or with IPv6 `multicast: \"ff05::102:0/112\"`";

/// Hosts that a flowgraph is divided among.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    /// Classes, in order of the file.
    pub classes: Vec<HostClass>,
    /// Network between the hosts.
    pub network: Option<Network>,
    /// Place of the key `hosts`.
    pub span: Span,
}

/// A class of equal hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct HostClass {
    /// Its name.
    pub name: String,
    /// Number of hosts that run blocks.
    pub count: usize,
    /// Property that a machine must have, in words of the engine that finds machines.
    pub constraint: Option<String>,
    /// Number of CPU cores of each host, if given.
    pub cores: Option<usize>,
    /// Memory of each host in units of 10^9 bytes, if given.
    pub memory_gbytes: Option<f64>,
    /// Number of GPUs of each host, if given.
    pub gpus: Option<usize>,
    /// Memory of each GPU in units of 10^9 bytes, if given.
    pub gpu_memory_gbytes: Option<f64>,
    /// Network interface, by name or address.
    pub interface: Option<String>,
    /// Number of further machines that replace failed ones.
    pub spares: usize,
    /// Place in the file.
    pub span: Span,
}

/// Network between hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// First multicast group.
    pub first: IpAddr,
    /// Length of the prefix that the groups share, in bits.
    pub prefix: u32,
    /// UDP port of every group.
    pub port: u16,
    /// Highest rate that a host may send, and receive.
    pub limit_gbit_per_second: Option<f64>,
    /// Place of the limit.
    pub limit_span: Span,
    /// Groups of single outputs.
    pub groups: Vec<(Tap, IpAddr)>,
    /// Place of the value of `multicast`.
    pub span: Span,
}

/// One host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host {
    /// Index of its class.
    pub class: usize,
    /// Number within its class.
    pub index: usize,
}

impl Hosts {
    /// All hosts, in order of the file.
    pub fn all(&self) -> impl Iterator<Item = Host> + '_ {
        let classes = self.classes.iter().enumerate();
        classes.flat_map(|(class, of)| (0..of.count).map(move |index| Host { class, index }))
    }

    /// Name of `host` in a file: `f_host[0]`, or `x_host` for the only one of its class.
    #[must_use]
    pub fn name(&self, host: Host) -> String {
        match self.classes.get(host.class) {
            Some(class) if class.count == 1 => class.name.clone(),
            Some(class) => format!("{}[{}]", class.name, host.index),
            None => String::new(),
        }
    }

    /// Reads `hosts` and `network`.
    pub(crate) fn read(document: &Document, values: &mut Substitution<'_>) -> Option<Self> {
        let network = match &document.network {
            Some((key, node)) => {
                let network =
                    values.node(node).and_then(|node| read_network(&node, values.problems));
                if document.hosts.is_none() {
                    let message = "`network` is for flowgraphs with `hosts`";
                    let help = "add `hosts`, for example `hosts: {f_host: {count: 2}}`";
                    values
                        .problems
                        .push(wrong(key.span, message).label("without `hosts`").help(help));
                }
                network
            }
            None => None,
        };
        let (key, node) = document.hosts.as_ref()?;
        let node = values.node(node)?;
        let mut classes = Vec::new();
        for (key, node) in map(&node, values.problems) {
            if !is_name(&key.text) {
                let message = format!("`{}` is not a name", key.text);
                let help = "use letters, digits and `_`, and no digit at the start: `f_host`";
                values.problems.push(
                    Diagnostic::error(codes::BAD_NAME, key.span, message)
                        .label("invalid name")
                        .help(help),
                );
                continue;
            }
            classes.push(read_class(key, node, values.problems));
        }
        if classes.is_empty() && !matches!(node.value, Value::Map(_) | Value::Null) {
            return None;
        }
        if classes.is_empty() {
            let message = "`hosts` must have at least one class of hosts";
            let help = "add one, for example `f_host: {count: 2}`";
            values.problems.push(wrong(key.span, message).label("no hosts").help(help));
            return None;
        }
        Some(Self { classes, network, span: key.span })
    }

    pub(crate) fn to_json(&self) -> Json {
        let class = |class: &HostClass| {
            let mut value = json!({ "count": class.count, "spares": class.spares });
            if let Some(constraint) = &class.constraint {
                value["constraint"] = plainly(&json!(constraint));
            }
            for (key, number) in [("cores", class.cores), ("gpus", class.gpus)] {
                if let Some(number) = number {
                    value[key] = json!(number);
                }
            }
            let memory = [
                ("memory_gbytes", class.memory_gbytes),
                ("gpu_memory_gbytes", class.gpu_memory_gbytes),
            ];
            for (key, size) in memory {
                if let Some(size) = size {
                    value[key] = json!(size);
                }
            }
            if let Some(interface) = &class.interface {
                value["interface"] = plainly(&json!(interface));
            }
            (class.name.clone(), value)
        };
        Json::Object(self.classes.iter().map(class).collect())
    }
}

impl Network {
    /// Number of groups.
    #[must_use]
    pub fn group_count(&self) -> u128 {
        1 << (bits(self.first) - self.prefix)
    }

    /// Groups in order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let first = self.first;
        (0..self.group_count()).map(move |number| match first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | number as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | number).into(),
        })
    }

    /// The groups as in a file: `239.102.0.0/16`.
    #[must_use]
    pub fn range(&self) -> String {
        format!("{}/{}", self.first, self.prefix)
    }

    pub(crate) fn to_json(&self) -> Json {
        let mut value = json!({ "multicast": self.range(), "port": self.port });
        if let Some(limit) = self.limit_gbit_per_second {
            value["limit_gbit_per_second"] = json!(limit);
        }
        if !self.groups.is_empty() {
            let group = |(output, address): &(Tap, IpAddr)| {
                (output.text.clone(), json!(address.to_string()))
            };
            value["groups"] = Json::Object(self.groups.iter().map(group).collect::<Map<_, _>>());
        }
        value
    }
}

/// Error about hosts at `span`.
pub(crate) fn wrong(span: Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(codes::HOSTS, span, message)
}

impl Host {
    /// Reads `host` of a block or of the use of a template, one of `hosts`. `has_hosts` is true if the file has the key
    /// `hosts`, also with an error.
    pub(crate) fn read(
        entry: &Entry,
        (hosts, has_hosts): (Option<&Hosts>, bool),
        mut values: Substitution<'_>,
    ) -> Option<Self> {
        let value = values.node(entry.host.as_ref()?)?;
        let span = value.span;
        let Some(text) = value.text() else {
            let found = value.value.quoted();
            let message =
                format!("`host` must be a host like `x_host` or `f_host[0]`, got {found}");
            values.problems.push(wrong(span, message).label("not a host"));
            return None;
        };
        let Some(hosts) = hosts else {
            // A wrong `hosts` is reported already.
            if !has_hosts {
                let message = format!("there is no host `{text}`: the flowgraph has no `hosts`");
                let help =
                    "add `hosts` at the top of the file, for example `hosts: {f_host: {count: 2}}`";
                values.problems.push(wrong(span, message).label("no such host").help(help));
            }
            return None;
        };
        let (name, index) = match text.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let Some(class) = hosts.classes.iter().position(|class| class.name == name) else {
            let known: Vec<&str> = hosts.classes.iter().map(|class| class.name.as_str()).collect();
            let message = format!("there is no class of hosts `{name}`");
            values.problems.push(
                wrong(span, message)
                    .label("no such class")
                    .maybe_help(suggest(name, "class", &known)),
            );
            return None;
        };
        let of = &hosts.classes[class];
        let index = match index {
            None if of.count == 1 => return Some(Self { class, index: 0 }),
            None => {
                let message = format!("`{name}` has {} hosts, `host` must name one", of.count);
                let help = format!("give its number: `{name}[0]`");
                values.problems.push(wrong(span, message).label("which one?").help(help));
                return None;
            }
            Some(digits) => decimal(digits),
        };
        match index {
            Some(index) if index < of.count => Some(Self { class, index }),
            _ => {
                let message = match of.count {
                    1 => format!("`{name}` has one host, `{name}[0]`, got `{text}`"),
                    count => format!("`{name}` has the hosts 0 to {}, got `{text}`", count - 1),
                };
                let problem = wrong(span, message).label("no such host");
                values.problems.push(problem.note(of.span, "the class is defined here"));
                None
            }
        }
    }

    /// Name of this host, quoted for YAML where needed.
    pub(crate) fn example(self, hosts: &Hosts) -> String {
        let name = hosts.name(self);
        if name.contains('[') { format!("\"{name}\"") } else { name }
    }
}

fn read_class(key: &Key, node: &Node, problems: &mut Vec<Diagnostic>) -> HostClass {
    let mut class = HostClass {
        name: key.text.clone(),
        count: 1,
        constraint: None,
        cores: None,
        memory_gbytes: None,
        gpus: None,
        gpu_memory_gbytes: None,
        interface: None,
        spares: 0,
        span: key.span,
    };
    let most = MAX_HOSTS as i128;
    for (key, node) in map(node, problems) {
        match key.text.as_str() {
            "count" => class.count = whole(key, node, 1..=most, problems).unwrap_or(MAX_HOSTS),
            "spares" => class.spares = whole(key, node, 0..=most, problems).unwrap_or(0),
            "cores" => class.cores = whole(key, node, 1..=most, problems),
            "memory_gbytes" => class.memory_gbytes = positive(key, node, problems),
            "gpus" => class.gpus = whole(key, node, 0..=most, problems),
            "gpu_memory_gbytes" => class.gpu_memory_gbytes = positive(key, node, problems),
            "constraint" => class.constraint = text(node, problems),
            "interface" => class.interface = text(node, problems),
            _ => {
                let known = [
                    "count",
                    "constraint",
                    "cores",
                    "memory_gbytes",
                    "gpus",
                    "gpu_memory_gbytes",
                    "interface",
                    "spares",
                ];
                problems.push(unknown_key(key, &known));
            }
        }
    }
    class
}

/// Reads an integer.
fn whole(
    key: &Key,
    node: &Node,
    range: RangeInclusive<i128>,
    problems: &mut Vec<Diagnostic>,
) -> Option<usize> {
    let value = node.value.whole().filter(|value| range.contains(value));
    if value.is_none() {
        let (first, last) = range.into_inner();
        let message = format!(
            "`{}` must be an integer from {first} to {last}, got {}",
            key.text,
            node.value.quoted()
        );
        problems.push(wrong(node.span, message).label("invalid value"));
    }
    value.and_then(|value| usize::try_from(value).ok())
}

fn read_network(node: &Node, problems: &mut Vec<Diagnostic>) -> Option<Network> {
    let mut range = None;
    let mut is_good = true;
    let (mut port, mut groups) = (Some(usize::from(PORT)), Vec::new());
    let (mut limit, mut limit_span) = (None, node.span);
    for (key, node) in map(node, problems) {
        match key.text.as_str() {
            "multicast" => {
                range = multicast(node, problems);
                is_good &= range.is_some();
            }
            "port" => port = whole(key, node, 1..=i128::from(u16::MAX), problems),
            "limit_gbit_per_second" => {
                limit = positive(key, node, problems);
                limit_span = node.span;
            }
            "groups" => groups = read_groups(node, problems),
            _ => {
                let known = ["multicast", "port", "limit_gbit_per_second", "groups"];
                problems.push(unknown_key(key, &known));
            }
        }
    }
    let Some((first, prefix, span)) = range else {
        if is_good {
            let message = "`network` needs the key `multicast`";
            let help = RANGE_HELP;
            problems.push(
                Diagnostic::error(codes::MISSING_KEY, node.span, message)
                    .label("without `multicast`")
                    .help(help),
            );
        }
        return None;
    };
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(PORT);
    let of_other_family = |(_, group): &&(Tap, IpAddr)| group.is_ipv4() != first.is_ipv4();
    for (tap, group) in groups.iter().filter(of_other_family) {
        let message = format!(
            "the group of `{}` must be of the IP version of `multicast`, got {group}",
            tap.text
        );
        let help = if first.is_ipv4() { "239.102.9.1" } else { "ff05::102:9:1" };
        problems.push(
            wrong(tap.span, message)
                .label("invalid group")
                .help(format!("give a group like {help}")),
        );
    }
    Some(Network { first, prefix, port, limit_gbit_per_second: limit, limit_span, groups, span })
}

/// Number of bits of an address of the family of `address`.
fn bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Bits that all groups of a range have in common with the first group of the family of `address`: those of the
/// multicast addresses, with IPv6 also the flags and the scope.
fn common_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 4 } else { 16 }
}

/// Whether `address` is a multicast group that routers can pass on: an IPv6 group within an interface or a link needs
/// the name of the interface in the address.
fn is_group(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_multicast() && (3..=0xe).contains(&(v6.octets()[1] & 0xf)),
    }
}

fn multicast(node: &Node, problems: &mut Vec<Diagnostic>) -> Option<(IpAddr, u32, Span)> {
    let help = RANGE_HELP;
    let mut reject = |message: String| {
        problems.push(wrong(node.span, message).label("invalid range").help(help));
    };
    let parsed = node.text().and_then(|text| {
        let (address, prefix) = text.split_once('/')?;
        let prefix = decimal(prefix)?;
        let address: IpAddr = address.parse().ok()?;
        let prefix = u32::try_from(prefix).ok().filter(|prefix| *prefix <= bits(address))?;
        Some((address, prefix))
    });
    let Some((address, prefix)) = parsed else {
        let rule = "`multicast` must be an IPv4 address and a prefix length up to 32, or an IPv6 address and one up to 128";
        reject(format!("{rule}, got {}", node.value.quoted()));
        return None;
    };
    // A shorter prefix leaves the range of multicast addresses.
    if !is_group(&address) || prefix < common_bits(address) {
        let found = node.value.quoted();
        let rule =
            "`multicast` must be within 224.0.0.0/4, or within one of ff03::/16 to ff0e::/16";
        reject(format!("{rule}, got {found}"));
        return None;
    }
    let host_bits = bits(address) - prefix;
    let first = match address {
        IpAddr::V4(v4) => {
            Ipv4Addr::from((u64::from(v4.to_bits()) >> host_bits << host_bits) as u32).into()
        }
        IpAddr::V6(v6) => IpAddr::from(Ipv6Addr::from_bits(v6.to_bits() >> host_bits << host_bits)),
    };
    if first != address {
        let found = node.value.quoted();
        reject(format!(
            "`multicast` must begin with the first group of its range, {first}/{prefix}, got {found}"
        ));
        return None;
    }
    Some((first, prefix, node.span))
}

/// Reads a number greater than 0.
fn positive(key: &Key, node: &Node, problems: &mut Vec<Diagnostic>) -> Option<f64> {
    let number = node.value.to_json().as_f64().filter(|number| *number > 0.0);
    if number.is_none() {
        let found = node.value.quoted();
        let message = format!("`{}` must be finite and greater than 0, got {found}", key.text);
        problems.push(wrong(node.span, message).label("invalid value"));
    }
    number
}

fn read_groups(node: &Node, problems: &mut Vec<Diagnostic>) -> Vec<(Tap, IpAddr)> {
    let mut groups: Vec<(Tap, IpAddr)> = Vec::new();
    for (key, node) in map(node, problems) {
        let address = node.text().and_then(|text| text.parse::<IpAddr>().ok());
        let Some(address) = address.filter(is_group) else {
            let message = format!(
                "the group of `{}` must be a multicast address, with IPv6 of a scope beyond the link, got {}",
                key.text,
                node.value.quoted()
            );
            let help = "give a group like 239.102.9.1 or ff05::102:9:1";
            problems.push(wrong(node.span, message).label("invalid group").help(help));
            continue;
        };
        if let Some((first, _)) = groups.iter().find(|(_, known)| *known == address) {
            let message = format!("two outputs have the group {address}");
            problems.push(
                wrong(key.span, message)
                    .label("again here")
                    .note(first.span, "first here")
                    .help("give each output its own group"),
            );
            continue;
        }
        groups.push((Tap { text: key.text.clone(), span: key.span }, address));
    }
    groups
}
