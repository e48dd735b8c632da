//! Directories with edited GPU kernels.

use fxgraph::Control;
use fxgraph::DeviceName;
use fxgraph::cuda::{Device, Program};
use fxgraph::runtime::EventKind;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Time between two checks of the directory.
const PERIOD: Duration = Duration::from_millis(500);

/// Parses the path of an existing directory.
pub fn parse(text: &str) -> Result<PathBuf, String> {
    let directory = PathBuf::from(text);
    if directory.is_dir() { Ok(directory) } else { Err("no such directory".to_owned()) }
}

/// Thread that watches a directory until this is dropped.
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

/// Recompiles changed kernels in `directory` for the devices of the flowgraph. A kernel that does not compile
/// is reported, and the previous one stays in use.
pub fn watch(directory: PathBuf, control: &Control) -> Watch {
    let control = control.clone();
    let devices: Vec<Arc<Device>> = control
        .plan()
        .memory()
        .devices()
        .into_iter()
        .filter_map(|device| match device {
            DeviceName::Cuda(ordinal) => Device::open(ordinal).ok(),
            DeviceName::Cpu => None,
        })
        .collect();
    let (stop, stopped) = channel();
    let mut known = times(&directory);
    let thread = std::thread::spawn(move || {
        while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
            let now = times(&directory);
            let changed = now.iter().filter(|(file, time)| known.get(*file) != Some(*time));
            let changed: Vec<&str> = changed.map(|(file, _)| file.as_str()).collect();
            if !changed.is_empty() {
                devices.iter().flat_map(|device| device.programs()).for_each(|program| {
                    if changed.iter().any(|file| program.uses(file)) {
                        reload(&program, &control);
                    }
                });
            }
            known = now;
        }
    });
    Watch { stop: Some(stop), thread: Some(thread) }
}

fn reload(program: &Program, control: &Control) {
    let name = program.name();
    match program.reload() {
        Ok(()) => {
            tracing::warn!("replaced the kernels of {name}");
            control.tell(EventKind::KernelsReplaced, None, &format!("the kernels of {name}"));
        }
        Err(error) => {
            tracing::error!("{error}\nthe previous kernels stay in use");
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            control.tell(
                EventKind::KernelsRejected,
                None,
                &format!("the kernels of {name}: {first}"),
            );
        }
    }
}

/// Time of the last change of each source in `directory` and its subdirectories.
fn times(directory: &Path) -> HashMap<String, SystemTime> {
    let list = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let inner = list(directory).flat_map(|entry| list(&entry.path()));
    list(directory)
        .chain(inner)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_source = [".cu", ".cuh"].iter().any(|suffix| name.ends_with(suffix));
            let time = entry.metadata().ok()?.modified().ok()?;
            is_source.then_some((name, time))
        })
        .collect()
}
