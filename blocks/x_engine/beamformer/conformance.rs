//! Cases that compare the GPU implementation with the reference.

use super::cuda::Architecture;
use fxgraph::examples::{Case, Tolerance};
use fxgraph::{DeviceName, cuda};
use serde_json::{Value, json};

/// Heaps, antennas, channels and spectra of a frame.
type Shape = [usize; 4];

/// (shape, K-major, element type, beams, dither)
const CASES: &[(Shape, bool, &str, usize, &str)] = &[
    ([1, 1, 4, 64], false, "ci8", 1, "none"),
    ([10, 3, 5, 37], false, "ci8", 2, "uniform"),
    ([2, 17, 3, 100], false, "ci8", 5, "uniform"),
    ([1, 33, 8, 256], true, "ci8", 16, "uniform"),
    ([3, 80, 4, 256], false, "ci8", 16, "uniform"),
    ([1, 80, 4, 256], false, "ci8", 64, "uniform"),
    ([1, 20, 6, 250], true, "ci8", 64, "none"),
    ([2, 3, 5, 37], false, "ci4", 3, "none"),
    ([1, 33, 4, 62], true, "ci4", 17, "uniform"),
    ([1, 64, 16, 256], false, "ci4", 8, "uniform"),
    ([1, 300, 2, 128], true, "ci4", 40, "uniform"),
    ([4, 5, 300, 1], true, "ci8", 4, "uniform"),
];

/// More cases for the kernel of `hopper`: alignments of rows, one to sixteen steps over the antennas, numbers of beams
/// per matrix instruction, and several groups of beams.
const HOPPER_CASES: &[(Shape, bool, &str, usize, &str)] = &[
    ([3, 80, 3, 64], true, "ci8", 9, "none"),
    ([2, 37, 3, 130], true, "ci8", 33, "uniform"),
    ([2, 16, 2, 101], true, "ci4", 20, "none"),
    ([2, 48, 2, 192], false, "ci4", 130, "uniform"),
    ([1, 100, 2, 68], false, "ci8", 65, "uniform"),
    ([1, 128, 2, 256], true, "ci8", 16, "none"),
    ([2, 80, 140, 128], false, "ci8", 12, "uniform"),
    ([1, 80, 2, 128], false, "ci8", 256, "none"),
    ([2, 256, 2, 128], false, "ci8", 100, "uniform"),
    ([1, 200, 2, 70], true, "ci4", 256, "uniform"),
];

/// `hopper` rounds weights to 16 bits, which moves sums by about 1e-5 of their rms: with large gains as here, one or two
/// values in a thousand are rounded to the next integer, and counts of some ten clamped values may differ by one.
///
/// An `output_power` is the mean square of as few as 16 values: one of them that differs by 1 moves a power of 50^2 by
/// 0.3 % at twice the rms, and by up to 1 % where the 16 values happen to be small. `hopper` may change twice as many.
fn tolerance(implementation: &str) -> Tolerance {
    match implementation {
        "hopper" => Tolerance {
            share: 2e-3,
            annotations: &[("saturated", 0.1), ("output_power", 2e-2)],
            ..Tolerance::QUANTISED
        },
        _ => Tolerance {
            annotations: &[("saturated", 1e-3), ("output_power", 1e-2)],
            ..Tolerance::QUANTISED
        },
    }
}

/// Implementation that `cuda` selects on `device`.
fn selected(device: DeviceName, [_, antennas, _, spectra]: Shape) -> &'static str {
    let gpu = match device {
        DeviceName::Cuda(ordinal) => cuda::properties(ordinal).ok(),
        DeviceName::Cpu => None,
    };
    match Architecture::best([2, antennas, spectra], gpu.as_ref()) {
        Architecture::Hopper => "hopper",
        Architecture::TensorCore => "tensor_core",
    }
}

fn axis(name: &str, len: usize) -> Value {
    json!({ "name": name, "len": len })
}

/// Beams of alternating polarisations. The first ones have weights, delays and phases for each antenna, the others one
/// phase for all.
fn beams(beams: usize, antennas: usize, dtype: &str) -> Vec<Value> {
    let each = |f: &dyn Fn(f64) -> f64| (0..antennas).map(|a| f(a as f64)).collect::<Vec<_>>();
    // Values fill the range of 8 bits, some are clamped, and no sum is half-way between two integers.
    let rms = if dtype == "ci4" { 4.2 } else { 73.0 };
    let gain = 50.0 / rms / (antennas as f64).sqrt();
    let beam = |n: usize| {
        let number = n as f64;
        let pol = if n % 7 == 3 { 0 } else { n % 2 };
        let gain = gain * (1.0 + 0.1 * number) + 1e-4 * 2.0_f64.sqrt();
        if n > 3 {
            return json!({ "pol": pol, "phases_radians": number, "gain": gain });
        }
        json!({
            "pol": pol,
            "weights": each(&|a| 1.0 - 0.3 * (a * 1.7 + number).sin()),
            "delays_seconds": each(&|a| 1e-9 * (a * 0.37 - number)),
            "phases_radians": each(&|a| a * a * 0.1 + number),
            "gain": gain,
        })
    };
    (0..beams).map(beam).collect()
}

/// Band of the lower sideband for odd numbers of channels.
fn band(channels: usize) -> Value {
    let sideband = if channels.is_multiple_of(2) { "upper" } else { "lower" };
    json!({
        "channels": 2 * channels, "first_channel": 1, "centre_hz": 1.284e9, "bandwidth_hz": 856e6,
        "sideband": sideband,
    })
}

/// Returns the cases, with the GPU implementations on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let case =
        |implementation,
         &(shape, k_major, dtype, count, dither): &(Shape, bool, &str, usize, &str)| {
            let [heaps, antennas, channels, spectra] = shape;
            let (heap, antenna) = (axis("heap", heaps), axis("antenna", antennas));
            let (spectrum, pol) = (axis("spectrum", spectra), axis("pol", 2));
            let inner = if k_major { [pol, spectrum] } else { [spectrum, pol] };
            let source = json!({
                "dtype": dtype, "axes": [heap, antenna, axis("channel", channels), inner[0], inner[1]],
                "validity_axes": [heap, antenna], "samples_per_frame": heaps * spectra * 2 * channels,
                "band": band(channels), "frames": 4, "pattern": "random",
            });
            let layout = if k_major { "K-major" } else { "standard" };
            let name = format!("{dtype} {layout} {shape:?}, {count} beams, dither {dither}");
            let parameters = json!({ "beams": beams(count, antennas, dtype), "dither": dither, "dither_seed": 5 });
            let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
            Case::new(
                ("beamformer", implementation),
                name,
                &parameters,
                (&upstream, &["source"]),
                tolerance(match implementation {
                    "cuda" => selected(device, shape),
                    implementation => implementation,
                }),
                device,
            )
        };
    // With 5 and with 16 beams.
    let mut cases = vec![case("cuda", &CASES[2]), case("cuda", &CASES[4])];
    for implementation in ["hopper", "tensor_core"] {
        let shapes = CASES.iter().filter(|([_, antennas, ..], ..)| {
            implementation != "hopper" || *antennas <= super::hopper::MOST_ANTENNAS
        });
        cases.extend(shapes.map(|shape| case(implementation, shape)));
        cases.push(lost_antennas(implementation, device));
        cases.push(flagged_channels(implementation, device));
        for (spectra, k_major, dtype) in
            [(64, false, "ci8"), (37, true, "ci8"), (62, false, "ci4"), (192, true, "ci4")]
        {
            cases.push(changed_beams(implementation, spectra, k_major, dtype, device));
        }
    }
    cases.extend(HOPPER_CASES.iter().map(|shape| case("hopper", shape)));
    for (implementation, spectra, dtype) in
        [("cuda", 256, "ci8"), ("tensor_core", 37, "ci8"), ("tensor_core", 64, "ci4")]
    {
        cases.push(one_polarisation(implementation, spectra, dtype, device));
    }
    cases
}

/// A case with one polarisation, and flags for channels, some of which are missing.
fn one_polarisation(
    implementation: &'static str,
    spectra: usize,
    dtype: &str,
    device: DeviceName,
) -> Case {
    let (heap, antenna, channel) = (axis("heap", 2), axis("antenna", 17), axis("channel", 6));
    let source = json!({
        "dtype": dtype, "axes": [heap, antenna, channel, axis("spectrum", spectra), axis("pol", 1)],
        "validity_axes": [heap, antenna, channel, axis("pol", 1)], "samples_per_frame": 32 * spectra,
        "band": band(6), "frames": 4, "pattern": "random", "missing_every": 7,
    });
    let mut beams = beams(9, 17, dtype);
    beams.iter_mut().for_each(|beam| beam["pol"] = json!(0));
    Case::new(
        ("beamformer", implementation),
        format!("one polarisation, {dtype}, {spectra} spectra"),
        &json!({ "beams": beams, "dither": "uniform", "dither_seed": 5 }),
        (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
        tolerance("tensor_core"),
        device,
    )
}

/// A case in which beams change within heaps, and twice within one heap.
fn changed_beams(
    implementation: &'static str,
    spectra: usize,
    k_major: bool,
    dtype: &str,
    device: DeviceName,
) -> Case {
    let (heaps, antennas, channels) = (3, 20, 6);
    let (heap, antenna) = (axis("heap", heaps), axis("antenna", antennas));
    let (spectrum, pol) = (axis("spectrum", spectra), axis("pol", 2));
    let inner = if k_major { [pol, spectrum] } else { [spectrum, pol] };
    let step = 2 * channels;
    let source = json!({
        "dtype": dtype, "axes": [heap, antenna, axis("channel", channels), inner[0], inner[1]],
        "validity_axes": [heap, antenna], "samples_per_frame": heaps * spectra * step,
        "band": band(channels), "frames": 4, "pattern": "random",
    });
    // The polarisations do not change.
    let turned = |radians: f64| {
        let mut beams = beams(9, antennas, dtype);
        for (number, beam) in beams.iter_mut().enumerate() {
            beam["phases_radians"] = json!(radians * (1 + number) as f64);
        }
        beams
    };
    let at = |heap: usize, spectrum: usize| ((heap * spectra + spectrum) * step) as u64;
    let parameters =
        json!({ "beams": beams(9, antennas, dtype), "dither": "uniform", "dither_seed": 5 });
    Case::new(
        ("beamformer", implementation),
        format!("beams that change, {dtype}, {spectra} spectra, K-major {k_major}"),
        &parameters,
        (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
        tolerance(implementation),
        device,
    )
    .change(at(1, 5) + 1, json!({ "beams": turned(0.7) }))
    .change(at(1, 23), json!({ "beams": turned(-0.2) }))
    .change(at(2, 0), json!({ "beams": turned(1.1) }))
    .change(at(7, 31) - 1, json!({ "beams": turned(0.1) }))
}

/// A case with flags for channels and polarisations, some of which are missing.
fn flagged_channels(implementation: &'static str, device: DeviceName) -> Case {
    let (heap, antenna, channel) = (axis("heap", 2), axis("antenna", 5), axis("channel", 6));
    let source = json!({
        "dtype": "ci8", "axes": [heap, antenna, channel, axis("spectrum", 32), axis("pol", 2)],
        "validity_axes": [heap, antenna, channel, axis("pol", 2)], "samples_per_frame": 1024,
        "band": band(6), "frames": 4, "pattern": "random", "missing_every": 7,
    });
    Case::new(
        ("beamformer", implementation),
        "flags of channels",
        &json!({ "beams": beams(6, 5, "ci8") }),
        (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
        tolerance(implementation),
        device,
    )
}

/// A case in which antennas start and end at different times; only one has the last frame.
fn lost_antennas(implementation: &'static str, device: DeviceName) -> Case {
    let source = |antenna: usize, first: usize, frames: usize| {
        let parameters = json!({
            "dtype": "ci8", "samples_per_frame": 1024, "first_timestamp": 1024 * first, "seed": antenna,
            "axes": [axis("heap", 2), axis("channel", 8), axis("spectrum", 32), axis("pol", 2)],
            "validity_axes": [axis("heap", 2)], "band": band(8), "frames": frames, "pattern": "random",
        });
        format!("a{antenna}: {{kind: null_source, parameters: {parameters}}}\n")
    };
    let sources = [source(0, 0, 6), source(1, 1, 3), source(2, 2, 3), source(3, 0, 5)].concat();
    let upstream = format!("{sources}stack: {{kind: antenna_stack, inputs: [a0, a1, a2, a3]}}");
    Case::new(
        ("beamformer", implementation),
        "antennas that are missing",
        &json!({ "beams": beams(6, 4, "ci8") }),
        (&upstream, &["stack"]),
        tolerance(implementation),
        device,
    )
}
