//! Clocks, power and PCIe link of a GPU, from NVML, the management library of the NVIDIA driver.
#![allow(unsafe_code)] // a C library, loaded at run time

use super::gpus::pci_address;
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Name of the library, which comes with the driver.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Clock domains of `nvmlDeviceGetClockInfo`.
const SM_CLOCK: c_uint = 1;
const MEMORY_CLOCK: c_uint = 2;
/// Sensor of `nvmlDeviceGetTemperature`.
const GPU_SENSOR: c_uint = 0;

/// State of a GPU at one time. A value that the driver does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuState {
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// Highest clock of the multiprocessors.
    pub sm_clock_limit_mhz: Option<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Option<u32>,
    /// Electrical power.
    pub power_watts: Option<f64>,
    /// Power above which the GPU lowers its clock.
    pub power_limit_watts: Option<f64>,
    /// Temperature.
    pub temperature_celsius: Option<u32>,
    /// PCIe generation of the link, which falls when the GPU is idle.
    pub pcie_generation: Option<u32>,
    /// Width of the PCIe link.
    pub pcie_width: Option<u32>,
}

impl GpuState {
    /// Reads the state of GPU number `ordinal`; `None` without NVML or without that GPU.
    #[must_use]
    pub fn read(ordinal: usize) -> Option<Self> {
        let library = library()?;
        let device = find(library, ordinal)?;
        let number = |name: &[u8]| number(library, name, device);
        let number_of = |name: &[u8], which| number_of(library, name, device, which);
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
        Some(Self {
            sm_clock_mhz: number_of(b"nvmlDeviceGetClockInfo\0", SM_CLOCK),
            sm_clock_limit_mhz: number_of(b"nvmlDeviceGetMaxClockInfo\0", SM_CLOCK),
            memory_clock_mhz: number_of(b"nvmlDeviceGetClockInfo\0", MEMORY_CLOCK),
            power_watts: number(b"nvmlDeviceGetPowerUsage\0").map(watts),
            power_limit_watts: number(b"nvmlDeviceGetEnforcedPowerLimit\0").map(watts),
            temperature_celsius: number_of(b"nvmlDeviceGetTemperature\0", GPU_SENSOR),
            pcie_generation: number(b"nvmlDeviceGetCurrPcieLinkGeneration\0"),
            pcie_width: number(b"nvmlDeviceGetCurrPcieLinkWidth\0"),
        })
    }
}

/// Free memory of GPU number `ordinal` in bytes, without a context on it; `None` without NVML or without that GPU.
pub(super) fn free_bytes(ordinal: usize) -> Option<u64> {
    let library = library()?;
    let device = find(library, ordinal)?;
    let mut memory = Memory::default();
    // SAFETY: the types are those of NVML's header; `memory` lives during the call.
    let result = unsafe {
        let get = library
            .get::<unsafe extern "C" fn(Handle, *mut Memory) -> c_int>(b"nvmlDeviceGetMemoryInfo\0")
            .ok()?;
        get(device, &raw mut memory)
    };
    (result == 0).then_some(memory.free)
}

/// `nvmlDevice_t`
type Handle = *mut c_void;

/// `nvmlMemory_t`, in bytes.
#[derive(Default)]
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// Finds GPU number `ordinal`.
fn find(library: &Library, ordinal: usize) -> Option<Handle> {
    let address = pci_address(ordinal)?;
    let mut device: Handle = null_mut();
    // SAFETY: the type is that of NVML's header; the address ends with a zero, and `device` lives during the call.
    let found = unsafe {
        let find = library
            .get::<unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int>(
                b"nvmlDeviceGetHandleByPciBusId_v2\0",
            )
            .ok()?;
        find(address.as_ptr(), &raw mut device)
    };
    (found == 0).then_some(device)
}

/// Loads and initialises the library, once for the process.
fn library() -> Option<&'static Library> {
    static LIBRARY_LOADED: OnceLock<Option<Library>> = OnceLock::new();
    let load = || {
        // SAFETY: the driver's library has no constructors with conditions; `nvmlInit_v2` takes nothing.
        unsafe {
            let library = Library::new(LIBRARY).ok()?;
            let init = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            (init() == 0).then_some(library)
        }
    };
    LIBRARY_LOADED.get_or_init(load).as_ref()
}

/// Calls a function that writes one number.
fn number(library: &Library, name: &[u8], device: Handle) -> Option<u32> {
    let mut value: c_uint = 0;
    // SAFETY: all functions read this way have this type in NVML's header; `value` lives during the call.
    let result = unsafe {
        let get = library.get::<unsafe extern "C" fn(Handle, *mut c_uint) -> c_int>(name).ok()?;
        get(device, &raw mut value)
    };
    (result == 0).then_some(value)
}

/// Calls a function that writes one number of several.
fn number_of(library: &Library, name: &[u8], device: Handle, which: c_uint) -> Option<u32> {
    type Get = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_int;
    let mut value: c_uint = 0;
    // SAFETY: as in `number`, with a number before the address.
    let result = unsafe {
        let get = library.get::<Get>(name).ok()?;
        get(device, which, &raw mut value)
    };
    (result == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_gpu_that_does_not_exist_is_none() {
        assert_eq!(GpuState::read(usize::MAX), None);
        assert_eq!(GpuState::read(4096), None);
        assert_eq!(free_bytes(4096), None);
    }
}
