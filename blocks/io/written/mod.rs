//! Files in formats of other programs that sinks write: the next free name, appending, and errors that name the path.

use fxgraph::access::WrittenPath;
use fxgraph::files::reason;
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{BlockError, Env, Refusal, Summary};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest number of files with the same name.
const MOST_NAMESAKES: usize = 9999;

/// Converts an I/O error at `path`.
pub fn at(path: &Path) -> impl Fn(io::Error) -> BlockError {
    let path = path.display().to_string();
    move |error| BlockError::new(format!("cannot write {path}: {}", reason(&error)))
}

/// Returns a diagnostic unless `path` has a file name.
pub fn refuse_path(path: &WrittenPath, example: &str) -> Option<Refusal> {
    let is_name = path.path().file_name().is_some() && !path.ends_with('/');
    (!is_name).then(|| {
        let message = format!("`path` must be a file name, got `{}`", &**path);
        Refusal::parameter("path", message).help(format!("write a name such as {example}"))
    })
}

/// Returns `path` with `suffix` between the stem and the extension of its file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}{suffix}{}", extension.unwrap_or_default()))
}

/// Reports that a file got another name than the one in the flowgraph.
pub struct Reporter {
    events: BlockEvents,
    summary: Summary,
}

impl Reporter {
    /// Reports as the block of `env`.
    pub fn new(env: &Env) -> Self {
        Self { events: env.events.clone(), summary: env.summary.clone() }
    }

    /// Reports a warning as an event and in the results.
    pub fn warn(&self, text: &str) {
        self.events.add(EventKind::Warning, text);
        let mut all = self.summary.get();
        if !all.is_empty() {
            all.push('\n');
        }
        self.summary.set(all + text);
    }
}

/// A file that grows by whole commits. After an error it ends with the last one.
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// Length up to the last commit in bytes.
    length: u64,
}

impl OutputFile {
    /// Creates the file at `path`, and its directory. Without `overwrites` an existing file keeps its name, and the
    /// new file gets the first free one of `x_2.vdif`, `x_3.vdif`, ..., which is reported as a warning.
    pub fn open(
        path: &WrittenPath,
        overwrites: bool,
        reporter: &Reporter,
    ) -> Result<Self, BlockError> {
        let (files, path) = (path.files(), path.path());
        files.make_directories_to(path).map_err(at(path.parent().unwrap_or(path)))?;
        // A device is written to as it is.
        let is_other = files.file_type(path).is_ok_and(|there| !there.is_file());
        if overwrites || is_other {
            let file = files.create(path).map_err(at(path))?;
            return Ok(Self { file, path: path.to_owned(), length: 0 });
        }
        for n in 1..=MOST_NAMESAKES {
            let name = if n == 1 { path.to_owned() } else { with_suffix(path, &format!("_{n}")) };
            match files.create_new(&name) {
                Ok(file) => {
                    if n > 1 {
                        let (path, other) = (path.display(), name.display());
                        reporter.warn(&format!("{path} exists; recording to {other}"));
                    }
                    return Ok(Self { file, path: name, length: 0 });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at(&name)(error)),
            }
        }
        let path = path.display();
        Err(BlockError::new(format!("there are {MOST_NAMESAKES} files named {path} already")))
    }

    /// Appends `bytes`. After an error, such as a full disk, the file ends where it ended before.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        if let Err(error) = self.file.write_all(bytes) {
            // An incomplete commit is removed; the first error is the one to report.
            let _ = self.file.set_len(self.length);
            return Err(at(&self.path)(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Overwrites the bytes at `offset`.
    pub fn replace(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.file.write_all_at(bytes, offset).map_err(at(&self.path))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_keeps_its_name_unless_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.b.raw");
        let env = Env::detached("out");
        let open = |overwrites| {
            OutputFile::open(&path.as_path().into(), overwrites, &Reporter::new(&env)).unwrap()
        };
        open(false).append(b"first").unwrap();
        let mut second = open(false);
        second.append(b"second").unwrap();
        assert!(second.path.ends_with("a.b_2.raw"));
        assert!(env.summary.get().contains("a.b_2.raw"), "{}", env.summary.get());
        second.replace(0, b"S").unwrap();
        let read = |name: &str| std::fs::read(folder.path().join("new").join(name)).unwrap();
        assert_eq!((read("a.b.raw"), read("a.b_2.raw")), (b"first".to_vec(), b"Second".to_vec()));
        open(true).append(b"x").unwrap();
        assert_eq!(read("a.b.raw"), b"x");
    }

    #[test]
    fn full_disk_is_an_error_with_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join("full.vdif");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let reporter = Reporter::new(&Env::detached("out"));
        let mut file = OutputFile::open(&full.as_path().into(), false, &reporter).unwrap();
        let said = file.append(b"x").unwrap_err().to_string();
        assert!(said.ends_with("full.vdif: No space left on device"), "{said}");
        assert_eq!(file.length, 0);
    }
}
