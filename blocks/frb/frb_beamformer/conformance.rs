//! Cases that compare the GPU implementations with the reference.

use super::Method;
use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// Spectra, channels, cylinders and feeds.
type Shape = [usize; 4];

/// ADC samples per spectrum.
const STEP: usize = 2048;

/// Number of axes of the input's validity, and the distance between missing units, if any.
type Losses = (usize, Option<usize>);

fn source(
    dtype: &str,
    [spectra, channels, cylinders, feeds]: Shape,
    (validity_axes, missing_every): Losses,
) -> String {
    let axes = [
        ("spectrum", spectra),
        ("channel", channels),
        ("pol", 2),
        ("east_west", cylinders),
        ("north_south", feeds),
    ];
    let axes = axes.map(|(name, len)| json!({"name": name, "len": len}));
    let parameters = json!({
        "dtype": dtype, "axes": axes, "validity_axes": axes[..validity_axes], "missing_every": missing_every,
        "samples_per_frame": STEP * spectra,
        // Both sidebands.
        "band": {
            "channels": 1024, "first_channel": 500, "centre_hz": 600e6, "bandwidth_hz": 400e6,
            "sideband": if spectra.is_multiple_of(2) { "upper" } else { "lower" },
        },
        "frames": 3, "pattern": "random",
    });
    format!("source: {{kind: null_source, parameters: {parameters}}}")
}

/// Factors of different size and phase, `[pol][feed]`.
fn gains(feeds: usize) -> Value {
    gains_of(feeds, 1.0, 0.11)
}

/// Factors of magnitude around `size`, `[pol][feed]`.
fn gains_of(feeds: usize, size: f64, turn: f64) -> Value {
    let gain = |n: usize| {
        let size = size * (1.0 + 0.5 * (n as f64 * 0.37).sin());
        let phase = n as f64 * n as f64 * turn;
        json!({"re": size * phase.cos(), "im": size * phase.sin()})
    };
    let of_pol = |pol: usize| (0..feeds).map(|n| gain(n + 7 * pol)).collect::<Vec<_>>();
    json!([of_pol(0), of_pol(1)])
}

/// Returns the cases, with the GPU implementations on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let across = json!({"angles_degrees": [-0.4, 0, 0.4, 0.8]});
    let two = json!({"angles_degrees": [0.1, -0.7]});
    let along = json!({"points": 512});
    let whole = json!({
        "gains": gains(1024), "east_west": across, "north_south": along, "clamp": {"beams": 256},
        "upchannelise": 128, "integrate": {"channels": 8, "spectra": 3},
    });
    let alone = json!({"north_south": along, "voltages": "cf16"});
    let clamped = json!({"north_south": along, "clamp": {"beams": 256}, "voltages": "cf16"});
    let weighted = json!({
        "gains": gains(1024), "east_west": across, "north_south": along, "clamp": {"beams": 192},
    });
    let of_gains = json!({"gains": gains(512), "north_south": along});
    let short = json!({
        "gains": {"re": 0.3, "im": -0.1}, "north_south": along, "clamp": {"beams": 64, "reference_hz": 700e6},
        "upchannelise": 32, "integrate": {"spectra": 2},
    });
    let middle = json!({
        "east_west": two, "north_south": along, "clamp": {"beams": 128},
        "upchannelise": 64, "integrate": {"channels": 32},
    });
    let small = json!({
        "gains": gains(36), "east_west": two, "north_south": {"points": 16}, "clamp": {"beams": 10},
        "upchannelise": 4, "integrate": {"channels": 2, "spectra": 3},
    });
    let narrow = json!({"gains": gains(36), "upchannelise": 8, "voltages": "cf16"});
    let sums = json!({"north_south": {"points": 64}, "integrate": {"spectra": 4}});
    let both = [
        ("the telescope's stages", "ci4", [384, 2, 4, 256], &whole),
        ("the telescope's stages, 8 bits", "ci8", [384, 1, 4, 256], &whole),
        ("the first transform alone", "cf16", [7, 3, 4, 256], &alone),
        ("the first transform, 4 bits", "ci4", [7, 3, 4, 256], &alone),
        ("clamped beams of single cylinders", "ci4", [37, 3, 4, 256], &clamped),
        ("weighted beams in single precision", "ci8", [19, 2, 4, 256], &weighted),
        ("gains alone before the transform", "ci4", [19, 2, 2, 256], &of_gains),
        ("short transforms in time", "ci4", [128, 3, 2, 256], &short),
        ("two beams across, wide sums", "ci8", [128, 2, 4, 256], &middle),
    ];
    let plain = [
        ("few feeds", "ci8", [24, 5, 3, 12], &small),
        ("narrow channels of feeds", "ci4", [24, 2, 3, 12], &narrow),
        ("sums without narrow channels", "cf16", [12, 2, 3, 33], &sums),
    ];
    let case = |method: Method, tolerance, losses, (name, dtype, shape, parameters): Parts<'_>| {
        let upstream = source(dtype, shape, losses);
        let upstream = (upstream.as_str(), &["source"][..]);
        Case::new(("frb_beamformer", method.name()), name, parameters, upstream, tolerance, device)
    };
    let gapped = [
        (("gaps before the telescope's stages", "ci4", [384, 2, 4, 256], &whole), (1, Some(290))),
        (("gaps by channel", "ci8", [128, 2, 4, 256], &middle), (2, Some(151))),
        (("gaps before the first transform alone", "cf16", [7, 3, 4, 256], &alone), (1, Some(4))),
        (("gaps before clamped beams", "ci4", [37, 3, 4, 256], &clamped), (2, Some(5))),
    ];
    // The first case starts without weights, gets weights, and ends without them.
    let feeds = 1024;
    let updated = [
        case_changes(("clamped beams", "ci4", [37, 3, 4, 256], &clamped), feeds),
        case_changes(("weighted beams", "ci8", [19, 2, 4, 256], &weighted), feeds),
        case_changes(("the telescope's stages", "ci4", [768, 2, 4, 256], &whole), feeds),
        case_changes(("short transforms in time", "ci4", [128, 3, 2, 256], &short), 512),
    ];
    // The rms error of a transform with five roundings of 2^-11 is about 5e-4, and weights add their errors. Voltages
    // in half precision may round to a different neighbour of the single-precision value.
    let tolerance = |method, parameters: &Value| match (method, &parameters["voltages"]) {
        (Method::Fp32, voltages) if voltages == "cf16" => Tolerance::floating(3e-5),
        (Method::Fp32, _) => Tolerance::floating(2e-6),
        _ => Tolerance::floating(1e-3),
    };
    let mut cases = Vec::new();
    for method in Method::ALL {
        let more: &[Parts<'_>] = if method == Method::Fp32 { &plain } else { &[] };
        for parts in both.iter().chain(more) {
            cases.push(case(method, tolerance(method, parts.3), WHOLE, *parts));
        }
        for (parts, losses) in gapped {
            cases.push(case(method, tolerance(method, parts.3), losses, parts));
        }
        for (parts, changes) in &updated {
            let (name, dtype, shape, parameters) = *parts;
            let name = format!("gains that change, {name}");
            let case = case(
                method,
                tolerance(method, parameters),
                WHOLE,
                (&name, dtype, shape, parameters),
            );
            cases.push(
                changes
                    .iter()
                    .fold(case, |case, (at, gains)| case.change(*at, json!({"gains": gains}))),
            );
        }
    }
    cases
}

/// Name, element type, shape and parameters.
type Parts<'a> = (&'a str, &'a str, Shape, &'a Value);

/// A stream without gaps.
const WHOLE: Losses = (1, None);

/// A case with live updates of its gains: within and between spectra, several times within one sum, to much larger
/// gains, and back to 1.
fn case_changes(parts: Parts<'_>, feeds: usize) -> (Parts<'_>, Vec<(u64, Value)>) {
    let spectra = parts.2[0];
    let at = |spectrum: usize| (spectrum * STEP) as u64;
    let changes = vec![
        (at(spectra / 5 + 1), gains_of(feeds, 0.7, 0.05)),
        (at(spectra / 5 + 4) - 1, gains_of(feeds, 20.0, 0.17)),
        (at(spectra / 5 + 6) + 1, gains_of(feeds, 1.3, 0.03)),
        (at(spectra), gains_of(feeds, 0.2, 0.07)),
        (at(2 * spectra - 3), json!(1)),
    ];
    (parts, changes)
}
