//! Cases that compare the CUDA implementation with the reference; all results must be exact.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// Names and lengths of axes.
type Axes<'a> = &'a [(&'a str, usize)];

fn axes(list: Axes<'_>) -> Value {
    list.iter().map(|(name, len)| json!({"name": name, "len": len})).collect()
}

/// A case with random values of type `dtype`. Every `missing_every`-th unit is missing, but not its values.
fn case(
    name: &str,
    (dtype, payload, validity): (&str, Axes<'_>, Axes<'_>),
    (first_timestamp, missing_every): (u64, Option<u64>),
    parameters: &Value,
    device: DeviceName,
) -> Case {
    let channels = payload.iter().find(|(name, _)| *name == "channel").map_or(1, |(_, len)| *len);
    let source = json!({
        "dtype": dtype, "axes": axes(payload), "validity_axes": axes(validity), "validity_full": 3,
        "samples_per_frame": 1920, "first_timestamp": first_timestamp, "frames": 23, "pattern": "random",
        "missing_every": missing_every, "adc_sample_rate_hz": 1000.0,
        "band": {"channels": channels, "centre_hz": 1.4e9, "bandwidth_hz": 1e8},
    });
    Case::new(
        ("average", "cuda"),
        name,
        parameters,
        (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
        Tolerance::EXACT,
        device,
    )
}

/// The cases on `device`.
pub(super) fn cases(device: DeviceName) -> Vec<Case> {
    let all = [("channel", 24), ("baseline", 15), ("product", 4)];
    let powers = [("spectrum", 12), ("product", 4), ("channel", 260)];
    let baseline = &all[1..2];
    let antennas: Vec<[f64; 3]> =
        (0..5).map(|n| [10.0 * f64::from(4_i32.pow(n)), 5.0, 0.0]).collect();
    let smearing = json!({
        "antennas_enu_metres": antennas, "field_of_view_degrees": 2.0, "max_decorrelation": 0.01, "most_dumps": 8,
    });
    let [on_time, missing] = [(0, None), (3 * 1920, Some(7))];
    vec![
        case("5 dumps", ("ci32", &all, baseline), on_time, &json!({"dumps": 5}), device),
        case(
            "3 dumps of 4 channels, some baselines missing, a late start",
            ("ci32", &all, baseline),
            missing,
            &json!({"dumps": 3, "channels": 4}),
            device,
        ),
        case(
            "4 dumps of 24 channels, some values missing",
            ("ci32", &all, &all),
            missing,
            &json!({"dumps": 4, "channels": 24}),
            device,
        ),
        case(
            "validity of channels and products",
            ("cf32", &all, &[all[2], all[0]]),
            missing,
            &json!({"dumps": 2, "channels": 3}),
            device,
        ),
        case(
            "sums of floats",
            ("cf32", &all, baseline),
            missing,
            &json!({"dumps": 7, "values": "sum"}),
            device,
        ),
        case(
            "baselines of 2 dumps",
            ("ci32", &all, baseline),
            missing,
            &json!({"dumps": 2, "channels": 2, "smearing": smearing}),
            device,
        ),
        case(
            "selected baselines of one polarisation",
            ("ci32", &[all[0], all[1], ("product", 1)], baseline),
            missing,
            &json!({"baselines": {"pairs": [[3, 1]], "autocorrelations": true}, "values": "sum"}),
            device,
        ),
        case(
            "averages within a frame of spectra",
            ("f32", &powers, &powers[..1]),
            missing,
            &json!({"dumps": 4, "channels": 10}),
            device,
        ),
        case(
            "averages of frames of spectra, which start between frames",
            ("f32", &powers, &powers[..1]),
            (1280, Some(5)),
            &json!({"dumps": 36, "channels": 2, "values": "sum"}),
            device,
        ),
        case("nothing averaged", ("f32", &powers, &[]), on_time, &json!({}), device),
    ]
}
