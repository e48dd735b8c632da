//! Cases that compare the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// Numbers of polarisations, spectra per frame, series and channels of random input.
type Shape = (usize, usize, usize, usize);

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let mut cases = Vec::new();
    // Polarisations, layout, bits and dither.
    for (pols, layout, bits, dither) in [
        (1, "standard", 8, "uniform"),
        (2, "standard", 8, "uniform"),
        (1, "standard", 4, "uniform"),
        (2, "standard", 4, "none"),
        (1, "k_major", 8, "none"),
        (2, "k_major", 8, "uniform"),
        (2, "k_major", 4, "uniform"),
    ] {
        for unzip in [1, 2, 4, 8, 16] {
            let name = format!(
                "{pols} polarisations, {layout}, {bits} bits, dither {dither}, {unzip} series"
            );
            let parameters = json!({
                "layout": layout, "bits": bits, "dither": dither, "dither_seed": 9,
                "spectra_per_heap": 32, "gains": gain(bits, unzip),
            });
            cases.push(random(name, (pols, 24, unzip, 128), &parameters, device));
        }
    }
    for channels in [4, 8, 1024, 4096, 8192, 32768] {
        for unzip in [1, 2].into_iter().filter(|unzip| channels / 4 >= *unzip) {
            let name = format!("{channels} channels, {unzip} series");
            let parameters = json!({"spectra_per_heap": 16, "gains": gain(8, unzip)});
            cases.push(random(name, (2, 16, unzip, channels), &parameters, device));
        }
    }
    for (channels, unzip) in [(10, 1), (30, 1), (1000, 1), (1000, 2), (1536, 4), (24_576, 8)] {
        let name = format!("{channels} channels, {unzip} series");
        let parameters = json!({"spectra_per_heap": 16, "gains": gain(8, unzip)});
        cases.push(random(name, (2, 16, unzip, channels), &parameters, device));
    }
    // Heaps that do not fill a tile, and frames of other lengths.
    for (spectra, per_heap, heaps) in
        [(1, 1, 1), (7, 21, 2), (100, 8, 3), (5, 64, 1), (32, 100, 2), (256, 16, 4)]
    {
        for layout in ["standard", "k_major"] {
            let name = format!("{heaps} heaps of {per_heap} from frames of {spectra}, {layout}");
            let parameters = json!({
                "spectra_per_heap": per_heap, "heaps_per_frame": heaps, "layout": layout,
                "gains": gain(8, 2),
            });
            cases.push(random(name, (2, spectra, 2, 64), &parameters, device));
        }
    }
    let each: Vec<Value> = (0..128).map(|k| json!({"re": 30 + k, "im": 70 - k})).collect();
    for unzip in [1, 2, 8] {
        let name = format!("gains of each channel, {unzip} series");
        let parameters = json!({"gains": [each, 60], "spectra_per_heap": 32});
        cases.push(random(name, (2, 32, unzip, 128), &parameters, device));
    }
    for (kept, all, layout) in
        [(64, 128, "standard"), (4, 128, "k_major"), (1000, 1536, "standard"), (28, 100, "k_major")]
    {
        let name = format!("{kept} of {all} channels, {layout}");
        let parameters = json!({"channels": kept, "spectra_per_heap": 32, "layout": layout, "gains": gain(8, 1)});
        cases.push(random(name, (2, 40, 1, all), &parameters, device));
    }
    let parameters = json!({"spectra_per_heap": 32, "heaps_per_frame": 3, "gains": gain(8, 1)});
    cases.push(lossy("missing spectra", (2, 24, 1, 128), Some(331), &parameters, device));
    for decimation in [8, 16] {
        cases.push(narrowband(decimation, device));
    }
    for (unzip, layout, bits) in [(1, "standard", 8), (2, "k_major", 4), (1, "k_major", 8)] {
        cases.push(changed(unzip, layout, bits, device));
    }
    for (unzip, late) in [(1, 0), (1, 1), (2, 0), (2, 1), (8, 1)] {
        cases.push(delayed(unzip, late, device));
    }
    cases
}

/// A case in which gains and seeds change within heaps, some of them several times within one heap. Gains change
/// from one gain for all channels to one for each channel, and back.
fn changed(unzip: usize, layout: &str, bits: usize, device: DeviceName) -> Case {
    let (channels, step) = (64, 128);
    let each = |turn: f64| -> Vec<Value> {
        let size = if bits == 8 { 60.0 } else { 3.0 } / (unzip as f64).sqrt();
        let gain = |k: f64| json!({"re": size * (k * turn).cos(), "im": size * (k * turn).sin()});
        (0..channels).map(|k| gain(f64::from(k))).collect()
    };
    let one = gain(bits, unzip);
    let parameters = json!({
        "layout": layout, "bits": bits, "dither_seed": 9, "spectra_per_heap": 32, "heaps_per_frame": 2,
        "gains": one,
    });
    let name = format!("gains and seeds that change, {unzip} series, {layout}, {bits} bits");
    random(name, (2, 24, unzip, channels as usize), &parameters, device)
        .change(step * 37 + 1, json!({"gains": [each(0.3), one]}))
        .change(step * 41, json!({"dither_seed": 11}))
        .change(step * 45 - 1, json!({"gains": [each(0.01), each(0.7)], "dither_seed": 12}))
        .change(step * 46, json!({"gains": each(0.2)[3]}))
        .change(step * 120 + 5, json!({"gains": [each(0.3), each(0.05)]}))
        .change(step * 201, json!({"gains": [one, each(0.05)[5]], "dither_seed": 3}))
}

/// Gain for which values fill the output range and some are clamped. It is irrational, so that no value is
/// half-way between two integers.
fn gain(bits: usize, unzip: usize) -> Value {
    let largest = if bits == 8 { 70.0 } else { 4.0 };
    json!({"re": largest / (unzip as f64).sqrt() + 1e-3 * 2.0_f64.sqrt(), "im": 1e-2 * 3.0_f64.sqrt()})
}

fn random(name: impl Into<String>, shape: Shape, parameters: &Value, device: DeviceName) -> Case {
    lossy(name, shape, None, parameters, device)
}

/// A case in which every `missing_every`-th spectrum is missing.
fn lossy(
    name: impl Into<String>,
    (pols, spectra, unzip, channels): Shape,
    missing_every: Option<usize>,
    parameters: &Value,
    device: DeviceName,
) -> Case {
    let axis = |name: &str, len: usize| json!({"name": name, "len": len});
    let (pol, spectrum) = (axis("pol", pols), axis("spectrum", spectra));
    let mut axes = vec![pol.clone(), spectrum.clone()];
    if unzip > 1 {
        axes.push(axis("unzip", unzip));
    }
    axes.push(axis("channel", channels / unzip));
    // Both sidebands.
    let sideband = if parameters["layout"] == "k_major" { "lower" } else { "upper" };
    let band = json!({
        "channels": channels, "first_channel": 0, "centre_hz": 1.284e9, "bandwidth_hz": 856e6,
        "sideband": sideband,
    });
    let source = json!({
        "dtype": "cf32", "axes": axes, "validity_axes": [pol, spectrum], "band": band,
        "samples_per_frame": 2 * channels * spectra, "frames": 12.max(400 / spectra),
        "pattern": "random", "missing_every": missing_every,
    });
    let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
    let inputs: (&str, &[&str]) = (&upstream, &["source"]);
    Case::new(("postproc", "cuda"), name, parameters, inputs, Tolerance::QUANTISED, device)
}

/// A case with noise through `ddc`, `pfb` and `fft`, with delays that step, of which the middle channels are kept.
fn narrowband(decimation: usize, device: DeviceName) -> Case {
    let digitiser = json!({
        "signals": "wgn(0.2); wgn(0.3)", "samples_per_frame": 1 << 14, "seed": 3,
        "period_samples": 1 << 16, "frames": 32,
    });
    let ddc =
        json!({"centre_hz": 434_567_891, "decimation": decimation, "samples_per_frame": 1024});
    let delays = json!([
        [{"delay_samples": 3.3, "rate": 2.5e-9, "phase_rate_radians_per_second": 49}],
        [{"delay_samples": -9.7, "phase_radians": 2}, {"start_samples": 123_456, "delay_samples": 40.45}],
    ]);
    let pfb = json!({
        "channels": 128, "delays": delays, "spectra_per_frame": 40, "centre_hz": 434_567_891,
    });
    let upstream = format!(
        "digitiser: {{kind: digitiser_simulator, parameters: {digitiser}}}\n\
         ddc0: {{kind: ddc, input: digitiser.pol0, parameters: {ddc}}}\n\
         ddc1: {{kind: ddc, input: digitiser.pol1, parameters: {ddc}}}\n\
         pfb: {{kind: pfb, inputs: [ddc0, ddc1], parameters: {pfb}}}\n\
         fft: {{kind: fft, input: pfb}}\n"
    );
    Case::new(
        ("postproc", "cuda"),
        format!("the middle of a band, decimation {decimation}"),
        &json!({"channels": 64, "spectra_per_heap": 32, "gains": 0.3}),
        (&upstream, &["fft"]),
        Tolerance::QUANTISED,
        device,
    )
}

/// A case with noise through `pfb` and `fft`, with delays that step. The second polarisation starts `late` frames
/// later.
fn delayed(unzip: usize, late: usize, device: DeviceName) -> Case {
    let digitiser = |pol: usize, late: usize| {
        let parameters = json!({
            "signals": "wgn(0.2); wgn(0.3)", "samples_per_frame": 1 << 13, "seed": 3,
            "samples_per_heap": 1 << 11, "period_samples": 1 << 16,
            "first_timestamp": late << 13, "frames": 40 - 2 * late,
        });
        format!("digitiser{pol}: {{kind: digitiser_simulator, parameters: {parameters}}}\n")
    };
    let delays = json!([
        [{"delay_samples": 3.3, "rate": 2.5e-9, "phase_rate_radians_per_second": 49}],
        [{"delay_samples": -9.7, "phase_radians": 2}, {"start_samples": 12345, "delay_samples": 40.45}],
    ]);
    let pfb = json!({"channels": 64, "unzip": unzip, "delays": delays, "spectra_per_frame": 40});
    let upstream = format!(
        "{}{}pfb: {{kind: pfb, inputs: [digitiser0.pol0, digitiser1.pol1], parameters: {pfb}}}\n\
         fft: {{kind: fft, input: pfb}}\n",
        digitiser(0, 0),
        digitiser(1, late),
    );
    Case::new(
        ("postproc", "cuda"),
        format!("delays that step, {unzip} series, one polarisation {late} frames late"),
        &json!({"spectra_per_heap": 32, "heaps_per_frame": 3, "gains": [0.3, {"re": 0.4, "im": 0.1}]}),
        (&upstream, &["fft"]),
        Tolerance::QUANTISED,
        device,
    )
}
