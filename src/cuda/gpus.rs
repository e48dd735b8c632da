//! GPUs of this machine, without opening them.
#![allow(unsafe_code)] // calls of the driver

use super::CudaError;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{result, sys};
use fxgraph_core::gpu::Properties;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Initialises the CUDA driver once.
fn driver() -> Result<(), CudaError> {
    static DRIVER: OnceLock<Result<(), CudaError>> = OnceLock::new();
    let ask = || {
        // SAFETY: the call loads the library and unloads it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().map_err(CudaError::driver("initialising the CUDA driver"))
    };
    DRIVER.get_or_init(ask).clone()
}

/// Returns the number of GPUs of this machine.
///
/// # Errors
/// If there is no CUDA driver, or if it fails.
pub fn count() -> Result<usize, CudaError> {
    driver()?;
    match result::device::get_count() {
        Ok(count) => Ok(count.max(0) as usize),
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Ok(0),
        Err(error) => Err(CudaError::driver("counting the GPUs")(error)),
    }
}

/// Returns the properties of GPU number `ordinal`, without opening it.
///
/// # Errors
/// If there is no CUDA driver or no such GPU.
pub fn properties(ordinal: usize) -> Result<Properties, CudaError> {
    let count = count()?;
    if ordinal >= count {
        return Err(CudaError::NoDevice { ordinal, count });
    }
    let failed = CudaError::driver("querying the GPU's properties");
    let device = result::device::get(ordinal as i32).map_err(&failed)?;
    // SAFETY: the driver has just given the device.
    let size = |attribute| match unsafe { result::device::get_attribute(device, attribute) } {
        Ok(value) => Ok(value.max(0) as usize),
        Err(error) => Err(failed(error)),
    };
    Ok(Properties {
        name: result::device::get_name(device).map_err(&failed)?,
        capability: (
            size(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            size(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: size(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        // SAFETY: `device` is a device of the initialised driver.
        memory_bytes: unsafe { result::device::total_mem(device) }.map_err(&failed)?,
        shared_bytes_per_block: size(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        )?,
        shared_bytes_per_multiprocessor: size(
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        )?,
        l2_bytes: size(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
    })
}

/// Returns the PCI address of GPU number `ordinal`, such as `0000:1B:00.0`; `None` if there is no such GPU. Other
/// libraries count GPUs in another order, but know them by this address.
pub(super) fn pci_address(ordinal: usize) -> Option<CString> {
    driver().ok()?;
    let device = result::device::get(i32::try_from(ordinal).ok()?).ok()?;
    let mut text = [0_u8; 32];
    // SAFETY: the driver writes at most the given number of bytes, with a terminating zero.
    let asked =
        unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, device) };
    asked.result().ok()?;
    Some(CStr::from_bytes_until_nul(&text).ok()?.to_owned())
}

/// Connection over which a GPU reads the memory of another GPU of the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// NVLink.
    NvLink,
    /// The PCIe bus, without the host's memory.
    Pcie,
}

impl Link {
    /// Name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink",
            Self::Pcie => "PCIe",
        }
    }
}

/// Returns the link over which GPU `reader` reads the memory of GPU `writer`; `None` if frames must go through the
/// host's memory. Opens neither GPU.
#[must_use]
pub fn link(writer: usize, reader: usize) -> Option<Link> {
    driver().ok()?;
    let [from, to] = [writer, reader].map(|ordinal| result::device::get(ordinal as i32).ok());
    let (from, to) = (from?, to?);
    let has = |attribute| {
        let mut value = 0;
        // SAFETY: the driver has just given both devices; `value` lives during the call.
        let asked = unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, attribute, to, from) };
        asked.result().is_ok() && value != 0
    };
    if !has(sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED) {
        return None;
    }
    // Only NVLink carries atomic operations between the memories of two GPUs.
    let is_nvlink =
        has(sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
    Some(if is_nvlink { Link::NvLink } else { Link::Pcie })
}
