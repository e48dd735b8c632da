//! Name of the machine for the heading of a benchmark.

/// Returns the name of the CPU.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}
