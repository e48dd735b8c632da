//! Cases that compare the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    // Polarisations, spectra, series or 0 for complex samples, channels.
    let shapes = [
        (1, 3, 1, 4),
        (2, 16, 1, 64),
        (1, 9, 1, 10),
        (2, 11, 1, 1000),
        (2, 11, 1, 1024),
        (2, 5, 1, 1536),
        (1, 3, 1, 24_576),
        (2, 16, 1, 4096),
        (2, 16, 1, 8192),
        (1, 9, 1, 32768),
        (1, 1, 1, 1 << 20),
        (2, 11, 0, 30),
        (2, 11, 0, 64),
        (1, 4, 0, 1500),
        (2, 16, 0, 2048),
        (1, 3, 0, 1 << 16),
        (1, 7, 2, 8),
        (1, 7, 2, 1000),
        (2, 16, 2, 4096),
        (2, 5, 4, 8192),
        (1, 16, 8, 1024),
        (2, 4, 16, 65536),
    ];
    let case = |(pols, spectra, unzip, channels): (usize, usize, usize, usize)| {
        let axis = |name: &str, len: usize| json!({"name": name, "len": len});
        let (pol, spectrum) = (axis("pol", pols), axis("spectrum", spectra));
        let (dtype, series) = match unzip {
            0 => ("cf32", vec![axis("sample", channels)]),
            1 => ("f32", vec![axis("sample", 2 * channels)]),
            _ => ("cf32", vec![axis("unzip", unzip), axis("sample", channels / unzip)]),
        };
        let axes = [vec![pol.clone(), spectrum.clone()], series].concat();
        let source = json!({
            "dtype": dtype, "axes": axes, "validity_axes": [pol, spectrum],
            "samples_per_frame": 2 * channels * spectra, "frames": 5, "pattern": "random",
        });
        let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
        let of = match unzip {
            0 => "complex samples".to_owned(),
            _ => format!("{unzip} series"),
        };
        let name = format!("{channels} channels of {of}, {pols} x {spectra} spectra");
        // Rounding errors of rustfft and cuFFT.
        let tolerance = Tolerance::floating(2e-6);
        Case::new(("fft", "cuda"), name, &json!({}), (&upstream, &["source"]), tolerance, device)
    };
    shapes.into_iter().map(case).collect()
}
