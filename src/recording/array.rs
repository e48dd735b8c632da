//! NumPy's `.npy` format, version 1.0, with frames appended along the first axis.

use fxgraph_core::files::{self, Files};
use fxgraph_core::npy::{self, MAGIC};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Header length in files written here, in bytes: room for any number of frames.
const HEADER_BYTES: usize = 512;
/// Longest accepted header, in bytes.
const MAX_HEADER_BYTES: usize = 1 << 16;
/// Longest accepted type, in bytes.
const MAX_DESCR: usize = 64;
/// Largest accepted number of axes.
const MAX_AXES: usize = 32;

/// Writer of an array that grows row by row. The file can be read at any time: the header is rewritten after
/// every row and never counts more rows than are in the file.
pub struct ArrayWriter {
    file: File,
    path: PathBuf,
    descr: &'static str,
    row_shape: Vec<usize>,
    row_bytes: usize,
    rows: u64,
}

impl ArrayWriter {
    /// Creates an empty array at `path`, with rows of shape `row_shape` and NumPy type `descr`.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn create(
        files: &Files,
        path: &Path,
        descr: &'static str,
        row_shape: Vec<usize>,
        row_bytes: usize,
    ) -> io::Result<Self> {
        let file = files.create(path)?;
        files::note_recorded(&file)?;
        let path = path.to_owned();
        let writer = Self { file, path, descr, row_shape, row_bytes, rows: 0 };
        writer.write_header()?;
        Ok(writer)
    }

    /// Appends a row. After an error the file still holds the rows before this one.
    pub fn append(&mut self, row: &[u8]) -> io::Result<()> {
        files::check_not_removed(&self.file)?;
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

    /// Removes the rows after the first `rows`.
    pub fn shorten(&mut self, rows: u64) {
        if self.rows > rows {
            self.rows = rows;
            // If the header cannot be written now, the next row writes it.
            let _ = self.write_header();
        }
    }

    /// Number of rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Size of a row in bytes.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the data is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        files::check_not_removed(&self.file)?;
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

/// Header of a `.npy` array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// NumPy type, for example `<i4`.
    pub descr: String,
    /// Lengths of the axes.
    pub shape: Vec<u64>,
    /// Offset of the data in the file, in bytes.
    pub data_offset: u64,
}

impl Header {
    /// Reads the header of the array that begins at `offset` of `file`.
    pub fn read(file: &File, offset: u64) -> Result<Self, String> {
        let header =
            Self::read_with(|bytes, at| file.read_exact_at(bytes, offset.saturating_add(at)))?;
        Ok(Self { data_offset: offset.saturating_add(header.data_offset), ..header })
    }

    /// Reads the header at the start of `array`.
    pub fn of_bytes(array: &[u8]) -> Result<Self, String> {
        Self::read_with(|bytes, at| array.get(at as usize..).unwrap_or_default().read_exact(bytes))
    }

    /// Reads a header whose bytes `read` gives from an offset on.
    fn read_with(read: impl Fn(&mut [u8], u64) -> io::Result<()>) -> Result<Self, String> {
        let mut start = [0u8; 12];
        let read = |bytes: &mut [u8], at: u64| {
            read(bytes, at).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => "the array ends within its header".to_owned(),
                _ => files::reason(&error),
            })
        };
        read(&mut start[..10], 0)?;
        if start[..6] != MAGIC[..6] {
            return Err("not a .npy array (the first bytes are not \\x93NUMPY)".to_owned());
        }
        let (at, len) = match start[6] {
            1 => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
            2 | 3 => {
                read(&mut start, 0)?;
                (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize)
            }
            version => {
                return Err(format!("the .npy format version must be 1 to 3, found {version}"));
            }
        };
        if len > MAX_HEADER_BYTES {
            let limit = MAX_HEADER_BYTES;
            return Err(format!("the header has {len} bytes, more than the limit of {limit}"));
        }
        let mut text = vec![0u8; len];
        read(&mut text, at)?;
        let text = String::from_utf8(text).map_err(|_| "the header is not text".to_owned())?;
        let (descr, shape) = parse_dictionary(&text)?;
        Ok(Self { descr, shape, data_offset: at + len as u64 })
    }
}

/// Reads type and shape from the dictionary of the header.
fn parse_dictionary(text: &str) -> Result<(String, Vec<u64>), String> {
    let after = |key: &str| {
        let (_, rest) = text.split_once(&format!("'{key}'"))?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let missing = |key: &str| format!("the header has no valid `{key}`");
    let descr = after("descr").ok_or_else(|| missing("descr"))?;
    if descr.starts_with('[') {
        return Err("expected an array of plain numbers, found a structured array".to_owned());
    }
    let descr = descr.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let (descr, _) = descr.ok_or_else(|| missing("descr"))?;
    let is_type = descr.len() <= MAX_DESCR && descr.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_type {
        return Err(missing("descr"));
    }
    match after("fortran_order") {
        Some(order) if order.starts_with("False") => {}
        Some(order) if order.starts_with("True") => {
            return Err("expected an array in C order, found Fortran order \
                        (convert it with `numpy.ascontiguousarray`)"
                .to_owned());
        }
        _ => return Err(missing("fortran_order")),
    }
    let shape = after("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let (shape, _) = shape.ok_or_else(|| missing("shape"))?;
    let lens = shape.split(',').map(str::trim).filter(|len| !len.is_empty());
    let shape: Option<Vec<u64>> = lens.map(|len| len.parse().ok()).collect();
    match shape {
        Some(shape) if shape.len() <= MAX_AXES => Ok((descr.to_owned(), shape)),
        _ => Err(missing("shape")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn file_is_complete_after_every_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.npy");
        let mut writer = ArrayWriter::create(&Files::default(), &path, "<i2", vec![3], 6).unwrap();
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
    fn hostile_headers_are_rejected_with_the_reason() {
        let rejected = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            Header::read(&file, 0).unwrap_err()
        };
        assert!(rejected(b"").contains("ends within"));
        assert!(rejected(b"PK\x03\x04 and so on, for long enough").contains("not a .npy"));
        assert!(rejected(b"\x93NUMPY\x09\x00\x10\x00 and so on").contains("found 9"));
        assert!(rejected(b"\x93NUMPY\x01\x00\xff\xff{").contains("ends within"));
        assert!(rejected(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{").contains("has 4294967295 bytes"));
        assert!(rejected(b"\x93NUMPY\x01\x00\x04\x00\xff\xff\xff\xff").contains("not text"));
        let rejected = |descr: &str, order: &str, shape: &str, why: &str| {
            let text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}");
            let said = parse_dictionary(&text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        };
        rejected("[('a', '<i4')]", "False", "()", "found a structured array");
        rejected("'<i4'", "True", "()", "found Fortran order");
        rejected("'<i4'", "0", "()", "no valid `fortran_order`");
        rejected("'<i\u{1b}4'", "False", "()", "no valid `descr`");
        rejected("'<i4'", "False", "(-1, 2)", "no valid `shape`");
        rejected("'<i4'", "False", "(99999999999999999999,)", "no valid `shape`");
        rejected("'<i4'", "False", "3", "no valid `shape`");
    }
}
