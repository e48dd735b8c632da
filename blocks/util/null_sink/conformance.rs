//! A case in which the form for a GPU has to end as the definition does.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// The cases, with the form on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let source = json!({
        "dtype": "i16", "axes": [{ "name": "sample", "len": 1000 }], "samples_per_frame": 1000,
        "frames": 9, "pattern": "random",
    });
    let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
    vec![Case::new(
        ("null_sink", "cuda"),
        "frames are taken to the end",
        &json!({}),
        (&upstream, &["source"]),
        Tolerance::EXACT,
        device,
    )]
}
