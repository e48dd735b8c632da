//! Arrays on disk, row by row.

use super::archive;
use fxgraph::recording::array::Header;
use fxgraph::recording::{Checksum, SideFile};
use fxgraph::{FrameMut, PortType, npy};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Annotations that blocks know.
const ANNOTATIONS: &[&str] =
    &["fine_delay_samples", "phase_turns", "adc_power", "adc_clipped", "saturated"];
/// The arrays that are no annotations.
const ARRAYS: [&str; 6] = ["data", "sequence", "timestamp", "config_id", "validity", "checksum"];
/// Longest row of an annotation that is believed.
const MAX_ANNOTATION: u64 = 1 << 20;
/// Most annotations that are believed.
const MAX_ANNOTATIONS: usize = 64;

/// Rows of equal size in a file.
pub struct Rows {
    file: File,
    path: PathBuf,
    offset: u64,
    row_bytes: u64,
    /// Number of rows.
    pub count: u64,
    /// Rows that its header promises besides.
    pub missing: u64,
}

impl Rows {
    /// Reads row `n`.
    pub fn read(&self, n: u64, into: &mut [u8]) -> Result<(), String> {
        self.file
            .read_exact_at(into, self.offset + n * self.row_bytes)
            .map_err(|error| format!("cannot read {}: {error}", self.path.display()))
    }

    /// Plain data from `offset` on; a last part that fills no row is left out.
    pub fn plain(path: &Path, offset: u64, row_bytes: usize) -> Result<Self, String> {
        let says = |why: String| format!("cannot read {}: {why}", path.display());
        let file = File::open(path).map_err(|error| says(error.to_string()))?;
        let len = file.metadata().map_err(|error| says(error.to_string()))?.len();
        let row_bytes = (row_bytes as u64).max(1);
        let rows = len.saturating_sub(offset) / row_bytes;
        Ok(Self { file, path: path.to_owned(), offset, row_bytes, count: rows, missing: 0 })
    }

    /// The array at `offset` of `file`, `elements(shape)` bytes a row if the shape is right: as many rows as
    /// are whole.
    fn array(
        file: File,
        path: &Path,
        offset: u64,
        descr: &str,
        row_bytes: impl Fn(&[u64]) -> Option<u64>,
    ) -> Result<Self, String> {
        let says = |why: String| format!("cannot use {}: {why}", path.display());
        let header = Header::read(&file, offset).map_err(says)?;
        if header.descr != descr {
            return Err(says(format!("its elements are {}, not {descr}", header.descr)));
        }
        let (rows, row_bytes) = header
            .shape
            .split_first()
            .and_then(|(rows, shape)| Some((*rows, row_bytes(shape)?)))
            .ok_or_else(|| says("its shape is not what the side file says".to_owned()))?;
        let len = file.metadata().map_err(|error| says(error.to_string()))?.len();
        let there = len.saturating_sub(header.data_offset) / row_bytes.max(1);
        let (count, missing) = (rows.min(there), rows.saturating_sub(there));
        let (path, offset) = (path.to_owned(), header.data_offset);
        Ok(Self { file, path, offset, row_bytes, count, missing })
    }
}

/// A recording, open.
pub struct Recording {
    data: Rows,
    timestamp: Rows,
    validity: Rows,
    /// What it was when it was recorded, if that was written.
    sums: Option<Sums>,
    /// Tables that travelled with the frames, by name; without a name for those that no block knows.
    annotations: Vec<(Option<&'static str>, Rows)>,
    /// Frames that are whole.
    pub frames: u64,
    /// Frames that were there before the recording was cut off.
    pub missing: u64,
    /// Bytes of a row.
    row: Vec<u8>,
}

/// The rows that only the checksum needs, and the checksum.
struct Sums {
    sequence: Rows,
    config_id: Rows,
    checksum: Rows,
}

impl Recording {
    /// Opens the arrays of the recording at `path`.
    pub fn open(path: &Path, side: &SideFile, port: &PortType) -> Result<Self, String> {
        let open = |name: &str, descr: &str, shape: Vec<u64>, bytes: u64| {
            let (file, offset) = archive::array(path, side, name)?;
            Rows::array(file, path, offset, descr, |found| (found == shape).then_some(bytes))
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
                return Err(format!("the side file names more than {MAX_ANNOTATIONS} annotations"));
            }
            let (file, offset) = archive::array(path, side, name)?;
            let rows = Rows::array(file, path, offset, "<f8", |shape| match shape {
                [len] if *len <= MAX_ANNOTATION => Some(8 * len),
                _ => None,
            })?;
            let known = ANNOTATIONS.iter().find(|known| *known == name).copied();
            annotations.push((known, rows));
        }
        let mut all = vec![&timestamp, &validity];
        all.extend(sums.iter().flat_map(|s| [&s.sequence, &s.config_id, &s.checksum]));
        all.extend(annotations.iter().map(|(_, rows)| rows));
        // The payload is written last: what has none yet was never whole.
        let promised = data.count.saturating_add(data.missing);
        let frames = all.iter().map(|rows| rows.count).fold(data.count, u64::min);
        let missing = promised - frames;
        let row = Vec::new();
        Ok(Self { data, timestamp, validity, sums, annotations, frames, missing, row })
    }

    /// Timestamp of frame `n`.
    pub fn timestamp(&self, n: u64) -> Result<u64, String> {
        number(&self.timestamp, n)
    }

    /// Fills in frame `n`, after a look at its checksum.
    pub fn read(&mut self, n: u64, frame: &mut FrameMut) -> Result<(), String> {
        let (header, payload) = frame.parts_mut::<u8>();
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
            // A row that says nothing stands for no table.
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
                let path = self.data.path.display();
                Err(format!("frame {n} of {path} is damaged: its checksum is another"))
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

/// Row `n` of an array of whole numbers.
fn number(rows: &Rows, n: u64) -> Result<u64, String> {
    let mut bytes = [0u8; 8];
    rows.read(n, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
