//! Names of files that exist already.

use fxgraph::BlockError;
use fxgraph::access::WrittenPath;
use fxgraph::files::reason;
use std::fs::File;
use std::io::ErrorKind::AlreadyExists;
use std::path::Path;

/// Largest number of files of one name.
const MOST_NAMESAKES: u32 = 100_000;

/// The error of the file at `path`.
pub fn at(path: &Path) -> impl Fn(std::io::Error) -> BlockError + '_ {
    |error| BlockError::new(format!("{}: {}", path.display(), reason(&error)))
}

/// Creates the file at `path`, or the first of `x_2.uvh5`, `x_3.uvh5`, ... that does not exist. Returns it with its
/// path.
///
/// # Errors
/// If a file cannot be created, or if all these names are taken.
pub fn create_new(path: &WrittenPath) -> Result<(File, WrittenPath), BlockError> {
    let stem = path.strip_suffix(".uvh5").unwrap_or(path);
    let numbered = |n| path.with(format!("{stem}_{n}.uvh5"));
    for name in std::iter::once(path.clone()).chain((2..=MOST_NAMESAKES).map(numbered)) {
        match name.files().create_new(name.path()) {
            Ok(file) => return Ok((file, name)),
            Err(error) if error.kind() == AlreadyExists => {}
            Err(error) => return Err(at(name.path())(error)),
        }
    }
    Err(BlockError::new(format!("there are {MOST_NAMESAKES} files named {path} already")))
}
