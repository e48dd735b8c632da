//! The cases that hold the forms for a GPU to the definition.

use super::{FP32, RADIX8, TENSOR_CORE};
use crate::conformance::{Case, Tolerance};
use fxgraph::DeviceName;
use serde_json::{Value, json};

/// Spectra, channels, cylinders and feeds.
type Shape = [usize; 4];

fn source(dtype: &str, [spectra, channels, cylinders, feeds]: Shape) -> String {
    let axes = [
        ("spectrum", spectra),
        ("channel", channels),
        ("pol", 2),
        ("east_west", cylinders),
        ("north_south", feeds),
    ];
    let axes = axes.map(|(name, len)| json!({"name": name, "len": len}));
    let parameters = json!({
        "dtype": dtype, "axes": axes, "validity_axes": [axes[0]], "samples_per_frame": 2048 * spectra,
        "band": {"channels": 1024, "first_channel": 500, "centre_hz": 600e6, "bandwidth_hz": 400e6},
        "frames": 3, "pattern": "random",
    });
    format!("source: {{kind: null_source, parameters: {parameters}}}")
}

/// Factors of different size and phase, `[pol][feed]`.
fn gains(feeds: usize) -> Value {
    let gain = |n: usize| {
        let (size, phase) = (1.0 + 0.5 * (n as f64 * 0.37).sin(), n as f64 * n as f64 * 0.11);
        json!({"re": size * phase.cos(), "im": size * phase.sin()})
    };
    let of_pol = |pol: usize| (0..feeds).map(|n| gain(n + 7 * pol)).collect::<Vec<_>>();
    json!([of_pol(0), of_pol(1)])
}

/// The cases, with the forms on `device`.
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
    let case = |form, tolerance, (name, dtype, shape, parameters): (&str, &str, Shape, &Value)| {
        let upstream = source(dtype, shape);
        let upstream = (upstream.as_str(), &["source"][..]);
        Case::new(("frb_beamformer", form), name, parameters, upstream, tolerance, device)
    };
    // Of a transform with five roundings of 2^-11 the root mean square is some 5e-4, and weights add theirs.
    let on_matrix_units = [RADIX8, TENSOR_CORE].into_iter().flat_map(|form| {
        both.into_iter().map(move |case_| case(form, Tolerance::floating(1e-3), case_))
    });
    let plainly = both.into_iter().chain(plain).map(|case_| {
        // Voltages in half precision may be rounded to the other side.
        let halves = case_.3["voltages"] == "cf16";
        case(FP32, Tolerance::floating(if halves { 3e-5 } else { 2e-6 }), case_)
    });
    on_matrix_units.chain(plainly).collect()
}
