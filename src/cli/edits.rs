//! Edits of files, noticed by looking at the files again and again.

use fxgraph::files::read_regular;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Number of looks after which a file that is not there any more counts as removed: an editor may remove a file before it
/// writes the new one.
const MISSING: u32 = 12;
/// Largest file whose content is compared.
const MOST_BYTES: u64 = 1 << 20;
/// Largest number of entries of the directories that are looked at.
const MOST_BESIDE: usize = 10_000;

/// Files, and the versions of them that were taken.
pub struct Files {
    paths: Vec<PathBuf>,
    version: fn(&Path) -> Option<u64>,
    edits: Edits,
    /// Code beside the files when they were taken.
    beside: u64,
    /// The same at the last look, once what was taken was rejected.
    seen_beside: Option<u64>,
}

impl Files {
    /// The files at `paths`, as they are now. `version` identifies a version of a file; it is `None` for a missing file.
    pub fn new(paths: Vec<PathBuf>, version: fn(&Path) -> Option<u64>) -> Self {
        let mut files =
            Self { paths, version, edits: Edits::default(), beside: 0, seen_beside: None };
        files.take();
        files
    }

    /// Looks at the files at `paths` from now on. Files that were looked at before keep the versions that were taken.
    pub fn follow(&mut self, paths: Vec<PathBuf>) {
        let known = |path: &PathBuf| self.paths.iter().position(|known| known == path);
        let taken = paths.iter().map(|path| match known(path) {
            Some(index) => self.edits.taken[index],
            None => (self.version)(path),
        });
        self.edits = Edits { taken: taken.collect(), ..Edits::default() };
        self.paths = paths;
        self.seen_beside = None;
    }

    fn versions(&self) -> Vec<Option<u64>> {
        self.paths.iter().map(|path| (self.version)(path)).collect()
    }

    /// Takes the files as they are now.
    pub fn take(&mut self) {
        self.edits.take(self.versions());
        self.beside = saved_beside(&self.paths);
        self.seen_beside = None;
    }

    /// Says that what was taken does not run. From now on each save of code beside the files is an edit, too: it may name
    /// files that the running version does not name, and the same content may succeed later.
    pub fn reject(&mut self) {
        self.seen_beside = Some(self.beside);
    }

    /// Whether the files are as they were taken.
    pub fn are_taken(&self) -> bool {
        self.versions() == self.edits.taken
    }

    /// Whether the files differ from those that were taken, and are as they were at the last look.
    pub fn are_edited(&mut self) -> bool {
        let versions = self.versions();
        let is_saved_beside = self.seen_beside.is_some_and(|seen| {
            let now = saved_beside(&self.paths);
            self.seen_beside = Some(now);
            now == seen && now != self.beside
        });
        self.edits.look(versions) || is_saved_beside
    }

    /// Paths of the files that differed from those that were taken, at the last look.
    pub fn edited(&self) -> impl Iterator<Item = &Path> {
        let versions = self.edits.seen.iter().zip(&self.edits.taken);
        let both = self.paths.iter().zip(versions);
        both.filter(|(_, (seen, taken))| seen != taken).map(|(path, _)| path.as_path())
    }

    /// Paths of the files.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Identity of the files that were taken.
    pub fn identity(&self) -> u64 {
        hash(&self.edits.taken)
    }
}

/// Versions of files at several looks, and whether they are edits.
#[derive(Default)]
struct Edits {
    taken: Vec<Option<u64>>,
    /// Versions at the last look.
    seen: Vec<Option<u64>>,
    /// Number of looks since the last one with other versions.
    alike: u32,
}

impl Edits {
    fn take(&mut self, now: Vec<Option<u64>>) {
        self.taken.clone_from(&now);
        self.seen = now;
    }

    fn look(&mut self, now: Vec<Option<u64>>) -> bool {
        self.alike = if now == self.seen { self.alike + 1 } else { 0 };
        let mut both = now.iter().zip(&self.taken);
        let looks = if both.any(|both| matches!(both, (None, Some(_)))) { MISSING } else { 1 };
        self.seen = now;
        self.alike >= looks && self.seen != self.taken
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Hash of the stamps of all code, in Python or CUDA, in the directories of `paths`.
fn saved_beside(paths: &[PathBuf]) -> u64 {
    let directories: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    let entries = directories.into_iter().filter_map(|directory| directory.read_dir().ok());
    let files = entries.flatten().flatten().take(MOST_BESIDE).map(|entry| entry.path());
    let is_code = |path: &PathBuf| path.extension().is_some_and(|end| end == "py" || end == "cu");
    let stamps = files.filter(is_code).map(|path| hash((stamp(&path), path)));
    // In any order.
    stamps.fold(0, u64::wrapping_add)
}

/// Hash of the time of the last change, number and length of a file.
pub fn stamp(path: &Path) -> Option<u64> {
    let file = path.metadata().ok()?;
    Some(hash((file.mtime(), file.mtime_nsec(), file.ino(), file.len())))
}

/// Hash of the content of a file; of a file that cannot be read or is large, its [`stamp`].
pub fn content(path: &Path) -> Option<u64> {
    match read_regular(path, MOST_BYTES) {
        Ok(bytes) => Some(hash(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => stamp(path),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    /// Looks at the versions of one file, the first of which was taken; returns the numbers of the looks that found an
    /// edit, each of which is taken at once.
    fn edits(versions: &[Option<u64>]) -> Vec<usize> {
        let mut edits = Edits::default();
        edits.take(vec![versions[0]]);
        let found = versions.iter().enumerate().skip(1).filter(|(_, version)| {
            let is_edit = edits.look(vec![**version]);
            if is_edit {
                edits.take(vec![**version]);
            }
            is_edit
        });
        found.map(|(look, _)| look).collect()
    }

    #[test]
    fn edit_counts_once_it_is_stable_and_only_the_latest_does() {
        let some = |versions: &[u64]| versions.iter().copied().map(Some).collect::<Vec<_>>();
        assert_eq!(edits(&some(&[1, 1, 1, 1])), NONE);
        assert_eq!(edits(&some(&[1, 2, 2, 2, 2])), [2]);
        assert_eq!(edits(&some(&[1, 2, 3, 4, 5, 6, 6, 6])), [6], "a file that is written quickly");
        assert_eq!(edits(&some(&[1, 2, 1, 1, 1])), NONE, "taken back");
        assert_eq!(edits(&some(&[1, 2, 2, 1, 1])), [2, 4]);
    }

    #[test]
    fn missing_file_counts_after_some_looks_and_one_that_never_was_not_at_all() {
        assert_eq!(edits(&[Some(1), None, None, Some(2), Some(2)]), [4], "removed, then written");
        assert_eq!(edits(&[Some(1), None, None, Some(1), Some(1)]), NONE);
        let mut versions = [None; 2 * MISSING as usize];
        assert_eq!(edits(&versions), NONE);
        versions[0] = Some(1);
        assert_eq!(edits(&versions), [1 + MISSING as usize], "said once");
        assert_eq!(edits(&[None, Some(1), Some(1)]), [2], "a file that comes later");
    }

    #[test]
    fn save_beside_a_rejected_version_is_an_edit() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one.py", "other.py"].map(|name| directory.path().join(name));
        std::fs::write(&one, "import other").unwrap();
        std::fs::write(&other, "x").unwrap();
        let mut files = Files::new(vec![one.clone()], content);
        std::fs::write(&other, "xy").unwrap();
        assert!(!files.are_edited() && !files.are_edited(), "the version runs");
        files.take();
        files.reject();
        assert!(!files.are_edited() && !files.are_edited());
        std::fs::write(directory.path().join("log.txt"), "no code").unwrap();
        assert!(!files.are_edited() && !files.are_edited());
        std::fs::write(&other, "xyz").unwrap();
        assert!(files.are_taken() && !files.are_edited() && files.are_edited());
        files.take();
        assert!(!files.are_edited() && !files.are_edited(), "taken");
    }

    #[test]
    fn missing_file_does_not_delay_the_edit_of_another_one() {
        let mut edits = Edits::default();
        edits.take(vec![Some(1), None]);
        assert!(!edits.look(vec![Some(2), None]));
        assert!(edits.look(vec![Some(2), None]));
    }

    #[test]
    fn content_is_that_of_the_text_and_files_keep_what_was_taken() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        std::fs::write(&one, "a").unwrap();
        let mut files = Files::new(vec![one.clone()], content);
        let identity = files.identity();
        std::fs::write(&one, "b").unwrap();
        files.follow(vec![other.clone(), one.clone()]);
        assert!(!files.are_edited() && files.are_edited());
        assert_eq!(files.edited().collect::<Vec<_>>(), [one.as_path()]);
        std::fs::write(&one, "a").unwrap();
        assert!(!files.are_edited() && !files.are_edited());
        files.follow(vec![one.clone()]);
        assert_eq!(files.identity(), identity);
        // A file that is no regular one is not waited for.
        assert_eq!(content(directory.path()), stamp(directory.path()));
        assert_eq!(content(&other), None);
    }
}
