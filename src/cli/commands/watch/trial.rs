//! Trial of a version of a kernel in a process of its own, whose faults reach no other flowgraph: a kernel may destroy the
//! CUDA context of its process, or never end.

use crate::failure::Failure;
use fxgraph_api::blocks::BlockPage;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Number of frames of the trial.
const FRAMES: u64 = 4;
/// Time limit for the start of the trial, beside the time limits of its frames.
const START: Duration = Duration::from_secs(30);
/// Most bytes of each output of the process that are kept: kernels may print.
const MOST_BYTES: u64 = 1 << 20;
/// Exit status of a flowgraph that cannot be started here, such as one without memory for it.
const CONFIGURATION: i32 = 78;

/// Process of a trial, which ends with this.
pub struct Trial {
    process: Child,
    outputs: [JoinHandle<Vec<u8>>; 2],
    began: Instant,
    limit: Duration,
    /// The flowgraph.
    _file: NamedTempFile,
}

/// Result of a trial.
pub enum Verdict {
    /// The version has computed its frames; with a reference, the comparison with it.
    Passed(Option<Value>),
    Failed(String),
    /// The process could not try the version.
    NotTried(String),
}

impl Trial {
    /// Starts the trial of the code in `files`, which are the kernel and its reference, as the block of `page` with the changed
    /// keys in `entry`: on random frames of the types that the block reads.
    pub fn start(page: &BlockPage, entry: &Value, files: &[PathBuf]) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::because("cannot try the version", &error);
        let mut file = NamedTempFile::with_suffix(".yaml").map_err(failed)?;
        // JSON is YAML.
        let flowgraph = flowgraph(page, entry, files);
        let of_frame = flowgraph["blocks"]["block"]["parameters"]["deadline_seconds"].as_f64();
        let of_frames = Duration::try_from_secs_f64(of_frame.unwrap_or_default() * FRAMES as f64);
        file.write_all(flowgraph.to_string().as_bytes()).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        match files {
            [_, reference] if reference.exists() => {
                let (kernel, reference) = ("a=block", "b={device: cpu, implementation: cpu}");
                command.arg("compare").arg(file.path()).args([kernel, reference, "--json"])
            }
            _ => command.arg("run").arg(file.path()).args(["--quiet", "--color", "never"]),
        };
        // A process group of its own: Ctrl-C reaches this process alone.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command.spawn().map_err(failed)?;
        let outputs = [read(process.stdout.take()), read(process.stderr.take())];
        Ok(Self {
            process,
            outputs,
            began: Instant::now(),
            limit: START + of_frames.unwrap_or_default(),
            _file: file,
        })
    }

    /// Returns the result, if there is one.
    pub fn verdict(&mut self) -> Option<Verdict> {
        let status = match self.process.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) if self.began.elapsed() < self.limit => return None,
            Ok(None) => {
                let seconds = self.limit.as_secs();
                return Some(Verdict::Failed(format!(
                    "{FRAMES} frames must be computed within {seconds} s in a process of its own"
                )));
            }
            Err(error) => return Some(Verdict::NotTried(error.to_string())),
        };
        let [said, complained] = &mut self.outputs;
        let [said, complained] = [said, complained].map(|output| {
            let output = std::mem::replace(output, thread::spawn(Vec::new));
            String::from_utf8_lossy(&output.join().unwrap_or_default()).trim().to_owned()
        });
        let first = || complained.lines().next().unwrap_or("no message").to_owned();
        Some(match status.code() {
            Some(0) => Verdict::Passed(serde_json::from_str(&said).ok()),
            Some(CONFIGURATION) => Verdict::NotTried(first()),
            _ if complained.is_empty() => Verdict::Failed(format!("its process ended: {status}")),
            _ => Verdict::Failed(complained),
        })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // It has ended, or is of no use any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The flowgraph of a trial.
fn flowgraph(page: &BlockPage, entry: &Value, files: &[PathBuf]) -> Value {
    let mut parameters = page.parameters.clone();
    for (name, value) in entry["parameters"].as_object().into_iter().flatten() {
        parameters[name] = value.clone();
    }
    parameters["file"] = json!(files[0]);
    if let (Some(reference), Some(given)) = (files.get(1), parameters.get_mut("reference")) {
        *given = json!(reference);
    }
    let axes = |axes: &[fxgraph_api::ports::AxisInfo]| -> Vec<Value> {
        axes.iter().map(|axis| json!({ "name": axis.name, "len": axis.len })).collect()
    };
    let source = page.inputs.first().map(|input| &input.carries).map(|carries| {
        json!({
            "dtype": carries.dtype, "axes": axes(&carries.axes),
            "validity_axes": axes(&carries.validity_axes), "samples_per_frame": carries.samples_per_frame,
            "adc_sample_rate_hz": carries.adc_sample_rate_hz, "frames": FRAMES, "pattern": "random",
        })
    });
    let device = &page.summary.device;
    json!({"flowgraph": "trial", "blocks": {
        "source": {"kind": "null_source", "parameters": source},
        "block": {"kind": page.summary.kind, "device": device, "input": "source", "parameters": parameters},
        "sink": {"kind": "null_sink", "input": "block"},
    }})
}

/// Reads the start of `pipe`, and then drops what comes, so that the process never waits.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error, the bytes read so far are the result.
            let _ = pipe.by_ref().take(MOST_BYTES).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        bytes
    })
}
