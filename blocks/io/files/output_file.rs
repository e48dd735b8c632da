//! Files of other programs that sinks write: their names, and files that grow.

use fxgraph::access::WrittenPath;
use fxgraph::files::{Files, check_not_removed, note_recorded, reason};
use fxgraph::recording::{PLACEHOLDER, try_directory, try_path};
use fxgraph::runtime::{BlockEvents, EventKind};
use fxgraph::{BlockError, Env, Summary};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Largest number of files with the same name.
const MOST_NAMESAKES: usize = 9999;

/// Number of the latest lines of a report.
const REPORT_LINES: usize = 20;

/// Converts an I/O error at `path`.
pub fn cannot_write(path: &Path) -> impl Fn(io::Error) -> BlockError {
    move |error| BlockError::new(format!("cannot write {}: {}", path.display(), reason(&error)))
}

/// Returns `path` with `suffix` between the stem and the extension of its file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    path.with_file_name(format!("{stem}{suffix}{}", extension.unwrap_or_default()))
}

/// Checks before the start that a file can be written at `path`, without changing existing files.
pub fn try_to_write(path: &WrittenPath, overwrites: bool) -> Result<(), BlockError> {
    if path.contains(PLACEHOLDER) { try_directory(path) } else { try_path(path, overwrites) }
}

/// Describes why a file with another name than `path` is written, for a sink that `overwrites`.
pub fn taken(path: &WrittenPath, overwrites: bool) -> String {
    if overwrites {
        format!("{path} was recorded by this process before and is not overwritten")
    } else {
        format!("{path} exists")
    }
}

/// Lines about the files of a block, which are printed after a run: the latest, as a sink may write files for years.
pub struct Report {
    lines: VecDeque<String>,
    summary: Summary,
    events: BlockEvents,
}

impl Report {
    /// Creates the report of the block of `env`.
    pub fn new(env: &Env) -> Self {
        let (summary, events) = (env.summary.clone(), env.events.clone());
        Self { lines: VecDeque::new(), summary, events }
    }

    /// Adds a line.
    pub fn note(&mut self, text: String) {
        if self.lines.len() == REPORT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(text + "\n");
        self.summary.set(self.lines.iter().map(String::as_str).collect::<String>());
    }

    /// Adds a line, and reports it as an event.
    pub fn warn(&mut self, text: String) {
        self.events.add(EventKind::Warning, &text);
        self.note(text);
    }
}

/// A file that grows at its end.
pub struct OutputFile {
    file: File,
    files: Files,
    path: PathBuf,
    /// Bytes that were completely written.
    len: u64,
}

impl OutputFile {
    /// Creates the file at `path`. An existing file stays, and the first free name of `x_2.fil`, `x_3.fil`, ... is used;
    /// a name is also taken if there is a file with the same name and the extension `beside`. With `overwrites` a
    /// file at `path` that this process has not recorded is truncated.
    pub fn create(
        path: &WrittenPath,
        overwrites: bool,
        beside: Option<&str>,
    ) -> Result<Self, BlockError> {
        let (files, path) = (path.files(), path.path());
        files.make_directories_to(path).map_err(cannot_write(path))?;
        let opened = |file: File, path: PathBuf| {
            note_recorded(&file).map_err(cannot_write(&path))?;
            Ok(Self { file, files: files.clone(), path, len: 0 })
        };
        if overwrites {
            match files.overwrite(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                file => return opened(file.map_err(cannot_write(path))?, path.to_owned()),
            }
        }
        let numbered = |n| with_suffix(path, &format!("_{n}"));
        for name in [path.to_owned()].into_iter().chain((2..=MOST_NAMESAKES).map(numbered)) {
            // A device is written to as it is.
            if files.file_type(&name).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
                let file = files.open_to_write(&name).map_err(cannot_write(&name))?;
                return opened(file, name);
            }
            if beside.is_some_and(|other| files.is_taken(&name.with_extension(other))) {
                continue;
            }
            match files.create_new(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                file => return opened(file.map_err(cannot_write(&name))?, name),
            }
        }
        let (first, last) = (path.display(), numbered(MOST_NAMESAKES));
        Err(BlockError::new(format!(
            "all names from {first} to {} are taken; remove files or write to another directory",
            last.display()
        )))
    }

    /// Creates the file at `path` as [`create`](Self::create) does, and reports another name as a warning.
    pub fn open(
        path: &WrittenPath,
        overwrites: bool,
        report: &mut Report,
    ) -> Result<Self, BlockError> {
        let file = Self::create(path, overwrites, None)?;
        if file.path != path.path() {
            let other = file.path.display();
            report.warn(format!("{}; writing to {other}", taken(path, overwrites)));
        }
        Ok(file)
    }

    /// Creates the file as [`open`](Self::open) does, and writes `header`; an error leaves no file.
    pub fn begin(
        path: &WrittenPath,
        overwrites: bool,
        report: &mut Report,
        header: &[u8],
    ) -> Result<Self, BlockError> {
        let mut file = Self::open(path, overwrites, report)?;
        match file.append(header) {
            Ok(()) => Ok(file),
            Err(error) => {
                file.remove();
                Err(error)
            }
        }
    }

    /// Removes the file; a device stays.
    pub fn remove(self) {
        if self.file.metadata().is_ok_and(|there| there.is_file()) {
            let _ = self.files.remove_file(&self.path);
        }
    }

    /// The open file and its path, for a writer of another format.
    pub fn into_parts(self) -> (File, PathBuf) {
        (self.file, self.path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Files that are allowed.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Appends `bytes`. After an error the file has the bytes of the earlier calls.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        self.write(bytes).map_err(|error| {
            // A part may be written; the next call continues at the same place.
            self.shorten(0);
            cannot_write(&self.path)(error)
        })?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Takes away the last `bytes` bytes.
    pub fn shorten(&mut self, bytes: u64) {
        self.len = self.len.saturating_sub(bytes);
        // Devices have no length.
        let _ = self.file.set_len(self.len);
        let _ = self.file.seek(SeekFrom::Start(self.len));
    }

    #[cfg(not(test))]
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        check_not_removed(&self.file)?;
        self.file.write_all(bytes)
    }

    #[cfg(test)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        check_not_removed(&self.file)?;
        full_disk::write(&mut self.file, bytes)
    }

    /// Overwrites the bytes at `offset`.
    pub fn replace(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.file.write_all_at(bytes, offset).map_err(cannot_write(&self.path))
    }

    /// Writes everything to the disk, at the end of the file.
    pub fn sync(&self) -> Result<(), BlockError> {
        check_not_removed(&self.file).map_err(cannot_write(&self.path))?;
        match self.file.sync_all() {
            // Pipes and devices do not support it.
            Err(error)
                if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) =>
            {
                Err(cannot_write(&self.path)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Makes the file at `path` one that this process has not recorded, for tests of sinks.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub fn of_another_process(path: &Path) {
    let copy = path.with_extension("copy");
    std::fs::copy(path, &copy).unwrap();
    std::fs::rename(&copy, path).unwrap();
}

/// A disk that fills up, for tests of sinks.
#[cfg(test)]
pub mod full_disk {
    use super::{ErrorKind, File, Write, io};
    use std::cell::Cell;

    thread_local! {
        static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Sets the number of bytes that files of this thread can append, `None` for any number.
    pub fn leave(room: Option<usize>) {
        ROOM.set(room);
    }

    pub(super) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let Some(room) = ROOM.get() else { return file.write_all(bytes) };
        let now = room.min(bytes.len());
        ROOM.set(Some(room - now));
        file.write_all(&bytes[..now])?;
        if now < bytes.len() { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_keeps_its_name_unless_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/a.b.raw");
        let env = Env::detached("out");
        let mut report = Report::new(&env);
        let mut open =
            |overwrites| OutputFile::open(&path.as_path().into(), overwrites, &mut report).unwrap();
        open(false).append(b"first").unwrap();
        let mut second = open(false);
        second.append(b"second").unwrap();
        assert!(second.path.ends_with("a.b_2.raw"));
        assert!(env.summary.get().contains("a.b_2.raw"), "{}", env.summary.get());
        second.replace(0, b"S").unwrap();
        let read = |name: &str| std::fs::read(directory.path().join("new").join(name)).unwrap();
        assert_eq!((read("a.b.raw"), read("a.b_2.raw")), (b"first".to_vec(), b"Second".to_vec()));
        // Both are of this process.
        open(true).append(b"third").unwrap();
        assert_eq!((read("a.b.raw"), read("a.b_3.raw")), (b"first".to_vec(), b"third".to_vec()));
        assert!(env.summary.get().contains("recorded by this process"), "{}", env.summary.get());
        of_another_process(&path);
        open(true).append(b"x").unwrap();
        assert_eq!(read("a.b.raw"), b"x");
    }

    #[test]
    fn full_disk_is_an_error_with_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let full = directory.path().join("full.vdif");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let mut report = Report::new(&Env::detached("out"));
        let mut file = OutputFile::open(&full.as_path().into(), false, &mut report).unwrap();
        let said = file.append(b"x").unwrap_err().to_string();
        assert!(said.ends_with("full.vdif: No space left on device"), "{said}");
        assert_eq!(file.len, 0);
    }

    #[test]
    fn removed_file_is_an_error_with_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.raw");
        let mut report = Report::new(&Env::detached("out"));
        let mut file = OutputFile::open(&path.as_path().into(), false, &mut report).unwrap();
        file.append(b"first").unwrap();
        file.sync().unwrap();
        std::fs::remove_file(&path).unwrap();
        for said in [file.append(b"second"), file.sync()] {
            let said = said.unwrap_err().to_string();
            assert!(said.ends_with("a.raw: the file was removed while it was written"), "{said}");
        }
    }

    #[test]
    fn append_after_a_partial_write_continues_without_a_hole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.raw");
        let mut report = Report::new(&Env::detached("out"));
        let mut file = OutputFile::open(&path.as_path().into(), false, &mut report).unwrap();
        file.append(b"first").unwrap();
        full_disk::leave(Some(3));
        assert!(file.append(b"second").is_err());
        assert_eq!((std::fs::read(&path).unwrap(), file.len), (b"first".to_vec(), 5));
        full_disk::leave(None);
        file.append(b"third").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), file.len), (b"firstthird".to_vec(), 10));
    }

    #[test]
    fn file_without_room_for_its_header_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.raw");
        let mut report = Report::new(&Env::detached("out"));
        let mut begin =
            || OutputFile::begin(&path.as_path().into(), false, &mut report, b"header").map(drop);
        full_disk::leave(Some(3));
        assert!(begin().is_err());
        assert!(!path.exists());
        full_disk::leave(None);
        begin().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"header");
    }

    #[test]
    fn taken_names_are_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let name = |n| if n == 1 { "a.raw".to_owned() } else { format!("a_{n}.raw") };
        (1..=MOST_NAMESAKES).for_each(|n| drop(File::create(directory.path().join(name(n)))));
        let path = directory.path().join("a.raw");
        let said = OutputFile::create(&path.as_path().into(), false, None).err().unwrap();
        let said = said.to_string();
        assert!(said.starts_with("all names from ") && said.contains("a.raw to "), "{said}");
        assert!(said.contains("a_9999.raw are taken; remove files"), "{said}");
    }
}
