//! Conformance case: the GPU implementation ends like the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Returns the cases, with the candidate implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let source = json!({
        "dtype": "i16", "axes": [{ "name": "sample", "len": 1000 }], "samples_per_frame": 1000,
        "frames": 9, "pattern": "random",
    });
    let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
    vec![Case::new(
        ("null_sink", "cuda"),
        "all frames are consumed",
        &json!({}),
        (&upstream, &["source"]),
        Tolerance::EXACT,
        device,
    )]
}
