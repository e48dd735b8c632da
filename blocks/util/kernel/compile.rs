//! Compilation of a kernel before the start.

use super::Kernel;
use super::declaration::Problem;
use super::file::KernelFile;
use super::layout::Layout;
use fxgraph::cuda::{CudaError, precompile};
use fxgraph::diagnostic::codes;
use fxgraph::gpu::Properties;
use fxgraph::{At, Configured, Rejection};
use fxgraph_kernels::HEADERS;

/// Architecture for which a kernel is compiled on a machine without a GPU.
const ANY_ARCHITECTURE: &str = "sm_80";
/// Largest number of compiler errors that are shown.
const MOST_ERRORS: usize = 8;

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
    match precompile(source, HEADERS, &architecture) {
        Ok(cubin) if has_kernel(&cubin, &file.kernel) => Vec::new(),
        Ok(_) => {
            let message = format!("the file must have the kernel `{}`", file.kernel);
            let help = format!("write `__global__ void {}(Fx fx) {{ ... }}`", file.kernel);
            vec![file.rejection(Problem::of_file(message).help(help))]
        }
        Err(CudaError::Compile { log, .. }) => {
            errors(file, &log).map(|problem| file.rejection(problem)).collect()
        }
        Err(error) => vec![not_compiled(file, &error).help("install the CUDA toolkit")],
    }
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
    let mut found: Vec<Problem> = log.lines().filter_map(error).take(MOST_ERRORS).collect();
    if found.is_empty() {
        // An error in a header, or of the assembler.
        let first = log.lines().find(|line| line.contains("error")).unwrap_or(log);
        found.push(Problem::of_file(format!("the kernel does not compile: {first:.300}")));
    }
    found.into_iter()
}
