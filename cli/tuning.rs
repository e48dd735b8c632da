//! The file of measurements that kernels are cut by.

use crate::failure::Failure;
use fxgraph::cuda::{Tuning, TuningError};
use std::path::Path;
use std::sync::Arc;

fn failed(error: &TuningError) -> Failure {
    Failure::because("nothing was started", error)
}

/// What the user has measured, if anything.
pub fn usual() -> Result<Arc<Tuning>, Failure> {
    let Some(path) = Tuning::default_path() else { return Ok(Arc::default()) };
    let tuning = Tuning::read(&path).map_err(|error| failed(&error))?;
    Ok(Arc::new(tuning.unwrap_or_default()))
}

/// The file at `path`, which has to be there.
pub fn read(path: &Path) -> Result<Arc<Tuning>, Failure> {
    let tuning = Tuning::read(path).map_err(|error| failed(&error))?;
    let missing = || Failure::failed(format!("there is no tuning file {}", path.display()));
    tuning.map(Arc::new).ok_or_else(missing)
}
