//! The block on a GPU, with cuFFT.
#![allow(unsafe_code)] // cuFFT calls and launches on memory that the block or the job owns

use crate::common::gpu;
use crate::common::spectra::Shape;
use fxgraph::BlockError;
use fxgraph::cuda::cufft::{result, sys};
use fxgraph::cuda::{
    CudaError, Device, DeviceArray, Frames, GpuJob, GpuMap, Grid, Kernel, Pipeline,
};
use std::sync::Arc;

/// Threads per block of the kernel, and spectra per thread.
const THREADS: usize = 128;
const THREAD_SPECTRA: usize = 8;

/// The sign in the exponent.
const FORWARD: i32 = -1;

/// Batched complex transforms, forward.
struct Plan {
    handle: sys::cufftHandle,
    device: Arc<Device>,
    /// Memory that the library works in.
    _work: DeviceArray<u8>,
}

fn failed(what: &'static str) -> impl Fn(result::CufftError) -> CudaError {
    move |error| CudaError::Library { what, reason: error.to_string() }
}

impl Plan {
    /// `batch` adjacent transforms of `len` points, on the device and stream of `pipeline`.
    fn new<J>(len: usize, batch: usize, pipeline: &Pipeline<J>) -> Result<Self, CudaError> {
        // SAFETY: it loads the library and lets it go.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoLibrary {
                library: "libcufft.so",
                purpose: "makes the transforms of `fft`",
            });
        }
        let handle = result::create().map_err(failed("starting cuFFT"))?;
        let planned = Self::make(handle, len, batch, pipeline);
        if planned.is_err() {
            // SAFETY: nobody else has it.
            let _ = unsafe { result::destroy(handle) };
        }
        let plan = planned?;
        plan.warm_up(len * batch, pipeline)?;
        Ok(plan)
    }

    fn make<J>(
        handle: sys::cufftHandle,
        len: usize,
        batch: usize,
        pipeline: &Pipeline<J>,
    ) -> Result<Self, CudaError> {
        let failed = failed("planning with cuFFT");
        let (len, batch) = (len as i64, batch as i64);
        let (mut lens, mut strides_in, mut strides_out) = ([len], [len], [len]);
        // SAFETY: the handle is a plan that is not made yet; the arrays have one entry for the one
        // dimension; the work area is as large as the library asks for and lives with the plan.
        unsafe {
            result::set_auto_allocation(handle, false).map_err(&failed)?;
            let bytes = result::make_plan_many64(
                handle,
                1,
                lens.as_mut_ptr(),
                strides_in.as_mut_ptr(),
                1,
                len,
                strides_out.as_mut_ptr(),
                1,
                len,
                sys::cufftType::CUFFT_C2C,
                batch,
            )
            .map_err(&failed)?;
            let work = DeviceArray::new(pipeline.device(), bytes)?;
            result::set_work_area(handle, work.address() as *mut _).map_err(&failed)?;
            result::set_stream(handle, pipeline.stream().cast()).map_err(&failed)?;
            Ok(Self { handle, device: Arc::clone(pipeline.device()), _work: work })
        }
    }

    /// Transforms once, so that cuFFT loads its kernels before frames arrive. If there is no memory for this,
    /// the first frame takes longer.
    fn warm_up<J>(&self, points: usize, pipeline: &Pipeline<J>) -> Result<(), CudaError> {
        let memory = || DeviceArray::<[f32; 2]>::new(pipeline.device(), points);
        if let (Ok(from), Ok(to)) = (memory(), memory()) {
            // SAFETY: both arrays have all points, and live until the device has finished.
            let queued = unsafe { self.transform(from.address(), to.address()) };
            pipeline.device().synchronise()?;
            queued?;
        }
        Ok(())
    }

    /// Queues the transforms from the data at `from` to the memory at `to`.
    ///
    /// # Safety
    /// Both addresses must be valid for all points of the plan until the job is done.
    unsafe fn transform(&self, from: u64, to: u64) -> Result<(), CudaError> {
        let (from, to) = (from as *mut sys::cufftComplex, to as *mut sys::cufftComplex);
        // SAFETY: the caller guarantees the addresses; an out-of-place transform only reads its input.
        unsafe { result::exec_c2c(self.handle, from, to, FORWARD) }
            .map_err(failed("queueing transforms"))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // The library would wait for a kernel that never ends.
        if self.device.reject_stuck().is_ok() {
            // SAFETY: the handle is owned and destroyed once, after the CUDA pipeline has finished.
            let _ = unsafe { result::destroy(self.handle) };
        }
    }
}

/// Kernel of the step from complex to real transforms.
fn real_spectra(device: &Arc<Device>, shape: Shape) -> Result<Kernel, CudaError> {
    let defines = vec![("CHANNELS", shape.channels.to_string())];
    gpu::program(device, "fft.cu", defines)?.kernel("real_spectra", 0)
}

/// The running block.
pub struct Cuda {
    plan: Plan,
    /// `None` for complex samples, and with `unzip`, where `postproc` does this step.
    real_spectra: Option<Kernel>,
    shape: Shape,
}

impl Cuda {
    pub fn new(
        shape: Shape,
        is_complex: bool,
        pipeline: &Pipeline<Frames>,
    ) -> Result<Self, BlockError> {
        let batch = shape.pols * shape.spectra * shape.unzip;
        let plan = Plan::new(shape.channels / shape.unzip, batch, pipeline)?;
        let real_spectra =
            (shape.unzip == 1 && !is_complex).then(|| real_spectra(pipeline.device(), shape));
        Ok(Self { plan, real_spectra: real_spectra.transpose()?, shape })
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        job.pipeline.work()?;
        // SAFETY: the job owns both frames, which have the size of the plan; the arguments match the kernel.
        unsafe {
            self.plan.transform(job.from, job.to)?;
            if let Some(kernel) = &mut self.real_spectra {
                let spectra = self.shape.pols * self.shape.spectra;
                let of_spectra = (self.shape.channels / 2 + 1).div_ceil(THREADS);
                let blocks = of_spectra * spectra.div_ceil(THREAD_SPECTRA);
                let grid = Grid::new([blocks, 1, 1], THREADS);
                kernel.launch(
                    job.pipeline.stream(),
                    grid,
                    &[job.to.into(), (spectra as u32).into()],
                )?;
            }
        }
        Ok(())
    }
}
