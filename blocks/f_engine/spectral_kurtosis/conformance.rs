//! Cases that compare the CUDA implementation with the reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::{Value, json};

/// Sizes of random input.
struct Input {
    heaps: usize,
    antennas: Option<usize>,
    channels: usize,
    spectra: usize,
    pols: usize,
    k_major: bool,
    dtype: &'static str,
    missing_every: Option<u64>,
    by_channel: bool,
}

const INPUT: Input = Input {
    heaps: 2,
    antennas: None,
    channels: 64,
    spectra: 256,
    pols: 2,
    k_major: false,
    dtype: "ci8",
    missing_every: None,
    by_channel: false,
};

/// Returns the cases on `device`. The power of random bytes has a kurtosis of about 0.35, so that the probabilities decide
/// whether no, some or all units are flagged.
pub(super) fn cases(device: DeviceName) -> Vec<Case> {
    let few = json!({"false_alarm_probability": 1e-9});
    let case = |name: &str, input: Input, parameters: Value| {
        let (upstream, samples) = source(&input);
        let case = Case::new(
            ("spectral_kurtosis", "cuda"),
            name,
            &parameters,
            (&upstream, &["source"]),
            Tolerance::EXACT,
            device,
        );
        (case, samples)
    };
    let mut cases = Vec::new();
    for (dtype, spectra, pols, k_major) in [
        ("ci8", 256, 2, false),
        ("ci8", 256, 2, true),
        ("ci4", 256, 2, false),
        ("ci4", 256, 2, true),
        ("ci8", 32, 2, false),
        ("ci8", 33, 2, false),
        ("ci8", 33, 2, true),
        ("ci4", 33, 2, false),
        ("ci4", 35, 2, true),
        ("ci4", 38, 2, true),
        ("ci8", 37, 1, false),
        ("ci8", 40, 1, true),
        ("ci4", 37, 1, true),
        ("ci8", 100, 2, true),
    ] {
        let layout = if k_major { "K-major" } else { "standard" };
        let name = format!("{dtype}, {spectra} spectra, {pols} polarisations, {layout}");
        let input = Input { dtype, spectra, pols, k_major, channels: 37, ..INPUT };
        cases.push(case(&name, input, few.clone()).0);
    }
    let longest = Input { spectra: 65_536, channels: 3, heaps: 1, k_major: true, ..INPUT };
    // The uniform numbers of the source are not noise: each unit would be flagged, and zero.
    cases.push(case("65536 spectra, not flagged", longest, json!({"enabled": false})).0);
    let antennas = Input { antennas: Some(5), heaps: 3, spectra: 64, ..INPUT };
    let always = json!({"false_alarm_probability": 1e-9, "channels_always_flagged": [0, [7, 20]]});
    cases.push(case("5 antennas, some channels always", antennas, always).0);
    let missing =
        Input { antennas: Some(3), heaps: 4, spectra: 64, missing_every: Some(5), ..INPUT };
    cases.push(case("heaps missing", missing, few.clone()).0);
    let missing =
        Input { antennas: Some(3), spectra: 64, missing_every: Some(7), by_channel: true, ..INPUT };
    cases.push(case("channels missing", missing, few.clone()).0);
    let (changed, samples) = case("live updates", Input { heaps: 4, spectra: 64, ..INPUT }, few);
    // In the middle of a heap.
    let at = |frame: u64| frame * samples + samples / 4 + 3;
    cases.push(
        changed
            .change(at(1), json!({"channels_always_flagged": [[3, 9]]}))
            .change(at(2), json!({"false_alarm_probability": 0.1}))
            .change(at(4), json!({"enabled": false})),
    );
    cases
}

/// Returns the block `source`, and the ADC samples of a frame.
fn source(input: &Input) -> (String, u64) {
    let axis = |name: &str, len: usize| json!({"name": name, "len": len});
    let heap: Vec<Value> = [Some(axis("heap", input.heaps))]
        .into_iter()
        .chain([input.antennas.map(|antennas| axis("antenna", antennas))])
        .flatten()
        .collect();
    let channel = axis("channel", input.channels);
    let (spectrum, pol) = (axis("spectrum", input.spectra), axis("pol", input.pols));
    let last = if input.k_major { [&pol, &spectrum] } else { [&spectrum, &pol] };
    let axes: Vec<&Value> = heap.iter().chain([&channel]).chain(last).collect();
    let of_channel: &[&Value] = if input.by_channel { &[&channel, &pol] } else { &[] };
    let validity: Vec<&Value> = heap.iter().chain(of_channel.iter().copied()).collect();
    let samples = (2 * input.channels * input.spectra * input.heaps) as u64;
    let parameters = json!({
        "dtype": input.dtype, "axes": axes, "validity_axes": validity, "samples_per_frame": samples,
        "frames": 8, "pattern": "random", "seed": input.spectra, "missing_every": input.missing_every,
    });
    (format!("source: {{kind: null_source, parameters: {parameters}}}"), samples)
}
