//! Arrays on disk, row by row.

use crate::recording::npy::Header;
use crate::recording::side_file::SideFile;
use fxgraph::{PortType, npy};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

/// Annotations that blocks know.
const ANNOTATIONS: &[&str] =
    &["fine_delay_samples", "phase_turns", "adc_power", "adc_clipped", "saturated"];
/// Longest row of an annotation that is believed.
const MAX_ANNOTATION: u64 = 1 << 20;

/// Rows of equal size in a file.
pub struct Rows {
    file: File,
    path: PathBuf,
    offset: u64,
    row_bytes: u64,
    /// Number of rows.
    pub count: u64,
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
        Ok(Self { file, path: path.to_owned(), offset, row_bytes, count: rows })
    }

    /// The array at `offset` of `file`, `elements(shape)` bytes a row if the shape is right.
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
        if rows > there {
            return Err(says(format!("it promises {rows} frames but holds {there}")));
        }
        Ok(Self { file, path: path.to_owned(), offset: header.data_offset, row_bytes, count: rows })
    }
}

/// A recording, open.
pub struct Recording {
    /// Payloads.
    pub data: Rows,
    /// Timestamps.
    pub timestamp: Rows,
    /// Validity counts.
    pub validity: Rows,
    /// Tables that travel with the frames.
    pub annotations: Vec<(&'static str, Rows)>,
    /// Frames that are whole.
    pub frames: u64,
}

impl Recording {
    /// Opens the arrays of the recording at `path`.
    pub fn open(path: &Path, side: &SideFile, port: &PortType) -> Result<Self, String> {
        let open = |name: &str, descr: &str, shape: Vec<u64>, bytes: u64| {
            let (file, offset) = member(path, side, name)?;
            Rows::array(file, path, offset, descr, |found| (found == shape).then_some(bytes))
        };
        let shape = npy::frame_shape(port).iter().map(|len| *len as u64).collect();
        let data = open("data", npy::layout(port.dtype).0, shape, port.frame_bytes() as u64)?;
        let timestamp = open("timestamp", "<u8", vec![], 8)?;
        let units = port.validity.axes.iter().map(|axis| axis.len as u64).collect();
        let validity = open("validity", "<u4", units, 4 * port.validity.units() as u64)?;
        let mut annotations = Vec::new();
        for name in ANNOTATIONS.iter().filter(|name| side.arrays.contains_key(**name)) {
            let (file, offset) = member(path, side, name)?;
            let rows = Rows::array(file, path, offset, "<f8", |shape| match shape {
                [len] if *len <= MAX_ANNOTATION => Some(8 * len),
                _ => None,
            })?;
            annotations.push((*name, rows));
        }
        let all = [&timestamp, &validity].into_iter().chain(annotations.iter().map(|(_, r)| r));
        let frames = all.map(|rows| rows.count).fold(data.count, u64::min);
        Ok(Self { data, timestamp, validity, annotations, frames })
    }

    /// The table `rows` at frame `n`; `None` if the frame had none.
    pub fn annotation(rows: &Rows, n: u64) -> Result<Option<Vec<f64>>, String> {
        let mut bytes = vec![0u8; rows.row_bytes as usize];
        rows.read(n, &mut bytes)?;
        let value = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        let values: Vec<f64> = bytes.chunks_exact(8).map(value).collect();
        Ok((!values.iter().all(|value| value.is_nan())).then_some(values))
    }
}

/// The file that has the array `name`, and where in it the array begins.
fn member(path: &Path, side: &SideFile, name: &str) -> Result<(File, u64), String> {
    let says = |path: &Path, why: String| format!("cannot read {}: {why}", path.display());
    let file_name =
        side.arrays.get(name).ok_or_else(|| format!("the side file names no {name}"))?;
    if path.extension().is_none_or(|extension| extension != "npz") {
        // The name only: a side file has no say over other folders.
        let only = Path::new(file_name).file_name().unwrap_or_default();
        let path = path.with_file_name(only);
        let file = File::open(&path).map_err(|error| says(&path, error.to_string()))?;
        return Ok((file, 0));
    }
    let file = File::open(path).map_err(|error| says(path, error.to_string()))?;
    let again = file.try_clone().map_err(|error| says(path, error.to_string()))?;
    let mut zip = ZipArchive::new(again).map_err(|error| says(path, error.to_string()))?;
    let entry = zip.by_name(file_name).map_err(|error| says(path, error.to_string()))?;
    if entry.compression() != CompressionMethod::Stored {
        return Err(says(
            path,
            format!("{file_name} is compressed; `numpy.savez` stores it plainly"),
        ));
    }
    Ok((file, entry.data_start()))
}
