//! Files that parameters name, and which of them clients may name.
//!
//! The author of a flowgraph may name any file. A client of a running flowgraph may name files below the
//! directories that the operator allowed, one for reading and one for writing. A kind declares a parameter that
//! names a file with [`read_path`] or [`written_path`]; the one place that reads parameters checks these
//! values, for every kind.

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::de::{Deserializer, Visitor};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Links that one path may pass through.
const MAX_LINKS: usize = 40;
/// Flags of every file that is opened below a directory: nothing waits for the other end of a pipe, and no link is
/// followed behind our back.
const CAREFULLY: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Where files may be opened: anywhere, or below one directory, also through links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    below: Option<Arc<Path>>,
}

impl Files {
    /// Files below `directory`, which exists; paths begin with it as it is given.
    pub fn below(directory: &Path) -> io::Result<Self> {
        if !directory.metadata()?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
        }
        if directory.to_str().is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"));
        }
        Ok(Self { below: Some(directory.into()) })
    }

    /// `path` as the methods take it: relative paths begin at the directory, if there is one.
    #[must_use]
    pub fn locate(&self, path: &Path) -> PathBuf {
        self.below.as_ref().map_or_else(|| path.to_owned(), |root| root.join(path))
    }

    /// Opens a regular file for reading.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let Some(root) = &self.below else { return crate::files::open_regular(path) };
        let (folder, name) = walk(root, path)?;
        regular(fs::openat(folder, name, OFlags::RDONLY | CAREFULLY, Mode::empty())?)
    }
}

fn leads_out() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it leads out of the directory that is allowed")
}

fn regular(file: OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) == FileType::RegularFile {
        return Ok(file.into());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

fn open_folder(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(folder, name, flags, Mode::empty())
}

/// The directory that `path`, which begins with `root`, ends in, and the name there, which is no link. Each step is
/// taken from an open directory to one directly in it; the way never leaves `root`, whatever others rename meanwhile.
fn walk(root: &Path, path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let relative = path.strip_prefix(root).map_err(|_| leads_out())?;
    let steps = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|step| step.as_os_str().to_owned()).collect()
    };
    let open = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut way = vec![fs::open(root, open, Mode::empty())?];
    let (mut rest, mut links) = (steps(relative), 0);
    while let (Some(step), Some(folder)) = (rest.pop(), way.last()) {
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
        match fs::readlinkat(folder, &step, Vec::new()) {
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
            // No link, or nothing.
            Err(Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if rest.is_empty() {
            return way.pop().map(|folder| (folder, step)).ok_or_else(leads_out);
        }
        let inner = open_folder(folder, &step)?;
        way.push(inner);
    }
    Err(Errno::ISDIR.into())
}

/// The content of the regular file at `path`, of `most` bytes at most.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    crate::files::open_regular(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// What readers of parameters know files by that a block reads, and that it writes.
pub(crate) const NAMES: [&str; 2] = ["fxgraph::read_path", "fxgraph::written_path"];

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<String, D::Error> {
        inner.deserialize_str(self)
    }
}

/// Reads a parameter that names a file which the block reads.
pub fn read_path<'de, D: Deserializer<'de>, P: From<String>>(from: D) -> Result<P, D::Error> {
    from.deserialize_newtype_struct(NAMES[0], Text).map(Into::into)
}

/// Reads a parameter that names a file which the block writes.
pub fn written_path<'de, D: Deserializer<'de>, P: From<String>>(from: D) -> Result<P, D::Error> {
    from.deserialize_newtype_struct(NAMES[1], Text).map(Into::into)
}

/// [`read_path`] of a parameter that may be left out.
pub fn read_path_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    struct Maybe;
    impl<'de> Visitor<'de> for Maybe {
        type Value = Option<PathBuf>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
            read_path(inner).map(Some)
        }
    }
    from.deserialize_option(Maybe)
}

/// Which files the parameters of a flowgraph, and its includes, may name.
#[derive(Clone, Debug, Default)]
pub struct FileAccess(Option<Arc<Rule>>);

#[derive(Debug)]
enum Rule {
    /// Any; those that are named are noted, with whether they are written.
    Noted(Mutex<BTreeSet<(bool, String)>>),
    Clients(Clients),
}

/// What clients of a running flowgraph may name.
#[derive(Debug)]
struct Clients {
    /// Below which directory they may read and write.
    allowed: ClientFiles,
    /// The files that the author of the flowgraph named, with whether they are written.
    authored: BTreeSet<(bool, String)>,
    /// The directory of the flowgraph, for includes.
    folder: Files,
    /// Files that the author included.
    included: BTreeSet<PathBuf>,
}

/// The directories below which clients may name files; without one, none.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// For reading.
    pub read: Option<Files>,
    /// For writing.
    pub write: Option<Files>,
}

/// Why a file may not be named.
pub(crate) struct NotAllowed {
    pub message: String,
    pub help: &'static str,
}

/// Access to every file.
pub(crate) static ANY: FileAccess = FileAccess(None);

impl FileAccess {
    /// Access to every file, of which a note is taken.
    pub(crate) fn noted() -> Self {
        Self(Some(Arc::new(Rule::Noted(Mutex::default()))))
    }

    /// What clients may name: files as `allowed`, those that `notes` has, and includes below `folder` or among
    /// `included`.
    pub(crate) fn clients(
        allowed: ClientFiles,
        notes: &Self,
        folder: Files,
        included: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let authored = match notes.0.as_deref() {
            Some(Rule::Noted(noted)) => {
                noted.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            _ => BTreeSet::new(),
        };
        let included = included.into_iter().collect();
        Self(Some(Arc::new(Rule::Clients(Clients { allowed, authored, folder, included }))))
    }

    fn limits(&self) -> Option<&Clients> {
        match self.0.as_deref() {
            Some(Rule::Clients(clients)) => Some(clients),
            _ => None,
        }
    }

    /// Whether not every file may be named.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits().is_some()
    }

    /// Where the file `text` is, if that is below the directory for clients and not where it says itself.
    pub(crate) fn check(&self, is_written: bool, text: &str) -> Result<Option<String>, NotAllowed> {
        if let Some(Rule::Noted(noted)) = self.0.as_deref() {
            let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.insert((is_written, text.to_owned()));
        }
        let Some(Clients { allowed, authored, .. }) = self.limits() else { return Ok(None) };
        // Whoever sends the whole flowgraph sends these too.
        if authored.contains(&(is_written, text.to_owned())) {
            return Ok(None);
        }
        let (verb, files) =
            if is_written { ("write", &allowed.write) } else { ("read", &allowed.read) };
        let Some((files, root)) = files.as_ref().and_then(|f| Some((f, f.below.as_deref()?)))
        else {
            let message = format!("clients may not {verb} files, and `{text}` is a new one");
            let help = "`fxgraph run --files DIR` lets clients name files below DIR";
            return Err(NotAllowed { message, help });
        };
        let path = files.locate(Path::new(text));
        let is_plain = path.components().all(|step| step != Component::ParentDir);
        // What does not exist leads nowhere; what cannot be looked at may.
        let leads_out = |path: &Path| {
            walk(root, path).is_err_and(|error| {
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            })
        };
        // A name that is completed later, from a timestamp, may become that of any link beside it.
        let completes_to_link = || {
            let folder = path.parent().unwrap_or(root);
            let is_open = |text: &Path| text.to_string_lossy().contains('{');
            let links_out = |entry: io::Result<std::fs::DirEntry>| {
                entry.is_ok_and(|entry| {
                    entry.file_type().is_ok_and(|kind| kind.is_symlink())
                        && leads_out(&entry.path())
                })
            };
            is_written
                && text.contains('{')
                && (folder.strip_prefix(root).is_ok_and(is_open)
                    || std::fs::read_dir(folder).is_ok_and(|mut all| all.any(links_out)))
        };
        let is_outside = text.contains('\0') || !is_plain || !path.starts_with(root);
        if is_outside || leads_out(&path) || completes_to_link() {
            let message = format!("`{text}` is outside the directory that clients may {verb}");
            let help = "give a path below the directory of `--files`, relative to that directory";
            return Err(NotAllowed { message, help });
        }
        Ok(path.to_str().map(str::to_owned))
    }

    /// Where includes begin, if not every file may be included; empty otherwise.
    pub(crate) fn include_root(&self) -> PathBuf {
        let below = self.limits().and_then(|clients| clients.folder.below.as_deref());
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// How the file at `path` is included.
    pub(crate) fn for_include(&self, path: &Path) -> Files {
        let Some(clients) = self.limits() else { return Files::default() };
        let is_authored = path.canonicalize().is_ok_and(|path| clients.included.contains(&path));
        if is_authored { Files::default() } else { clients.folder.clone() }
    }

    /// Whether errors may quote the included file at `path`.
    pub(crate) fn may_quote(&self, path: &Path) -> bool {
        let path = self.include_root().join(path);
        self.limits().is_none_or(|clients| {
            path.canonicalize().is_ok_and(|path| clients.included.contains(&path))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory with what lies outside, and the directory that is allowed.
    fn folders() -> (tempfile::TempDir, PathBuf, Files) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("allowed");
        std::fs::create_dir_all(root.join("inner")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::write(root.join("inner/open"), "open").unwrap();
        let files = Files::below(&root).unwrap();
        (folder, root, files)
    }

    fn text(file: io::Result<File>) -> io::Result<String> {
        let mut text = String::new();
        file?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn files_links_that_stay_below_are_followed() {
        let (_folder, root, files) = folders();
        symlink("inner", root.join("relative")).unwrap();
        symlink(root.join("inner"), root.join("absolute")).unwrap();
        symlink("../inner/open", root.join("inner/back")).unwrap();
        for name in ["inner/open", "relative/open", "absolute/open", "relative/back"] {
            assert_eq!(text(files.open(&root.join(name))).unwrap(), "open", "{name}");
        }
    }

    #[test]
    fn files_paths_that_lead_out_are_not_opened() {
        let (folder, root, files) = folders();
        let secret = folder.path().join("secret");
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

    #[test]
    fn read_regular_device_or_large_file_is_refused() {
        let (folder, ..) = folders();
        assert!(read_regular(Path::new("/dev/zero"), 10).is_err());
        assert!(read_regular(&folder.path().join("secret"), 5).is_err(), "it has one byte more");
        assert_eq!(read_regular(&folder.path().join("secret"), 6).unwrap(), b"secret");
    }

    #[test]
    fn clients_name_authored_files_and_those_below_their_directory() {
        let (_folder, root, files) = folders();
        let notes = FileAccess::noted();
        assert!(notes.check(true, "/data/out.npz").is_ok());
        let here = Files::below(&root).unwrap();
        let allowed = ClientFiles { read: None, write: Some(files) };
        let access = FileAccess::clients(allowed, &notes, here, []);
        let checked = |is_written, text: &str| access.check(is_written, text).ok();
        let new = root.join("new/a.npz").display().to_string();
        assert_eq!(checked(true, "/data/out.npz"), Some(None), "as the author has it");
        assert_eq!(checked(true, "new/a.npz"), Some(Some(new.clone())));
        assert_eq!(checked(true, &new), Some(Some(new)));
        symlink("/etc", root.join("etc")).unwrap();
        let bad = ["../a.npz", "/etc/a.npz", "inner/../../a.npz", "etc/a.npz", "a\0.npz"];
        for text in bad {
            assert_eq!(checked(true, text), None, "{text}");
        }
        for unread in ["/data/out.npz", "inner/open"] {
            assert_eq!(checked(false, unread), None, "{unread}");
        }
    }
}
