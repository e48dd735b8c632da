//! Peak rates of the machine, measured in the same run.

use super::measure::Measured;
use super::state;
use crate::units;
use fxgraph::DeviceName;
use fxgraph::cuda::{Arg, Device, DeviceArray, Grid, Pipeline};
use fxgraph::{BlockError, Env};
use fxgraph_blocks::common::gpu;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds of each measurement; the result is the median.
const ROUNDS: usize = 15;
/// Bytes per copy, far above the size of caches.
const GPU_COPY_BYTES: usize = 2 << 30;
const CPU_COPY_BYTES: usize = 256 << 20;

/// Name of the machine and its peak rates.
pub struct Peaks {
    pub(super) machine: String,
    /// Bytes read and written per second by a copy within the device's memory.
    pub(super) copy_bytes_per_second: f64,
    /// 8-bit operations per second of the matrix units, if there are any.
    pub(super) matrix_operations_per_second: Option<f64>,
}

impl Peaks {
    /// Measures the peak rates of `device`.
    pub fn measure(device: DeviceName) -> Result<Self, String> {
        match device {
            DeviceName::Cpu => Ok(Self::of_processor()),
            DeviceName::Cuda(ordinal) => Self::of_gpu(ordinal).map_err(|error| error.to_string()),
        }
    }

    fn of_processor() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = state::model(&info);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let from = vec![1_u8; CPU_COPY_BYTES];
        let mut to = vec![2_u8; CPU_COPY_BYTES];
        let seconds = median(|| {
            let start = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
            start.elapsed().as_secs_f64()
        });
        Self {
            machine: format!("{name}, {cores} cores"),
            copy_bytes_per_second: 2.0 * CPU_COPY_BYTES as f64 / seconds,
            matrix_operations_per_second: None,
        }
    }

    fn of_gpu(ordinal: usize) -> Result<Self, BlockError> {
        let device = Device::open(ordinal)?;
        let copy = copy_seconds(&device)?;
        let properties = device.properties();
        Ok(Self {
            machine: properties.name.clone(),
            copy_bytes_per_second: 2.0 * GPU_COPY_BYTES as f64 / copy,
            matrix_operations_per_second: Some(matrix_operations_per_second(&device)?),
        })
    }

    /// Name of the CPU or GPU.
    pub fn machine(&self) -> String {
        self.machine.clone()
    }

    pub fn text(&self) -> String {
        let copy = units::scaled(self.copy_bytes_per_second, "B/s");
        let matrix = self.matrix_operations_per_second.map_or(String::new(), |operations| {
            format!(", matrix units {} with 8 bits", units::scaled(operations, "op/s"))
        });
        format!("copy {copy} read and written{matrix}")
    }

    pub fn json(&self) -> Value {
        json!({
            "copy_bytes_per_second": self.copy_bytes_per_second,
            "matrix_operations_per_second": self.matrix_operations_per_second,
        })
    }

    pub fn share_of_copy(&self, bytes_per_second: f64) -> f64 {
        bytes_per_second / self.copy_bytes_per_second
    }

    pub fn share_of_matrix(&self, measured: &Measured) -> Option<f64> {
        let peak = self.matrix_operations_per_second.filter(|_| measured.uses_matrix_units)?;
        Some(measured.operations_per_second / peak)
    }
}

fn median(mut once: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..ROUNDS).map(|_| once()).collect();
    all.sort_by(f64::total_cmp);
    all[ROUNDS / 2]
}

/// Median GPU time of the work that `queue` submits, measured with CUDA events.
fn device_seconds(
    device: &Arc<Device>,
    mut queue: impl FnMut(&Pipeline<()>) -> Result<(), BlockError>,
) -> Result<f64, BlockError> {
    let env = Env { device: Some(Arc::clone(device) as _), ..Env::detached("bench") };
    let mut pipeline = Pipeline::new(&env)?;
    let nanoseconds = env.counters.device_nanoseconds().clone();
    let mut all = Vec::new();
    for _ in 0..ROUNDS {
        let before = nanoseconds.get();
        pipeline.begin(0)?;
        pipeline.hold(())?;
        pipeline.work()?;
        queue(&pipeline)?;
        pipeline.submit()?;
        while pipeline.done()?.is_none() {
            std::thread::sleep(Duration::from_micros(200));
        }
        all.push((nanoseconds.get() - before) as f64 * 1e-9);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[ROUNDS / 2])
}

fn copy_seconds(device: &Arc<Device>) -> Result<f64, BlockError> {
    let from = DeviceArray::<u8>::zeros(device, GPU_COPY_BYTES)?;
    let to = DeviceArray::<u8>::new(device, GPU_COPY_BYTES)?;
    device_seconds(device, |pipeline| {
        // SAFETY: both arrays are as long as the copy and outlive the job.
        #[allow(unsafe_code, reason = "a copy between addresses")]
        unsafe {
            pipeline.copy(to.address(), from.address(), GPU_COPY_BYTES)
        }
    })
}

/// Measures the matrix units on operands that stay in shared memory and registers: an upper bound
/// for every kernel.
fn matrix_operations_per_second(device: &Arc<Device>) -> Result<f64, BlockError> {
    const THREADS: usize = 256;
    const REPEATS: u32 = 20_000;
    let is_hopper = device.properties().capability == (9, 0);
    let name = if is_hopper { "matrix_peak_hopper.cu" } else { "matrix_peak.cu" };
    let program = gpu::program(device, name, Vec::new())?;
    let mut kernel = program.kernel("matrix_peak", 0)?;
    let blocks = device.properties().multiprocessors * kernel.blocks_per_multiprocessor(THREADS)?;
    let sums = DeviceArray::<i32>::new(device, blocks * THREADS)?;
    let arguments = [Arg::from(sums.address()), REPEATS.into()];
    let seconds = device_seconds(device, |pipeline| {
        let grid = Grid::new([blocks, 1, 1], THREADS);
        // SAFETY: the kernel takes an address and a count, and writes a number for each thread.
        #[allow(unsafe_code, reason = "a launch")]
        unsafe {
            kernel.launch(pipeline.stream(), grid, &arguments)?;
        }
        Ok(())
    })?;
    // Stated in both kernel sources.
    const OPERATIONS_PER_WARP: f64 = 2.0 * 64.0 * 128.0 * 32.0;
    let warps = (blocks * THREADS / 32) as f64;
    Ok(warps * f64::from(REPEATS) * OPERATIONS_PER_WARP / seconds)
}
