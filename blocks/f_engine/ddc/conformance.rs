//! Cases that compare the GPU implementation with the reference.

use super::HEAP_SAMPLES;
use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use fxgraph_dsp::packed::WIDTHS;
use serde_json::{Value, json};

/// Tolerated relative rms error, for sums of a few hundred products in single precision.
const TOLERANCE: Tolerance = Tolerance::floating(1e-6);

/// Sample type, samples per frame, and number of frames.
type Samples<'a> = (&'a str, usize, usize);

fn case(name: impl Into<String>, samples: Samples, parameters: &Value, device: DeviceName) -> Case {
    lossy(name, samples, None, parameters, device)
}

/// A case in which every `missing_every`-th quarter of a frame is missing.
fn lossy(
    name: impl Into<String>,
    (dtype, frame_samples, frames): Samples,
    missing_every: Option<usize>,
    parameters: &Value,
    device: DeviceName,
) -> Case {
    // Complex samples of a lower sideband.
    let band = (dtype == "cf32")
        .then(|| json!({"channels": 1, "centre_hz": 1e9, "bandwidth_hz": -1.712e9}));
    let source = json!({
        "dtype": dtype, "band": band, "axes": [{"name": "sample", "len": frame_samples}],
        "validity_axes": [{"name": "heap", "len": 4}], "samples_per_frame": frame_samples,
        "first_timestamp": frame_samples * ((1 << 30) + 3), "frames": frames, "pattern": "random",
        "adc_sample_rate_hz": 1.712e9, "missing_every": missing_every,
    });
    let upstream = format!("source: {{kind: null_source, parameters: {source}}}\n");
    Case::new(("ddc", "cuda"), name, parameters, (&upstream, &["source"]), TOLERANCE, device)
}

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let mut cases = Vec::new();
    let types = WIDTHS.iter().map(|bits| format!("i{bits}p")).chain(["i16".to_owned()]);
    for dtype in types {
        let parameters =
            json!({"centre_hz": 434_567_891, "decimation": 8, "samples_per_frame": 4096});
        let source = (dtype.as_str(), 1 << 14, 16);
        cases.push(case(format!("{dtype} samples"), source, &parameters, device));
    }
    for (mode, decimation, taps) in [
        ("discard", 2, 32),
        ("discard", 4, 64),
        ("discard", 6, 61),
        ("discard", 10, 75),
        ("discard", 16, 256),
        ("discard", 32, 512),
        ("discard", 64, 1024),
        ("no_discard", 1, 2),
        ("no_discard", 4, 128),
        ("no_discard", 8, 256),
    ] {
        let parameters = json!({
            "centre_hz": if decimation == 1 { 428_000_000 } else { 434_567_891 },
            "decimation": decimation, "mode": mode, "taps": taps, "samples_per_frame": 1280,
        });
        let name = format!("{mode}, decimation {decimation}, {taps} taps");
        cases.push(case(name, ("i10p", 1 << 16, 16), &parameters, device));
    }
    for (frame_samples, samples) in [(1024, 2048), (1 << 13, 256), (1 << 18, 1 << 16)] {
        let parameters = json!({"centre_hz": 2e8, "decimation": 8, "samples_per_frame": samples});
        let name = format!("frames of {frame_samples} samples and of {samples}");
        let source = ("i10p", frame_samples, (1 << 19) / frame_samples + 8);
        cases.push(case(name, source, &parameters, device));
    }
    let parameters = json!({"centre_hz": 2e8, "decimation": 8, "samples_per_frame": 1024});
    cases.push(lossy("missing heaps", ("i10p", 1 << 14, 24), Some(7), &parameters, device));
    // Large enough for longer rows of the kernel.
    for log2_samples in [22, 23] {
        let parameters =
            json!({"centre_hz": 3e8, "decimation": 2, "samples_per_frame": 1 << log2_samples});
        let name = format!("frames of 2^{log2_samples}");
        cases.push(case(name, ("i10p", 1 << 22, 10), &parameters, device));
    }
    for (mode, decimation, taps) in [("discard", 8, 128), ("no_discard", 4, 61)] {
        cases.push(updated("i10p", mode, decimation, taps, device));
    }
    cases.extend(complex_cases(device));
    cases
}

/// Cases of complex samples, with frequencies of either sign.
fn complex_cases(device: DeviceName) -> Vec<Case> {
    const RATE_HZ: f64 = 1.712e9;
    let mut cases = Vec::new();
    for (mode, decimation, taps, turns) in [
        ("discard", 4, 32, -0.31),
        ("discard", 6, 50, 0.0),
        ("discard", 16, 128, 0.234_567_891),
        ("discard", 32, 256, -0.456_789_123),
        ("discard", 100, 999, 0.123_456_789),
        ("discard", 128, 1280, -0.001_234_567),
        ("no_discard", 2, 2, 0.2),
        ("no_discard", 5, 80, -0.345_678_912),
        ("no_discard", 43, 43, 0.4),
        ("no_discard", 64, 1000, -0.4),
    ] {
        let parameters = json!({
            "centre_hz": turns * RATE_HZ, "decimation": decimation, "mode": mode, "taps": taps,
            "samples_per_frame": 1280,
        });
        let name = format!("complex samples, {mode}, decimation {decimation}, {taps} taps");
        cases.push(case(name, ("cf32", 1 << 16, 16), &parameters, device));
    }
    for (frame_samples, samples) in [(1024, 2048), (1 << 13, 256), (1 << 18, 1 << 16)] {
        let parameters = json!({"centre_hz": -2e8, "decimation": 16, "samples_per_frame": samples});
        let name = format!("frames of {frame_samples} complex samples and of {samples}");
        let source = ("cf32", frame_samples, (1 << 19) / frame_samples + 8);
        cases.push(case(name, source, &parameters, device));
    }
    let parameters = json!({"centre_hz": -2e8, "decimation": 16, "samples_per_frame": 1024});
    cases.push(lossy(
        "missing heaps of complex samples",
        ("cf32", 1 << 14, 24),
        Some(7),
        &parameters,
        device,
    ));
    // Large enough for longer rows of the kernel.
    for log2_samples in [19, 20] {
        let parameters =
            json!({"centre_hz": 3e8, "decimation": 8, "samples_per_frame": 1 << log2_samples});
        let name = format!("complex samples, frames of 2^{log2_samples}");
        cases.push(case(name, ("cf32", 1 << 20, 16), &parameters, device));
    }
    cases.push(updated("cf32", "no_discard", 8, 128, device));
    cases
}

/// A case in which `centre_hz` changes within a heap, at the start of a heap, twice within a frame, and at the
/// start of a frame.
fn updated(dtype: &str, mode: &str, decimation: usize, taps: usize, device: DeviceName) -> Case {
    let (frame_samples, samples) = (1 << 15, 4096);
    let parameters = json!({
        "centre_hz": 434_567_891, "decimation": decimation, "mode": mode, "taps": taps,
        "samples_per_frame": samples,
    });
    let name =
        format!("{dtype}, a centre that changes, {mode}, decimation {decimation}, {taps} taps");
    let first = (frame_samples * ((1 << 30) + 3)) as u64;
    let heaps = |count: usize| first + (count * decimation * HEAP_SAMPLES) as u64;
    let heaps_per_frame = samples / HEAP_SAMPLES;
    case(name, (dtype, frame_samples, 24), &parameters, device)
        .change(heaps(5) + 1, json!({"centre_hz": 300_000_001.5}))
        .change(heaps(9), json!({"centre_hz": 512_345_678}))
        .change(heaps(heaps_per_frame + 7) - 1, json!({"centre_hz": 298_765_432.1}))
        .change(heaps(2 * heaps_per_frame), json!({"centre_hz": 434_567_891}))
}
