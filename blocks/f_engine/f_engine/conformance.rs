//! Cases that compare the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// Input samples and parameters of a case.
struct Stream<'a> {
    name: &'a str,
    dtype: &'a str,
    pols: usize,
    /// Samples per input frame.
    frame_samples: usize,
    frames: usize,
    /// Number of frames by which the last polarisation starts later and ends earlier.
    late: usize,
    /// Every `missing_every`-th sixteenth of a frame is missing.
    missing_every: Option<usize>,
    parameters: Value,
}

impl Default for Stream<'_> {
    fn default() -> Self {
        Self {
            name: "",
            dtype: "i10p",
            pols: 2,
            frame_samples: 1 << 18,
            frames: 8,
            late: 0,
            missing_every: None,
            parameters: json!({}),
        }
    }
}

impl Stream<'_> {
    fn case(&self, device: DeviceName) -> Case {
        let Self { dtype, pols, frame_samples, frames, .. } = *self;
        let source = |pol: usize| {
            let late = if pol == pols - 1 { self.late } else { 0 };
            let source = json!({"kind": "null_source", "parameters": {
                "dtype": dtype, "axes": [{"name": "sample", "len": frame_samples}],
                "validity_axes": [{"name": "heap", "len": 16}],
                "missing_every": self.missing_every,
                "samples_per_frame": frame_samples, "pattern": "random", "seed": pol,
                "first_timestamp": late * frame_samples, "frames": frames - 2 * late,
                "adc_sample_rate_hz": 1.712e9,
            }});
            format!("source{pol}: {source}\n")
        };
        let upstream: String = (0..pols).map(source).collect();
        let inputs = ["source0", "source1"];
        Case::new(
            ("f_engine", "two_pass"),
            self.name,
            &self.parameters,
            (&upstream, &inputs[..pols]),
            Tolerance::QUANTISED,
            device,
        )
    }
}

/// Merges two objects; entries of `two` take precedence.
fn with(one: &Value, two: Value) -> Value {
    let (Value::Object(mut all), Value::Object(more)) = (one.clone(), two) else {
        return Value::Null;
    };
    all.extend(more);
    Value::Object(all)
}

/// Pieces of a delay model that change the coarse delay within heaps.
fn steps(delays: &[f64], apart_samples: usize) -> Value {
    let pieces = delays.iter().enumerate().map(|(i, delay)| {
        json!({"start_samples": i * apart_samples, "delay_samples": delay, "rate": 1e-9,
               "phase_radians": i, "phase_rate_radians_per_second": 20})
    });
    pieces.collect()
}

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
#[allow(clippy::too_many_lines, reason = "a list of cases")]
pub fn cases(device: DeviceName) -> Vec<Case> {
    // Random samples of b bits have an rms of 2^b / sqrt(12): with this gain a few per cent of the
    // values are clamped.
    let base = json!({"channels": 1024, "spectra_per_heap": 64, "gains": 0.25, "dither_seed": 7});
    let mut cases = Vec::new();
    let mut add = |stream: Stream| cases.push(stream.case(device));
    for (channels, spectra_per_heap, frames) in [
        (1024, 256, 8),
        (2048, 128, 8),
        (4096, 64, 8),
        (8192, 64, 12),
        (16384, 16, 12),
        (32768, 32, 20),
    ] {
        let shape = json!({"channels": channels, "spectra_per_heap": spectra_per_heap});
        for (layout, bits, gain) in [("standard", 8, 0.25), ("k_major", 4, 0.0138)] {
            let more = json!({"layout": layout, "bits": bits, "gains": gain});
            let parameters = with(&with(&base, shape.clone()), more);
            let name = format!("{channels} channels, {bits} bits, {layout}");
            add(Stream { name: &name, frames, parameters, ..Stream::default() });
        }
    }
    for dtype in ["i2p", "i3p", "i4p", "i5p", "i6p", "i7p", "i8p", "i9p", "i12p", "i16p", "i16"] {
        let bits: i32 = dtype.trim_matches(['i', 'p']).parse().unwrap_or(10);
        let parameters = with(&base, json!({"gains": 256.0 / 2_f64.powi(bits)}));
        let name = format!("{dtype} samples");
        add(Stream { name: &name, dtype, frames: 4, parameters, ..Stream::default() });
    }
    for taps in [1, 2, 15, 17, 32] {
        let parameters = with(&base, json!({"taps": taps, "dither": "none"}));
        let name = format!("{taps} taps");
        add(Stream { name: &name, frames: 4, parameters, ..Stream::default() });
    }
    for (layout, bits, gain) in [("standard", 4, 0.0138), ("k_major", 8, 0.25)] {
        let parameters = with(&base, json!({"layout": layout, "bits": bits, "gains": gain}));
        let name = format!("{bits} bits, {layout}");
        add(Stream { name: &name, parameters: parameters.clone(), ..Stream::default() });
        let name = format!("{bits} bits, {layout}, one polarisation");
        add(Stream { name: &name, pols: 1, parameters, ..Stream::default() });
    }
    let gains = |phase: f64| -> Vec<Value> {
        let gain = |k: f64| json!({"re": 0.25 * (k * phase).cos(), "im": 0.25 * (k * phase).sin()});
        (0..1024).map(|k| gain(f64::from(k))).collect()
    };
    let delayed = json!({"delays": [
        steps(&[3.3, -70.4, 8.5, 1234.9, -5.1], 150_000), steps(&[-9.7, 21.2, 21.9], 330_000)
    ]});
    let mut special = |name: &str, stream: Stream, more: Value| {
        add(Stream { name, parameters: with(&base, more), ..stream });
    };
    let plain = Stream::default;
    special("gains of each channel", plain(), json!({"gains": [gains(0.01), gains(0.37)]}));
    special("coarse delays that change within heaps", plain(), delayed.clone());
    special("one polarisation begins later", Stream { late: 2, ..plain() }, delayed.clone());
    special(
        "an even Nyquist zone",
        plain(),
        with(&delayed, json!({"nyquist_zone": 2, "gains": [gains(0.01), gains(0.37)]})),
    );
    special(
        "frames of several heaps",
        plain(),
        json!({"heaps_per_frame": 3, "spectra_per_heap": 48}),
    );
    special(
        "short input frames",
        Stream { frame_samples: 8192, frames: 200, late: 30, ..plain() },
        with(&delayed, json!({"heaps_per_frame": 2})),
    );
    special(
        "long input frames",
        Stream { frame_samples: 1 << 21, frames: 2, ..plain() },
        delayed.clone(),
    );
    special(
        "missing heaps",
        Stream { frames: 24, missing_every: Some(41), ..plain() },
        json!({"heaps_per_frame": 3}),
    );
    special("a plain transform", plain(), json!({"taps": 1, "window": "rect", "w_cutoff": 0}));
    // With 4096 channels or more, 10-bit samples are filtered on the matrix units of a Hopper GPU, unless
    // the weights are not smooth.
    let smooth = |more: Value| with(&json!({"channels": 4096}), more);
    for taps in [1, 2, 7, 15, 17] {
        let name = format!("4096 channels, {taps} taps");
        special(&name, Stream { frames: 4, ..plain() }, smooth(json!({"taps": taps})));
    }
    special("4096 channels, one polarisation", Stream { pols: 1, ..plain() }, smooth(json!({})));
    special("4096 channels, coarse delays that change", plain(), smooth(delayed.clone()));
    special(
        "4096 channels, short input frames",
        Stream { frame_samples: 16384, frames: 200, late: 30, ..plain() },
        smooth(with(&delayed, json!({"spectra_per_heap": 16}))),
    );
    special(
        "4096 channels, missing heaps",
        Stream { frames: 24, missing_every: Some(41), ..plain() },
        smooth(json!({"heaps_per_frame": 3, "spectra_per_heap": 16})),
    );
    special("4096 channels, weights that are not smooth", plain(), smooth(json!({"w_cutoff": 8})));
    let changed = [
        (1024, 64, "standard", 8),
        (1024, 64, "k_major", 4),
        (32768, 16, "standard", 8),
        (32768, 16, "k_major", 8),
    ];
    cases.extend(changed.map(|shape| changed_case(shape, device)));
    cases.extend([1024, 4096, 32768].map(|channels| tone_case(channels, device)));
    cases
}

/// A case with a tone of almost full scale over noise with an rms of 2, which the gain brings to an rms of 21.
fn tone_case(channels: u64, device: DeviceName) -> Case {
    let digitiser = json!({
        "signals": "cw(0.978, 2.11e8) + wgn(0.0039)", "seed": 5, "samples_per_frame": 1 << 18,
        "period_samples": 1 << 21, "frames": if channels > 8192 { 20 } else { 12 },
    });
    Case::new(
        ("f_engine", "two_pass"),
        format!("{channels} channels, strong tone"),
        &json!({"channels": channels, "spectra_per_heap": 16, "gains": 14.8, "dither": "none"}),
        (
            &format!("digitiser: {{kind: digitiser_simulator, parameters: {digitiser}}}\n"),
            &["digitiser.pol0", "digitiser.pol1"],
        ),
        // One in a thousand real and imaginary parts.
        Tolerance { share: 2e-3, ..Tolerance::QUANTISED },
        device,
    )
}

/// A case in which delays, gains and seeds change within heaps, some of them several times within one heap. Gains
/// change from one gain for all channels to one for each channel, and back.
fn changed_case(
    (channels, spectra_per_heap, layout, bits): (u32, u64, &str, u32),
    device: DeviceName,
) -> Case {
    let size = if bits == 8 { 0.25 } else { 0.0138 };
    let each = |turn: f64| -> Vec<Value> {
        // Short numbers for many channels, because the size of a request is limited.
        let step = |k: f64| f64::from((k * turn) as u32 % 7) * 0.125 * size;
        let gain = |k: f64| json!({"re": size * (k * turn).cos(), "im": size * (k * turn).sin()});
        let gain = |k: f64| if channels > 8192 { json!(step(k)) } else { gain(k) };
        (0..channels).map(|k| gain(f64::from(k))).collect()
    };
    let parameters = json!({
        "channels": channels, "spectra_per_heap": spectra_per_heap, "heaps_per_frame": 2, "bits": bits,
        "layout": layout, "gains": size, "dither_seed": 7, "max_delay_seconds": 1e-6,
        // Both sidebands.
        "nyquist_zone": if layout == "k_major" { 2 } else { 1 },
    });
    let name =
        format!("delays, gains and seeds that change, {channels} channels, {bits} bits, {layout}");
    let step = 2 * u64::from(channels);
    let at = |heaps: u64, spectra: u64| (heaps * spectra_per_heap + spectra) * step;
    let delays = json!([[{"delay_samples": 3.3, "rate": 1e-9}], [{"delay_samples": -70.25}]]);
    let stream = Stream { name: &name, frame_samples: 1 << 20, parameters, ..Stream::default() };
    stream
        .case(device)
        .change(at(2, 5) + 1, json!({"gains": [each(0.3), size]}))
        .change(at(2, 9), json!({"dither_seed": 11}))
        .change(at(2, 12) - 1, json!({"gains": [each(0.01), each(0.7)], "dither_seed": 12}))
        .change(at(3, 3), json!({"gains": {"im": 0.9 * size}}))
        .change(at(4, 1) + 7, json!({"gains": [each(0.3), each(0.05)], "delays": delays}))
        .change(at(6, 0), json!({"gains": [size, {"re": 0.5 * size}], "dither_seed": 3}))
}
