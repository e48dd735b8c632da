//! Arrays on disk, row by row.

use super::archive::{Arrays, Place};
use fxgraph::access::ReadPath;
use fxgraph::files::reason;
use fxgraph::recording::array::Header;
use fxgraph::recording::{Checksum, SideFile};
use fxgraph::{FrameMut, PortType, npy};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Arrays that are not annotations.
const ARRAYS: [&str; 6] = ["data", "sequence", "timestamp", "config_id", "validity", "checksum"];
/// Longest row of an annotation, in values.
const MAX_ANNOTATION: u64 = 1 << 20;
/// Largest number of annotations.
const MAX_ANNOTATIONS: usize = 64;

/// Rows of equal size in a file.
pub struct Rows {
    file: File,
    /// Name for errors.
    name: String,
    offset: u64,
    row_bytes: u64,
    /// Number of rows.
    pub count: u64,
    /// Further rows that the header announces but the file lacks.
    pub missing: u64,
    /// Bytes of the file from the first row on.
    pub bytes: u64,
}

impl Rows {
    /// Reads row `n`.
    pub fn read(&self, n: u64, into: &mut [u8]) -> Result<(), String> {
        self.file
            .read_exact_at(into, self.offset + n * self.row_bytes)
            .map_err(|error| format!("cannot read {}: {}", self.name, reason(&error)))
    }

    /// Bytes after the last whole row.
    pub fn rest(&self) -> u64 {
        self.bytes.saturating_sub(self.count * self.row_bytes)
    }

    /// Creates rows of `row_bytes` at `place`; an incomplete last row is ignored.
    pub fn plain(place: Place, row_bytes: usize) -> Self {
        let Place { file, name, start, end } = place;
        let row_bytes = (row_bytes as u64).max(1);
        let bytes = end.saturating_sub(start);
        Self { file, name, offset: start, row_bytes, count: bytes / row_bytes, missing: 0, bytes }
    }

    /// Opens the array at `place`, with the number of complete rows. `row_bytes(shape)` returns the bytes per row,
    /// or an error about the shape.
    fn array(
        place: Place,
        descr: &str,
        row_bytes: impl Fn(&[u64]) -> Result<u64, String>,
    ) -> Result<Self, String> {
        let Place { file, name, start, end } = place;
        let says = |why: String| format!("cannot use {name}: {why}");
        let header = Header::read(&file, start).map_err(says)?;
        if header.descr != descr {
            return Err(says(format!("its dtype is {}, expected {descr}", header.descr)));
        }
        let [rows, row @ ..] = &header.shape[..] else {
            return Err(says("its shape is (), expected one row for each frame".to_owned()));
        };
        let row_bytes = row_bytes(row).map_err(says)?;
        let bytes = end.saturating_sub(header.data_offset);
        let there = bytes / row_bytes.max(1);
        let (count, missing) = (*rows.min(&there), rows.saturating_sub(there));
        Ok(Self { file, offset: header.data_offset, row_bytes, count, missing, bytes, name })
    }
}

/// An open recording.
pub struct Recording {
    data: Rows,
    timestamp: Rows,
    validity: Rows,
    /// Checksums, and the rows that only the checksums need, if the recording has them.
    sums: Option<Sums>,
    /// Annotations of the frames, by name; without a name for those unknown to blocks.
    annotations: Vec<(Option<&'static str>, Rows)>,
    /// Number of complete frames.
    pub frames: u64,
    /// Number of frames missing because the recording was truncated.
    pub missing: u64,
    /// Names of the arrays that are too short.
    pub cut: Vec<String>,
    /// Buffer for a row of an annotation.
    row: Vec<u8>,
}

/// The checksums, and the rows that only the checksums need.
struct Sums {
    sequence: Rows,
    config_id: Rows,
    checksum: Rows,
}

impl Recording {
    /// Opens the arrays of the recording at `path`.
    pub fn open(path: &ReadPath, side: &SideFile, port: &PortType) -> Result<Self, String> {
        let arrays = Arrays::open(path, side)?;
        let open = |name: &str, descr: &str, shape: Vec<u64>, bytes: u64| {
            Rows::array(arrays.find(name)?, descr, |found| {
                let row = || format!("its rows have the shape {found:?}, expected {shape:?}");
                (found == shape).then_some(bytes).ok_or_else(row)
            })
        };
        let shape = npy::frame_shape(port).iter().map(|len| *len as u64).collect();
        let data = open("data", npy::layout(port.dtype).0, shape, port.frame_bytes() as u64)?;
        let timestamp = open("timestamp", "<u8", vec![], 8)?;
        let units = port.validity.axes.iter().map(|axis| axis.len as u64).collect();
        let validity = open("validity", "<u4", units, 4 * port.validity.units() as u64)?;
        // Recordings of earlier versions have no checksums.
        let sums = if side.arrays.contains_key("checksum") {
            Some(Sums {
                sequence: open("sequence", "<u8", vec![], 8)?,
                config_id: open("config_id", "<u8", vec![], 8)?,
                checksum: open("checksum", "<u4", vec![], 4)?,
            })
        } else {
            None
        };
        let mut annotations = Vec::new();
        for name in side.arrays.keys().filter(|name| !ARRAYS.contains(&name.as_str())) {
            if annotations.len() == MAX_ANNOTATIONS {
                return Err(format!(
                    "the side file of {path} has more than {MAX_ANNOTATIONS} annotations"
                ));
            }
            let rows = Rows::array(arrays.find(name)?, "<f8", |shape| match shape {
                [len] if *len <= MAX_ANNOTATION => Ok(8 * len),
                _ => Err(format!(
                    "its rows have the shape {shape:?}, expected at most {MAX_ANNOTATION} values"
                )),
            })?;
            annotations.push((crate::common::annotations::name(name), rows));
        }
        let mut all = vec![&timestamp, &validity];
        all.extend(sums.iter().flat_map(|s| [&s.sequence, &s.config_id, &s.checksum]));
        all.extend(annotations.iter().map(|(_, rows)| rows));
        // The payload is written last: a frame without payload was never complete.
        let mut promised = data.count.saturating_add(data.missing);
        if side.complete {
            promised = promised.max(side.frames);
        }
        all.push(&data);
        let frames = all.iter().map(|rows| rows.count).fold(promised, u64::min);
        let missing = promised - frames;
        let is_cut = |rows: &&&Rows| rows.count < promised;
        let cut = all.iter().filter(is_cut).map(|rows| rows.name.clone()).collect();
        let row = Vec::new();
        Ok(Self { data, timestamp, validity, sums, annotations, frames, missing, cut, row })
    }

    /// Returns the timestamp of frame `n`.
    pub fn timestamp(&self, n: u64) -> Result<u64, String> {
        number(&self.timestamp, n)
    }

    /// Reads frame `n` into `frame` and verifies its checksum.
    pub fn read(&mut self, n: u64, frame: &mut FrameMut) -> Result<(), String> {
        let (header, payload) = frame.parts_mut::<u8>().map_err(|error| error.to_string())?;
        header.timestamp = number(&self.timestamp, n)?;
        let mut sum = Checksum::default();
        if let Some(sums) = &self.sums {
            sum.add(&number(&sums.sequence, n)?.to_le_bytes());
            sum.add(&header.timestamp.to_le_bytes());
            sum.add(&number(&sums.config_id, n)?.to_le_bytes());
        }
        let counts: &mut [u8] = bytemuck::cast_slice_mut(&mut header.validity);
        self.validity.read(n, counts)?;
        sum.add(counts);
        for (name, rows) in &self.annotations {
            self.row.resize(rows.row_bytes as usize, 0);
            rows.read(n, &mut self.row)?;
            let values = || self.row.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
            // A row of NaN means that the frame had no table.
            if values().all(f64::is_nan) {
                continue;
            }
            sum.add(&self.row);
            if let Some(name) = name {
                let table = header.annotations.reset(name, self.row.len() / 8);
                table.iter_mut().zip(values()).for_each(|(to, from)| *to = from);
            }
        }
        self.data.read(n, payload)?;
        sum.add(payload);
        match &self.sums {
            Some(sums) if sum.value() != sums.checksum(n)? => {
                let name = &self.data.name;
                Err(format!("frame {n} of {name} is damaged: checksum mismatch"))
            }
            _ => Ok(()),
        }
    }
}

impl Sums {
    fn checksum(&self, n: u64) -> Result<u32, String> {
        let mut bytes = [0u8; 4];
        self.checksum.read(n, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// Reads row `n` of an array of integers.
fn number(rows: &Rows, n: u64) -> Result<u64, String> {
    let mut bytes = [0u8; 8];
    rows.read(n, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
