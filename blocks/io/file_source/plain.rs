//! Files that are not recordings: arrays of `numpy.save`, and plain binary data.

use super::Raw;
use super::archive::{Place, is_archive, is_array};
use super::player::Rows;
use fxgraph::access::ReadPath;
use fxgraph::files::reason;
use fxgraph::recording::array::Header;
use fxgraph::{PortType, npy};
use std::fs::File;

fn open(path: &ReadPath) -> Result<File, String> {
    path.open().map_err(|error| format!("cannot read {path}: {}", reason(&error)))
}

/// Reads the header of the file at `path` if it is an array of `numpy.save`: a `.npy` file without
/// `raw.header_bytes`.
pub fn header(path: &ReadPath, raw: &Raw) -> Result<Option<Header>, String> {
    if raw.header_bytes.is_none() && is_archive(path) {
        return Err(format!(
            "cannot use {path}: `raw` describes one array, not an archive of arrays"
        ));
    }
    if !is_array(path) || raw.header_bytes.is_some() {
        return Ok(None);
    }
    let header = Header::read(&open(path)?, 0);
    header.map(Some).map_err(|why| format!("cannot use {path}: {why}"))
}

/// Returns the number of frames of `port` in the array: the length of its first axis, or, if the array
/// has the axes of a frame, the number of whole frames along its first axis.
pub fn frames(header: &Header, port: &PortType) -> Result<u64, String> {
    let descr = npy::layout(port.dtype).0;
    if header.descr != descr {
        let found = &header.descr;
        return Err(format!("its dtype is {found}, expected {descr} for `{}`", port.dtype));
    }
    let frame: Vec<u64> = npy::frame_shape(port).iter().map(|len| *len as u64).collect();
    match &header.shape[..] {
        [frames, rest @ ..] if *rest == frame => Ok(*frames),
        [len, rest @ ..] if !frame.is_empty() && *rest == frame[1..] => Ok(len / frame[0].max(1)),
        shape => {
            let expected = |lens: &[u64]| {
                let lens = lens.iter().map(u64::to_string);
                format!(
                    "[{}]",
                    ["n".to_owned()].into_iter().chain(lens).collect::<Vec<_>>().join(", ")
                )
            };
            let (one, other) = (expected(&frame), expected(frame.get(1..).unwrap_or_default()));
            Err(format!("its shape is {shape:?}, expected {one} or {other}"))
        }
    }
}

/// Opens the frames of `port` in the file at `path`.
pub fn rows(path: &ReadPath, raw: &Raw, port: &PortType) -> Result<Rows, String> {
    let says = |why: String| format!("cannot use {path}: {why}");
    let header = header(path, raw)?;
    let file = open(path)?;
    let end = file.metadata().map_err(|error| says(reason(&error)))?.len();
    let start = header.as_ref().map_or(raw.header_bytes.unwrap_or(0), |header| header.data_offset);
    let place = Place { file, name: path.to_string(), start, end };
    let mut rows = Rows::plain(place, raw.frame_bytes(port));
    if let Some(header) = header {
        let frames = frames(&header, port).map_err(says)?;
        (rows.count, rows.missing) = (rows.count.min(frames), frames.saturating_sub(rows.count));
    }
    Ok(rows)
}
