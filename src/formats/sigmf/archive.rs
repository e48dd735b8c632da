//! Archives: a recording in one file, `x.sigmf`, an uncompressed tar of `x/x.sigmf-meta` and `x/x.sigmf-data`.

use super::MAX_BYTES;
use std::io::{self, Read, Seek};

/// Largest number of entries of an archive.
const MAX_ENTRIES: usize = 1 << 16;

/// A recording in an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Archive {
    /// Text of the description.
    pub meta: Vec<u8>,
    /// Offset of the samples in the archive, in bytes.
    pub offset: u64,
    /// Bytes of samples.
    pub bytes: u64,
}

/// Error of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read, or is no archive.
    #[error("it is not an uncompressed tar archive: {0}")]
    Unreadable(#[from] io::Error),
    /// There is no recording in the archive.
    #[error("it has no recording: no .sigmf-meta with a .sigmf-data of the same name")]
    NoRecording,
    /// There are several recordings in the archive.
    #[error("it has several recordings; extract it with `tar xf` and play one of them")]
    SeveralRecordings,
    /// The description is too long.
    #[error("its description is longer than {MAX_BYTES} bytes")]
    TooLong,
}

impl Archive {
    /// Finds the recording in an archive.
    pub fn find(file: impl Read + Seek) -> Result<Self, ArchiveError> {
        let mut archive = tar::Archive::new(file);
        let (mut metas, mut sample_files) = (Vec::new(), Vec::new());
        for entry in archive.entries_with_seek()?.take(MAX_ENTRIES) {
            let mut entry = entry?;
            let name = entry.path_bytes().into_owned();
            if !entry.header().entry_type().is_file() {
                continue;
            }
            if let Some(stem) = name.strip_suffix(b".sigmf-data") {
                sample_files.push((stem.to_vec(), entry.raw_file_position(), entry.size()));
            } else if let Some(stem) = name.strip_suffix(b".sigmf-meta") {
                // Only one is used, so only one is kept.
                if !metas.is_empty() {
                    return Err(ArchiveError::SeveralRecordings);
                }
                let mut text = Vec::new();
                entry.by_ref().take(MAX_BYTES + 1).read_to_end(&mut text)?;
                if text.len() as u64 > MAX_BYTES {
                    return Err(ArchiveError::TooLong);
                }
                metas.push((stem.to_vec(), text));
            }
        }
        let (stem, meta) = metas.pop().ok_or(ArchiveError::NoRecording)?;
        let data = sample_files.into_iter().find(|(name, ..)| *name == stem);
        let (_, offset, bytes) = data.ok_or(ArchiveError::NoRecording)?;
        Ok(Self { meta, offset, bytes })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            builder.append_data(&mut header, name, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn recording_is_found_among_other_files() {
        let long = format!("{}/x", "long".repeat(40));
        let (meta, data) = (format!("{long}.sigmf-meta"), format!("{long}.sigmf-data"));
        let bytes = archive(&[("x/README", b"text"), (&data, b"samples"), (&meta, b"{}")]);
        let found = Archive::find(Cursor::new(&bytes)).unwrap();
        assert_eq!((found.meta.as_slice(), found.bytes), (&b"{}"[..], 7));
        assert_eq!(&bytes[found.offset as usize..][..7], b"samples");
    }

    #[test]
    fn other_archives_have_a_reason() {
        let said = |bytes: &[u8]| Archive::find(Cursor::new(bytes)).unwrap_err().to_string();
        assert!(said(b"").contains("no recording"));
        assert!(said(&[b'x'; 2000]).contains("not an uncompressed tar"));
        assert!(said(&archive(&[("a.sigmf-meta", b""), ("b.sigmf-data", b"")])).contains("no rec"));
        let two = archive(&[("a.sigmf-meta", b""), ("b.sigmf-meta", b"")]);
        assert!(said(&two).contains("several recordings"));
        let long = vec![b' '; MAX_BYTES as usize + 1];
        assert!(said(&archive(&[("a.sigmf-meta", &long)])).contains("longer than"));
    }

    proptest! {
        #[test]
        fn damaged_archives_are_read_or_rejected(
            damage in proptest::collection::vec((0..2048_usize, any::<u8>()), 0..8), cut in 0..3000_usize,
        ) {
            let mut bytes = archive(&[("a.sigmf-meta", b"{}"), ("a.sigmf-data", b"1234")]);
            damage.iter().for_each(|(at, byte)| bytes[*at] = *byte);
            bytes.truncate(cut);
            let _ = Archive::find(Cursor::new(&bytes));
        }
    }
}
