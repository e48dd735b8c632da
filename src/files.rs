//! Regular files that are read whole or at any place.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the regular file at `path` for reading. Anything else is an error at once: opening a pipe
/// would wait for its writer.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(without_waiting).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Reads the text of the regular file at `path`, at most `most_bytes` of UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let refuse = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    if length > most_bytes {
        return Err(refuse(format!("it has {length} bytes, more than the limit of {most_bytes}")));
    }
    let mut bytes = Vec::new();
    file.take(most_bytes).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| refuse("it is not text in UTF-8".to_owned()))
}

/// Why a file cannot be read or written, in words.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let words = match error.kind() {
        ErrorKind::NotFound => "there is no such file",
        ErrorKind::PermissionDenied => "permission denied",
        ErrorKind::IsADirectory => "it is a directory",
        ErrorKind::NotADirectory => "a part of the path is not a directory",
        ErrorKind::QuotaExceeded => "the disk quota is used up",
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        ErrorKind::FileTooLarge => "the file exceeds the limit on the size of files (`ulimit -f`)",
        // The number of the error tells a user nothing.
        _ => return error.to_string().split(" (os error ").next().unwrap_or_default().to_owned(),
    };
    words.to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn open_regular_pipe_or_directory_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            let said = open_regular(path).unwrap_err().to_string();
            assert_eq!(said, "it is not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn read_text_beyond_limit_or_not_utf8_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        let said = read_text(&path, 3).unwrap_err().to_string();
        assert_eq!(said, "it has 4 bytes, more than the limit of 3");
        std::fs::write(&path, [b'a', 0xff]).unwrap();
        assert_eq!(read_text(&path, 4).unwrap_err().to_string(), "it is not text in UTF-8");
    }
}
