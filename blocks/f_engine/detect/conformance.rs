//! Cases that compare the CUDA implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// The cases on `device`.
pub(super) fn cases(device: DeviceName) -> Vec<Case> {
    // Polarisations, spectra, channels, products, spectra in a sum, frames between missing ones.
    [
        (2, 16, 64, "stokes", 4, None),
        (2, 5, 1000, "stokes", 1, None),
        (2, 64, 129, "intensity", 64, None),
        (2, 12, 2048, "power", 3, Some(7)),
        (1, 32, 4096, "power", 8, None),
        (2, 32, 257, "stokes", 16, Some(11)),
        (2, 70_000, 4, "stokes", 1, None),
    ]
    .map(|(pols, spectra, channels, products, of_sum, missing_every)| {
        let axis = |name: &str, len: usize| json!({"name": name, "len": len});
        let (pol, spectrum) = (axis("pol", pols), axis("spectrum", spectra));
        let mut source = json!({
            "dtype": "cf32", "axes": [pol.clone(), spectrum.clone(), axis("channel", channels)],
            "validity_axes": [pol, spectrum], "samples_per_frame": 2 * channels * spectra,
            "frames": 5, "pattern": "random",
        });
        let mut name =
            format!("{products}, {pols} x {spectra} spectra of {channels}, {of_sum} in a sum");
        if let Some(every) = missing_every {
            source["missing_every"] = json!(every);
            name += ", some missing";
        }
        Case::new(
            ("detect", "cuda"),
            name,
            &json!({"products": products, "spectra": of_sum}),
            (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
            // Products and sums are rounded together on a GPU.
            Tolerance::floating(1e-6),
            device,
        )
    })
    .into()
}
