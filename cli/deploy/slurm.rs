//! Slurm: a script that allocates hosts and keeps the parts running on them.

use super::{Deployment, File};

/// The script.
pub fn files(_deployment: &Deployment<'_>) -> Vec<File> {
    Vec::new()
}
