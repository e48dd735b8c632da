//! Cases that compare the CUDA implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// The cases on `device`.
pub(super) fn cases(device: DeviceName) -> Vec<Case> {
    let mut cases = stacked_cases(device);
    cases.extend(unit_cases(device));
    // Polarisations, spectra, channels, products, spectra in a sum, frames between missing ones.
    cases.extend(
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
                "frames": 5, "pattern": "random", "band": band(channels, channels == 257),
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
        }),
    );
    cases
}

fn band(channels: usize, is_inverted: bool) -> Value {
    let sideband = if is_inverted { "lower" } else { "upper" };
    json!({"channels": channels, "centre_hz": 1.284e9, "bandwidth_hz": 856e6, "sideband": sideband})
}

/// Cases of the voltages of several antennas; all sums are exact.
fn stacked_cases(device: DeviceName) -> Vec<Case> {
    // Element type, K-major, antennas, channels, heaps, spectra of a heap, parameters.
    [
        ("ci8", false, 5, 33, 2, 64, json!({"products": "stokes", "spectra": 16})),
        ("ci8", true, 7, 8, 3, 20, json!({"products": "power", "spectra": 30})),
        (
            "ci4",
            false,
            3,
            5,
            2,
            12,
            json!({"products": "intensity", "spectra": 24, "antennas": "separate"}),
        ),
        (
            "ci4",
            true,
            1,
            16,
            4,
            100,
            json!({"products": "stokes", "spectra": 1, "antennas": "separate"}),
        ),
    ]
    .map(|(dtype, k_major, antennas, channels, heaps, spectra, parameters)| {
        let axis = |name: &str, len: usize| json!({"name": name, "len": len});
        let units = [axis("heap", heaps), axis("antenna", antennas)];
        let mut axes = units.to_vec();
        let (spectrum, pol) = (axis("spectrum", spectra), axis("pol", 2));
        axes.push(axis("channel", channels));
        axes.extend(if k_major { [pol, spectrum] } else { [spectrum, pol] });
        let source = json!({
            "dtype": dtype, "axes": axes, "validity_axes": units,
            "samples_per_frame": 2 * channels * heaps * spectra,
            "frames": 5, "pattern": "random", "missing_every": 4, "band": band(channels, k_major),
        });
        Case::new(
            ("detect", "cuda"),
            format!("{antennas} antennas, {dtype}, {parameters}"),
            &parameters,
            (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
            Tolerance::EXACT,
            device,
        )
    })
    .into()
}

/// Cases of beams, and of antennas with flags of channels; all sums are exact.
fn unit_cases(device: DeviceName) -> Vec<Case> {
    let axis = |name: &str, len: usize| json!({"name": name, "len": len});
    let (heap, channel, pol) = (axis("heap", 2), axis("channel", 9), axis("pol", 2));
    let (spectrum, beam, antenna) = (axis("spectrum", 24), axis("beam", 4), axis("antenna", 5));
    let of_beams = json!([heap, beam, channel, spectrum]);
    [
        ("beams, power", &of_beams, json!([heap]), "power"),
        ("pairs of beams, stokes", &of_beams, json!([heap]), "stokes"),
        ("beams with flags of channels", &of_beams, json!([heap, beam, channel]), "intensity"),
        (
            "antennas with one polarisation",
            &json!([heap, antenna, channel, spectrum, axis("pol", 1)]),
            json!([heap, antenna, channel, axis("pol", 1)]),
            "power",
        ),
        (
            "antennas with flags of channels",
            &json!([heap, antenna, channel, spectrum, pol]),
            json!([heap, antenna, channel, pol]),
            "stokes",
        ),
    ]
    .map(|(name, axes, units, products)| {
        let source = json!({
            "dtype": "ci8", "axes": axes, "validity_axes": units, "samples_per_frame": 960,
            "frames": 5, "pattern": "random", "missing_every": 3,
        });
        Case::new(
            ("detect", "cuda"),
            name,
            &json!({"products": products, "spectra": 16}),
            (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
            Tolerance::EXACT,
            device,
        )
    })
    .into()
}
