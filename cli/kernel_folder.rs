//! Folders with edited kernels.

use fxgraph::DeviceName;
use fxgraph::cuda::{Device, Program};
use fxgraph::flowgraph::Plan;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often the folder is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// A folder that exists, from the command line.
pub fn parse(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() { Ok(folder) } else { Err("there is no such folder".to_owned()) }
}

/// A thread that looks at a folder until it is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes over what changes in `folder` for the devices of `plan`. A kernel that does not compile
/// is reported, and the running one stays.
pub fn watch(folder: PathBuf, plan: &Plan) -> Watch {
    let devices: Vec<Arc<Device>> = plan
        .memory()
        .devices()
        .into_iter()
        .filter_map(|device| match device {
            DeviceName::Cuda(ordinal) => Device::open(ordinal).ok(),
            DeviceName::Cpu => None,
        })
        .collect();
    let (stop, stopped) = channel();
    let mut known = times(&folder);
    let thread = std::thread::spawn(move || {
        while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            let now = times(&folder);
            let changed = now.iter().filter(|(file, time)| known.get(*file) != Some(*time));
            let changed: Vec<&str> = changed.map(|(file, _)| file.as_str()).collect();
            if !changed.is_empty() {
                devices.iter().flat_map(|device| device.programs()).for_each(|program| {
                    if changed.iter().any(|file| program.uses(file)) {
                        reload(&program);
                    }
                });
            }
            known = now;
        }
    });
    Watch { stop: Some(stop), thread: Some(thread) }
}

fn reload(program: &Program) {
    match program.reload() {
        Ok(()) => tracing::warn!("the kernels of {} were exchanged", program.name()),
        Err(error) => tracing::error!("{error}\nthe kernels that ran go on"),
    }
}

/// When each source in `folder` and its subdirectories was changed last.
fn times(folder: &Path) -> HashMap<String, SystemTime> {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = list(folder).flat_map(|entry| list(&entry.path()));
    list(folder)
        .chain(inner)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_source = [".cu", ".cuh"].iter().any(|suffix| name.ends_with(suffix));
            let time = entry.metadata().ok()?.modified().ok()?;
            is_source.then_some((name, time))
        })
        .collect()
}
