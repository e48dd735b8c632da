//! Conformance cases of the GPU implementation: bit-exact against the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// (input, output, scale, elements), with lengths that are, and are not, multiples of the numbers per
/// thread. Random floats are in (-1, 1), random integers in the whole range.
const CASES: &[(&str, &str, f64, usize)] = &[
    ("ci4", "cf16", 1.0, 4099),
    ("ci8", "cf16", 0.015_625, 8192),
    ("ci8", "cf16", 0.1, 777),
    ("ci8", "ci4", 0.07, 1001),
    ("ci8", "cf32", -3.3, 1),
    ("ci16", "cf32", 1e-3, 517),
    ("cf32", "ci16", 30_000.0, 1031),
    ("ci32", "cf32", 1e-3, 515),
    ("ci32", "ci8", 1e-7, 5000),
    ("cf16", "ci8", 140.0, 4097),
    ("cf16", "cf32", 1.1, 3),
    ("cf32", "cf16", 1.7, 4096),
    ("cf32", "cf16", 7e4, 1023),
    // Subnormal values in half precision.
    ("cf32", "cf16", 1e-6, 1024),
    ("cf32", "ci4", 8.0, 1003),
    ("cf32", "ci32", 3e9, 1000),
    ("cf32", "cf64", 0.3, 501),
    ("cf64", "cf16", 0.7, 1005),
    ("cf64", "cf32", 1e38, 999),
    ("cf64", "ci32", 1e5, 333),
    ("cf64", "cf64", -0.1, 77),
    ("u8", "i8", 0.5, 2051),
    ("u8", "f16", 300.0, 100),
    ("i8", "u8", 2.0, 2048),
    ("i16", "f16", 1.0, 40_007),
    ("i16", "i8", 0.004, 30_001),
    ("i32", "f16", 1e-5, 3000),
    ("i32", "f64", 0.3, 613),
    ("f16", "i16", 33_000.0, 4100),
    ("f32", "f16", 1.0, 65_539),
    ("f32", "i16", 4.5, 2050),
    ("i8", "ci8", 2.0, 2051),
    ("i16", "cf32", 1e-3, 517),
    ("f16", "ci4", 8.0, 1003),
    ("f32", "cf16", 1.7, 4099),
    ("i32", "cf64", 0.3, 77),
    ("f64", "ci16", 3e4, 1005),
    ("f64", "u8", 256.0, 1999),
    ("f64", "f32", 1.0, 2500),
];

/// Returns the cases, with the candidate implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case = |&(from, to, scale, len): &(&str, &str, f64, usize), conjugate: bool| {
        let source = json!({
            "dtype": from, "axes": [{"name": "pol", "len": 1}, {"name": "sample", "len": len}],
            "validity_axes": [{"name": "pol", "len": 1}], "samples_per_frame": len, "frames": 4,
            "pattern": "random", "seed": len,
        });
        Case::new(
            ("convert", "cuda"),
            format!(
                "{from} to {to}{}, {len} elements times {scale}",
                if conjugate { ", conjugated" } else { "" }
            ),
            &json!({"dtype": to, "scale": scale, "conjugate": conjugate}),
            (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
            Tolerance::EXACT,
            device,
        )
    };
    let conjugated = CASES.iter().filter(|(from, ..)| from.starts_with('c')).step_by(3);
    let conjugated = conjugated.map(|setup| case(setup, true));
    CASES.iter().map(|setup| case(setup, false)).chain(conjugated).collect()
}
