//! Checks of a flowgraph against this machine.

use super::{Check, disk, flags_allow_multicast, with_any_address};
use crate::units;
use fxgraph::flowgraph::{Memory, Plan, PlannedBlock, Thread, available_on};
use fxgraph::{DeviceName, cuda};
use fxgraph_blocks::common::net::address::Address;
use fxgraph_blocks::common::net::family::Family;
use fxgraph_blocks::common::net::interface::{Interface, NoInterface};
use fxgraph_blocks::common::net::{address, sockets};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

/// Checks what `plan` needs on this machine.
pub fn checks(plan: &Plan, cores: usize) -> Vec<Check> {
    let mut checks = vec![threads(plan, cores), memory(plan)];
    checks.extend(hosts(plan));
    checks.extend(gpus(plan));
    checks.extend(interfaces(plan));
    checks.extend(routes(plan));
    checks.extend(ports(plan));
    checks.extend(receive_buffers(plan));
    checks.extend(directories(plan));
    checks
}

/// A flowgraph of several hosts, of which this machine is one at most.
fn hosts(plan: &Plan) -> Option<Check> {
    plan.hosts.as_ref()?;
    let found = "all parts are checked against this machine, without the streams between them";
    let fix = "check each part on its host: `fxgraph deploy` writes the flowgraph of each";
    Some(Check::advice("hosts", found, fix))
}

/// Names of blocks, at most three.
fn names(blocks: &BTreeSet<&str>) -> String {
    let shown: Vec<String> = blocks.iter().take(3).map(|name| format!("`{name}`")).collect();
    let more = blocks.len().saturating_sub(shown.len());
    let shown = shown.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// A number that the block has, given or chosen.
fn number(block: &PlannedBlock, parameter: &str) -> Option<u64> {
    let chosen = block.configured.chosen().into_iter().find(|each| each.parameter == parameter);
    chosen
        .map_or_else(|| block.parameters.get(parameter).cloned(), |each| Some(each.value))?
        .as_u64()
}

/// Threads that the flowgraph keeps for itself, against the cores.
fn threads(plan: &Plan, cores: usize) -> Check {
    let of_block = |block: &PlannedBlock| {
        let own = u64::from(matches!(block.thread, Thread::Own { .. }));
        let inside = number(block, "threads").filter(|_| block.device == DeviceName::Cpu);
        let inside = inside.map(|threads| if threads == 0 { cores as u64 } else { threads });
        own.max(inside.unwrap_or(0))
    };
    let threads: u64 = plan.blocks.iter().map(of_block).sum();
    let found = format!("{cores} for {threads} threads of blocks, and the shared ones");
    if threads < cores as u64 {
        return Check::good("CPU cores", found);
    }
    let fix = "use a machine with more cores, or fewer blocks with `thread: own` and `threads`";
    Check::advice("CPU cores", found, fix)
}

fn memory(plan: &Plan) -> Check {
    let needed = plan.memory().host_bytes();
    enough("memory", needed, available_on(DeviceName::Cpu))
}

fn enough(name: &str, needed: usize, available: Option<usize>) -> Check {
    let text = |bytes: usize| units::bytes(bytes as f64);
    let Some(available) = available else {
        return Check::good(name, format!("{} needed, what is free is not known", text(needed)));
    };
    let found = format!("{} needed, {} free", text(needed), text(available));
    if needed <= available {
        return Check::good(name, found);
    }
    let fix = "make frames or queues smaller (`fxgraph plan` lists them), or end other programs";
    Check::problem(name, found, fix)
}

fn gpus(plan: &Plan) -> Vec<Check> {
    let check = |ordinal: &usize| {
        let device = DeviceName::Cuda(*ordinal);
        let name = format!("memory of {device}");
        if let Err(error) = cuda::properties(*ordinal) {
            let fix = "set `device: cpu`, or see whether `nvidia-smi` lists the GPU";
            return Check::problem(&name, error.to_string(), fix);
        }
        // Opens the GPU, so that the plan counts its context as measured.
        let free = available_on(device);
        let free = free.map(|bytes| bytes.saturating_add(cuda::context_bytes(*ordinal)));
        enough(&name, plan.memory().bytes_on(device), free)
    };
    let Memory { contexts, .. } = plan.memory();
    let ordinals = contexts.keys().filter_map(|device| match device {
        DeviceName::Cuda(ordinal) => Some(*ordinal),
        DeviceName::Cpu => None,
    });
    let ordinals: Vec<usize> = ordinals.collect();
    let mut checks: Vec<Check> = ordinals.iter().map(check).collect();
    if !ordinals.is_empty() {
        checks.extend(super::compiler());
    }
    checks
}

/// Network interfaces that the blocks name.
fn interfaces(plan: &Plan) -> Vec<Check> {
    let mut users: BTreeMap<(&str, Option<Family>), BTreeSet<&str>> = BTreeMap::new();
    for block in &plan.blocks {
        let families: BTreeSet<Family> =
            addresses(block).filter_map(|(_, address)| address.family()).collect();
        // With one family for all addresses, the interfaces need an address of it.
        let family = families.first().copied().filter(|_| families.len() == 1);
        for name in named_interfaces(block) {
            users.entry((name, family)).or_default().insert(&block.name);
        }
    }
    users.iter().map(|((asked, of), blocks)| interface(asked, *of, &names(blocks))).collect()
}

/// Addresses that `block` receives on and sends to, with the names of their parameters.
fn addresses(block: &PlannedBlock) -> impl Iterator<Item = (&'static str, Address)> {
    let of = |key: &'static str| {
        let value = block.parameters.get(key);
        let several = value.and_then(Value::as_array).into_iter().flatten();
        let texts = several.chain(value).filter_map(Value::as_str);
        texts.filter_map(move |text| Some((key, address::parse(text).ok()?)))
    };
    ["addresses", "destinations", "source", "destination"].into_iter().flat_map(of)
}

fn named_interfaces(block: &PlannedBlock) -> impl Iterator<Item = &str> {
    let one = block.parameters.get("interface").and_then(Value::as_str);
    let several = block.parameters.get("interfaces").and_then(Value::as_array);
    one.into_iter().chain(several.into_iter().flatten().filter_map(Value::as_str))
}

fn interface(asked: &str, family: Option<Family>, users: &str) -> Check {
    let name = format!("interface {asked}");
    let with_address = match family {
        Some(family) => Interface::with_address(asked, family),
        None => with_any_address(asked),
    };
    let found = match with_address {
        Ok((found, _)) => found,
        Err(error @ NoInterface::Absent(..)) => {
            let fix = format!("name an interface of this machine in {users}");
            return Check::problem(&name, error.to_string(), fix);
        }
        Err(error) => {
            let prefix = family.unwrap_or(Family::V4).prefix();
            let fix =
                format!("give it an address: `sudo ip address add ADDRESS/{prefix} dev {asked}`");
            return Check::problem(&name, error.to_string(), fix);
        }
    };
    let device = &found.name;
    match found.fault() {
        Some("is down") => {
            let fix = format!("`sudo ip link set dev {device} up`");
            Check::problem(&name, format!("{device} is down, for {users}"), fix)
        }
        Some(fault) => {
            let fix = format!("look at its cable and the other end (`ip link show {device}`)");
            Check::problem(&name, format!("{device} {fault}, for {users}"), fix)
        }
        None if !flags_allow_multicast(device) => {
            let fix = format!("`sudo ip link set dev {device} multicast on`");
            Check::advice(&name, format!("multicast is off on {device}, for {users}"), fix)
        }
        None => Check::good(&name, format!("{device} is up, for {users}")),
    }
}

/// Routes to the addresses of blocks that name no interface.
fn routes(plan: &Plan) -> Vec<Check> {
    let mut users: BTreeMap<SocketAddr, BTreeSet<&str>> = BTreeMap::new();
    let open = plan.blocks.iter().filter(|block| named_interfaces(block).next().is_none());
    for block in open {
        let has_route = |(key, address): &(&str, Address)| {
            key.starts_with("destination") || address.is_multicast()
        };
        for (_, address) in addresses(block).filter(has_route) {
            // A link-local address needs no route: it names its interface.
            if let Address::Listed(all) = &address
                && let Some(first) = all.first()
            {
                users.entry(*first).or_default().insert(&block.name);
            }
        }
    }
    users.into_iter().map(|(address, blocks)| route(address, &names(&blocks))).collect()
}

fn route(to: SocketAddr, users: &str) -> Check {
    let name = format!("route to {}", to.ip());
    let family = Family::of(to.ip());
    let socket = UdpSocket::bind((family.unspecified(), 0));
    let local = socket.and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    match local {
        Ok(local) => Check::good(&name, format!("by {}, for {users}", local.ip())),
        Err(error) => {
            let to = match (family, to.ip().is_multicast()) {
                (Family::V4, _) => "239.0.0.0/8",
                (Family::V6, true) => "ff00::/8",
                (Family::V6, false) => "PREFIX/64",
            };
            let fix = format!(
                "name the interface in the block, or add a route: `sudo ip route add {to} dev NAME`"
            );
            Check::problem(&name, format!("{error}, for {users}"), fix)
        }
    }
}

/// UDP ports that the blocks bind.
fn ports(plan: &Plan) -> Vec<Check> {
    let bound = plan.blocks.iter().flat_map(|block| {
        let binds = block.resources.binds.iter();
        binds
            .filter_map(move |bind| Some((address::parse(bind.strip_prefix("udp ")?).ok()?, block)))
    });
    let checks = bound.filter_map(|(address, block)| {
        // The interface of a link-local address may be another parameter of the block.
        let address = Some(address).filter(|address| !address.lacks_scope())?;
        let addresses = address.resolve().unwrap_or_default();
        Some(addresses.into_iter().map(|address| port(address, &block.name)))
    });
    checks.flatten().collect()
}

fn port(address: SocketAddr, block: &str) -> Check {
    let name = format!("port {address}");
    let bind = || Family::of(address.ip()).socket()?.bind(&address.into());
    match bind() {
        Ok(()) => Check::good(&name, format!("free, for `{block}`")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let fix =
                format!("`ss -uanp 'sport = :{}'` names the program that has it", address.port());
            Check::problem(&name, format!("another program has it, for `{block}`"), fix)
        }
        Err(error) => {
            let fix = format!("give `{block}` an address of this machine (`ip address`)");
            Check::problem(&name, format!("{error}, for `{block}`"), fix)
        }
    }
}

/// The largest receive buffer of a socket, against what the kernel gives this process.
fn receive_buffers(plan: &Plan) -> Option<Check> {
    let asked = plan
        .blocks
        .iter()
        .filter(|block| !block.resources.binds.is_empty() || !block.resources.sockets.is_empty())
        // The kernel does not limit the memory of these queues.
        .filter(|block| !block.resources.binds.iter().any(|bind| bind.starts_with("AF_XDP")));
    let asked =
        asked.filter_map(|block| Some((number(block, "receive_buffer_bytes")?, &block.name)));
    let (bytes, block) = asked.max()?;
    let granted = sockets::granted_buffer(usize::try_from(bytes).ok()?).ok()? as u64;
    let [wanted, given] = [bytes, granted].map(|bytes| units::bytes(bytes as f64));
    let found = format!("{wanted} for each socket of `{block}`, the kernel gives {given}");
    if bytes <= granted {
        return Some(Check::good("receive buffer", found));
    }
    let fix = format!(
        "`sudo sysctl -w net.core.rmem_max={bytes}`, or data are missing when this machine pauses"
    );
    Some(Check::advice("receive buffer", found, fix))
}

/// Directories that the blocks write to.
fn directories(plan: &Plan) -> Vec<Check> {
    let mut users: BTreeMap<PathBuf, BTreeSet<&str>> = BTreeMap::new();
    for block in &plan.blocks {
        let is_file = |path: &&PathBuf| path.as_path() != Path::new(fxgraph::stdout::PATH);
        for path in block.resources.writes.iter().filter(is_file) {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = plan.output_directory.join(parent.unwrap_or(Path::new(".")));
            users.entry(directory).or_default().insert(&block.name);
        }
    }
    users.iter().map(|(directory, blocks)| written(directory, &names(blocks))).collect()
}

fn written(directory: &Path, users: &str) -> Check {
    let name = format!("directory {}", directory.display());
    // Blocks make the directories of their files.
    let existing = directory.ancestors().find(|one| one.exists()).unwrap_or(Path::new("."));
    if !existing.is_dir() {
        let found = format!("`{}` is not a directory", existing.display());
        return Check::problem(&name, found, format!("give {users} another path"));
    }
    if let Err(error) = rustix::fs::access(existing, rustix::fs::Access::WRITE_OK) {
        let fix = format!(
            "let this user write to `{}`, or give {users} another path",
            existing.display()
        );
        return Check::problem(&name, format!("{error}, for {users}"), fix);
    }
    Check { name, ..disk(existing) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::State;
    use super::*;
    use fxgraph::flowgraph::load_text;

    fn plan(port: u16, interface: &str, path: &str) -> Plan {
        let text = format!(
            "flowgraph: checked\nblocks:\n  in:\n    kind: spead_source\n    thread: own\n    parameters: \
             {{stream: digitiser, addresses: [\"127.0.0.1:{port}\"], interfaces: [\"{interface}\"], \
             adc_sample_rate_hz: 1000000}}\n  out: {{kind: file_sink, input: in, parameters: {{path: \"{path}\"}}}}\n"
        );
        let loaded = load_text("checked.yaml", &text, &[], &fxgraph_blocks::kinds());
        loaded.result.unwrap_or_else(|problems| panic!("{problems:?}"))
    }

    fn state_of(checks: &[Check], name: &str) -> State {
        let found = checks.iter().find(|check| check.name.starts_with(name));
        found.unwrap_or_else(|| panic!("no check of {name}")).state
    }

    #[test]
    fn flowgraph_that_fits_the_machine_has_no_problem() {
        let directory = tempfile::tempdir().unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = directory.path().join("results").join("out.npy");
        let checks = checks(&plan(free, "127.0.0.1", path.to_str().unwrap()), 64);
        let bad: Vec<&str> =
            checks.iter().filter(|c| c.state == State::Problem).map(|c| &*c.found).collect();
        assert_eq!(bad, [""; 0]);
        for name in
            ["CPU cores", "memory", "interface 127.0.0.1", "port 127.0.0.1", "receive buffer"]
        {
            state_of(&checks, name);
        }
    }

    #[test]
    fn port_in_use_absent_interface_and_few_cores_are_found() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let checks = checks(&plan(port, "nosuch0", "out.npy"), 1);
        assert_eq!(state_of(&checks, "port"), State::Problem);
        assert_eq!(state_of(&checks, "interface nosuch0"), State::Problem);
        assert_eq!(state_of(&checks, "CPU cores"), State::Advice);
        assert!(checks.iter().all(|check| (check.state == State::Good) == check.fix.is_empty()));
    }

    #[test]
    fn receive_buffer_is_what_a_socket_gets() {
        let with = |bytes: u64| {
            let text = format!(
                "flowgraph: checked\nblocks:\n  in:\n    kind: spead_source\n    parameters: {{stream: digitiser, \
                 addresses: [\"127.0.0.1:7148\"], adc_sample_rate_hz: 1000000, receive_buffer_bytes: {bytes}}}\n"
            );
            let loaded = load_text("checked.yaml", &text, &[], &fxgraph_blocks::kinds());
            receive_buffers(&loaded.result.unwrap()).unwrap().state
        };
        assert_eq!(with(65536), State::Good);
        // More than any socket can have, also with all rights.
        assert_eq!(with(1 << 30), State::Advice);
    }

    #[test]
    fn directory_below_a_file_is_a_problem() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(enough("memory", 2, Some(1)).state, State::Problem);
        assert_eq!(written(&file.path().join("below"), "`out`").state, State::Problem);
    }
}
