//! Compiled programs, their kernels, and launches.
#![allow(unsafe_code)] // launches, whose arguments only the caller can check

use super::compile::{compile_cached, included};
use super::{CudaError, Device};
use cudarc::driver::{result, sys};
use fxgraph_core::files::{open_regular, read_text};
use fxgraph_core::gpu::{Defines, ProgramSource, Source};
use fxgraph_core::lock::lock;
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest file with an edited kernel.
const MAX_BYTES: u64 = 16 << 20;
/// Largest number of arguments of a kernel.
const MAX_ARGUMENTS: usize = 32;
/// Shared memory available to a kernel without setting an attribute, in bytes.
const FREE_SHARED_BYTES: usize = 48 << 10;

/// A program compiled for one device. Its source may be replaced while kernels run.
pub struct Program {
    device: Arc<Device>,
    source: Source,
    headers: Vec<Source>,
    defines: Vec<(&'static str, String)>,
    /// The newest module is last. Older ones stay loaded, because their kernels may still run.
    modules: Mutex<Vec<Module>>,
    /// Incremented with each module.
    generation: AtomicU64,
}

struct Module(sys::CUmodule);

// SAFETY: a module is a handle that any thread may use.
unsafe impl Send for Module {}

impl Program {
    /// Compiles `source` for `device`, with `defines` as macros, or takes the result from the user's cache of
    /// compiled programs.
    ///
    /// # Errors
    /// If the GPU lacks the required compute capability, or if the source cannot be compiled or loaded.
    pub fn compile(
        source: &ProgramSource,
        device: &Arc<Device>,
        defines: Defines,
    ) -> Result<Arc<Self>, CudaError> {
        let capability = device.properties().capability;
        if !source.needs.fits(capability) {
            let (name, needed) = (source.source.name.to_string(), source.needs.text());
            let found = format!("{}.{}", capability.0, capability.1);
            return Err(CudaError::Capability { name, needed, found });
        }
        let program = Arc::new(Self {
            device: Arc::clone(device),
            source: source.source.clone(),
            headers: source.headers.to_vec(),
            defines,
            modules: Mutex::default(),
            generation: AtomicU64::new(0),
        });
        program.reload()?;
        device.keep_program(&program);
        Ok(program)
    }

    /// File name of the source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// Compiles the program again, with files of the kernel directory in place of its embedded source and headers;
    /// the next launches use the result. If it does not compile, launches continue with the old result.
    ///
    /// # Errors
    /// If the source cannot be compiled or loaded.
    pub fn reload(&self) -> Result<(), CudaError> {
        let (source, headers) = self.sources();
        let architecture = self.device.architecture();
        let cubin = compile_cached(&source, &headers, &architecture, &self.defines)?;
        self.device.reject_stuck()?;
        self.device.bind()?;
        // SAFETY: the driver copies the image, which is whole.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }
            .map_err(CudaError::driver("loading a kernel"))?;
        // Constants of the program are copied on a stream for which CUDA pipelines do not wait.
        self.device.synchronise()?;
        lock(&self.modules).push(Module(module));
        if self.generation.fetch_add(1, Ordering::Release) > 0 {
            self.device.note_replaced(&source.name);
        }
        Ok(())
    }

    /// Returns the source and the headers that it includes, from the kernel directory where that has them.
    fn sources(&self) -> (Source, Vec<Source>) {
        let directory = self.device.kernel_directory();
        let edited = |source: &Source| match &directory {
            Some(directory) => edited(directory, source),
            None => source.clone(),
        };
        let source = edited(&self.source);
        let headers: Vec<Source> = self.headers.iter().map(edited).collect();
        let headers = included(&source, &headers).into_iter().cloned().collect();
        (source, headers)
    }

    /// Whether the source or one of its headers has this file name.
    #[must_use]
    pub fn uses(&self, file: &str) -> bool {
        let (source, headers) = self.sources();
        std::iter::once(&source).chain(&headers).any(|source| source.name == file)
    }

    /// Returns the kernel `name`, launched with `shared_bytes` of dynamic shared memory.
    ///
    /// # Errors
    /// If the program has no such kernel, or if the GPU has less shared memory.
    pub fn kernel(self: &Arc<Self>, name: &str, shared_bytes: usize) -> Result<Kernel, CudaError> {
        let mut kernel = Kernel {
            program: Arc::clone(self),
            name: name.to_owned(),
            shared_bytes,
            function: Function(std::ptr::null_mut()),
            generation: 0,
        };
        kernel.refresh()?;
        Ok(kernel)
    }
}

/// Returns `source` with the text of the file with its name in `directory` or a subdirectory, if there is one.
fn edited(directory: &Path, source: &Source) -> Source {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories =
        std::iter::once(directory.to_owned()).chain(entries.map(|entry| entry.path()));
    let mut texts = directories.map(|directory| {
        open_regular(&directory.join(&*source.name)).and_then(|file| read_text(file, MAX_BYTES))
    });
    match texts.find_map(Result::ok) {
        Some(text) => Source { text: text.into(), ..source.clone() },
        None => source.clone(),
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let modules = self.modules.get_mut().unwrap_or_else(PoisonError::into_inner);
        // To unload a module, the driver waits for all kernels.
        if self.device.reject_stuck().is_ok() && self.device.bind().is_ok() {
            for Module(module) in modules.drain(..) {
                // SAFETY: kernels keep their program, and CUDA pipelines wait for their work before they are dropped.
                let _ = unsafe { result::module::unload(module) };
            }
        }
    }
}

struct Function(sys::CUfunction);

// SAFETY: a function is a handle that any thread may use.
unsafe impl Send for Function {}
// SAFETY: launches do not change the function.
unsafe impl Sync for Function {}

/// A kernel of a program, ready to launch.
pub struct Kernel {
    program: Arc<Program>,
    name: String,
    shared_bytes: usize,
    function: Function,
    /// Generation of the module of `function`.
    generation: u64,
}

/// Grid and thread block dimensions of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of thread blocks in x, y and z.
    pub blocks: [usize; 3],
    /// Number of threads of each thread block in x, y and z.
    pub threads: [usize; 3],
}

impl Grid {
    /// Creates a grid of `blocks` thread blocks in x, y and z, of `threads` threads in x.
    #[must_use]
    pub fn new(blocks: [usize; 3], threads: usize) -> Self {
        Self { blocks, threads: [threads, 1, 1] }
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A number or an address of up to 8 bytes.
    Word([u8; 8]),
    /// A structure by value, such as a tensor map.
    Bytes(&'a [u8]),
}

macro_rules! word {
    ($($number:ty),*) => {$(
        impl From<$number> for Arg<'_> {
            fn from(number: $number) -> Self {
                let mut word = [0; 8];
                // CUDA devices and their hosts are little-endian.
                word[..size_of::<$number>()].copy_from_slice(&number.to_le_bytes());
                Self::Word(word)
            }
        }
    )*};
}
word!(u64, i64, u32, i32, f32, f64);

impl Kernel {
    /// Switches to the newest module, if there is a newer one.
    fn refresh(&mut self) -> Result<(), CudaError> {
        let generation = self.program.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return Ok(());
        }
        let no_kernel = || CudaError::NoKernel {
            program: self.program.source.name.to_string(),
            kernel: self.name.clone(),
        };
        let modules = lock(&self.program.modules);
        let Some(Module(module)) = modules.last() else { return Err(no_kernel()) };
        let name = CString::new(self.name.as_str()).map_err(|_| no_kernel())?;
        self.program.device.bind()?;
        // SAFETY: the module is loaded as long as the program lives.
        let function =
            unsafe { result::module::get_function(*module, name) }.map_err(|_| no_kernel())?;
        // Querying an attribute makes the driver load the function now, not at its first launch.
        let registers = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the function is the module's.
        unsafe { result::function::get_function_attribute(function, registers) }
            .map_err(CudaError::driver("loading a kernel"))?;
        if self.shared_bytes > FREE_SHARED_BYTES {
            let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is the module's.
            let set = unsafe {
                result::function::set_function_attribute(function, most, self.shared_bytes as i32)
            };
            set.map_err(CudaError::driver("setting the shared memory of a kernel"))?;
        }
        drop(modules);
        (self.function, self.generation) = (Function(function), generation);
        Ok(())
    }

    /// Number of thread blocks of `threads` threads that fit on one multiprocessor at a time.
    pub fn blocks_per_multiprocessor(&self, threads: usize) -> Result<usize, CudaError> {
        self.program.device.bind()?;
        // SAFETY: the function is loaded.
        let blocks = unsafe {
            result::occupancy::max_active_block_per_multiprocessor(
                self.function.0,
                threads as i32,
                self.shared_bytes,
            )
        };
        blocks
            .map(|blocks| blocks.max(0) as usize)
            .map_err(CudaError::driver("querying the occupancy of a kernel"))
    }

    /// Queues the kernel on `stream`.
    ///
    /// # Safety
    /// `arguments` must be those of the kernel, in number, order and size, and every address must
    /// stay valid until the kernel has run: a [`Pipeline`](super::Pipeline)'s job keeps the frames.
    pub unsafe fn launch(
        &mut self,
        stream: sys::CUstream,
        grid: Grid,
        arguments: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        self.refresh()?;
        if arguments.len() > MAX_ARGUMENTS {
            let reason = format!("{} arguments, the limit is {MAX_ARGUMENTS}", arguments.len());
            return Err(CudaError::Library { what: "launching a kernel", reason });
        }
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            let bytes: &[u8] = match argument {
                Arg::Word(word) => word,
                Arg::Bytes(bytes) => bytes,
            };
            *pointer = bytes.as_ptr().cast_mut().cast();
        }
        let [blocks, threads] = [grid.blocks, grid.threads].map(|n| n.map(|n| n as u32).into());
        // SAFETY: the arguments are the caller's promise.
        let launched = unsafe {
            result::launch_kernel(
                self.function.0,
                blocks,
                threads,
                self.shared_bytes as u32,
                stream,
                &mut pointers[..arguments.len()],
            )
        };
        launched.map_err(CudaError::driver("launching a kernel"))
    }
}
