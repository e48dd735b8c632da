//! NumPy's `.npy` format, version 1.0, with frames appended along the first axis.

use crate::npy::{self, MAGIC};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes before the data in the files written here: room for any number of frames.
const HEADER_BYTES: usize = 512;
/// Longest header that is read.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// An array that grows. The file can be read at any time: the header is rewritten after every
/// row and never promises more than is there.
pub struct ArrayWriter {
    file: File,
    path: PathBuf,
    descr: &'static str,
    row_shape: Vec<usize>,
    row_bytes: usize,
    rows: u64,
}

impl ArrayWriter {
    /// An empty array at `path` of rows of `row_shape` elements of NumPy type `descr`.
    pub fn create(
        path: &Path,
        descr: &'static str,
        row_shape: Vec<usize>,
        row_bytes: usize,
    ) -> io::Result<Self> {
        let file = File::create(path)?;
        let path = path.to_owned();
        let writer = Self { file, path, descr, row_shape, row_bytes, rows: 0 };
        writer.write_header()?;
        Ok(writer)
    }

    /// Appends a row. After an error the file holds the rows before it.
    pub fn append(&mut self, row: &[u8]) -> io::Result<()> {
        let row = &row[..self.row_bytes];
        let offset = HEADER_BYTES as u64 + self.rows * self.row_bytes as u64;
        self.file.write_all_at(row, offset)?;
        self.rows += 1;
        let header = self.write_header();
        if header.is_err() {
            self.rows -= 1;
        }
        header
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of a row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the data is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn write_header(&self) -> io::Result<()> {
        let lens = self.row_shape.iter().map(|len| *len as u64);
        let shape: Vec<u64> = [self.rows].into_iter().chain(lens).collect();
        let header = npy::header(self.descr, &shape, HEADER_BYTES);
        if header.len() != HEADER_BYTES {
            return Err(io::Error::other("too many axes for the header"));
        }
        self.file.write_all_at(&header, 0)
    }
}

/// What the header of an array says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// NumPy's type, `<i4` for instance.
    pub descr: String,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// Where the data begins.
    pub data_offset: u64,
}

impl Header {
    /// Reads the header of the array that begins at `offset` of `file`.
    pub fn read(file: &File, offset: u64) -> Result<Self, String> {
        let mut start = [0u8; 12];
        let read = |bytes: &mut [u8], at: u64| {
            file.read_exact_at(bytes, offset.saturating_add(at)).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => "it ends within its header".to_owned(),
                    _ => error.to_string(),
                }
            })
        };
        read(&mut start[..10], 0)?;
        if start[..6] != MAGIC[..6] {
            return Err("it is not a .npy array".to_owned());
        }
        let (at, len) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            2 | 3 => {
                read(&mut start, 0)?;
                (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize)
            }
            version => return Err(format!("its format version {version} is not known")),
        };
        if len > MAX_HEADER_BYTES {
            return Err(format!("its header claims {len} bytes"));
        }
        let mut text = vec![0u8; len];
        read(&mut text, at)?;
        let text = String::from_utf8(text).map_err(|_| "its header is not text".to_owned())?;
        let (descr, shape) =
            parse_dictionary(&text).ok_or("it holds no plain values in C order")?;
        Ok(Self { descr, shape, data_offset: offset.saturating_add(at + len as u64) })
    }
}

/// Type and shape out of the header's dictionary; `None` for what is not C order of plain elements.
fn parse_dictionary(text: &str) -> Option<(String, Vec<u64>)> {
    let after = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}'"))?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
    if !after("fortran_order")?.starts_with("False") {
        return None;
    }
    let (shape, _) = after("shape")?.strip_prefix('(')?.split_once(')')?;
    let lens = shape.split(',').map(str::trim).filter(|len| !len.is_empty());
    let shape: Option<Vec<u64>> = lens.map(|len| len.parse().ok()).collect();
    Some((descr.to_owned(), shape?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_file_is_whole_after_every_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut writer = ArrayWriter::create(&path, "<i2", vec![3], 6).unwrap();
        for row in 0..4u64 {
            let header = Header::read(&File::open(&path).unwrap(), 0).unwrap();
            assert_eq!(header.shape, [row, 3]);
            assert_eq!(header.data_offset % 64, 0);
            let bytes = std::fs::metadata(&path).unwrap().len() - header.data_offset;
            assert_eq!(bytes, row * 6);
            writer.append(&[row as u8; 6]).unwrap();
        }
    }

    #[test]
    fn hostile_headers_are_refused_plainly() {
        let refused = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            Header::read(&file, 0).unwrap_err()
        };
        assert!(refused(b"").contains("ends within"));
        assert!(refused(b"PK\x03\x04 and so on, for long enough").contains("not a .npy"));
        assert!(refused(b"\x93NUMPY\x09\x00\x10\x00 and so on").contains("version 9"));
        assert!(refused(b"\x93NUMPY\x01\x00\xff\xff{").contains("ends within"));
        assert!(refused(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{").contains("claims 4294967295"));
        assert!(refused(b"\x93NUMPY\x01\x00\x04\x00\xff\xff\xff\xff").contains("not text"));
        let dictionary = |text: &str| parse_dictionary(text);
        assert_eq!(
            dictionary("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': ()}"),
            None
        );
        assert_eq!(dictionary("{'descr': '<i4', 'fortran_order': True, 'shape': ()}"), None);
        assert_eq!(dictionary("{'descr': '<i4', 'fortran_order': False, 'shape': (-1, 2)}"), None);
        assert_eq!(
            dictionary(
                "{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}"
            ),
            None
        );
    }
}
