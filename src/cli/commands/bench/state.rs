//! State of the machine during a measurement: clocks, power, PCIe link.

use fxgraph::DeviceName;
use fxgraph::cuda::GpuState;
use serde_json::{Value, json};
use std::fs;

/// State of the device that is measured. A value that the machine does not report is `None`.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// State of the CPU.
    Cpu {
        model: String,
        cores: usize,
        /// Frequency governor; `None` where the host of a virtual machine sets the clock.
        governor: Option<String>,
        /// Mean clock of all cores.
        clock_mhz: Option<f64>,
    },
    /// State of a GPU; `None` without the driver's management library.
    Gpu(Option<GpuState>),
}

impl State {
    /// Reads the state of `device`.
    pub fn read(device: DeviceName) -> Self {
        match device {
            DeviceName::Cpu => {
                let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
                let governor = fs::read_to_string(governor).ok();
                Self::Cpu {
                    model: model(&info),
                    cores: std::thread::available_parallelism().map_or(1, usize::from),
                    governor: governor.map(|text| text.trim().to_owned()),
                    clock_mhz: clock_mhz(&info),
                }
            }
            DeviceName::Cuda(ordinal) => Self::Gpu(GpuState::read(ordinal)),
        }
    }

    pub fn json(&self) -> Value {
        match self {
            Self::Cpu { model, cores, governor, clock_mhz } => json!({
                "cpu": model,
                "cores": cores,
                "governor": governor,
                "clock_mhz": clock_mhz,
            }),
            Self::Gpu(None) => Value::Null,
            Self::Gpu(Some(gpu)) => json!({
                "sm_clock_mhz": gpu.sm_clock_mhz,
                "sm_clock_limit_mhz": gpu.sm_clock_limit_mhz,
                "memory_clock_mhz": gpu.memory_clock_mhz,
                "power_watts": gpu.power_watts,
                "power_limit_watts": gpu.power_limit_watts,
                "temperature_celsius": gpu.temperature_celsius,
                "pcie_generation": gpu.pcie_generation,
                "pcie_width": gpu.pcie_width,
            }),
        }
    }

    /// Returns the state in one line, for a heading; empty if nothing is known.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        match self {
            Self::Cpu { governor, clock_mhz, .. } => {
                parts.extend(clock_mhz.map(|clock| format!("clock {clock:.0} MHz")));
                parts.extend(governor.as_ref().map(|governor| format!("governor {governor}")));
            }
            Self::Gpu(None) => {}
            Self::Gpu(Some(gpu)) => {
                parts.extend(gpu.sm_clock_mhz.map(|clock| {
                    let limit =
                        gpu.sm_clock_limit_mhz.map_or(String::new(), |m| format!(" of {m}"));
                    format!("clock {clock}{limit} MHz")
                }));
                parts.extend(gpu.power_watts.map(|power| {
                    let limit =
                        gpu.power_limit_watts.map_or(String::new(), |m| format!(" of {m:.0}"));
                    format!("power {power:.0}{limit} W")
                }));
                parts.extend(gpu.temperature_celsius.map(|degrees| format!("{degrees} C")));
                parts.extend(
                    gpu.pcie_generation.zip(gpu.pcie_width).map(|(generation, lanes)| {
                        format!("PCIe generation {generation} x{lanes}")
                    }),
                );
            }
        }
        parts.join(", ")
    }
}

/// Returns the name of the CPU in the text of `/proc/cpuinfo`.
pub fn model(info: &str) -> String {
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or(std::env::consts::ARCH, |(_, name)| name).to_owned()
}

/// Returns the mean clock of all cores in the text of `/proc/cpuinfo`.
fn clock_mhz(info: &str) -> Option<f64> {
    let clocks = info.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split(": ").nth(1));
    let clocks: Vec<f64> = clocks.filter_map(|clock| clock.trim().parse().ok()).collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "model name\t: Example 9000: fast\ncpu MHz\t\t: 2000.0\n\
                        model name\t: Example 9000: fast\ncpu MHz\t\t: 3000.0\n";

    #[test]
    fn cpu_state_is_read_from_proc() {
        assert_eq!(model(INFO), "Example 9000: fast");
        assert_eq!(clock_mhz(INFO), Some(2500.0));
        assert_eq!(model(""), std::env::consts::ARCH);
        assert_eq!(clock_mhz("cpu MHz\t\t: unknown\n"), None);
    }

    #[test]
    fn gpu_state_text_names_values_with_their_limits() {
        let gpu = GpuState {
            sm_clock_mhz: Some(1755),
            sm_clock_limit_mhz: Some(1980),
            power_watts: Some(512.4),
            power_limit_watts: Some(700.0),
            pcie_generation: Some(5),
            pcie_width: Some(16),
            ..GpuState::default()
        };
        let state = State::Gpu(Some(gpu));
        assert_eq!(
            state.text(),
            "clock 1755 of 1980 MHz, power 512 of 700 W, PCIe generation 5 x16"
        );
        assert_eq!(state.json()["power_watts"], 512.4);
        assert_eq!(state.json()["temperature_celsius"], Value::Null);
        assert_eq!(State::Gpu(None).text(), "");
    }
}
