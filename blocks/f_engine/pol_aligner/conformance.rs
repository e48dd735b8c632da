//! A case that compares the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let source = |pol: usize, first: usize, frames: usize| {
        let parameters = json!({
            "dtype": "i10p", "axes": [{ "name": "sample", "len": 4096 }], "samples_per_frame": 4096,
            "first_timestamp": 4096 * first, "frames": frames, "pattern": "random", "seed": pol,
        });
        format!("pol{pol}: {{kind: null_source, parameters: {parameters}}}\n")
    };
    let upstream = [source(0, 0, 7), source(1, 2, 8)].concat();
    vec![Case::new(
        ("pol_aligner", "cuda"),
        "one polarisation begins and ends later",
        &json!({}),
        (&upstream, &["pol0", "pol1"]),
        Tolerance::EXACT,
        device,
    )]
}
