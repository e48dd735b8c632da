//! Measured fastest launch configurations of kernels.

use fxgraph_core::files;
use fxgraph_core::gpu::Tunable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest accepted tuning file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The fastest launch configuration of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Launch configuration.
    pub geometry: String,
    /// GPU time per frame of the block, in microseconds.
    pub microseconds: f64,
    /// GPU time per frame with the default launch configuration, in microseconds.
    pub usual_microseconds: f64,
}

/// Measured launch configurations by GPU, program and shape, in a readable file that can be copied to another
/// machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tuning(BTreeMap<String, BTreeMap<String, BTreeMap<String, Choice>>>);

/// Error of a tuning file.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// The file cannot be read or written.
    #[error("the tuning file {path} cannot be {action}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// `read` or `written`.
        action: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file has other content.
    #[error("{path} is not a tuning file; `fxgraph tune` writes one")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Syntax error with its position.
        source: serde_json::Error,
    },
}

impl Tuning {
    /// Default path of the tuning file: `fxgraph/tuning.json` in the user's configuration directory.
    #[must_use]
    pub fn default_path() -> Option<PathBuf> {
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let base = base.filter(|path| path.is_absolute());
        let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")))?;
        Some(base.join("fxgraph").join("tuning.json"))
    }

    /// Reads the tuning file at `path`; returns `None` if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a tuning file.
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

    /// Writes the tuning file at `path` atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), TuningError> {
        let failed =
            |source| TuningError::File { path: path.to_owned(), action: "written", source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        std::fs::write(&beside, text + "\n").map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)
    }

    /// Returns the choice for `tunable` on GPUs with the name `gpu`.
    #[must_use]
    pub fn get(&self, gpu: &str, tunable: &Tunable) -> Option<&Choice> {
        self.0.get(gpu)?.get(tunable.program)?.get(&tunable.shape_text())
    }

    /// Stores the choice for `tunable` on GPUs with the name `gpu`.
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
    fn tuning_file_is_read_as_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new").join("tuning.json");
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
