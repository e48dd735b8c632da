//! Cases that compare the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use fxgraph_dsp::packed::WIDTHS;
use serde_json::{Value, json};

/// Tolerated relative rms error, for sums of a few dozen products in single precision.
const TOLERANCE: Tolerance = Tolerance::floating(1e-6);

/// Frames of random samples.
struct Source {
    dtype: String,
    /// ADC samples from one sample to the next.
    ticks: usize,
    frame_samples: usize,
    heaps: usize,
    first: usize,
    frames: usize,
    /// Every `missing_every`-th heap is missing.
    missing_every: Option<usize>,
}

impl Source {
    fn new(dtype: &str, frame_samples: usize, frames: usize) -> Self {
        Self {
            dtype: dtype.to_owned(),
            ticks: 1,
            frame_samples,
            heaps: 4,
            first: 0,
            frames,
            missing_every: None,
        }
    }

    /// YAML of the sources of two polarisations. The second one starts later and ends earlier by `late` frames.
    fn entries(&self, late: usize) -> String {
        let source = |pol: usize, late: usize| {
            let parameters = json!({
                "dtype": self.dtype, "axes": [{"name": "sample", "len": self.frame_samples}],
                "validity_axes": [{"name": "heap", "len": self.heaps}],
                "samples_per_frame": self.frame_samples * self.ticks,
                "first_timestamp": self.frame_samples * self.ticks * (self.first + late),
                "frames": self.frames - 2 * late, "pattern": "random", "seed": pol,
                "missing_every": self.missing_every,
            });
            format!("pol{pol}: {{kind: null_source, parameters: {parameters}}}\n")
        };
        [source(0, 0), source(1, late)].concat()
    }
}

fn case(
    name: impl Into<String>,
    source: &Source,
    late: usize,
    inputs: &[&str],
    parameters: &Value,
    device: DeviceName,
) -> Case {
    let upstream = source.entries(late);
    Case::new(("pfb", "cuda"), name, parameters, (&upstream, inputs), TOLERANCE, device)
}

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    const BOTH: &[&str] = &["pol0", "pol1"];
    let mut cases = Vec::new();
    let types = WIDTHS.iter().map(|bits| format!("i{bits}p")).chain(["i16".to_owned()]);
    for dtype in types {
        let source = Source::new(&dtype, 1 << 13, 8);
        let parameters = json!({"channels": 64, "spectra_per_frame": 24, "delays": delays()});
        cases.push(case(format!("{dtype} samples"), &source, 0, BOTH, &parameters, device));
    }
    for taps in [1, 2, 3, 5, 8, 13, 17, 24, 32, 33, 64] {
        let source = Source::new("i10p", 1 << 13, 8);
        let parameters = json!({"channels": 32, "taps": taps, "spectra_per_frame": 100});
        cases.push(case(format!("{taps} taps"), &source, 0, &["pol0"], &parameters, device));
    }
    for channels in [4, 8, 10, 16, 1000, 1024, 1536, 4096, 8192, 24_576, 32768] {
        let source = Source::new("i10p", (64 * channels).max(1 << 12), 10);
        let spectra = (65536 / channels).clamp(16, 256);
        let parameters =
            json!({"channels": channels, "spectra_per_frame": spectra, "delays": delays()});
        cases.push(case(format!("{channels} channels"), &source, 0, BOTH, &parameters, device));
    }
    for channels in [4, 16, 30] {
        // Rows that do not start at whole words.
        let source = Source::new("i7p", 1 << 10, 8);
        let parameters = json!({"channels": channels, "delays": delays(), "spectra_per_frame": 50});
        let name = format!("{channels} channels of 7 bits");
        cases.push(case(name, &source, 0, BOTH, &parameters, device));
    }
    for unzip in [2, 4, 8, 16] {
        let source = Source::new("i10p", 1 << 15, 8);
        let taps = if unzip == 16 { 48 } else { 16 };
        let parameters =
            json!({"channels": 256, "unzip": unzip, "taps": taps, "spectra_per_frame": 256});
        cases.push(case(format!("cut into {unzip}"), &source, 0, BOTH, &parameters, device));
    }
    let source = Source::new("i10p", 16_000, 10);
    let parameters = json!({"channels": 1000, "unzip": 2, "spectra_per_frame": 16});
    cases.push(case("1000 channels cut into 2", &source, 0, BOTH, &parameters, device));
    for (frame_samples, spectra) in [(512, 64), (1 << 12, 33), (1 << 14, 64), (1 << 17, 16)] {
        let source = Source {
            first: 3,
            ..Source::new("i10p", frame_samples, (1 << 18) / frame_samples + 6)
        };
        let parameters = json!({"channels": 64, "spectra_per_frame": spectra, "delays": delays()});
        let name = format!(
            "frames of {frame_samples} samples and of {spectra} spectra, one polarisation late"
        );
        cases.push(case(name, &source, 2, BOTH, &parameters, device));
    }
    for (channels, taps, spectra, ticks) in [
        (4, 16, 100, 1),
        (4, 4, 33, 2),
        (30, 16, 40, 8),
        (64, 4, 24, 8),
        (1024, 16, 33, 16),
        (2048, 33, 16, 8),
        (64, 64, 70, 64),
    ] {
        let frame_samples = (16 * channels).max(1 << 10);
        let source = Source { ticks, first: 1, ..Source::new("cf32", frame_samples, 12) };
        let parameters = json!({
            "channels": channels, "taps": taps, "spectra_per_frame": spectra, "delays": delays(),
            "max_delay_seconds": 1e-6, "centre_hz": 4e8,
        });
        let name =
            format!("{channels} channels of complex samples, {ticks} ticks each, {taps} taps");
        cases.push(case(name, &source, 2, BOTH, &parameters, device));
    }
    let source = Source { ticks: 3, first: 1, ..Source::new("i16", 1 << 13, 12) };
    let parameters = json!({
        "channels": 64, "spectra_per_frame": 33, "delays": delays(), "max_delay_seconds": 1e-6,
    });
    cases.push(case("real samples, 3 ticks each", &source, 2, BOTH, &parameters, device));
    let lossy = Source { missing_every: Some(7), ..Source::new("i10p", 1 << 12, 40) };
    let parameters = json!({"channels": 64, "spectra_per_frame": 33, "delays": delays()});
    cases.push(case("missing heaps", &lossy, 2, BOTH, &parameters, device));
    let source = Source::new("i12p", 1 << 14, 8);
    let parameters = json!({
        "channels": 64, "spectra_per_frame": 33, "delays": delays(), "nyquist_zone": 2,
    });
    cases.push(case("an even Nyquist zone", &source, 0, BOTH, &parameters, device));
    let parameters = json!({
        "channels": 64, "taps": 1, "w_cutoff": 0, "window": "rect", "spectra_per_frame": 256,
    });
    cases.push(case("a plain transform's window", &source, 0, BOTH, &parameters, device));
    let parameters = json!({"channels": 64, "max_delay_seconds": 1e-5, "spectra_per_frame": 1});
    cases.push(case("single spectra", &source, 0, BOTH, &parameters, device));
    let parameters = json!({"channels": 64, "max_delay_seconds": 1e-6, "spectra_per_frame": 24});
    let changed = case("delays that change", &source, 0, BOTH, &parameters, device);
    let new = json!([[{"delay_samples": -20.3, "rate": 1e-9}], [{"delay_samples": 7.75}]]);
    cases.push(changed.change(128 * 100 + 1, json!({"delays": new})));
    cases
}

/// Models whose coarse delays step within a frame, to both sides, and one that drifts.
fn delays() -> Value {
    json!([
        [
            {"delay_samples": 3.2, "rate": 2.5e-9, "phase_radians": 1.0},
            {"start_samples": 5000, "delay_samples": -100.7},
            {"start_samples": 9000, "delay_samples": 77.5, "phase_rate_radians_per_second": 40},
            {"start_samples": 9100, "delay_samples": 78.1},
        ],
        [{"delay_samples": -9.7}, {"start_samples": 12345, "delay_samples": 40.0}],
    ])
}
