//! Kernels that can be cut in several ways, and which way was measured to be the fastest.

use fxgraph_core::files;
use fxgraph_core::gpu::Tunable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Longest tuning file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// The fastest way to compute something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// How the work is cut.
    pub geometry: String,
    /// Time of the GPU for a frame of the block.
    pub microseconds: f64,
    /// The same in the way that is usual.
    pub usual_microseconds: f64,
}

/// What was measured, in a file that people can read and take to another machine: by GPU, program
/// and shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tuning(BTreeMap<String, BTreeMap<String, BTreeMap<String, Choice>>>);

/// Why a file of measurements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// It cannot be read or written.
    #[error("the tuning file {path} cannot be {action}")]
    File {
        /// Where it is.
        path: PathBuf,
        /// `read` or `written`.
        action: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{path} is not a tuning file; `fxgraph tune` writes one")]
    Content {
        /// Where it is.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
}

impl Tuning {
    /// Where it is kept unless something else is said: `fxgraph/tuning.json` in the user's folder
    /// for configuration.
    #[must_use]
    pub fn default_path() -> Option<PathBuf> {
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let base = base.filter(|path| path.is_absolute());
        let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")))?;
        Some(base.join("fxgraph").join("tuning.json"))
    }

    /// Reads the file at `path`; none if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, TuningError> {
        let path_buf = || path.to_owned();
        let text =
            match files::open_regular(path).and_then(|file| files::read_text(file, MAX_BYTES)) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(source) => {
                    return Err(TuningError::File { path: path_buf(), action: "read", source });
                }
            };
        let tuning = serde_json::from_str(&text);
        tuning.map(Some).map_err(|source| TuningError::Content { path: path_buf(), source })
    }

    /// Writes the file at `path`, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), TuningError> {
        let failed =
            |source| TuningError::File { path: path.to_owned(), action: "written", source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        std::fs::write(&beside, text + "\n").map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)
    }

    /// What was chosen for `tunable` on GPUs of this name.
    #[must_use]
    pub fn get(&self, gpu: &str, tunable: &Tunable) -> Option<&Choice> {
        self.0.get(gpu)?.get(tunable.program)?.get(&tunable.shape_text())
    }

    /// Keeps a choice.
    pub fn set(&mut self, gpu: &str, tunable: &Tunable, choice: Choice) {
        let programs = self.0.entry(gpu.to_owned()).or_default();
        let shapes = programs.entry(tunable.program.to_owned()).or_default();
        shapes.insert(tunable.shape_text(), choice);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tunable() -> Tunable {
        Tunable {
            program: "a.cu",
            shape: vec![("ROWS", "5".to_owned()), ("STRIDES", "1,2".to_owned())],
            ways: [32, 64].map(|threads| vec![("THREADS", threads.to_string())]).to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("tuning.json");
        assert_eq!(Tuning::read(&path).unwrap(), None);
        let (tunable, mut tuning) = (tunable(), Tuning::default());
        let choice =
            Choice { geometry: tunable.way_text(1), microseconds: 2.0, usual_microseconds: 2.5 };
        tuning.set("NVIDIA X", &tunable, choice.clone());
        tuning.write(&path).unwrap();
        let read = Tuning::read(&path).unwrap().unwrap();
        assert_eq!(read.get("NVIDIA X", &tunable), Some(&choice));
        assert_eq!(read.get("NVIDIA Y", &tunable), None);
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"ROWS=5 STRIDES=1,2\": {"));
        std::fs::write(&path, "[]").unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::Content { .. })));
    }
}
