//! Blocks of a file, one after the other.

use crate::io::played_file::PlayedFile;
use fxgraph::access::ReadPath;
use fxgraph_formats::guppi::{Header, HeaderError, MAX_HEADER_BYTES};

/// Bytes in which most headers are complete.
const USUAL_HEADER_BYTES: usize = 1 << 14;

/// A complete block.
pub struct Block {
    /// Header of the block.
    pub header: Header,
    /// Offset of its samples in the file in bytes.
    pub offset: u64,
}

/// Result of the search for the next block.
pub enum Found {
    /// A complete block.
    Block(Box<Block>),
    /// The file ends within a block, this many bytes after its beginning.
    Incomplete(u64),
    /// The file ends with this many bytes of zeros.
    Zeros(u64),
    /// The file has ended.
    End,
}

/// Blocks of a file.
pub struct Blocks {
    file: PlayedFile,
    path: String,
    /// Offset of the next header in bytes.
    next: u64,
    buffer: Vec<u8>,
}

impl Blocks {
    /// Opens the file at `path`.
    pub fn open(path: &ReadPath) -> Result<Self, String> {
        let file = PlayedFile::open(path)?;
        Ok(Self { file, path: path.to_string(), next: 0, buffer: Vec::new() })
    }

    /// Reads up to `bytes` bytes from the next header on.
    fn fill(&mut self, bytes: u64) -> Result<(), String> {
        self.buffer.resize(bytes as usize, 0);
        self.file.read(self.next, &mut self.buffer)
    }

    /// Finds the next block.
    pub fn next(&mut self) -> Result<Found, String> {
        let left = self.file.length()?.saturating_sub(self.next);
        if left == 0 {
            return Ok(Found::End);
        }
        self.fill(left.min(USUAL_HEADER_BYTES as u64))?;
        let mut parsed = Header::parse(&self.buffer);
        if matches!(parsed, Err(HeaderError::NoEnd(_))) && left > USUAL_HEADER_BYTES as u64 {
            self.fill(left.min(MAX_HEADER_BYTES as u64))?;
            parsed = Header::parse(&self.buffer);
        }
        let (header, header_bytes) = match parsed {
            Ok(parsed) => parsed,
            // Some recorders allocate a file before they write it.
            Err(_) if self.next > 0 && self.buffer.iter().all(|byte| *byte == 0) => {
                return Ok(Found::Zeros(left));
            }
            Err(HeaderError::NoEnd(_)) if self.next > 0 && left < MAX_HEADER_BYTES as u64 => {
                return Ok(Found::Incomplete(left));
            }
            Err(error) => {
                let (path, at) = (&self.path, self.next);
                return Err(format!("cannot use {path}: block at byte {at}: {error}"));
            }
        };
        let bytes = header.block_bytes.checked_add(header_bytes as u64);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= left) else {
            return Ok(Found::Incomplete(left));
        };
        let offset = self.next + header_bytes as u64;
        self.next += bytes;
        Ok(Found::Block(Box::new(Block { header, offset })))
    }

    /// Reads the bytes at `offset` of the file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        self.file.read(offset, into)
    }
}
