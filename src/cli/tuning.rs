//! File with the fastest launch configurations of GPU kernels.

use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph::cuda::Tuning;
use fxgraph::runtime::with_causes;
use std::path::Path;
use std::sync::Arc;

/// Reads the user's default tuning file, if present. If the file cannot be read, the kernels run
/// with their default launch configurations, which only costs speed.
pub fn usual(terminal: &Terminal) -> Arc<Tuning> {
    match Tuning::default_path().map(|path| Tuning::read(&path)) {
        Some(Ok(Some(tuning))) => Arc::new(tuning),
        Some(Err(error)) => {
            let why = with_causes(&error);
            terminal.warning(&format!("{why}; GPU kernels run with their default configurations"));
            Arc::default()
        }
        _ => Arc::default(),
    }
}

/// Reads the tuning file at `path`; returns an error if there is none.
pub fn read(path: &Path) -> Result<Arc<Tuning>, Failure> {
    let tuning =
        Tuning::read(path).map_err(|error| Failure::because("nothing was started", &error))?;
    let missing = || Failure::failed(format!("there is no tuning file {}", path.display()));
    tuning.map(Arc::new).ok_or_else(missing)
}
