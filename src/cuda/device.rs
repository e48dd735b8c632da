//! Opened GPUs.
#![allow(unsafe_code)] // calls of the driver, whose handles this file owns

use super::kernel::Program;
use super::status::{self, AtWork, Status};
use super::{CudaError, Tuning, calls, nvml};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use cudarc::driver::{CudaContext, result, sys};
use fxgraph_core::Env;
use fxgraph_core::error::{BlockError, SharedFault};
use fxgraph_core::gpu::{Properties, Tunable};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Memory that a CUDA context takes on a GPU in bytes, where it was not measured.
pub const CONTEXT_BYTES: usize = 560 << 20;
/// Plausible sizes of a context in bytes. Another program may allocate or free memory while a context is opened.
const PLAUSIBLE_CONTEXT: std::ops::RangeInclusive<u64> = 64 << 20..=4 << 30;

/// Measured sizes of contexts in bytes, by the number of the GPU.
static CONTEXTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Memory of the CUDA context of this process on GPU number `ordinal`, in bytes: the difference of the free memory before
/// and after it was opened, or [`CONTEXT_BYTES`] if it has not been opened.
#[must_use]
pub fn context_bytes(ordinal: usize) -> usize {
    lock(&CONTEXTS).get(&ordinal).copied().unwrap_or(CONTEXT_BYTES)
}

/// GPUs that are open.
static OPENED: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of the GPU that the thread's calls of the driver go to.
    static SELECTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Opens a context on GPU number `ordinal` and notes its size.
fn open_context(ordinal: usize) -> Result<Arc<CudaContext>, CudaError> {
    let before = nvml::free_bytes(ordinal);
    let context = CudaContext::new(ordinal).map_err(CudaError::driver("opening the GPU"))?;
    let taken = before.zip(nvml::free_bytes(ordinal)).map(|(was, is)| was.saturating_sub(is));
    if let Some(bytes) = taken.filter(|bytes| PLAUSIBLE_CONTEXT.contains(bytes)) {
        tracing::debug!(ordinal, bytes, "size of the CUDA context");
        lock(&CONTEXTS).insert(ordinal, bytes as usize);
    }
    Ok(context)
}

/// Time within which sources of kernels are replaced together, as by a header that several of them include.
const TOGETHER: Duration = Duration::from_secs(10);
/// Interval between checks whether a device still works.
const WATCH_PERIOD: Duration = Duration::from_millis(300);

/// An opened GPU; all blocks on one GPU share it.
pub struct Device {
    ordinal: usize,
    context: Arc<CudaContext>,
    properties: Properties,
    /// State of each CUDA pipeline, for error messages.
    statuses: Mutex<Vec<Weak<Status>>>,
    /// Programs in use, for reloading edited sources.
    programs: Mutex<Vec<Weak<Program>>>,
    kernel_directory: Mutex<Option<PathBuf>>,
    /// Sources of kernels that were replaced last, and when.
    replaced: Mutex<Vec<(Instant, String)>>,
    /// First fault after which the GPU cannot be used any more.
    fault: OnceLock<(String, SharedFault)>,
    tuning: Mutex<Arc<Tuning>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// Wakes the blocks on a device that has failed, so that they detect the failure: after a fault, the driver runs no
/// callbacks. Ends with the device.
fn watch(device: &Weak<Device>) {
    loop {
        std::thread::sleep(WATCH_PERIOD);
        let Some(device) = device.upgrade() else { return };
        if device.bind().and_then(|()| device.free_bytes()).is_err() {
            let statuses: Vec<_> =
                lock(&device.statuses).iter().filter_map(Weak::upgrade).collect();
            statuses.iter().for_each(|status| status.waker.wake());
        }
    }
}

impl Device {
    /// Opens GPU number `ordinal`, or returns it if it is open already.
    ///
    /// # Errors
    /// If there is no CUDA driver or no such GPU, or if it cannot be opened.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        let properties = properties(ordinal)?;
        let mut opened = lock(&OPENED);
        opened.retain(|device| device.strong_count() > 0);
        let known = opened.iter().filter_map(Weak::upgrade).find(|d| d.ordinal == ordinal);
        if let Some(device) = known {
            return Ok(device);
        }
        let context = open_context(ordinal)?;
        let device = Arc::new(Self {
            ordinal,
            context,
            properties,
            statuses: Mutex::default(),
            programs: Mutex::default(),
            kernel_directory: Mutex::default(),
            replaced: Mutex::default(),
            fault: OnceLock::new(),
            tuning: Mutex::default(),
        });
        opened.push(Arc::downgrade(&device));
        let watched = Arc::downgrade(&device);
        std::thread::spawn(move || watch(&watched));
        Ok(device)
    }

    /// Returns the device of a block's environment, if any.
    #[must_use]
    pub fn of(env: &Env) -> Option<Arc<Self>> {
        env.device.clone()?.downcast().ok()
    }

    /// Properties of the GPU.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Number of the GPU.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Free memory in bytes.
    pub fn free_bytes(&self) -> Result<usize, CudaError> {
        let info = self.context.mem_get_info();
        info.map(|(free, _)| free).map_err(CudaError::driver("querying the GPU's free memory"))
    }

    /// NVRTC's name of the architecture, for example `sm_90a`. Instructions specific to Hopper need the `a`.
    #[must_use]
    pub fn architecture(&self) -> String {
        let (major, minor) = self.properties.capability;
        let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
        format!("sm_{major}{minor}{suffix}")
    }

    /// Selects this device for the following driver calls of the calling thread.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        SELECTED.set(Some(self.ordinal));
        // SAFETY: the context lives as long as `self`.
        let bound = unsafe { result::ctx::set_current(self.context.cu_ctx()) };
        bound.map_err(CudaError::driver("selecting the GPU"))
    }

    /// Lets this device read the memory of `writer`, also memory that `writer` allocates later.
    pub(crate) fn read_memory_of(&self, writer: &Self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: both contexts live as long as their devices.
        let enabled = unsafe { sys::cuCtxEnablePeerAccess(writer.context.cu_ctx(), 0) };
        if enabled == sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
            return Ok(());
        }
        CudaError::check("opening the memory of another GPU", enabled)
    }

    /// Waits until the device has finished all work. For the start and end of a run, and for tests.
    pub fn synchronise(&self) -> Result<(), CudaError> {
        calls::count_wait();
        self.bind()?;
        result::ctx::synchronize().map_err(CudaError::driver("waiting for the GPU"))
    }

    /// Sets a directory whose files replace the embedded sources of kernels.
    pub fn set_kernel_directory(&self, directory: Option<&Path>) {
        *lock(&self.kernel_directory) = directory.map(Path::to_owned);
    }

    pub(crate) fn kernel_directory(&self) -> Option<PathBuf> {
        lock(&self.kernel_directory).clone()
    }

    /// Sets the launch configurations of kernels that are created from now on.
    pub fn set_tuning(&self, tuning: Arc<Tuning>) {
        *lock(&self.tuning) = tuning;
    }

    /// Returns the number of the fastest measured launch configuration of `tunable` on this GPU, or 0 if it was not
    /// measured.
    #[must_use]
    pub fn chosen(&self, tunable: &Tunable) -> usize {
        let tuning = Arc::clone(&lock(&self.tuning));
        let chosen = tuning.get(&self.properties.name, tunable);
        let is_chosen = |way: usize| chosen.is_some_and(|c| c.geometry == tunable.way_text(way));
        (0..tunable.ways.len()).find(|way| is_chosen(*way)).unwrap_or(0)
    }

    pub(crate) fn keep_program(&self, program: &Arc<Program>) {
        let mut programs = lock(&self.programs);
        programs.retain(|program| program.strong_count() > 0);
        programs.push(Arc::downgrade(program));
    }

    /// Programs in use.
    #[must_use]
    pub fn programs(&self) -> Vec<Arc<Program>> {
        lock(&self.programs).iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn keep_status(&self, status: &Arc<Status>) {
        let mut statuses = lock(&self.statuses);
        statuses.retain(|status| status.strong_count() > 0);
        statuses.push(Arc::downgrade(status));
    }

    /// Returns the first unfinished job of each CUDA pipeline.
    fn at_work(&self) -> Vec<AtWork> {
        let statuses: Vec<_> = lock(&self.statuses).iter().filter_map(Weak::upgrade).collect();
        statuses.iter().filter_map(|status| status.at_work()).collect()
    }

    /// Notes that the source `name` of kernels was replaced.
    pub(super) fn note_replaced(&self, name: &str) {
        let mut replaced = lock(&self.replaced);
        replaced.retain(|(when, known)| when.elapsed() < TOGETHER && known != name);
        replaced.push((Instant::now(), name.to_owned()));
    }

    /// Returns the GPU that the thread's calls of the driver go to.
    pub(crate) fn selected() -> Option<Arc<Self>> {
        let ordinal = SELECTED.get()?;
        lock(&OPENED).iter().filter_map(Weak::upgrade).find(|device| device.ordinal == ordinal)
    }

    /// Error of a block on a GPU that has failed. The text is that of the first call: all blocks of the GPU report the
    /// same fault.
    pub fn fault(&self, error: CudaError) -> BlockError {
        let (text, fault) = self.fault.get_or_init(|| {
            let replaced = lock(&self.replaced);
            let ago = replaced.last().map(|(when, _)| when.elapsed()).unwrap_or_default();
            let names: Vec<&str> = replaced.iter().map(|(_, name)| name.as_str()).collect();
            let of = format!("cuda:{}", self.ordinal);
            let (text, block) = status::text(&of, &self.at_work(), &names, ago);
            (text, SharedFault { of, block })
        });
        BlockError::new(text).because(error).shared(fault.clone())
    }
}
