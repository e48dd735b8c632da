//! Files of other programs that sources play: warnings about their content.

use fxgraph::access::ReadPath;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Refusal};

/// Warning about values of the header of the file at `path` that contradict each other.
pub fn contradicts_itself(path: &ReadPath, text: &str) -> Refusal {
    Refusal::new(codes::IMPLAUSIBLE, At::Parameter("path"), format!("{path}: {text}"))
        .label("its header contradicts itself")
        .help("correct the header, or check the time of the stream in the products")
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
