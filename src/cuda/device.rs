//! Opened GPUs.
#![allow(unsafe_code)] // calls of the driver, whose handles this file owns

use super::gpus::properties;
use super::kernel::Program;
use super::status::{self, AtWork, Status};
use super::{CudaError, Tuning, calls, nvml};
use cudarc::driver::{CudaContext, result, sys};
use fxgraph_core::Env;
use fxgraph_core::error::{BlockError, SharedFault};
use fxgraph_core::gpu::{Properties, Tunable};
use fxgraph_core::lock::lock;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
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
    /// First kernel that exceeded its time limit, as text. The driver cannot end a kernel without the CUDA context, so
    /// that nothing waits for the GPU any more, and what would wait is left to the end of the process.
    stuck: OnceLock<String>,
    tuning: Mutex<Arc<Tuning>>,
}

/// Calls `look` with the state of each block on the device from time to time; ends with the device. Blocks that are woken
/// detect what has happened: the driver runs no callbacks then.
fn watch(device: &Weak<Device>, look: impl Fn(&Device, &[Arc<Status>])) {
    loop {
        std::thread::sleep(WATCH_PERIOD);
        let Some(device) = device.upgrade() else { return };
        let statuses: Vec<_> = lock(&device.statuses).iter().filter_map(Weak::upgrade).collect();
        look(&device, &statuses);
    }
}

/// Wakes the blocks whose kernels exceed their time limits. It calls nothing of the driver, which may hold a call up until a
/// kernel ends.
fn wake_overdue(device: &Device, statuses: &[Arc<Status>]) {
    for status in statuses {
        if let Some(why) = status.look(Instant::now()) {
            device.stuck.get_or_init(|| format!("cuda:{} is stuck: {why}", device.ordinal));
            status.waker.wake();
        }
    }
}

/// Wakes all blocks if the device has failed.
fn wake_failed(device: &Device, statuses: &[Arc<Status>]) {
    if device.bind().and_then(|()| device.free_bytes()).is_err() {
        statuses.iter().for_each(|status| status.waker.wake());
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
            stuck: OnceLock::new(),
            tuning: Mutex::default(),
        });
        opened.push(Arc::downgrade(&device));
        let (limited, failing) = (Arc::downgrade(&device), Arc::downgrade(&device));
        std::thread::spawn(move || watch(&limited, wake_overdue));
        std::thread::spawn(move || watch(&failing, wake_failed));
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
        self.properties.architecture()
    }

    /// Returns an error if a kernel has exceeded its time limit: calls that wait for the device would wait for it.
    pub fn reject_stuck(&self) -> Result<(), CudaError> {
        self.stuck.get().map_or(Ok(()), |why| Err(CudaError::Stuck { why: why.clone() }))
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
        self.reject_stuck()?;
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

impl Drop for Device {
    fn drop(&mut self) {
        if self.reject_stuck().is_err() {
            // To destroy the context, the driver waits for all kernels.
            std::mem::forget(Arc::clone(&self.context));
        }
    }
}

impl From<CudaError> for BlockError {
    fn from(error: CudaError) -> Self {
        // Libraries report a fault of the device as one of their own, so that the device is asked.
        let has_failed = |device: &Arc<Device>| match &error {
            CudaError::Library { .. } => device.free_bytes().is_err_and(|error| error.is_sticky()),
            other => other.is_sticky(),
        };
        match Device::selected().filter(has_failed) {
            Some(device) => device.fault(error),
            None => Self::new(error.to_string()),
        }
    }
}
