//! Memory that is available to this process.

use crate::plan::flowgraph::Plan;
use fxgraph_core::device::DeviceName;
use fxgraph_core::diagnostic::Diagnostic;
use fxgraph_cuda::{self as cuda, Device};
use std::fs;
use std::path::{Path, PathBuf};

/// Diagnostic for a plan that needs more memory than is available on the host or on a GPU.
#[must_use]
pub fn shortage(plan: &Plan) -> Option<Diagnostic> {
    let available = |device: &DeviceName| match *device {
        DeviceName::Cpu => available_on(*device),
        // The plan counts the context, which this process has opened to ask.
        DeviceName::Cuda(ordinal) => Some(available_on(*device)? + cuda::context_bytes(ordinal)),
    };
    // Opens the GPUs, so that the plan counts their contexts as measured.
    let available: Vec<_> =
        plan.memory().devices().into_iter().map(|device| (device, available(&device))).collect();
    available.into_iter().find_map(|(device, bytes)| plan.shortage(device, bytes?))
}

/// Bytes available on `device`; `None` if unknown or if the device does not exist, which `Plan::build` reports.
#[must_use]
pub fn available_on(device: DeviceName) -> Option<usize> {
    match device {
        DeviceName::Cpu => available_bytes(),
        DeviceName::Cuda(ordinal) => Device::open(ordinal).ok()?.free_bytes().ok(),
    }
}

/// Bytes available from the system or the container; `None` if unknown.
fn available_bytes() -> Option<usize> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let container = directories(&groups).iter().filter_map(|directory| group(directory)).min();
    [system, container].into_iter().flatten().min()
}

/// `MemAvailable` of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.saturating_mul(1024))
}

/// Directory of this process's control group (version 2) and its parent directories.
fn directories(groups: &str) -> Vec<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    root.join(own).ancestors().take_while(|f| f.starts_with(root)).map(Path::to_owned).collect()
}

/// Bytes left in the control group at `directory`. Pages of the page cache count as free.
fn group(directory: &Path) -> Option<usize> {
    let number = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok();
    let limit: usize = number("memory.max")?;
    let used: usize = number("memory.current")?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let gives_way = ["inactive_file ", "active_file ", "slab_reclaimable "];
    let bytes = |line: &str| {
        gives_way.iter().find_map(|name| line.strip_prefix(name))?.parse::<usize>().ok()
    };
    let cached: usize = stat.lines().filter_map(bytes).sum();
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn available_bytes_reads_meminfo() {
        assert_eq!(meminfo("MemTotal: 9 kB\nMemAvailable:     12 kB\n"), Some(12 * 1024));
        assert_eq!(meminfo("MemTotal: 9 kB\n"), None);
        assert!(available_bytes().unwrap() > 0);
    }

    #[test]
    fn group_leaves_limit_minus_memory_that_cannot_be_reclaimed() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(group(directory.path()), None);
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        assert_eq!(group(directory.path()), Some(300));
        write("memory.stat", "anon 500\ninactive_file 100\nactive_file 50\n");
        assert_eq!(group(directory.path()), Some(450));
        write("memory.max", "max\n");
        assert_eq!(group(directory.path()), None);
    }

    #[test]
    fn directories_include_parent_groups() {
        let found = directories("1:name=systemd:/x\n0::/a/b\n");
        let expected = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
