//! The file of measurements that kernels are cut by.

use crate::failure::Failure;
use crate::terminal::Terminal;
use fxgraph::cuda::Tuning;
use fxgraph::runtime::with_causes;
use std::path::Path;
use std::sync::Arc;

/// The measurements in the user's own file, if there is one. A file that cannot be read only costs
/// speed: the kernels run with their default launch configurations.
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

/// The file at `path`, which has to be there.
pub fn read(path: &Path) -> Result<Arc<Tuning>, Failure> {
    let tuning =
        Tuning::read(path).map_err(|error| Failure::because("nothing was started", &error))?;
    let missing = || Failure::failed(format!("there is no tuning file {}", path.display()));
    tuning.map(Arc::new).ok_or_else(missing)
}
