//! Cases that compare the GPU implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// YAML of `count` antennas. Antenna `n` starts `n % 3` frames late and sends as many frames less.
fn antennas(count: usize, dtype: &str, channels: usize, spectra: usize) -> String {
    let heap = json!({ "name": "heap", "len": 2 });
    sources(count, dtype, [channels, spectra, 2], &json!({ "validity_axes": [heap] }))
}

/// [`antennas`] with flags for channels and polarisations, some of which are missing.
fn flagged(count: usize, channels: usize) -> String {
    let axis = |name: &str, len: usize| json!({ "name": name, "len": len });
    let axes = [axis("heap", 2), axis("channel", channels), axis("pol", 2)];
    let validity = json!({ "validity_axes": axes, "missing_every": 3 });
    sources(count, "ci8", [channels, 32, 2], &validity)
}

/// [`antennas`] with one polarisation; with flags of channels, some of which are missing.
fn one_pol(count: usize, dtype: &str, channels: usize, has_flags: bool) -> String {
    let axis = |name: &str, len: usize| json!({ "name": name, "len": len });
    let validity = if has_flags {
        let axes = [axis("heap", 2), axis("channel", channels), axis("pol", 1)];
        json!({ "validity_axes": axes, "missing_every": 3 })
    } else {
        json!({ "validity_axes": [axis("heap", 2)] })
    };
    sources(count, dtype, [channels, 32, 1], &validity)
}

/// YAML of `count` antennas with these `channels`, `spectra` and `pols`, and parameters of the validity.
fn sources(
    count: usize,
    dtype: &str,
    [channels, spectra, pols]: [usize; 3],
    validity: &Value,
) -> String {
    let axis = |name: &str, len: usize| json!({ "name": name, "len": len });
    let source = |n: usize| {
        let mut parameters = json!({
            "dtype": dtype, "samples_per_frame": 1024, "first_timestamp": 1024 * (n % 3), "seed": n,
            "axes": [axis("heap", 2), axis("channel", channels), axis("spectrum", spectra), axis("pol", pols)],
            "frames": 5 - n % 3 - n % 2, "pattern": "random",
        });
        for (name, value) in validity.as_object().into_iter().flatten() {
            parameters[name] = value.clone();
        }
        format!("a{n}: {{kind: null_source, parameters: {parameters}}}\n")
    };
    (0..count).map(source).collect()
}

/// Returns the cases, with the GPU implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case = |name: &str, upstream: &str, count: usize, parameters: Value| {
        let inputs: Vec<String> = (0..count).map(|n| format!("a{n}")).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        Case::new(
            ("antenna_stack", "cuda"),
            name,
            &parameters,
            (upstream, &inputs),
            Tolerance::EXACT,
            device,
        )
    };
    vec![
        case("one antenna", &antennas(1, "ci8", 16, 64), 1, json!({})),
        case("four antennas, some late", &antennas(4, "ci8", 16, 64), 4, json!({})),
        case("large heaps", &antennas(3, "ci8", 300, 256), 3, json!({})),
        case(
            "odd sizes, a part of the channels",
            &antennas(5, "ci4", 7, 13),
            5,
            json!({ "first_channel": 2, "channels": 3 }),
        ),
        case("half precision", &antennas(3, "cf16", 5, 24), 3, json!({})),
        case("flags of channels", &flagged(4, 9), 4, json!({ "first_channel": 2, "channels": 5 })),
        case("one polarisation", &one_pol(4, "ci8", 16, false), 4, json!({})),
        case(
            "one polarisation, a part of the channels",
            &one_pol(3, "ci4", 7, false),
            3,
            json!({ "first_channel": 2, "channels": 3 }),
        ),
        case("one polarisation, flags of channels", &one_pol(4, "ci8", 9, true), 4, json!({})),
        // Frames have 1024 samples and 2 heaps.
        case(
            "antennas flagged live",
            &antennas(4, "ci8", 16, 64),
            4,
            json!({ "flagged_antennas": [2] }),
        )
        .change(1536, json!({ "flagged_antennas": [0, 3] }))
        .change(2049, json!({ "flagged_antennas": [] })),
        case(
            "flags of channels, an antenna flagged",
            &flagged(4, 9),
            4,
            json!({ "first_channel": 2, "channels": 5, "flagged_antennas": [1] }),
        ),
        case("64 antennas", &antennas(64, "ci8", 8, 64), 64, json!({ "first_channel": 4 })),
    ]
}
