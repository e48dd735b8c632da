//! Files of other programs that sources play: reading, their band, and warnings about their content.

use fxgraph::access::ReadPath;
use fxgraph::diagnostic::codes;
use fxgraph::files::reason;
use fxgraph::{At, Band, Rejection, Sideband};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Error about the file at `path`.
pub fn cannot_read(path: &ReadPath) -> impl Fn(io::Error) -> String {
    move |error| format!("cannot read {path}: {}", reason(&error))
}

/// An open file, whose errors name it.
pub struct PlayedFile {
    pub file: File,
    path: ReadPath,
}

impl PlayedFile {
    /// Opens the file at `path`.
    pub fn open(path: &ReadPath) -> Result<Self, String> {
        Ok(Self { file: path.open().map_err(cannot_read(path))?, path: path.clone() })
    }

    /// Length in bytes.
    pub fn length(&self) -> Result<u64, String> {
        Ok(self.file.metadata().map_err(cannot_read(&self.path))?.len())
    }

    /// Fills `bytes` with those of the file from `offset` on.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.file.read_exact_at(bytes, offset).map_err(cannot_read(&self.path))
    }
}

/// Warnings about values of the header of the file at `path` that contradict each other.
pub fn contradictions(path: &ReadPath, texts: &[String]) -> Vec<Rejection> {
    let warning = |text| {
        Rejection::new(codes::IMPLAUSIBLE, At::Parameter("path"), format!("{path}: {text}"))
            .label("its header contradicts itself")
            .help("correct the header, or check the time of the stream in the products")
    };
    texts.iter().map(warning).collect()
}

/// Band of `channels` channels, the middle of all of which is at `middle_hz`. Its sideband is the one that the user
/// gives, or that of the sign of `signed_hz`, the value of `keyword` in the header. `None` if the width is 0.
pub fn band(
    keyword: &str,
    channels: usize,
    middle_hz: f64,
    signed_hz: f64,
    sideband: Option<Sideband>,
) -> Result<Option<Band>, Box<Rejection>> {
    if signed_hz == 0.0 {
        if sideband.is_some() {
            let message = format!("`sideband` needs the width of the band, and `{keyword}` is 0");
            let rejection = Rejection::parameter("sideband", message);
            return Err(Box::new(rejection.help("omit it: the file does not state a band")));
        }
        return Ok(None);
    }
    let stated = Band::signed(channels, 0, middle_hz, signed_hz);
    let band = Band { sideband: sideband.unwrap_or(stated.sideband), ..stated };
    // The centre of a band is that of channel `channels / 2`.
    let from_middle = (channels / 2) as f64 - (channels as f64 - 1.0) / 2.0;
    Ok(Some(Band { centre_hz: middle_hz + band.step_hz() * from_middle, ..band }))
}

/// Text about a file of `bytes` bytes that is shorter than a frame of `frame_bytes`, or that has a rest after its `frames`
/// whole frames. `None` if there is no rest.
pub fn rest(path: &ReadPath, bytes: u64, frames: u64, frame_bytes: u64) -> Option<String> {
    if frames == 0 {
        let text = "is shorter than a frame, and nothing is played";
        return Some(format!("{path} {text}: {bytes} of {frame_bytes} bytes"));
    }
    let rest = bytes.saturating_sub(frames * frame_bytes);
    (rest > 0).then(|| {
        format!("{path}: the rest of {rest} bytes after the last whole frame is not played")
    })
}
