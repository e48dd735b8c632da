//! Location of the arrays in the files of a recording.

use fxgraph::access::ReadPath;
use fxgraph::files::{read_text, reason};
use fxgraph::recording::{DESCRIPTION, SideFile};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Longest side file in bytes.
const MAX_SIDE_FILE_BYTES: u64 = 1 << 26;
/// Largest number of members of an archive.
const MAX_MEMBERS: u64 = 1024;
/// Longest directory of an archive.
const MAX_DIRECTORY_BYTES: u64 = 1 << 20;
/// Longest name of a member of a recording.
const MAX_NAME: usize = 255;

/// Signatures of the parts of an archive, and the length of their fixed fields in bytes.
const MEMBER: (&[u8; 4], usize) = (b"PK\x03\x04", 30);
const ENTRY: (&[u8; 4], usize) = (b"PK\x01\x02", 46);
const END: (&[u8; 4], usize) = (b"PK\x05\x06", 22);
const LONG_END: (&[u8; 4], usize) = (b"PK\x06\x06", 56);
const LOCATOR: (&[u8; 4], usize) = (b"PK\x06\x07", 20);
/// Longest comment after the end of an archive.
const MAX_COMMENT: u64 = u16::MAX as u64;
/// Identifier of the extra field with numbers of more than 32 bits (ZIP64).
const LONG_NUMBERS: u16 = 1;

fn cannot_read(path: &ReadPath, error: &io::Error) -> String {
    format!("cannot read {path}: {}", reason(error))
}

/// Returns the description of the recording at `path`, from its archive or from the side file, and the
/// name of its source for errors.
pub fn side_file(path: &ReadPath) -> Result<(SideFile, String), String> {
    let beside = path.with(format!("{path}.json"));
    let inside = if is_archive(path) && path.exists() { Some(described(path)) } else { None };
    let (place, text) = match inside {
        Some(Ok(Some(text))) => (format!("{DESCRIPTION} of {path}"), text),
        Some(Err(why)) if !beside.exists() => return Err(why),
        _ => match beside.open().and_then(|file| read_text(file, MAX_SIDE_FILE_BYTES)) {
            Ok(text) => (beside.to_string(), text),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(cannot_read(&beside, &error));
            }
            Err(error) if !path.exists() => return Err(cannot_read(path, &error)),
            Err(_) => {
                let why = format!("there is no side file {beside}");
                return Err(format!("{path} is not a recording: {why}"));
            }
        },
    };
    match SideFile::read(&text) {
        Ok(side) => Ok((side, place)),
        Err(why) => Err(format!("{place} is wrong: {why}")),
    }
}

/// Returns the description inside the archive at `path`, if there is one.
fn described(path: &ReadPath) -> Result<Option<String>, String> {
    let archive = Archive::open(path)?;
    if !archive.members.contains_key(DESCRIPTION) {
        return Ok(None);
    }
    let (start, length) = archive.member(DESCRIPTION)?;
    if length > MAX_SIDE_FILE_BYTES {
        let why = format!("has {length} bytes, more than the limit of {MAX_SIDE_FILE_BYTES}");
        return Err(format!("{DESCRIPTION} of {path} {why}"));
    }
    let says = |why: &str| format!("cannot read {DESCRIPTION} of {path}: {why}");
    let mut bytes = Vec::new();
    let mut file = &archive.file;
    io::Seek::seek(&mut file, io::SeekFrom::Start(start))
        .and_then(|_| file.take(length).read_to_end(&mut bytes))
        .map_err(|error| says(&reason(&error)))?;
    String::from_utf8(bytes).map(Some).map_err(|_| says("it is not text in UTF-8"))
}

pub fn is_archive(path: &ReadPath) -> bool {
    path.path().extension().is_some_and(|extension| extension == "npz")
}

pub fn is_array(path: &ReadPath) -> bool {
    path.path().extension().is_some_and(|extension| extension == "npy")
}

/// Location of an array: bytes from `start` to `end` of a file.
pub struct Place {
    pub file: File,
    /// Name of the file, or of the member of an archive, for errors.
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// The files of a recording.
pub struct Arrays<'a> {
    path: &'a ReadPath,
    side: &'a SideFile,
    /// `None`: each array is a file of its own.
    archive: Option<Archive>,
    directory: PathBuf,
}

impl<'a> Arrays<'a> {
    /// Opens the files of the recording at `path`.
    pub fn open(path: &'a ReadPath, side: &'a SideFile) -> Result<Self, String> {
        let parts = PathBuf::from(format!("{path}.parts"));
        // An archive that was never assembled is still in parts.
        let is_in_parts = is_archive(path) && !path.exists() && path.files().is_directory(&parts);
        let is_whole = is_archive(path) && !is_in_parts;
        let archive = if is_whole { Some(Archive::open(path)?) } else { None };
        let beside = || path.path().parent().map(Path::to_path_buf).unwrap_or_default();
        let directory = if is_in_parts { parts } else { beside() };
        Ok(Self { path, side, archive, directory })
    }

    /// Returns the location of the array `name`.
    pub fn find(&self, name: &str) -> Result<Place, String> {
        let file_name = self.side.arrays.get(name);
        let missing = || format!("`arrays` in the side file of {} has no `{name}`", self.path);
        let file_name = file_name.ok_or_else(missing)?;
        let is_name = |text: &str| text.len() <= MAX_NAME && !text.chars().any(char::is_control);
        if !is_name(name) || !is_name(file_name) {
            let path = self.path;
            return Err(format!(
                "`arrays` in the side file of {path} contains an invalid file name"
            ));
        }
        if let Some(archive) = &self.archive {
            let (start, length) = archive.member(file_name)?;
            let file = archive.file.try_clone();
            let file = file.map_err(|error| cannot_read(self.path, &error))?;
            let name = format!("{file_name} of {}", self.path);
            let end = start.saturating_add(length).min(archive.length);
            return Ok(Place { file, name, start, end });
        }
        // Only the name: a side file must not select other directories.
        let only = Path::new(file_name).file_name().unwrap_or_default();
        let path = self.path.with(self.directory.join(only).display().to_string());
        let opened = path.open().and_then(|file| Ok((file.metadata()?.len(), file)));
        let (end, file) = opened.map_err(|error| {
            let (of, why) = (self.path, reason(&error));
            format!("cannot read {path} (`{name}` of {of}): {why}")
        })?;
        Ok(Place { file, name: path.to_string(), start: 0, end })
    }
}

/// Location and storage of a member of an archive.
struct Member {
    /// Offset of its header in bytes.
    header: u64,
    length: u64,
    is_plain: bool,
}

/// An archive; of a truncated archive, the members that are complete or partly present.
struct Archive {
    file: File,
    path: ReadPath,
    length: u64,
    members: HashMap<String, Member>,
    is_cut: bool,
}

impl Archive {
    fn open(path: &ReadPath) -> Result<Self, String> {
        let says = |error: io::Error| cannot_read(path, &error);
        let file = path.open().map_err(says)?;
        let length = file.metadata().map_err(says)?.len();
        let mut archive =
            Self { file, path: path.clone(), length, members: HashMap::new(), is_cut: false };
        let read = if let Some(end) = archive.end() {
            archive.read_directory(end)
        } else {
            archive.is_cut = true;
            archive.read_members()
        };
        read.map_err(|why| format!("cannot read {path}: {why}"))?;
        Ok(archive)
    }

    /// Returns the offset of the data of the member `name`, and its length, in bytes.
    fn member(&self, name: &str) -> Result<(u64, u64), String> {
        let says = |why: &str| format!("cannot read {name} of {}: {why}", self.path);
        let cut = ", which is truncated";
        let missing = || {
            let (path, cut) = (&self.path, if self.is_cut { cut } else { "" });
            format!("there is no {name} in {path}{cut}")
        };
        let member = self.members.get(name).ok_or_else(missing)?;
        if !member.is_plain {
            return Err(says(
                "it is compressed or encrypted; write it with `numpy.savez`, which does not compress",
            ));
        }
        let head = self.part(member.header, MEMBER).ok_or_else(|| says("its header is damaged"))?;
        let names = u64::from(short(&head, 26)) + u64::from(short(&head, 28));
        Ok((member.header + MEMBER.1 as u64 + names, member.length))
    }

    /// Reads the fixed fields of the part at offset `at`.
    fn part(&self, at: u64, (mark, bytes): (&[u8; 4], usize)) -> Option<Vec<u8>> {
        let mut part = vec![0u8; bytes];
        self.file.read_exact_at(&mut part, at).ok()?;
        part.starts_with(mark).then_some(part)
    }

    /// Reads the number of members, and the length and offset of the directory, from the end of the
    /// archive; `None` if the end is missing.
    fn end(&self) -> Option<[u64; 3]> {
        let tail_bytes = self.length.min(MAX_COMMENT + END.1 as u64);
        let tail_start = self.length - tail_bytes;
        let mut tail = vec![0u8; tail_bytes as usize];
        self.file.read_exact_at(&mut tail, tail_start).ok()?;
        let at = tail.windows(END.1).rposition(|window| window.starts_with(END.0))?;
        let end = &tail[at..];
        let numbers =
            [u64::from(short(end, 10)), u64::from(word(end, 12)), u64::from(word(end, 16))];
        let locator = (tail_start + at as u64).checked_sub(LOCATOR.1 as u64);
        let long_end = locator
            .and_then(|at| self.part(at, LOCATOR))
            .and_then(|locator| self.part(long(&locator, 8), LONG_END));
        let numbers = match long_end {
            Some(end) => [long(&end, 32), long(&end, 40), long(&end, 48)],
            None => numbers,
        };
        // The end follows the directory. In a truncated archive, the data of a member may look like the end
        // of an archive.
        let directory_end = numbers[1].checked_add(numbers[2])?;
        (directory_end <= tail_start + at as u64).then_some(numbers)
    }

    fn read_directory(&mut self, [members, bytes, start]: [u64; 3]) -> Result<(), String> {
        if members > MAX_MEMBERS {
            return Err(format!("it has {members} members, more than the limit of {MAX_MEMBERS}"));
        }
        if bytes > MAX_DIRECTORY_BYTES {
            let limit = MAX_DIRECTORY_BYTES;
            return Err(format!("its directory has {bytes} bytes, more than the limit of {limit}"));
        }
        let mut directory = vec![0u8; bytes as usize];
        let read = self.file.read_exact_at(&mut directory, start);
        read.map_err(|error| reason(&error))?;
        let mut rest = &directory[..];
        for _ in 0..members {
            let damaged = || "its directory is damaged".to_owned();
            let entry = rest.get(..ENTRY.1).filter(|entry| entry.starts_with(ENTRY.0));
            let entry = entry.ok_or_else(damaged)?;
            let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(short(entry, at)));
            let texts = &rest[ENTRY.1..];
            let (texts, behind) =
                texts.split_at_checked(name + extra + comment).ok_or_else(damaged)?;
            let mut long = long_numbers(&texts[name..name + extra]);
            let length = long.or(word(entry, 24)).ok_or_else(damaged)?;
            let stored = long.or(word(entry, 20)).ok_or_else(damaged)?;
            let header = long.or(word(entry, 42)).ok_or_else(damaged)?;
            let is_plain = is_plain(short(entry, 8), short(entry, 10)) && stored == length;
            self.keep(&texts[..name], Member { header, length, is_plain });
            rest = behind;
        }
        Ok(())
    }

    /// Reads from member to member, for a truncated archive without a directory.
    fn read_members(&mut self) -> Result<(), String> {
        let (mut at, mut count) = (0u64, 0);
        while let Some(head) = self.part(at, MEMBER) {
            count += 1;
            if count > MAX_MEMBERS {
                return Err(format!("it has more members than the limit of {MAX_MEMBERS}"));
            }
            let [name, extra] = [26, 28].map(|at| usize::from(short(&head, at)));
            let mut texts = vec![0u8; name + extra];
            if self.file.read_exact_at(&mut texts, at + MEMBER.1 as u64).is_err() {
                break;
            }
            let mut long = long_numbers(&texts[name..]);
            let (Some(length), Some(stored)) = (long.or(word(&head, 22)), long.or(word(&head, 18)))
            else {
                break;
            };
            let is_plain = is_plain(short(&head, 6), short(&head, 8)) && stored == length;
            self.keep(&texts[..name], Member { header: at, length, is_plain });
            at = at.saturating_add((MEMBER.1 + name + extra) as u64).saturating_add(stored);
        }
        if at == 0 { Err("it is not an archive".to_owned()) } else { Ok(()) }
    }

    fn keep(&mut self, name: &[u8], member: Member) {
        if let Ok(name) = str::from_utf8(name)
            && name.len() <= MAX_NAME
        {
            self.members.insert(name.to_owned(), member);
        }
    }
}

/// Whether a member with these flags and this method is stored without compression and encryption.
fn is_plain(flags: u16, method: u16) -> bool {
    let is_encrypted = flags & 1 == 1;
    method == 0 && !is_encrypted
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) | u32::from(short(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Numbers of more than 32 bits in the extra fields of a member, in order.
struct LongNumbers<'a>(&'a [u8]);

impl LongNumbers<'_> {
    /// Returns `short`, or the next long number if `short` is the marker for one.
    fn or(&mut self, short: u32) -> Option<u64> {
        if short != u32::MAX {
            return Some(short.into());
        }
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }
}

fn long_numbers(mut extra: &[u8]) -> LongNumbers<'_> {
    while let Some((head, rest)) = extra.split_first_chunk::<4>() {
        let bytes = usize::from(short(head, 2));
        let Some((field, rest)) = rest.split_at_checked(bytes) else { break };
        if short(head, 0) == LONG_NUMBERS {
            return LongNumbers(field);
        }
        extra = rest;
    }
    LongNumbers(&[])
}
