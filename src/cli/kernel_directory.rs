//! Directories with edited GPU kernels.

use fxgraph::Control;
use fxgraph::DeviceName;
use fxgraph::cuda::{CudaError, Device};
use fxgraph::files::reason;
use fxgraph::runtime::EventKind;
use std::collections::HashMap;
use std::io::ErrorKind;
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
    match directory.metadata() {
        Ok(found) if found.is_dir() => Ok(directory),
        Ok(_) => Err("it is not a directory; give the directory of the edited kernels".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err("no such directory".to_owned()),
        Err(error) => Err(reason(&error)),
    }
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
                        tell(program.name(), program.reload(), &control);
                    }
                });
            }
            known = now;
        }
    });
    Watch { stop: Some(stop), thread: Some(thread) }
}

/// Reports that the kernels of the program `name` were `reloaded`, or why not.
fn tell(name: &str, reloaded: Result<(), CudaError>, control: &Control) {
    match reloaded {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::flowgraph::registry;
    use fxgraph::flowgraph::load_text;

    #[test]
    fn replaced_and_rejected_kernels_are_events() {
        let text = "flowgraph: g
blocks:
  source:
    kind: null_source
    parameters: {dtype: i8, axes: [{name: sample, len: 64}], samples_per_frame: 64}
  sink: {kind: null_sink, input: source}
";
        let plan = load_text("g.yaml", text, &[], &registry()).result.unwrap();
        let (control, _prepared) = Control::prepared(plan, registry()).unwrap();
        let log = "fft.cu(3): error: expected a declaration".to_owned();
        tell("fft.cu", Ok(()), &control);
        tell("fft.cu", Err(CudaError::Compile { name: "fft.cu".to_owned(), log }), &control);
        let events = control.events_since(0).into_iter().map(|event| (event.kind, event.text));
        let rejected = "the kernels of fft.cu: the kernel fft.cu does not compile";
        let expected = [
            (EventKind::KernelsReplaced, "the kernels of fft.cu"),
            (EventKind::KernelsRejected, rejected),
        ];
        assert_eq!(
            events.collect::<Vec<_>>(),
            expected.map(|(kind, text)| (kind, text.to_owned()))
        );
    }

    #[test]
    fn file_is_not_a_directory_of_kernels() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("file"), "").unwrap();
        assert!(parse(&path("file")).unwrap_err().starts_with("it is not a directory; "));
        assert_eq!(parse(&path("none")).unwrap_err(), "no such directory");
        assert_eq!(
            parse(&path("file/below")).unwrap_err(),
            "a part of the path is not a directory; give a path in a directory"
        );
        assert_eq!(parse(&path(".")).unwrap(), directory.path().join("."));
    }
}
