//! Compilation of a kernel before the start.

use super::Kernel;
use super::declaration::Problem;
use super::file::KernelFile;
use super::layout::Layout;
use fxgraph::cuda::{CudaError, Source, precompile};
use fxgraph::diagnostic::codes;
use fxgraph::gpu::Properties;
use fxgraph::{At, Configured, Rejection};
use fxgraph_kernels::HEADERS;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

/// Architecture for which a kernel is compiled on a machine without a GPU.
const ANY_ARCHITECTURE: &str = "sm_80";
/// Largest number of compiler errors that are shown.
const MOST_ERRORS: usize = 8;

/// Most bytes of the variables of a file, which the plan does not count.
const MAX_VARIABLE_BYTES: u64 = 64 << 20;
/// Time limit for a compilation: templates that use each other may take for ever, and nothing interrupts NVRTC.
const LIMIT: Duration = Duration::from_mins(1);
/// Largest number of compilations that go on after the limit.
const MOST_GIVEN_UP: usize = 4;
static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);

/// Compiles the kernel for `gpu`, or for any GPU. Returns the errors of the compiler at their lines.
pub fn problems(block: &Configured<Kernel>, gpu: Option<&Properties>) -> Vec<Rejection> {
    let Layout { file, source, shared_bytes, .. } = &block.shape;
    if let Some(gpu) = gpu.filter(|gpu| *shared_bytes > gpu.shared_bytes_per_block) {
        let most = gpu.shared_bytes_per_block;
        let message = format!(
            "a thread block on {} must have at most {most} bytes of shared memory, got {shared_bytes}",
            gpu.name
        );
        return vec![file.rejection(file.declared.problem("launch.shared_bytes", message))];
    }
    let architecture = gpu.map_or_else(|| ANY_ARCHITECTURE.to_owned(), Properties::architecture);
    let compiled = match compiled(source, architecture, LIMIT) {
        Ok(compiled) => compiled,
        Err(problem) => return vec![file.rejection(problem)],
    };
    match compiled {
        Ok(cubin) if !has_kernel(&cubin, &file.kernel) => {
            let message = format!("the file must have the kernel `{}`", file.kernel);
            let line = line_with(&file.text, "__global__");
            let problem = Problem { line, ..Problem::of_file(message) };
            let help = format!("write `__global__ void {}(Fx fx) {{ ... }}`", file.kernel);
            vec![file.rejection(problem.help(help))]
        }
        Ok(cubin) => {
            let bytes = variable_bytes(&cubin);
            let problem = || {
                let message = format!(
                    "the variables of the file must have at most {MAX_VARIABLE_BYTES} bytes, got {bytes}"
                );
                let line = line_with(&file.text, "__device__");
                let problem = Problem { line, ..Problem::of_file(message) };
                problem.help("declare `buffers`, which the plan counts")
            };
            (bytes > MAX_VARIABLE_BYTES).then(|| file.rejection(problem())).into_iter().collect()
        }
        Err(CudaError::Compile { log, .. }) => {
            errors(file, &log).map(|problem| file.rejection(problem)).collect()
        }
        Err(error) => vec![not_compiled(file, &error).help("install the CUDA toolkit")],
    }
}

/// Result of a compilation in a thread of its own, which goes on after `limit`.
pub fn compiled(
    source: &Source,
    architecture: String,
    limit: Duration,
) -> Result<Result<Vec<u8>, CudaError>, Problem> {
    if GIVEN_UP.load(Relaxed) >= MOST_GIVEN_UP {
        let message = format!("{MOST_GIVEN_UP} compilations go on after their time limit");
        return Err(Problem::of_file(message).help("end the program, and correct these files"));
    }
    // Without room: a result is received, or returned as an error.
    let (sender, receiver) = sync_channel(0);
    let source = source.clone();
    let work = move || {
        // Nobody waits for a result after the limit.
        if sender.send(precompile(&source, HEADERS, &architecture)).is_err() {
            GIVEN_UP.fetch_sub(1, Relaxed);
        }
    };
    let thread = thread::Builder::new().name("compile".to_owned()).spawn(work);
    thread.map_err(|why| Problem::of_file(format!("cannot compile: {why}")))?;
    // Counted before the receiver is dropped, after which the thread counts itself out.
    receiver.recv_timeout(limit).map_err(|_| {
        GIVEN_UP.fetch_add(1, Relaxed);
        let seconds = limit.as_secs_f64();
        let message = format!("the file must compile within {seconds} s, and the compiler goes on");
        Problem::of_file(message).help("remove templates that use each other without an end")
    })
}

/// Warning on a machine without NVRTC.
pub fn warning(block: &Configured<Kernel>) -> Option<Rejection> {
    fxgraph::cuda::compiler_version().err().map(|error| {
        let rejection = not_compiled(&block.shape.file, &error);
        Rejection { code: codes::IMPLAUSIBLE, ..rejection }
            .label("only the reference was checked")
            .help("install the CUDA toolkit, or check the flowgraph on a machine with a GPU")
    })
}

fn not_compiled(file: &KernelFile, error: &CudaError) -> Rejection {
    let message = format!("`{}` was not compiled: {error}", file.name);
    Rejection::new(codes::IMPLEMENTATION, At::Parameter(file.parameter), message)
}

/// Number of the first line with `word`.
fn line_with(text: &str, word: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(word)).map(|line| line + 1)
}

/// Size of all variables that the machine code defines, in bytes: of the symbols of the type `STT_OBJECT` of ELF. The sizes of
/// its sections are those of 32 bits.
fn variable_bytes(cubin: &[u8]) -> u64 {
    const SYMBOLS: u64 = 2;
    const OBJECT: u64 = 1;
    const SYMBOL_BYTES: usize = 24;
    let number = |at: usize, bytes: usize| {
        let bytes = cubin.get(at..at.checked_add(bytes)?)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    // Start and size of the section with the symbols.
    let section = |n: u64| {
        let (start, size) = (number(0x28, 8)?, number(0x3a, 2)?);
        let at = usize::try_from(start.checked_add(n * size)?).ok()?;
        let place = |of: usize| usize::try_from(number(at.checked_add(of)?, 8)?).ok();
        (number(at.checked_add(4)?, 4)? == SYMBOLS).then_some((place(0x18)?, place(0x20)?))
    };
    let symbol = |at: usize| {
        let is_object = number(at.checked_add(4)?, 1)? & 0xf == OBJECT;
        number(at.checked_add(16)?, 8).filter(|_| is_object)
    };
    let symbols =
        (0..number(0x3c, 2).unwrap_or(0)).filter_map(section).flat_map(|(start, size)| {
            (0..size.min(cubin.len()) / SYMBOL_BYTES)
                .map(move |n| start.saturating_add(n * SYMBOL_BYTES))
        });
    symbols.filter_map(symbol).fold(0, u64::saturating_add)
}

/// Whether the machine code has the kernel: a section of its name.
fn has_kernel(cubin: &[u8], kernel: &str) -> bool {
    let section = format!(".text.{kernel}\0");
    cubin.windows(section.len()).any(|window| window == section.as_bytes())
}

/// The errors in the compiler's log, such as `gain.cu(12): error: expected a ";"`.
pub fn errors(file: &KernelFile, log: &str) -> impl Iterator<Item = Problem> {
    let error = |line: &str| {
        let (number, message) =
            line.strip_prefix(&*file.name)?.strip_prefix('(')?.split_once("): ")?;
        let (_, message) = message.split_once("error")?;
        let message = message.trim_start_matches(|c| c != ' ').trim();
        Some(Problem { line: number.parse().ok(), ..Problem::of_file(message) })
    };
    // A zero byte is before the messages of the assembler.
    let mut lines = log.split(['\n', '\0']);
    let mut found: Vec<Problem> = lines.clone().filter_map(error).take(MOST_ERRORS).collect();
    if found.is_empty() {
        // An error in a header, or of the assembler.
        let first = lines.find(|line| line.contains("error")).unwrap_or(log);
        found.push(Problem::of_file(format!("the kernel does not compile: {first:.300}")));
    }
    found.into_iter()
}
