//! Cases in which the GPU implementation is checked against the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Returns the cases for `device`. Random samples have a kurtosis of about 0.4, so that the limits flag no, some or all
/// channels.
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case = |(pols, spectra, channels, sigmas, missing_every): (_, _, _, f64, Option<u64>)| {
        let source = json!({
            "dtype": "cf32",
            "axes": [{"name": "pol", "len": pols}, {"name": "spectrum", "len": spectra},
                {"name": "channel", "len": channels}],
            "validity_axes": [{"name": "spectrum", "len": spectra}],
            "samples_per_frame": 8192, "frames": 12, "pattern": "random", "seed": channels,
            "missing_every": missing_every,
        });
        let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
        let missing = if missing_every.is_some() { ", incomplete frames" } else { "" };
        Case::new(
            ("kurtosis_flagger", "cuda"),
            format!(
                "{pols} pols, {spectra} spectra, {channels} channels, {sigmas} sigmas{missing}"
            ),
            &json!({"sigmas": sigmas}),
            (&upstream, &["source"]),
            // Sums in double precision in another order; the kurtosis is rounded to single precision.
            Tolerance::floating(1e-6),
            device,
        )
    };
    let mut cases: Vec<Case> = [
        (2, 256, 1024, 4.9, None),
        (2, 64, 33, 2.4, None),
        (3, 100, 65, 50.0, None),
        (1, 5, 1, 100.0, None),
        (1, 256, 70, 4.9, Some(1000)),
    ]
    .map(case)
    .into();
    cases.push(case((2, 128, 96, 100.0, None)).change(4 * 8192, json!({"sigmas": 3.4})));
    cases
}
