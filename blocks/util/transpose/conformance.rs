//! Conformance cases of the GPU implementation against the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

const NAMES: [&str; 5] = ["heap", "antenna", "channel", "spectrum", "pol"];

/// (element type, lengths of the first axes, their order in the output)
const CASES: &[(&str, &[usize], &[usize])] = &[
    // Every element size; sides that are, and are not, multiples of a tile.
    ("ci4", &[512, 1024], &[1, 0]),
    ("ci8", &[256, 640], &[1, 0]),
    ("f32", &[300, 520], &[1, 0]),
    ("cf32", &[257, 131], &[1, 0]),
    ("cf64", &[160, 144], &[1, 0]),
    ("cf64", &[97, 211], &[1, 0]),
    ("cf16", &[130, 300], &[1, 0]),
    ("i8", &[517, 333], &[1, 0]),
    ("ci8", &[1, 131, 257], &[2, 0, 1]),
    // Pairs of polarisations as one element, of 2 to 16 bytes.
    ("i8", &[3, 70, 41, 1, 2], &[2, 1, 0, 3, 4]),
    ("ci8", &[3, 70, 41, 1, 2], &[0, 2, 3, 1, 4]),
    ("cf32", &[2, 70, 41, 1, 2], &[2, 0, 1, 3, 4]),
    // Elements of 16 bytes: pairs exceed the largest unit.
    ("cf64", &[2, 30, 41, 1, 2], &[2, 0, 1, 3, 4]),
    // Narrow matrices, and matrices too small for a tile.
    ("ci8", &[2, 1, 64, 256, 2], &[0, 1, 2, 4, 3]),
    ("ci8", &[2, 64, 2, 256], &[0, 1, 3, 2]),
    ("ci4", &[2, 3, 5, 300, 2], &[0, 1, 2, 4, 3]),
    ("ci8", &[3, 5, 7, 16, 2], &[0, 1, 2, 4, 3]),
    ("cf64", &[2, 3, 5, 100, 2], &[0, 1, 2, 4, 3]),
    // The fastest axis stays.
    ("ci8", &[2, 17, 16, 32, 2], &[0, 2, 1, 3, 4]),
    ("i16", &[6, 9, 5, 7], &[2, 1, 0, 3]),
    ("cf32", &[6, 9, 50], &[1, 0, 2]),
    ("f64", &[7, 11, 13], &[0, 1, 2]),
    ("cf64", &[5, 6, 7], &[1, 0, 2]),
    // Everything turns round.
    ("ci8", &[2, 5, 24, 64, 2], &[4, 3, 2, 1, 0]),
    ("ci32", &[3, 4, 17, 33, 2], &[3, 1, 4, 0, 2]),
    ("i64", &[2, 3, 19, 37], &[3, 0, 2, 1]),
    ("cf64", &[3, 4, 17, 33, 2], &[3, 1, 4, 0, 2]),
];

/// The cases, with the form on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case = |&(dtype, lengths, order): &(&str, &[usize], &[usize])| {
        let axis = |(name, len): (&&str, &usize)| json!({ "name": name, "len": len });
        let axes: Vec<_> = NAMES.iter().zip(lengths).map(axis).collect();
        let source = json!({
            "dtype": dtype, "axes": axes, "samples_per_frame": 64, "frames": 4, "pattern": "random",
            "validity_axes": &axes[..1],
        });
        let names: Vec<_> = order.iter().map(|n| NAMES[*n]).collect();
        Case::new(
            ("transpose", "cuda"),
            format!("{dtype} {lengths:?} to {order:?}"),
            &json!({ "axes": names }),
            (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
            Tolerance::EXACT,
            device,
        )
    };
    CASES.iter().map(case).collect()
}
