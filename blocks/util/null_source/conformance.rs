//! Conformance cases of the GPU implementation against the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// (pattern, element type, elements, frames): no more frames than buffers, because later frames repeat.
const CASES: &[(&str, &str, usize, usize)] = &[
    ("counter", "i8", 777, 2),
    ("random", "ci4", 4096, 2),
    ("random", "cf32", 1000, 2),
    ("random", "cf16", 1001, 2),
    ("random", "cf64", 500, 2),
];

/// Returns the cases, with the candidate implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case = |&(pattern, dtype, len, frames): &(&str, &str, usize, usize)| {
        let parameters = json!({
            "dtype": dtype, "axes": [{ "name": "sample", "len": len }], "samples_per_frame": len,
            "frames": frames, "pattern": pattern, "first_timestamp": 3,
        });
        let name = format!("{pattern} {dtype}");
        Case::new(("null_source", "cuda"), name, &parameters, ("", &[]), Tolerance::EXACT, device)
    };
    let restart = json!({
        "dtype": "i8", "axes": [{ "name": "sample", "len": 777 }], "samples_per_frame": 777, "frames": 2,
        "pattern": "random", "restart_every": 1,
    });
    let restart = Case::new(
        ("null_source", "cuda"),
        "restart",
        &restart,
        ("", &[]),
        Tolerance::EXACT,
        device,
    );
    CASES.iter().map(case).chain([restart]).collect()
}
