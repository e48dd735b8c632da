//! Execution of one test case.

use super::Settings;
use super::compare::{Recorder, compare};
use crate::commands::bench;
use fxgraph::examples::Case;
use fxgraph::flowgraph::{Plan, Probe};
use fxgraph::runtime::{self, with_causes};
use fxgraph::{DeviceName, Registry};
use serde_json::json;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs case `number` in another process of this program.
pub fn apart(number: usize, device: DeviceName, settings: &Settings) -> Result<String, String> {
    let Settings { timeout, kernels } = settings;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(["conformance", "--device", &device.to_string(), "--case", &number.to_string()])
        .args(["--timeout", &format!("{}s", timeout.as_secs().max(1))])
        .args(kernels.iter().flat_map(|directory| [OsStr::new("--kernels"), directory.as_os_str()]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // Read on threads: a pipe buffers 64 KiB, and a compiler log can be longer.
    let (said, complained) = (read(child.stdout.take()), read(child.stderr.take()));
    // The process ends by itself at the timeout, unless the CUDA driver hangs.
    let deadline = Instant::now() + *timeout + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            return Err("the case hung and was killed".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = if status.success() { said } else { complained };
    let text = text.join().unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    match (status.success(), text.is_empty()) {
        (true, _) => Ok(text),
        (false, false) => Err(text),
        // A signal, such as one of the kernel without free memory.
        (false, true) => Err(format!("the case ended with {status} and printed no message")),
    }
}

/// Reads `pipe` to its end on a thread.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, the bytes read so far are the result.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

/// Returns the plan of a flowgraph with the edited kernels.
pub fn plan(flowgraph: &str, registry: &Registry, settings: &Settings) -> Result<Plan, String> {
    let mut plan = bench::plan(flowgraph, registry)?;
    plan.kernel_directory.clone_from(&settings.kernels);
    Ok(plan)
}

/// Adds the live updates of `case` to `plan`.
pub fn changing(mut plan: Plan, case: &Case, registry: &Registry) -> Result<Plan, String> {
    for (at, parameters) in &case.changes {
        let request = json!({ "cpu": parameters, "gpu": parameters }).to_string();
        let changed = plan.with_change(registry, &request, *at);
        plan = changed.map_err(|rejected| bench::messages(&rejected.problems))?;
    }
    Ok(plan)
}

/// Runs `case` in this process. Returns a description of the differences, or the error.
pub fn alone(case: &Case, registry: &Registry, settings: &Settings) -> Result<String, String> {
    let plan = changing(plan(&case.flowgraph, registry, settings)?, case, registry)?;
    let block = |name: &str| plan.block(name).ok_or_else(|| format!("there is no block `{name}`"));
    let (cpu, gpu) = (block("cpu")?, block("gpu")?);
    let ports = &plan.blocks[cpu].ports.outputs;
    let mut recorders = Vec::new();
    let mut probes = Vec::new();
    for (port, carries) in ports.iter().enumerate() {
        for (name, block) in [("reference", cpu), ("tested", gpu)] {
            let (recorder, frames) = Recorder::new(carries);
            recorders.push(frames);
            probes.push(Probe {
                name: format!("{name} {port}"),
                source: (block, port),
                block: Box::new(recorder),
                queue: 2,
            });
        }
    }
    let assembly = plan.build_with(probes).map_err(|error| with_causes(&error))?;
    let running = runtime::start(assembly, runtime::Options::default());
    let running = running.map_err(|error| with_causes(&error))?;
    if !running.wait_timeout(settings.timeout) {
        return Err(format!("the flowgraph did not end within {} s", settings.timeout.as_secs()));
    }
    let report = running.wait();
    if let Some(failure) = report.failures.first() {
        return Err(format!("`{}` failed: {}", failure.block, failure.cause));
    }
    let mut texts = Vec::new();
    for (port, frames) in ports.iter().zip(recorders.chunks_exact(2)) {
        let [reference, tested] = [0, 1].map(|i| frames[i].take());
        texts.push(compare(port, &reference, &tested, case.tolerance)?);
    }
    Ok(texts.join("; "))
}
