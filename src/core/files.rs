//! Access to files anywhere, or below one directory only.

use crate::lock::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for the program at the other end of a pipe.
const OTHER_END: Duration = Duration::from_secs(10);
/// Interval at which a wait for the other end of a pipe looks.
const LOOK: Duration = Duration::from_millis(50);
/// Limit of the links that one path passes through.
const MAX_LINKS: usize = 40;

/// Files that may be opened: any, or those below one directory.
///
/// Below a directory, every path is followed from one open directory to an entry of it. Links are followed
/// as long as they stay below the directory. Renames and links that other processes make in the meantime cannot lead
/// out of it, for reading or for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    below: Option<Arc<Path>>,
}

/// Files that this process has recorded: a hash of each, as sinks may write files for years.
static RECORDED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

/// Hash of the identity of a file. The time of its creation tells it from a removed file with the same number.
fn identity(file: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    (file.dev(), file.ino(), file.created().ok()).hash(&mut hasher);
    hasher.finish()
}

fn is_recorded(file: &Metadata) -> bool {
    let recorded = lock(&RECORDED);
    file.is_file() && recorded.contains(&identity(file))
}

/// Notes that this process records `file`: [`Files::overwrite`] does not overwrite it.
///
/// # Errors
/// If the identity of the file is not known.
pub fn note_recorded(file: &File) -> io::Result<()> {
    let there = file.metadata()?;
    if there.is_file() {
        lock(&RECORDED).insert(identity(&there));
    }
    Ok(())
}

/// Checks that `file` still has a name, so that it can be read.
///
/// # Errors
/// If the file has no name any more.
pub fn check_not_removed(file: &File) -> io::Result<()> {
    let there = file.metadata()?;
    if there.is_file() && there.nlink() == 0 {
        return Err(io::Error::other("the file was removed while it was written"));
    }
    Ok(())
}

/// A name in an open directory; any path without a directory.
struct Place {
    directory: Option<OwnedFd>,
    name: OsString,
}

impl Place {
    fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, OwnedFd::as_fd)
    }
}

impl Files {
    /// Files below the existing `directory`; their paths begin with `directory` as given.
    pub fn below(directory: &Path) -> io::Result<Self> {
        if !directory.metadata()?.is_dir() {
            return Err(io::Error::new(ErrorKind::NotADirectory, "it is not a directory"));
        }
        if directory.to_str().is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "its name is not UTF-8"));
        }
        Ok(Self::below_known(directory))
    }

    /// [`below`](Self::below) for a directory that was checked before.
    #[must_use]
    pub fn below_known(directory: &Path) -> Self {
        Self { below: Some(directory.into()) }
    }

    /// The directory, if files are restricted to one.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.below.as_deref()
    }

    fn place(&self, path: &Path) -> io::Result<Place> {
        match &self.below {
            Some(root) => walk(root, path, false),
            None => Ok(Place { directory: None, name: path.into() }),
        }
    }

    /// Whether `path` is allowed, also for a file that does not exist yet.
    #[must_use]
    pub fn admits(&self, path: &Path) -> bool {
        use ErrorKind::{NotADirectory, NotFound};
        self.place(path).map_or_else(|e| matches!(e.kind(), NotFound | NotADirectory), |_| true)
    }

    /// Opens `path`, without waiting for the other end of a pipe. Below a directory it must be a regular file; otherwise
    /// pipes and devices are allowed, too.
    fn open_as(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let place = self.place(path)?;
        // Follow no link that `walk` has not checked.
        let link = if self.below.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = flags | link | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let open = || fs::openat(place.directory(), &place.name, flags, mode);
        let file = File::from(retry_on_intr(open)?);
        if self.below.is_some() { regular(file) } else { Ok(file) }
    }

    /// [`open_as`](Self::open_as) for writing. Waits up to [`OTHER_END`] for the program that reads a pipe.
    fn open_written(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let began = Instant::now();
        let is_pipe = || self.file_type(path).is_ok_and(FileType::is_fifo);
        loop {
            match self.open_as(path, flags | OFlags::WRONLY) {
                // Clients, who name files below a directory, must not make anybody wait.
                Err(error)
                    if self.below.is_none()
                        && Errno::from_io_error(&error) == Some(Errno::NXIO)
                        && is_pipe() =>
                {
                    if began.elapsed() >= OTHER_END {
                        let text = format!(
                            "no program has opened the pipe for reading within {} s",
                            OTHER_END.as_secs()
                        );
                        return Err(io::Error::new(ErrorKind::TimedOut, text));
                    }
                    std::thread::sleep(LOOK);
                }
                Err(error) => return Err(error),
                Ok(file) => {
                    // A write waits for room in the pipe.
                    let flags = fs::fcntl_getfl(&file)?;
                    fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
                    return Ok(file);
                }
            }
        }
    }

    /// Opens a regular file for reading. Other files are an error, without waiting for the writer of a pipe.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        regular(self.open_as(path, OFlags::RDONLY)?)
    }

    /// Opens a file for reading it once from its beginning. Without a directory this may be a pipe, which is read with
    /// [`Awaited`].
    pub fn open_once(&self, path: &Path) -> io::Result<File> {
        self.open_as(path, OFlags::RDONLY)
    }

    /// Creates a file, or truncates an existing one.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        self.open_written(path, OFlags::CREATE | OFlags::TRUNC)
    }

    /// Creates a file, or truncates an existing one. A file that this process has recorded stays, with the error
    /// [`ErrorKind::AlreadyExists`].
    pub fn overwrite(&self, path: &Path) -> io::Result<File> {
        let file = self.open_written(path, OFlags::CREATE)?;
        let there = file.metadata()?;
        if is_recorded(&there) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if there.is_file() {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Whether this process has recorded the file at `path`.
    #[must_use]
    pub fn is_recorded(&self, path: &Path) -> bool {
        // The file may be a pipe, and is not opened.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = self.place(path).and_then(|place| {
            Ok(File::from(fs::openat(place.directory(), &place.name, flags, Mode::empty())?))
        });
        file.and_then(|file| file.metadata()).is_ok_and(|there| is_recorded(&there))
    }

    /// Creates a file that does not exist yet.
    pub fn create_new(&self, path: &Path) -> io::Result<File> {
        self.open_written(path, OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens an existing file for writing, without truncating it.
    pub fn open_to_write(&self, path: &Path) -> io::Result<File> {
        self.open_written(path, OFlags::empty())
    }

    /// Opens the pipe at `path` for writing, without waiting for a reader, and makes the pipe if there is no file. `None`
    /// while no program reads the pipe. Writes do not wait either.
    ///
    /// # Errors
    /// If the file at `path` is not a pipe, or if it cannot be made. Below a directory, files are regular ones.
    pub fn open_pipe(&self, path: &Path) -> io::Result<Option<File>> {
        if self.below.is_some() {
            return Err(not_regular());
        }
        match fs::mkfifoat(CWD, path, Mode::from_raw_mode(0o666)) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
        if !self.file_type(path)?.is_fifo() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a pipe"));
        }
        match self.open_as(path, OFlags::WRONLY) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => Ok(None),
            file => file.map(Some),
        }
    }

    /// Type of the file at `path`, after following links.
    pub fn file_type(&self, path: &Path) -> io::Result<FileType> {
        let place = self.place(path)?;
        let flags = if self.below.is_some() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        let status = fs::statat(place.directory(), &place.name, flags)?;
        Ok(FileType::from_raw_mode(status.st_mode))
    }

    /// Whether there is a file or a directory at `path`.
    #[must_use]
    pub fn exists(&self, path: &Path) -> bool {
        self.file_type(path).is_ok()
    }

    /// Whether there is a directory at `path`.
    #[must_use]
    pub fn is_directory(&self, path: &Path) -> bool {
        self.file_type(path).is_ok_and(FileType::is_dir)
    }

    /// Whether `path` is taken by a file, a directory or a link, also a dangling link.
    #[must_use]
    pub fn is_taken(&self, path: &Path) -> bool {
        self.place(path).is_ok_and(|place| {
            fs::statat(place.directory(), &place.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
        })
    }

    /// Makes a directory that does not exist yet.
    pub fn make_directory(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?;
        Ok(make_directory(place.directory(), &place.name)?)
    }

    /// Makes the missing parent directories of `path`.
    pub fn make_directories_to(&self, path: &Path) -> io::Result<()> {
        match &self.below {
            Some(root) => walk(root, path, true).map(drop),
            None => path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|error| {
                // A file is in the place of a directory.
                let is_file = error.kind() == ErrorKind::AlreadyExists;
                if is_file { ErrorKind::NotADirectory.into() } else { error }
            }),
        }
    }

    /// Renames the file at `from` to `to`; an existing file at `to` is replaced.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        Ok(fs::renameat(from.directory(), &from.name, to.directory(), &to.name)?)
    }

    /// Removes a file.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?;
        Ok(fs::unlinkat(place.directory(), &place.name, AtFlags::empty())?)
    }

    /// Removes a directory with the files in it.
    pub fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let place = self.place(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::openat(place.directory(), &place.name, flags, Mode::empty())?;
        for entry in fs::Dir::read_from(&directory)? {
            let entry = entry?;
            if ![c".", c".."].contains(&entry.file_name()) {
                fs::unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
            }
        }
        Ok(fs::unlinkat(place.directory(), &place.name, AtFlags::REMOVEDIR)?)
    }
}

/// Reader of a file of [`Files::open_once`]: a pipe may have no data, or no writer yet, for any time. `is_over` is asked
/// at least ten times per second meanwhile, with the time since the last data; once it returns true, the file ends.
pub struct Awaited<F> {
    file: File,
    is_over: F,
    last: Instant,
}

impl<F: FnMut(Duration) -> bool> Awaited<F> {
    /// Reads `file` until `is_over`.
    pub fn new(file: File, is_over: F) -> Self {
        Self { file, is_over, last: Instant::now() }
    }
}

impl<F: FnMut(Duration) -> bool> Read for Awaited<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        loop {
            let mut wanted = [PollFd::new(&self.file, PollFlags::IN)];
            // Without a writer so far, a pipe is not ready; after its last writer, its end is read.
            let is_ready = retry_on_intr(|| poll(&mut wanted, Some(&look)))? > 0;
            if !is_ready {
                if (self.is_over)(self.last.elapsed()) {
                    return Ok(0);
                }
                continue;
            }
            match self.file.read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => {
                    self.last = Instant::now();
                    return read;
                }
            }
        }
    }
}

fn leads_out() -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, "it leads out of the allowed directory")
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(not_regular())
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")
}

fn make_directory(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    fs::mkdirat(directory, name, Mode::from_raw_mode(0o777))
}

/// Follows `path`, which begins with `root`, to a name that is not a link. Missing directories on the way are made if
/// `makes` is set.
fn walk(root: &Path, path: &Path, makes: bool) -> io::Result<Place> {
    let relative = path.strip_prefix(root).map_err(|_| leads_out())?;
    let steps = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|step| step.as_os_str().to_owned()).collect()
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let enter = |directory: &OwnedFd, name: &OsStr| {
        fs::openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty())
    };
    let mut way = vec![fs::open(root, flags, Mode::empty())?];
    let (mut rest, mut links) = (steps(relative), 0);
    while let (Some(step), Some(directory)) = (rest.pop(), way.last()) {
        match Path::new(&step).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                way.pop();
                if way.is_empty() {
                    return Err(leads_out());
                }
                continue;
            }
            _ => continue,
        }
        match fs::readlinkat(directory, &step, Vec::new()) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    let inside = target.strip_prefix(root.canonicalize()?);
                    rest.extend(steps(inside.map_err(|_| leads_out())?));
                    way.truncate(1);
                } else {
                    rest.extend(steps(target));
                }
                continue;
            }
            // Not a link, or missing.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if rest.is_empty() {
            return Ok(Place { directory: way.pop(), name: step });
        }
        let inner = match enter(directory, &step) {
            Err(Errno::NOENT) if makes => {
                match make_directory(directory, &step) {
                    // Another process may have made it.
                    Ok(()) | Err(Errno::EXIST) => enter(directory, &step)?,
                    Err(error) => return Err(error.into()),
                }
            }
            inner => inner?,
        };
        way.push(inner);
    }
    Err(Errno::ISDIR.into())
}

/// [`Files::open`] without restrictions.
pub fn open_regular(path: &Path) -> io::Result<File> {
    Files::default().open(path)
}

/// Reads the text of a regular file: UTF-8 of at most `most_bytes` bytes.
pub fn read_text(file: File, most_bytes: u64) -> io::Result<String> {
    let reject = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let length = file.metadata()?.len();
    if length > most_bytes {
        return Err(reject(format!("it must have at most {most_bytes} bytes, got {length}")));
    }
    let mut bytes = Vec::new();
    file.take(most_bytes).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| reject("it is not UTF-8 text".to_owned()))
}

/// Reads the regular file at `path`, of at most `most` bytes.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("it must have at most {most} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Reads the file or the pipe at `path`, of at most `most` bytes; a pipe must have data at least every 10 s.
pub fn read_awaited(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (mut bytes, mut is_late) = (Vec::new(), false);
    let file = Awaited::new(Files::default().open_once(path)?, |silence| {
        is_late = silence >= OTHER_END;
        is_late
    });
    file.take(most + 1).read_to_end(&mut bytes)?;
    if is_late {
        let text = format!("no data came from the pipe for {} s", OTHER_END.as_secs());
        return Err(io::Error::new(ErrorKind::TimedOut, text));
    }
    if bytes.len() as u64 > most {
        let text = format!("it must have at most {most} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Describes an error of reading or writing a file, for users.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::NotFound => "there is no such file",
        ErrorKind::PermissionDenied if error.raw_os_error().is_some() => "permission denied",
        ErrorKind::IsADirectory => "it is a directory; give the path of a file",
        ErrorKind::NotADirectory => {
            "a part of the path is not a directory; give a path in a directory"
        }
        ErrorKind::AlreadyExists if error.raw_os_error().is_some() => {
            "there is a file with this name; give another path"
        }
        ErrorKind::QuotaExceeded => "the disk quota is used up",
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        ErrorKind::FileTooLarge if error.raw_os_error().is_some() => {
            "the file exceeds the limit on the size of files (`ulimit -f`)"
        }
        // The number of the error means nothing to a user.
        _ => return error.to_string().split(" (os error ").next().unwrap_or_default().to_owned(),
    };
    words.to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A directory with files outside the allowed directory, and the allowed directory.
    fn directories() -> (tempfile::TempDir, PathBuf, Files) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("allowed");
        std::fs::create_dir_all(root.join("inner")).unwrap();
        std::fs::write(directory.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("inner/open"), "open").unwrap();
        let files = Files::below(&root).unwrap();
        (directory, root, files)
    }

    fn text(file: io::Result<File>) -> io::Result<String> {
        let mut text = String::new();
        file?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn files_follow_links_that_stay_below() {
        let (_directory, root, files) = directories();
        symlink("inner", root.join("relative")).unwrap();
        symlink(root.join("inner"), root.join("absolute")).unwrap();
        symlink("../inner/open", root.join("inner/back")).unwrap();
        for name in ["inner/open", "relative/open", "absolute/open", "relative/back"] {
            assert_eq!(text(files.open(&root.join(name))).unwrap(), "open", "{name}");
        }
    }

    #[test]
    fn pipe_is_made_and_opened_without_waiting_for_its_reader() {
        let (_directory, root, below) = directories();
        let (files, path) = (Files::default(), root.join("new"));
        assert!(files.open_pipe(&path).unwrap().is_none());
        let mut reader = files.open_once(&path).unwrap();
        io::Write::write_all(&mut files.open_pipe(&path).unwrap().unwrap(), b"text").unwrap();
        let mut text = [0; 4];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        assert!(files.open_pipe(&root.join("inner/open")).is_err(), "a regular file");
        assert!(below.open_pipe(&path).is_err(), "of a client");
    }

    #[test]
    fn files_reject_paths_that_lead_out() {
        let (directory, root, files) = directories();
        let secret = directory.path().join("secret");
        symlink("..", root.join("up")).unwrap();
        symlink("../..", root.join("inner/far")).unwrap();
        symlink(&secret, root.join("direct")).unwrap();
        symlink("/proc/self/fd/0", root.join("process")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(root.join("pipe")).status().unwrap();
        assert!(pipe.success());
        let names = ["../secret", "up/secret", "inner/far/secret", "inner/../../secret"];
        let others = ["direct", "process", "circle", "pipe", "inner", "/etc/passwd"];
        for name in names.iter().chain(&others) {
            assert!(files.open(&root.join(name)).is_err(), "{name}");
        }
    }

    /// Results of `once` while `link` alternates between the two `targets`.
    fn race<T>(link: &Path, targets: [&Path; 2], once: impl FnMut(usize) -> T) -> Vec<T> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let draft = link.with_extension("draft");
                for target in targets.iter().cycle() {
                    symlink(target, &draft).unwrap();
                    std::fs::rename(&draft, link).unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let results = (0..2000).map(once).collect();
            is_over.store(true, Ordering::Relaxed);
            results
        })
    }

    #[test]
    fn files_never_follow_changing_link_out() {
        let (directory, root, files) = directories();
        let outside = directory.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("open"), "secret").unwrap();
        let link = root.join("link");
        let open = |path: &Path| text(files.open(path)).is_ok_and(|text| text == "secret");
        for targets in [[Path::new("inner"), &outside], [Path::new("inner"), Path::new("..")]] {
            let names = ["open", "secret"];
            let read = race(&link, targets, |n| open(&link.join(names[n % 2])));
            assert!(!read.contains(&true), "{targets:?}");
            race(&link, targets, |n| {
                let made = link.join(format!("made_{n}"));
                let _ = (files.create(&made), files.make_directories_to(&made.join("inner/x")));
                let _ = files.rename(&link.join("open"), &link.join(format!("moved_{n}")));
                let _ = files.remove_file(&link.join("open"));
            });
        }
        let file = root.join("file");
        let targets = [Path::new("inner/kept"), Path::new("../secret")];
        std::fs::write(root.join("inner/kept"), "kept").unwrap();
        assert!(!race(&file, targets, |_| open(&file)).contains(&true));
        race(&file, targets, |_| files.create(&file).is_ok());
        let left = |directory: &Path| std::fs::read_dir(directory).unwrap().count();
        assert_eq!((left(directory.path()), left(&outside)), (3, 1), "nothing was made or removed");
        for unchanged in [directory.path().join("secret"), outside.join("open")] {
            assert_eq!(std::fs::read_to_string(unchanged).unwrap(), "secret");
        }
    }

    #[test]
    fn files_make_and_remove_directories_below_only() {
        let (directory, root, files) = directories();
        symlink("inner", root.join("link")).unwrap();
        let path = root.join("link/a/b/c");
        files.make_directories_to(&path).unwrap();
        files.make_directories_to(&path).unwrap();
        io::Write::write_all(&mut files.create_new(&path).unwrap(), b"new").unwrap();
        assert_eq!(files.create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(root.join("inner/a/b/c")).unwrap(), "new");
        files.remove_directory(path.parent().unwrap()).unwrap();
        assert!(root.join("inner/a").is_dir() && !root.join("inner/a/b").exists());
        symlink("../..", root.join("inner/a/up")).unwrap();
        let outside = [root.join("inner/a/up/../x"), directory.path().join("x"), root.join("../x")];
        for path in outside {
            assert!(files.make_directories_to(&path.join("x")).is_err(), "{}", path.display());
            assert!(files.make_directory(&path).is_err(), "{}", path.display());
        }
        assert!(!directory.path().join("x").exists());
    }

    #[test]
    fn overwrite_keeps_files_of_this_process_and_truncates_others() {
        let (directory, root, files) = directories();
        let path = root.join("inner/a");
        std::fs::write(&path, "earlier").unwrap();
        assert!(!files.is_recorded(&path));
        let file = files.overwrite(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        note_recorded(&file).unwrap();
        std::fs::write(&path, "recorded").unwrap();
        symlink("inner/a", root.join("link")).unwrap();
        for (files, path) in [(&files, path.clone()), (&Files::default(), root.join("link"))] {
            assert!(files.is_recorded(&path));
            let error = files.overwrite(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"recorded");
        // Under another name it stays recorded; another file with the name is not.
        std::fs::rename(&path, root.join("moved")).unwrap();
        std::fs::write(&path, "of the user").unwrap();
        assert!(files.is_recorded(&root.join("moved")) && !files.is_recorded(&path));
        files.overwrite(&path).unwrap();
        // Devices are written to as they are.
        let null = Files::default().overwrite(Path::new("/dev/null")).unwrap();
        note_recorded(&null).unwrap();
        assert!(Files::default().overwrite(Path::new("/dev/null")).is_ok());
        drop(directory);
    }

    #[test]
    fn read_regular_rejects_device_and_large_file() {
        let (directory, ..) = directories();
        assert!(read_regular(Path::new("/dev/zero"), 10).is_err());
        assert!(read_regular(&directory.path().join("secret"), 5).is_err(), "it has one byte more");
        assert_eq!(read_regular(&directory.path().join("secret"), 6).unwrap(), b"secret");
    }

    #[test]
    fn open_regular_rejects_pipe_and_directory_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), directory.path(), Path::new("/dev/zero")] {
            let said = open_regular(path).unwrap_err().to_string();
            assert_eq!(said, "it is not a regular file", "{}", path.display());
        }
    }

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        (directory, pipe)
    }

    #[test]
    fn awaited_pipe_is_opened_before_its_writer_and_read_to_its_end() {
        let (_directory, pipe) = pipe();
        let file = Files::default().open_once(&pipe).unwrap();
        let (mut looks, path) = (0, pipe.clone());
        let mut writer = None;
        let mut read = Awaited::new(file, |_| {
            looks += 1;
            if looks == 2 {
                let path = path.clone();
                writer = Some(std::thread::spawn(move || std::fs::write(path, "late").unwrap()));
            }
            false
        });
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
        assert!(looks >= 2);
    }

    #[test]
    fn awaited_pipe_without_writer_ends_when_its_reader_stops() {
        let (_directory, pipe) = pipe();
        let file = Files::default().open_once(&pipe).unwrap();
        let mut silences = Vec::new();
        let mut read = Awaited::new(file, |silence| {
            silences.push(silence);
            silences.len() == 3
        });
        assert_eq!(read.read(&mut [0; 8]).unwrap(), 0);
        assert!(silences.is_sorted() && silences.len() == 3);
    }

    #[test]
    fn written_pipe_waits_for_its_reader_within_a_limit() {
        let (_directory, pipe) = pipe();
        let said = Files::default().open_to_write(&pipe).unwrap_err();
        assert_eq!(said.kind(), ErrorKind::TimedOut);
        assert!(said.to_string().contains("no program has opened the pipe for reading"), "{said}");
        let path = pipe.clone();
        let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
        let mut file = Files::default().open_to_write(&pipe).unwrap();
        io::Write::write_all(&mut file, b"read").unwrap();
        drop(file);
        assert_eq!(reader.join().unwrap(), "read");
    }

    #[test]
    fn read_text_rejects_long_or_non_utf8_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "four").unwrap();
        let read = |most| read_text(File::open(&path).unwrap(), most);
        assert_eq!(read(4).unwrap(), "four");
        let said = read(3).unwrap_err().to_string();
        assert_eq!(said, "it must have at most 3 bytes, got 4");
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert_eq!(read(4).unwrap_err().to_string(), "it is not UTF-8 text");
    }
}
