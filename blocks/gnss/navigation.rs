//! Navigation data of the satellites of a flowgraph.

use fxgraph::access::ReadPath;
use fxgraph_dsp::gnss::System;
use fxgraph_navigation::SatelliteId;
use fxgraph_navigation::message::Signal;
use fxgraph_navigation::rinex::{Navigation, read_navigation};
use std::io::Read;

/// Longest navigation file: all systems of a week have some ten megabytes.
const MAX_FILE_BYTES: u64 = 1 << 26;

/// Reads a RINEX navigation file; the error is a sentence.
pub fn read_file(path: &ReadPath) -> Result<Navigation, String> {
    let mut bytes = Vec::new();
    let read = path.open().and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read `{path}`: {}", fxgraph::files::reason(&error)))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("`{path}` must have at most 64 MiB"));
    }
    // Comments may have any encoding.
    read_navigation(&String::from_utf8_lossy(&bytes))
        .map_err(|error| format!("`{path}` must be a RINEX navigation file: {error}"))
}

/// Returns the satellite that sends code `prn` of `system`, and its signal with a navigation message; `None` for signals
/// whose messages and group delays are not supported.
#[must_use]
pub fn satellite(system: System, prn: usize) -> Option<(SatelliteId, Signal)> {
    let prn = u8::try_from(prn).ok()?;
    match system {
        System::GpsL1Ca => Some((SatelliteId::gps(prn), Signal::GpsL1Ca)),
        System::GalileoE1b => Some((SatelliteId::galileo(prn), Signal::GalileoE1b)),
        _ => None,
    }
}
