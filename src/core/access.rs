//! Parameters that name files, and the files that clients may name.
//!
//! The author of a flowgraph may name any file. A client of a running flowgraph may name files below the
//! directories that the operator allowed, one for reading and one for writing. A kind declares a parameter that
//! names a file as a [`ReadPath`] or a [`WrittenPath`]. The reader of parameters checks these values for every
//! kind, and a block opens the file through the parameter, which stays below the allowed directory.

use crate::files::Files;
use crate::lock::lock;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Names of the serde newtype structs of files that a block reads, of files that it writes, of texts that it executes,
/// and of files that it executes, in the order of [`FileUse::ALL`].
pub const NAMES: [&str; 4] =
    ["fxgraph::read_path", "fxgraph::written_path", "fxgraph::executed", "fxgraph::executed_path"];

/// Use of a file or a text that a parameter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// The block reads the file.
    Read,
    /// The block writes the file.
    Write,
    /// The block executes the text, or the program of this name.
    Execute,
    /// The block executes the file.
    ExecuteFile,
}

impl FileUse {
    /// All uses.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Execute, Self::ExecuteFile];
}

/// A parameter that names a file: its text, and the directory that it must stay below. Relative paths begin in the
/// working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePath<const IS_WRITTEN: bool> {
    text: String,
    files: Files,
}

/// A parameter that names a file which the block reads.
pub type ReadPath = FilePath<false>;
/// A parameter that names a file which the block writes.
pub type WrittenPath = FilePath<true>;

impl<const IS_WRITTEN: bool> FilePath<IS_WRITTEN> {
    /// The file `text` of `files`.
    #[must_use]
    pub fn new(files: Files, text: impl Into<String>) -> Self {
        Self { text: text.into(), files }
    }

    /// The file `text`, with the same allowed directory.
    #[must_use]
    pub fn with(&self, text: impl Into<String>) -> Self {
        Self::new(self.files.clone(), text)
    }

    /// This file, with a relative path beginning at `directory`.
    #[must_use]
    pub fn begin_at(&self, directory: &Path) -> Self {
        self.with(directory.join(&self.text).display().to_string())
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(&self.text)
    }

    /// Files that are allowed.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Whether the path exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.files.exists(self.path())
    }
}

impl ReadPath {
    /// See [`Files::open`].
    pub fn open(&self) -> io::Result<File> {
        self.files.open(self.path())
    }

    /// See [`Files::open_once`].
    pub fn open_once(&self) -> io::Result<File> {
        self.files.open_once(self.path())
    }
}

impl WrittenPath {
    /// See [`Files::create`].
    pub fn create(&self) -> io::Result<File> {
        self.files.create(self.path())
    }
}

/// Its text.
impl<const IS_WRITTEN: bool> Deref for FilePath<IS_WRITTEN> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl<const IS_WRITTEN: bool> fmt::Display for FilePath<IS_WRITTEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A file anywhere.
impl<const IS_WRITTEN: bool> From<&str> for FilePath<IS_WRITTEN> {
    fn from(text: &str) -> Self {
        Self::new(Files::default(), text)
    }
}

/// A file anywhere.
impl<const IS_WRITTEN: bool> From<&Path> for FilePath<IS_WRITTEN> {
    fn from(path: &Path) -> Self {
        Self::new(Files::default(), path.display().to_string())
    }
}

impl<'de, const IS_WRITTEN: bool> Deserialize<'de> for FilePath<IS_WRITTEN> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_newtype_struct(NAMES[usize::from(IS_WRITTEN)], Named)
    }
}

/// Visitor that accepts text, or a path with its allowed directory, which only [`FileAccess::check`]
/// gives.
struct Named<const IS_WRITTEN: bool>;

impl<'de, const IS_WRITTEN: bool> Visitor<'de> for Named<IS_WRITTEN> {
    type Value = FilePath<IS_WRITTEN>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.into())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
        // Only text is accepted here.
        inner.deserialize_str(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut located: A) -> Result<Self::Value, A::Error> {
        let mut next = || located.next_element::<String>()?.ok_or_else(|| A::Error::custom("text"));
        let (path, root) = (next()?, next()?);
        Ok(FilePath::new(Files::below_known(Path::new(&root)), path))
    }
}

impl<const IS_WRITTEN: bool> JsonSchema for FilePath<IS_WRITTEN> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        if IS_WRITTEN { "WrittenPath".into() } else { "ReadPath".into() }
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let verb = if IS_WRITTEN { "write" } else { "read" };
        json_schema!({"type": "string", "x-file": verb})
    }
}

/// A parameter with code that a block executes: the path of a file or of a program, or the text of a program. Clients
/// may give only code that the running flowgraph names already, also below directories that they may write to: they could
/// otherwise run the files that they write there. Clients on this machine may also give files below the directory for code,
/// which are opened below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed<const IS_PATH: bool>(ReadPath);

impl ExecutedPath {
    /// See [`Files::open`].
    pub fn open(&self) -> io::Result<File> {
        self.0.open()
    }

    /// The file `name` in the directory of this one, with the same allowed directory.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self(self.0.with(self.0.path().with_file_name(name).display().to_string()))
    }
}

/// A parameter that names a file which the block executes.
pub type ExecutedPath = Executed<true>;
/// A parameter with the text of a program.
pub type ExecutedText = Executed<false>;

impl<const IS_PATH: bool> Deref for Executed<IS_PATH> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const IS_PATH: bool> From<&str> for Executed<IS_PATH> {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<'de, const IS_PATH: bool> Deserialize<'de> for Executed<IS_PATH> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = NAMES[2 + usize::from(IS_PATH)];
        from.deserialize_newtype_struct(name, Named).map(Self)
    }
}

impl<const IS_PATH: bool> JsonSchema for Executed<IS_PATH> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        if IS_PATH { "ExecutedPath".into() } else { "ExecutedText".into() }
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        if IS_PATH {
            json_schema!({"type": "string", "x-file": "execute"})
        } else {
            json_schema!({"type": "string"})
        }
    }
}

/// Files that the parameters and includes of a flowgraph may name.
#[derive(Clone, Debug, Default)]
pub struct FileAccess(Option<Arc<Rule>>);

#[derive(Debug)]
enum Rule {
    /// Any file; named files are noted.
    Noted(Mutex<BTreeSet<(FileUse, String)>>),
    Clients(Clients),
}

/// Files that clients of a running flowgraph may name.
#[derive(Clone, Debug)]
struct Clients {
    /// Directories for reading and writing.
    allowed: ClientFiles,
    /// Files and code that the author of the flowgraph named.
    authored: BTreeSet<(FileUse, String)>,
    /// Directory of the flowgraph, for includes.
    directory: Files,
    /// Files that the author included.
    included: BTreeSet<PathBuf>,
    /// Whether the client is on this machine, so that it may run files below the directory for code.
    may_execute: bool,
    /// Files below the directory for code that clients on this machine have put into the running flowgraph.
    code: BTreeSet<String>,
}

/// Directories below which clients may name files; `None` allows no files.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// For reading.
    pub read: Option<Files>,
    /// For writing.
    pub write: Option<Files>,
    /// With code, for clients on this machine.
    pub code: Option<Files>,
}

/// Error for a file that may not be named.
pub struct NotAllowed {
    /// The error in one line.
    pub message: String,
    /// Advice.
    pub help: &'static str,
}

const IN_FILE: &str = "put the block, or a `shadow` with the code, into the flowgraph file, and start the flowgraph \
                       again; or put the code into a file below the directory of `fxgraph run --code DIR`";
const NO_CODE: &str = "start the program with `fxgraph run --code DIR`, which allows clients on this machine to run files \
                       below DIR, or put the block, or a `shadow` with the code, into the flowgraph file";
const CODE_PATH: &str = "give the path of a file below that directory, without `..` and links from elsewhere, absolute or \
                         relative to the working directory of the program";

fn unknown_code(text: &str, help: &'static str) -> NotAllowed {
    let message =
        format!("clients may not run code that the flowgraph does not name, got `{text}`");
    NotAllowed { message, help }
}

/// Access to every file.
pub static ANY: FileAccess = FileAccess(None);

impl FileAccess {
    /// Access to every file; named files are noted.
    #[must_use]
    pub fn noted() -> Self {
        Self(Some(Arc::new(Rule::Noted(Mutex::default()))))
    }

    /// Access for clients: files as `allowed`, files noted in `notes`, and includes below `directory` or among
    /// `included`.
    pub fn clients(
        allowed: ClientFiles,
        notes: &Self,
        directory: Files,
        included: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        let authored = match notes.0.as_deref() {
            Some(Rule::Noted(noted)) => lock(noted).clone(),
            _ => BTreeSet::new(),
        };
        let included = included.into_iter().collect();
        Self(Some(Arc::new(Rule::Clients(Clients {
            allowed,
            authored,
            directory,
            included,
            may_execute: false,
            code: BTreeSet::new(),
        }))))
    }

    /// This access, in which clients may also name the files noted in `notes` and include those in `included`, because
    /// the author has named them in a newer flowgraph file.
    #[must_use]
    pub fn with_authored(&self, notes: &Self, included: impl IntoIterator<Item = PathBuf>) -> Self {
        let Some(clients) = self.limits() else { return self.clone() };
        let mut clients = clients.clone();
        if let Some(Rule::Noted(noted)) = notes.0.as_deref() {
            let noted = lock(noted);
            clients.authored.extend(noted.iter().cloned());
        }
        clients.included.extend(included);
        Self(Some(Arc::new(Rule::Clients(clients))))
    }

    /// Whether clients may run files below a directory.
    #[must_use]
    pub fn has_code(&self) -> bool {
        self.limits().is_some_and(|clients| clients.allowed.code.is_some())
    }

    /// This access, in which all clients may also name the files with code that are noted in `notes`, because a client on
    /// this machine has put them into the running flowgraph. They are checked each time nevertheless.
    #[must_use]
    pub fn with_code_of(&self, notes: &Self) -> Self {
        let (Some(clients), Some(Rule::Noted(noted))) = (self.limits(), notes.0.as_deref()) else {
            return self.clone();
        };
        let mut clients = clients.clone();
        let noted = lock(noted);
        let code = noted.iter().filter(|(usage, _)| *usage == FileUse::ExecuteFile);
        clients.code.extend(code.map(|(_, text)| text.clone()));
        Self(Some(Arc::new(Rule::Clients(clients))))
    }

    /// This access for a client on this machine, which may run files below the directory for code, if there is one.
    #[must_use]
    pub fn with_code(&self) -> Self {
        let Some(clients) = self.limits() else { return self.clone() };
        let clients = Clients { may_execute: true, ..clients.clone() };
        Self(Some(Arc::new(Rule::Clients(clients))))
    }

    fn limits(&self) -> Option<&Clients> {
        match self.0.as_deref() {
            Some(Rule::Clients(clients)) => Some(clients),
            _ => None,
        }
    }

    /// Whether access is restricted.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limits().is_some()
    }

    /// Checks the file `text`. Returns its path and the allowed directory above it, or `None` if any path is allowed
    /// or the author named the file.
    pub fn check(&self, usage: FileUse, text: &str) -> Result<Option<[String; 2]>, NotAllowed> {
        if let Some(Rule::Noted(noted)) = self.0.as_deref() {
            let mut noted = lock(noted);
            noted.insert((usage, text.to_owned()));
        }
        let Some(Clients { allowed, authored, .. }) = self.limits() else { return Ok(None) };
        // A client that sends the whole flowgraph sends the files of its author, too.
        if authored.contains(&(usage, text.to_owned())) {
            return Ok(None);
        }
        let (verb, files) = match usage {
            FileUse::Read => ("read", &allowed.read),
            FileUse::Write => ("write", &allowed.write),
            FileUse::Execute => return Err(unknown_code(text, IN_FILE)),
            FileUse::ExecuteFile => return self.check_code(text),
        };
        let Some((files, root)) = files.as_ref().and_then(|files| Some((files, files.root()?)))
        else {
            let message = format!(
                "clients may not {verb} files that the flowgraph does not name, got `{text}`"
            );
            let help = "start the server with `fxgraph run --files DIR` to allow files below DIR";
            return Err(NotAllowed { message, help });
        };
        let path = root.join(text);
        let is_plain = path.components().all(|step| step != Component::ParentDir);
        // Opening the file fails in the same cases; this check gives the client a clear message.
        let is_inside = is_plain && path.starts_with(root) && files.admits(&path);
        match [path.as_path(), root].map(Path::to_str) {
            [Some(path), Some(root)] if is_inside && !text.contains('\0') => {
                Ok(Some([path.to_owned(), root.to_owned()]))
            }
            _ => {
                let message = format!("`{text}` is outside the directory that clients may {verb}");
                let help =
                    "give a path below the directory of `--files`, relative to that directory";
                Err(NotAllowed { message, help })
            }
        }
    }

    /// Checks the file `text` with code, a path as in the flowgraph file.
    fn check_code(&self, text: &str) -> Result<Option<[String; 2]>, NotAllowed> {
        let Some(clients) = self.limits() else { return Ok(None) };
        let code = clients.allowed.code.as_ref();
        let Some((files, root)) = code.and_then(|files| Some((files, files.root()?))) else {
            return Err(unknown_code(text, NO_CODE));
        };
        if !clients.may_execute && !clients.code.contains(text) {
            return Err(unknown_code(text, "send the request from the machine of the flowgraph"));
        }
        let rejected = |message| NotAllowed { message, help: CODE_PATH };
        let cannot = |error| rejected(format!("`{text}` cannot be used: {error}"));
        // Links from elsewhere are not followed: they could lead to other files later.
        let path = std::path::absolute(text).map_err(cannot)?;
        let is_plain = path.components().all(|step| step != Component::ParentDir);
        if !is_plain || !path.starts_with(root) || text.contains('\0') {
            return Err(rejected(format!("`{text}` is no file below the directory of `--code`")));
        }
        files.open(&path).map_err(cannot)?;
        match [&path, root].map(Path::to_str) {
            [Some(path), Some(root)] => Ok(Some([path.to_owned(), root.to_owned()])),
            _ => Err(rejected(format!("`{text}` must be UTF-8 text as an absolute path"))),
        }
    }

    /// Directory where relative includes begin if access is restricted; empty otherwise.
    pub fn include_root(&self) -> PathBuf {
        let below = self.limits().and_then(|clients| clients.directory.root());
        below.map(Path::to_owned).unwrap_or_default()
    }

    /// Opens the file at `path` to be included.
    pub fn open_include(&self, path: &Path) -> io::Result<File> {
        let Some(clients) = self.limits() else { return Files::default().open(path) };
        match path.canonicalize() {
            // Open the checked path: `path` may be another link by now.
            Ok(included) if clients.included.contains(&included) => {
                Files::default().open(&included)
            }
            _ => clients.directory.open(path),
        }
    }

    /// Whether errors may quote the included file at `path`.
    #[must_use]
    pub fn may_quote(&self, path: &Path) -> bool {
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

    #[test]
    fn check_allows_authored_files_and_files_below_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap().join("allowed");
        std::fs::create_dir_all(root.join("inner")).unwrap();
        let files = Files::below(&root).unwrap();
        let notes = FileAccess::noted();
        assert!(notes.check(FileUse::Write, "/data/out.npz").is_ok());
        assert!(notes.check(FileUse::Execute, "flagger.py").is_ok());
        let here = Files::below(&root).unwrap();
        let allowed = ClientFiles { write: Some(files), ..ClientFiles::default() };
        let access = FileAccess::clients(allowed, &notes, here, []);
        let checked = |is_written, text: &str| {
            access.check(if is_written { FileUse::Write } else { FileUse::Read }, text).ok()
        };
        let below = |path: &str| Some(Some([path.to_owned(), root.display().to_string()]));
        let new = root.join("new/a.npz").display().to_string();
        assert_eq!(checked(true, "/data/out.npz"), Some(None), "as the author has it");
        assert_eq!(checked(true, "new/a.npz"), below(&new));
        assert_eq!(checked(true, &new), below(&new));
        symlink("/etc", root.join("etc")).unwrap();
        let bad = ["../a.npz", "/etc/a.npz", "inner/../../a.npz", "etc/a.npz", "a\0.npz"];
        for text in bad {
            assert_eq!(checked(true, text), None, "{text}");
        }
        for unread in ["/data/out.npz", "inner/open"] {
            assert_eq!(checked(false, unread), None, "{unread}");
        }
    }

    #[test]
    fn check_allows_only_authored_code_also_below_allowed_directories() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::below(&directory.path().canonicalize().unwrap()).unwrap();
        let notes = FileAccess::noted();
        assert!(notes.check(FileUse::Execute, "flagger.py").is_ok());
        assert!(notes.check(FileUse::Read, "data.py").is_ok());
        let (read, write) = (Some(files.clone()), Some(files.clone()));
        let allowed = ClientFiles { read, write, code: None };
        let access = FileAccess::clients(allowed, &notes, files, []);
        assert_eq!(access.check(FileUse::Execute, "flagger.py").ok(), Some(None));
        for text in ["other.py", "./flagger.py", "data.py", "import os"] {
            assert!(access.check(FileUse::Execute, text).is_err(), "{text}");
        }
    }

    #[test]
    fn check_allows_clients_of_this_machine_files_below_the_directory_for_code() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let code = root.join("code");
        std::fs::create_dir(&code).unwrap();
        std::fs::write(code.join("flagger.py"), "").unwrap();
        std::fs::write(root.join("outside.py"), "").unwrap();
        symlink(root.join("outside.py"), code.join("link.py")).unwrap();
        symlink(code.join("flagger.py"), root.join("inwards.py")).unwrap();
        let allowed =
            ClientFiles { code: Some(Files::below(&code).unwrap()), ..ClientFiles::default() };
        let network =
            FileAccess::clients(allowed, &FileAccess::noted(), Files::below(&root).unwrap(), []);
        let local = network.with_code();
        let path = |name: &str| root.join(name).display().to_string();
        let check = |access: &FileAccess, name: &str| {
            access.check(FileUse::ExecuteFile, &path(name)).map_err(|error| error.message)
        };
        symlink(code.join("flagger.py"), code.join("other.py")).unwrap();
        for good in ["code/flagger.py", "code/other.py"] {
            assert_eq!(check(&local, good), Ok(Some([path(good), path("code")])), "{good}");
            assert!(
                check(&network, good).unwrap_err().starts_with("clients may not run"),
                "{good}"
            );
        }
        let notes = FileAccess::noted();
        let bad = ["outside.py", "code/link.py", "code/../outside.py", "code/none.py", "code"];
        for bad in bad.into_iter().chain(["inwards.py", "code/../code/flagger.py"]) {
            assert!(check(&local, bad).is_err(), "{bad}");
            assert!(check(&notes, bad).is_ok());
        }
        // Files that a client of this machine has put into the flowgraph are checked again.
        assert!(check(&notes, "code/flagger.py").is_ok());
        let later = network.with_code_of(&notes);
        assert!(
            check(&later, "code/flagger.py").is_ok() && check(&later, "code/other.py").is_err()
        );
        assert!(check(&later, "inwards.py").is_err() && check(&later, "outside.py").is_err());
        std::fs::remove_file(code.join("flagger.py")).unwrap();
        symlink(root.join("outside.py"), code.join("flagger.py")).unwrap();
        assert!(check(&later, "code/flagger.py").is_err());
        let text = local.check(FileUse::Execute, &path("code/flagger.py"));
        assert!(text.is_err(), "only files: an interpreter and the text of a program are none");
    }
}
