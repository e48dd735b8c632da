//! Limits on the disk space of recordings.

use fxgraph_core::BlockError;
use fxgraph_core::lock::lock;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Limits that several recorders with files in one directory share.
#[derive(Debug)]
pub struct Budget {
    directory: PathBuf,
    most_bytes: u64,
    left_free_bytes: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Bytes of existing files.
    used_bytes: u64,
    /// Bytes that archives need in addition while they are assembled.
    owed_bytes: u64,
}

impl Budget {
    /// Limits the files in `directory` to `most_bytes`, of which `used_bytes` are used, and keeps `left_free_bytes` of
    /// its disk free.
    #[must_use]
    pub fn new(directory: &Path, most_bytes: u64, used_bytes: u64, left_free_bytes: u64) -> Self {
        let taken = Mutex::new(Taken { used_bytes, owed_bytes: 0 });
        Self { directory: directory.to_owned(), most_bytes, left_free_bytes, taken }
    }

    /// Checks that `bytes` more can be written, and `owed_bytes` more temporarily.
    fn admits(&self, taken: &Taken, bytes: u64, owed_bytes: u64) -> Result<(), BlockError> {
        if taken.used_bytes.saturating_add(bytes) > self.most_bytes {
            let text =
                format!("the recordings have reached their limit of {} bytes", self.most_bytes);
            return Err(BlockError::new(text));
        }
        let needed = bytes.saturating_add(taken.owed_bytes).saturating_add(owed_bytes);
        match free_bytes(&self.directory) {
            Some(free) if free.saturating_sub(needed) < self.left_free_bytes => {
                Err(BlockError::new(format!(
                    "the disk of {} is nearly full: {free} bytes are free, recordings must leave {}",
                    self.directory.display(),
                    self.left_free_bytes
                )))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a recording of frames of `frame_bytes` can start.
    pub fn begin(&self, frame_bytes: u64) -> Result<(), BlockError> {
        self.admits(&lock(&self.taken), frame_bytes, frame_bytes)
    }

    /// Reserves `bytes`. With `is_archived` the disk needs room for them a second time, until they are
    /// [settled](Self::settle).
    pub(super) fn take(&self, bytes: u64, is_archived: bool) -> Result<(), BlockError> {
        let mut taken = lock(&self.taken);
        let owed_bytes = if is_archived { bytes } else { 0 };
        self.admits(&taken, bytes, owed_bytes)?;
        taken.used_bytes += bytes;
        taken.owed_bytes += owed_bytes;
        Ok(())
    }

    /// Releases the additional reservation for an archive of `bytes`, which was assembled or given up.
    pub(super) fn settle(&self, bytes: u64) {
        let mut taken = lock(&self.taken);
        taken.owed_bytes = taken.owed_bytes.saturating_sub(bytes);
    }

    /// Releases the `bytes` of deleted files.
    pub fn free(&self, bytes: u64) {
        let mut taken = lock(&self.taken);
        taken.used_bytes = taken.used_bytes.saturating_sub(bytes);
    }
}

/// Returns the total size in bytes of the files in `directory` whose names begin with `prefix`, and of the contents of
/// such directories in it.
pub fn used_bytes(directory: &Path, prefix: &str) -> io::Result<u64> {
    let mut bytes = 0u64;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        // Files that were deleted meanwhile, or are not accessible, are not recordings.
        let Ok(found) = entry.metadata() else { continue };
        let inside = || used_bytes(&entry.path(), "").unwrap_or_default();
        bytes += if found.is_dir() { inside() } else { found.len() };
    }
    Ok(bytes)
}

/// Returns the bytes that this process may still write to the disk of `directory`; `None` if unknown.
fn free_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn take_keeps_the_given_space_free() {
        let directory = tempfile::tempdir().unwrap();
        let free = free_bytes(directory.path()).unwrap();
        assert!(free > 0);
        let with = |left_free| Budget::new(directory.path(), u64::MAX, 0, left_free);
        let said = with(u64::MAX).take(1, false).unwrap_err().to_string();
        assert!(said.contains("is nearly full"), "{said}");
        // Other programs write to this disk too, so the limit is half of the free space, far from both ends.
        assert!(with(free / 2).take(free / 4, false).is_ok());
        assert!(with(free / 2).take(free / 4 * 3, false).is_err());
        assert!(with(free / 2).take(free / 3, true).is_err(), "an archive needs it twice");
    }

    #[test]
    fn archive_needs_its_size_twice_until_it_is_settled() {
        let directory = tempfile::tempdir().unwrap();
        let free = free_bytes(directory.path()).unwrap();
        let budget = Budget::new(directory.path(), u64::MAX, 0, free / 2);
        budget.take(free / 6, true).unwrap();
        // No file was written, so the free space is as before.
        assert!(budget.begin(free / 6 + free / 12).is_err());
        budget.settle(free / 6);
        assert!(budget.begin(free / 6).is_ok());
    }

    #[test]
    fn deleted_files_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let budget = Budget::new(directory.path(), 100, 30, 0);
        budget.take(60, false).unwrap();
        let said = budget.take(20, false).unwrap_err().to_string();
        assert_eq!(said, "the recordings have reached their limit of 100 bytes");
        budget.free(60);
        assert!(budget.take(20, false).is_ok());
    }
}
