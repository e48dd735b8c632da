//! Where in a recording's files its arrays are.

use fxgraph::recording::{DESCRIPTION, SideFile};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

/// Longest side file that is read.
const MAX_SIDE_FILE_BYTES: u64 = 1 << 26;
/// Most members of an archive that are looked at.
const MAX_MEMBERS: usize = 256;
/// What a member of an archive begins with.
const MEMBER: &[u8; 4] = b"PK\x03\x04";
/// Bytes of the fixed part before a member's name.
const MEMBER_BYTES: u64 = 30;
/// The extra field with sizes of more than 32 bits.
const LONG_SIZES: u16 = 1;

/// The description of the recording at `path`: out of its archive, or from the file beside it.
pub fn side_file(path: &Path) -> Result<SideFile, String> {
    let beside = PathBuf::from(format!("{}.json", path.display()));
    let (file, name, length) = if let Some((file, length)) = inside(path) {
        (file, path, length)
    } else {
        let cannot = |error: io::Error| match (error.kind(), path.exists()) {
            (ErrorKind::NotFound, false) => {
                format!("cannot read {}: there is no such file", path.display())
            }
            (ErrorKind::NotFound, true) => {
                let (path, beside) = (path.display(), beside.display());
                format!("{path} is no recording: there is no {beside} that describes it")
            }
            _ => format!("cannot read {}: {error}", beside.display()),
        };
        (File::open(&beside).map_err(cannot)?, beside.as_path(), MAX_SIDE_FILE_BYTES)
    };
    let name = name.display();
    let mut text = String::new();
    file.take(length.min(MAX_SIDE_FILE_BYTES))
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot read {name}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| {
        format!("{name} has no description (line {}, column {})", error.line(), error.column())
    })
}

/// The description inside the archive at `path`, if it has one: a file that stands at it, and its length.
fn inside(path: &Path) -> Option<(File, u64)> {
    if !is_archive(path) {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let (offset, length) = find(&file, DESCRIPTION).ok()?;
    io::Seek::seek(&mut file, io::SeekFrom::Start(offset)).ok()?;
    Some((file, length))
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// The file that has the array `name` of the recording at `path`, and where in it the array begins.
pub fn array(path: &Path, side: &SideFile, name: &str) -> Result<(File, u64), String> {
    let says = |path: &Path, why: String| format!("cannot read {}: {why}", path.display());
    let file_name =
        side.arrays.get(name).ok_or_else(|| format!("the side file names no {name}"))?;
    // The name only: a side file has no say over other folders.
    let only = Path::new(file_name).file_name().unwrap_or_default();
    let parts = PathBuf::from(format!("{}.parts", path.display()));
    if is_archive(path) && (path.exists() || !parts.is_dir()) {
        let file = File::open(path).map_err(|error| says(path, error.to_string()))?;
        let (offset, _) = find(&file, file_name).map_err(|why| says(path, why))?;
        return Ok((file, offset));
    }
    // An archive that was never put together is still in parts.
    let path = if is_archive(path) { parts.join(only) } else { path.with_file_name(only) };
    let file = File::open(&path).map_err(|error| says(&path, error.to_string()))?;
    Ok((file, 0))
}

/// Where the member `name` of an archive begins, and its length.
fn find(file: &File, name: &str) -> Result<(u64, u64), String> {
    let again = file.try_clone().map_err(|error| error.to_string())?;
    let Ok(mut zip) = ZipArchive::new(again) else { return find_without_directory(file, name) };
    let entry = zip.by_name(name).map_err(|error| error.to_string())?;
    if entry.compression() != CompressionMethod::Stored {
        return Err(compressed(name));
    }
    Ok((entry.data_start(), entry.size()))
}

fn compressed(name: &str) -> String {
    format!("{name} is compressed; `numpy.savez` stores it plainly")
}

/// The same for an archive that was cut off, and with its end lost its directory: from member to member.
fn find_without_directory(file: &File, name: &str) -> Result<(u64, u64), String> {
    let mut at = 0u64;
    for _ in 0..MAX_MEMBERS {
        let mut fixed = [0u8; MEMBER_BYTES as usize];
        let is_member = file.read_exact_at(&mut fixed, at).is_ok() && fixed.starts_with(MEMBER);
        if !is_member {
            let why = if at == 0 { "it is no archive" } else { "it was cut off" };
            return Err(format!("{why}, and there is no {name} in it"));
        }
        let short = |from: usize| u16::from_le_bytes([fixed[from], fixed[from + 1]]);
        let word = |from: usize| u32::from(short(from)) | u32::from(short(from + 2)) << 16;
        let (name_bytes, extra_bytes) = (u64::from(short(26)), u64::from(short(28)));
        let mut found = vec![0u8; (name_bytes + extra_bytes) as usize];
        file.read_exact_at(&mut found, at + MEMBER_BYTES)
            .map_err(|_| format!("it was cut off, and there is no {name} in it"))?;
        let (found, extra) = found.split_at(name_bytes as usize);
        let start = at + MEMBER_BYTES + name_bytes + extra_bytes;
        let length = match word(18) {
            u32::MAX => long_size(extra).ok_or("its members have no lengths")?,
            length => u64::from(length),
        };
        if found == name.as_bytes() {
            let is_plain = short(8) == 0;
            return if is_plain { Ok((start, length)) } else { Err(compressed(name)) };
        }
        at = start.saturating_add(length);
    }
    Err(format!("there is no {name} among its first {MAX_MEMBERS} members"))
}

/// The length of a stored member in the extra fields of its header.
fn long_size(mut extra: &[u8]) -> Option<u64> {
    loop {
        let (head, rest) = extra.split_first_chunk::<4>()?;
        let bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let (field, rest) = rest.split_at_checked(bytes)?;
        if u16::from_le_bytes([head[0], head[1]]) == LONG_SIZES {
            return field.first_chunk().map(|size| u64::from_le_bytes(*size));
        }
        extra = rest;
    }
}
