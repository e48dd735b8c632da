//! `fxgraph doctor`

#[cfg_attr(not(feature = "sdr"), path = "doctor/radios_absent.rs")]
mod radios;
mod target;

use crate::failure::Failure;
use crate::flowgraph::{load_file, parse_setting, style};
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::cuda::{self, CudaError};
use fxgraph::diagnostic::render_all;
use fxgraph::flowgraph::{Loaded, Setting};
use fxgraph_blocks::common::net::family::Family;
use fxgraph_blocks::common::net::interface::{Interface, Interfaces, NoInterface};
use fxgraph_blocks::io::spead::chosen;
use serde_json::json;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Largest socket buffer that `spead_source` asks for by default, in bytes.
const RECEIVE_BUFFER_BYTES: u64 = chosen::RECEIVE_BUFFER_BYTES.1 as u64;
/// Socket buffer that `spead_sink` asks for, in bytes.
const SEND_BUFFER_BYTES: u64 = 4 << 20;
/// Free space below which recordings end at once (`--recordings-min-free`), in bytes.
const FREE_BYTES: u64 = 1_000_000_000;
/// Organisation-local groups that no stream of the examples uses.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 42, 42);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff08, 0, 0, 0, 0, 0, 0x4242, 0x4242);

/// Checks this machine (GPU, NVRTC, socket buffers, cores, huge pages, clock, multicast, disk, radios), or a flowgraph against it, and says how to mend what is wrong
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Flowgraph to check against this machine: interfaces, routes, ports, buffers, cores, memory, GPUs, directories
    file: Option<PathBuf>,

    /// Sets a parameter of the flowgraph; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "file")]
    set: Vec<Setting>,

    /// Network interface that streams use, by name or address; without it all interfaces are tried
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// Directory that results are written to
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// Works, at less than full speed or not for every flowgraph.
    Advice,
    /// Does not work.
    Problem,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Advice => "advice",
            Self::Problem => "problem",
        }
    }
}

/// Result of one check.
struct Check {
    name: String,
    state: State,
    found: String,
    /// Remedy; empty if the check is good.
    fix: String,
}

impl Check {
    fn good(name: &str, found: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state: State::Good, found: found.into(), fix: String::new() }
    }

    fn advice(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { state: State::Advice, fix: fix.into(), ..Self::good(name, found) }
    }

    fn problem(name: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::advice(name, found, fix) }
    }
}

impl Doctor {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let checks = match &self.file {
            Some(file) => self.of_flowgraph(file, terminal)?,
            None => self.of_machine(),
        };
        if self.json {
            let entry = |check: &Check| json!({"check": check.name, "state": check.state.name(), "found": check.found, "fix": check.fix});
            terminal.json(&checks.iter().map(entry).collect())?;
        } else {
            terminal.results(&as_text(&checks, terminal))?;
        }
        let failed = checks.iter().any(|check| check.state == State::Problem);
        if failed { Err(Failure::Shown) } else { Ok(()) }
    }

    fn of_flowgraph(&self, file: &Path, terminal: &Terminal) -> Result<Vec<Check>, Failure> {
        let Loaded { sources, result, .. } = load_file(file, &self.set);
        let plan = result.map_err(|problems| {
            Failure::Configuration(render_all(&problems, &sources, style(terminal)))
        })?;
        Ok(target::checks(&plan, available_parallelism().map_or(1, usize::from)))
    }

    fn of_machine(&self) -> Vec<Check> {
        let mut checks = vec![
            cores(available_parallelism().map_or(1, usize::from)),
            governor(read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_deref()),
            buffer(
                "receive buffer",
                "net.core.rmem_max",
                RECEIVE_BUFFER_BYTES,
                RECEIVE_BUFFER_BYTES,
            ),
            buffer("send buffer", "net.core.wmem_max", SEND_BUFFER_BYTES, 12 << 20),
            huge_pages(read("/sys/kernel/mm/transparent_hugepage/enabled").as_deref()),
            clock(),
        ];
        checks.extend(multicast(self.interface.as_deref()));
        checks.push(disk(&self.directory));
        checks.extend(radios::checks());
        checks.extend(gpus());
        checks
    }
}

fn as_text(checks: &[Check], terminal: &Terminal) -> String {
    let columns = [("check", Align::Left), ("state", Align::Left), ("found", Align::Left)];
    let mut table = Table::new(false, &columns);
    for check in checks {
        table.row([check.name.clone(), check.state.name().to_owned(), check.found.clone()]);
    }
    let mut text = table.finish();
    let fixes: Vec<&Check> = checks.iter().filter(|check| !check.fix.is_empty()).collect();
    if !fixes.is_empty() {
        text.push_str(&format!("\n{}\n", terminal.paint(Paint::Bold, "Remedies")));
    }
    for check in fixes {
        let how = if check.state == State::Problem { Paint::Bad } else { Paint::Warning };
        text.push_str(&format!("{}: {}\n", terminal.paint(how, &check.name), check.fix));
    }
    text
}

/// The first line of a small file of the kernel.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

fn cores(cores: usize) -> Check {
    let found = format!("{cores} for this process");
    if cores >= 4 {
        return Check::good("CPU cores", found);
    }
    let fix = "run flowgraphs at a low sample rate (`--set adc_sample_rate_hz=1712000`), or use a machine \
               with 4 cores or more: receiving, computing and sending have threads of their own";
    Check::advice("CPU cores", found, fix)
}

fn governor(governor: Option<&str>) -> Check {
    match governor {
        None => Check::good("CPU clock", "set by the host"),
        Some("performance") => Check::good("CPU clock", "governor performance"),
        Some(other) => Check::advice(
            "CPU clock",
            format!("governor {other}"),
            "keep the clock up while data flow: `sudo cpupower frequency-set -g performance`",
        ),
    }
}

/// Limit of the kernel for a socket buffer.
fn buffer(name: &str, setting: &str, wanted: u64, recommended: u64) -> Check {
    let path = format!("/proc/sys/{}", setting.replace('.', "/"));
    let Some(limit) = read(&path).and_then(|text| text.parse::<u64>().ok()) else {
        return Check::advice(name, format!("`{setting}` cannot be read"), "run on Linux");
    };
    let found = format!("{setting} = {}", units::bytes(limit as f64));
    if limit >= wanted {
        return Check::good(name, found);
    }
    let fix = format!(
        "`sudo sysctl -w {setting}={recommended}`; to keep it: `echo '{setting} = {recommended}' | sudo tee -a \
         /etc/sysctl.d/60-fxgraph.conf`"
    );
    Check::advice(name, found, fix)
}

fn huge_pages(enabled: Option<&str>) -> Check {
    let chosen = enabled.and_then(|text| text.split(['[', ']']).nth(1));
    match chosen {
        Some("always") => Check::good("huge pages", "transparent_hugepage always"),
        mode => Check::advice(
            "huge pages",
            mode.map_or("not known".to_owned(), |mode| format!("transparent_hugepage {mode}")),
            "back large frames by huge pages: `echo always | sudo tee /sys/kernel/mm/transparent_hugepage/enabled`",
        ),
    }
}

#[cfg(target_os = "linux")]
fn clock() -> Check {
    let name = "clock";
    if let Some(error) = fxgraph::host_clock::error_seconds() {
        return Check::good(name, format!("synchronised, error at most {error:.3} s"));
    }
    Check::advice(
        name,
        "not synchronised",
        "timestamps and lag need it: `sudo apt install chrony`, then wait until `chronyc tracking` shows a source",
    )
}

#[cfg(not(target_os = "linux"))]
fn clock() -> Check {
    Check::advice("clock", "not known on this system", "synchronise it with NTP or PTP")
}

/// Finds the interface `asked` and its address: that of IPv4, or else that of IPv6.
///
/// # Errors
/// If this host has no such interface, or if it has no address.
fn with_any_address(asked: &str) -> Result<(Interface, IpAddr), NoInterface> {
    let of_v4 = Interface::with_address(asked, Family::V4);
    of_v4.or_else(|error| Interface::with_address(asked, Family::V6).map_err(|_| error))
}

/// Joins a group on the interface `asked`, or on each one: by IPv6 if it has no IPv4 address.
fn multicast(asked: Option<&str>) -> Vec<Check> {
    let Some(asked) = asked else {
        let interfaces = Interfaces::read();
        let is_only = |name: &str, ip: IpAddr| {
            let of = |family| interfaces.address(name, family);
            of(Family::V4).is_none() && of(Family::V6) == Some(ip)
        };
        let counts =
            |(interface, ip): &(Interface, IpAddr)| ip.is_ipv4() || is_only(&interface.name, *ip);
        let all = interfaces.all().filter(counts);
        let all: Vec<Check> = all.map(|(interface, ip)| joined(&interface, ip)).collect();
        if !all.is_empty() {
            return all;
        }
        let found = "no interface has an address";
        let fix = "give an interface an address, or bring it up (`ip address`)";
        return vec![Check::problem("multicast", found, fix)];
    };
    match with_any_address(asked) {
        Ok((interface, ip)) => vec![joined(&interface, ip)],
        Err(error) => {
            let fix = "name an interface that has an address, or its address (`ip address`)";
            vec![Check::problem(&format!("multicast {asked}"), error.to_string(), fix)]
        }
    }
}

fn joined(interface: &Interface, address: IpAddr) -> Check {
    let (check, name) = (format!("multicast {address}"), &interface.name);
    let socket = UdpSocket::bind((Family::of(address).unspecified(), 0));
    let (group, joined) = match address {
        IpAddr::V4(ip) => {
            (IpAddr::V4(GROUP), socket.and_then(|socket| socket.join_multicast_v4(&GROUP, &ip)))
        }
        IpAddr::V6(_) => {
            let join = |socket: UdpSocket| socket.join_multicast_v6(&GROUP_V6, interface.index);
            (IpAddr::V6(GROUP_V6), socket.and_then(join))
        }
    };
    if let Err(error) = joined {
        let fix = format!("switch multicast on: `sudo ip link set dev {name} multicast on`");
        return Check::problem(&check, format!("cannot join {group} on {name}: {error}"), fix);
    }
    if let Some(fault) = interface.fault() {
        let fix = match fault {
            "is down" => format!("if streams use it: `sudo ip link set dev {name} up`"),
            _ => "if streams use it: look at its cable and the other end".to_owned(),
        };
        return Check::advice(&check, format!("{name} {fault}"), fix);
    }
    // The kernel joins on any interface; loopback delivers multicast without the flag.
    if !flags_allow_multicast(name) {
        let fix = format!("if streams use it: `sudo ip link set dev {name} multicast on`");
        return Check::advice(&check, format!("multicast is off on {name}"), fix);
    }
    Check::good(&check, format!("joined on {name}"))
}

/// Flags of an interface, from the kernel's `if.h`.
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_MULTICAST: u32 = 1 << 12;

/// Whether the interface `name` has multicast switched on.
fn flags_allow_multicast(name: &str) -> bool {
    flags(name).is_none_or(|flags| flags & (IFF_MULTICAST | IFF_LOOPBACK) != 0)
}

/// Flags of the interface `name`, on Linux.
fn flags(name: &str) -> Option<u32> {
    let text = read(&format!("/sys/class/net/{name}/flags"))?;
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn disk(directory: &Path) -> Check {
    let name = "disk";
    let found = match rustix::fs::statvfs(directory) {
        Ok(found) => found,
        Err(error) => {
            let found = format!("`{}`: {error}", directory.display());
            return Check::problem(name, found, "name a directory that exists with `--directory`");
        }
    };
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let text = format!("{} free in `{}`", units::bytes(free as f64), directory.display());
    if free >= FREE_BYTES {
        return Check::good(name, text);
    }
    Check::problem(name, text, "free space, or write results to another disk")
}

fn gpus() -> Vec<Check> {
    let count = match cuda::count() {
        Ok(count) => count,
        Err(CudaError::NoDriver) => {
            let found = "no NVIDIA driver; flowgraphs run on the CPU";
            return vec![Check::good("GPU", found)];
        }
        Err(error) => {
            let fix = "see whether `nvidia-smi` works; a driver that was updated needs a reboot";
            return vec![Check::problem("GPU", error.to_string(), fix)];
        }
    };
    if count == 0 {
        return vec![Check::good("GPU", "none; flowgraphs run on the CPU")];
    }
    let mut checks: Vec<Check> = (0..count).map(gpu).collect();
    checks.extend(compiler());
    checks
}

/// The compiler of kernels; none on a machine without GPUs.
fn compiler() -> Option<Check> {
    cuda::count().ok().filter(|count| *count > 0)?;
    Some(match cuda::compiler_version() {
        Ok((major, minor)) => Check::good("NVRTC", format!("version {major}.{minor}")),
        Err(error) => Check::problem(
            "NVRTC",
            error.to_string(),
            "install the CUDA toolkit 13, or `pip install nvidia-cuda-nvrtc`, and name its directory in LD_LIBRARY_PATH",
        ),
    })
}

fn gpu(ordinal: usize) -> Check {
    let name = format!("GPU cuda:{ordinal}");
    match cuda::properties(ordinal) {
        Ok(found) => {
            let (major, minor) = found.capability;
            let text = format!("{}, compute capability {major}.{minor}", found.name);
            if major >= 8 {
                return Check::good(&name, text);
            }
            Check::advice(&name, text, "use a GPU of compute capability 8.0 or later")
        }
        Err(error) => {
            Check::problem(&name, error.to_string(), "see whether `nvidia-smi` lists this GPU")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cores_and_slow_clock_get_advice() {
        assert_eq!(cores(2).state, State::Advice);
        assert_eq!(cores(16).state, State::Good);
        assert_eq!(governor(Some("powersave")).state, State::Advice);
        assert_eq!(governor(None).state, State::Good);
    }

    #[test]
    fn chosen_mode_of_huge_pages_is_read() {
        assert_eq!(huge_pages(Some("[always] madvise never")).state, State::Good);
        let off = huge_pages(Some("always madvise [never]"));
        assert_eq!((off.state, off.found.as_str()), (State::Advice, "transparent_hugepage never"));
    }

    #[test]
    fn address_of_no_interface_is_a_problem_with_a_fix() {
        let checks = multicast(Some("203.0.113.9"));
        assert_eq!(checks[0].state, State::Problem);
        assert!(checks[0].fix.contains("ip address"));
    }

    #[test]
    fn missing_directory_is_a_problem() {
        assert_eq!(disk(Path::new("/does/not/exist")).state, State::Problem);
    }
}
