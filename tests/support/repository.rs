//! The directory of the repository.

use std::path::{Path, PathBuf};

/// The directory of the repository; crates at any depth use this file.
pub fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    crates.into_iter().find(|path| path.join("Cargo.lock").is_file()).unwrap().to_owned()
}
