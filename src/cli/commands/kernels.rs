//! `fxgraph kernels`

use crate::failure::{Failure, judge, reject_none};
use crate::flowgraph::registry;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use fxgraph::cuda::{self, CudaError, Needs, ProgramSource, Source, compile};
use fxgraph::files::{open_regular, read_text};
use fxgraph::lock::lock;
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Largest file with an edited kernel.
const MAX_BYTES: u64 = 16 << 20;

/// Compiles every GPU kernel with several sets of parameters; needs NVRTC, but no GPU
#[derive(Debug, clap::Args)]
pub struct Kernels {
    /// GPU architecture to compile for; may be given several times
    #[arg(long, value_name = "ARCH", default_values_t = [
        "sm_80".to_owned(), "sm_90a".to_owned(), "sm_120".to_owned(),
    ])]
    arch: Vec<String>,

    /// Compiles only programs whose file name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Directory with edited GPU kernels, which replace the built-in ones of the same file name
    #[arg(long = "kernels", value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Writes JSON
    #[arg(long)]
    json: bool,
}

/// One compilation.
struct Job {
    program: &'static ProgramSource,
    case: &'static str,
    architecture: String,
}

/// Resources of one kernel, from the compiler's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Usage {
    kernel: String,
    registers: usize,
    stack_bytes: usize,
    /// Spill stores and loads.
    spill_bytes: usize,
}

impl Kernels {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let failed = |error: CudaError| Failure::failed(error.to_string());
        let (major, minor) = cuda::compiler_version().map_err(failed)?;
        let jobs = self.jobs();
        reject_none(jobs.len(), "program", self.only.as_deref())?;
        let results = self.compile_all(&jobs);
        let bad = results.iter().filter(|result| result.is_err()).count();
        let written = if self.json {
            let all: Vec<_> = jobs.iter().zip(&results).map(|(job, r)| as_json(job, r)).collect();
            terminal.json(&json!({ "nvrtc": format!("{major}.{minor}"), "programs": all }))
        } else {
            terminal.results(&self.as_text(&jobs, &results, terminal)).and_then(|()| {
                let good = results.len() - bad;
                terminal
                    .results(&format!("\n{good} compiled by NVRTC {major}.{minor}, {bad} failed"))
            })
        };
        judge(if bad == 0 { Ok(()) } else { Err(Failure::Shown) }, written, terminal)
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for program in registry().programs() {
            let name = &program.source.name;
            if self.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
                continue;
            }
            let runs_on = |arch: &&String| match program.needs {
                Needs::Ampere => true,
                Needs::Hopper => arch.as_str() == "sm_90a",
            };
            for architecture in self.arch.iter().filter(runs_on) {
                for case in program.cases {
                    jobs.push(Job { program, case, architecture: architecture.clone() });
                }
            }
        }
        jobs
    }

    fn compile_all(&self, jobs: &[Job]) -> Vec<Result<Vec<Usage>, String>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(vec![Ok(Vec::new()); jobs.len()]);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(number) else { break };
                        let result = self.compile(job);
                        lock(&results)[number] = result;
                    }
                });
            }
        });
        results.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile(&self, job: &Job) -> Result<Vec<Usage>, String> {
        let edited = |source: &Source| {
            let path = self.directory.as_ref().map(|directory| directory.join(&*source.name));
            match path.and_then(|path| read_text(open_regular(&path).ok()?, MAX_BYTES).ok()) {
                Some(text) => Source { text: text.into(), ..source.clone() },
                None => source.clone(),
            }
        };
        let headers: Vec<Source> = job.program.headers.iter().map(edited).collect();
        let defines: Vec<(&str, String)> = job
            .case
            .split_whitespace()
            .map(|define| define.split_once('=').unwrap_or((define, "1")))
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        let compiled = compile(&edited(&job.program.source), &headers, &job.architecture, &defines)
            .map_err(|error| error.to_string())?;
        // The kernel is correct but several times slower than possible.
        match compiled.log.lines().find(|line| line.contains("Potential Performance Loss")) {
            Some(line) => Err(line.to_owned()),
            None => Ok(usage(&compiled.log)),
        }
    }

    fn as_text(
        &self,
        jobs: &[Job],
        results: &[Result<Vec<Usage>, String>],
        terminal: &Terminal,
    ) -> String {
        let mut table = Table::new(
            terminal.coloured_results,
            &[
                ("program", Align::Left),
                ("kernel", Align::Left),
                ("architecture", Align::Left),
                ("registers", Align::Right),
                ("stack", Align::Right),
                ("spills", Align::Right),
                ("parameters", Align::Left),
            ],
        );
        let mut errors = String::new();
        for (job, result) in jobs.iter().zip(results) {
            let name = &*job.program.source.name;
            match result {
                Ok(kernels) => kernels.iter().for_each(|usage| {
                    table.row([
                        name.to_owned(),
                        usage.kernel.clone(),
                        job.architecture.clone(),
                        usage.registers.to_string(),
                        usage.stack_bytes.to_string(),
                        usage.spill_bytes.to_string(),
                        job.case.to_owned(),
                    ]);
                }),
                Err(error) => {
                    let what = format!("{name} for {} with {}", job.architecture, job.case);
                    let what = terminal.paint(Paint::Bad, &what);
                    errors.push_str(&format!("\n{what}\n{error}\n"));
                }
            }
        }
        format!("{}{errors}", table.finish())
    }
}

fn as_json(job: &Job, result: &Result<Vec<Usage>, String>) -> serde_json::Value {
    let mut value = json!({
        "program": job.program.source.name,
        "architecture": job.architecture,
        "parameters": job.case,
    });
    match result {
        Err(error) => value["error"] = json!(error),
        Ok(kernels) => {
            let one = |usage: &Usage| {
                json!({
                    "kernel": usage.kernel,
                    "registers": usage.registers,
                    "stack_bytes": usage.stack_bytes,
                    "spill_bytes": usage.spill_bytes,
                })
            };
            value["kernels"] = kernels.iter().map(one).collect();
        }
    }
    value
}

/// Parses the output of `ptxas -v`.
fn usage(log: &str) -> Vec<Usage> {
    let mut kernels: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some(name) = line.split("entry function '").nth(1) {
            let kernel = name.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(Usage { kernel, ..Usage::default() });
        }
        let Some(usage) = kernels.last_mut() else { continue };
        let before = |what: &str| {
            let number = line.split(what).next()?.split_whitespace().next_back()?;
            line.contains(what).then(|| number.parse::<usize>().ok())?
        };
        if let Some(bytes) = before(" bytes stack frame") {
            usage.stack_bytes = bytes;
        }
        let spills = [" bytes spill stores", " bytes spill loads"].map(before);
        usage.spill_bytes += spills.into_iter().flatten().sum::<usize>();
        if let Some(registers) = before(" registers") {
            usage.registers = registers;
        }
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_parses_ptxas_log() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'f' for 'sm_90a'\n\
            ptxas info    : Function properties for f\n\
            ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
            ptxas info    : Used 168 registers, used 3 barriers, 80 bytes smem\n\
            ptxas info    : Compiling entry function 'g' for 'sm_90a'\n\
            ptxas info    : Used 9 registers\n";
        let g = Usage { kernel: "g".to_owned(), registers: 9, ..Usage::default() };
        let f = Usage { kernel: "f".to_owned(), registers: 168, stack_bytes: 16, spill_bytes: 20 };
        assert_eq!(usage(log), [f, g]);
    }
}
