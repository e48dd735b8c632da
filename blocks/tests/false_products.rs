//! Flowgraphs and changes that would write or compute something false, which are rejected.

use crate::kinds;
use fxgraph::changes::When;
use fxgraph::diagnostic::{Style, render_all};
use fxgraph::flowgraph::{Plan, load_text};

const PLACES: &str = "telescope: {name: t, latitude_degrees: 50, longitude_degrees: 7, height_metres: 60}, \
                      antennas_enu_metres: [[0, 0, 0], [31, 5, 0], [7, 7, 0]]";

fn load(text: &str) -> Result<Plan, String> {
    let loaded = load_text("false.yaml", text, &[], &kinds());
    loaded.result.map_err(|problems| render_all(&problems, &loaded.sources, Style::Plain))
}

/// A flowgraph of `average` and a block `reader` that reads its visibilities.
fn averaged(values: &str, reader: &str) -> String {
    format!(
        "flowgraph: averaged
blocks:
  source:
    kind: null_source
    parameters:
      dtype: ci32
      axes: [{{name: channel, len: 16}}, {{name: baseline, len: 6}}, {{name: product, len: 4}}]
      validity_axes: [{{name: baseline, len: 6}}]
      samples_per_frame: 65536
      band: {{channels: 16, centre_hz: 1.0e+9, bandwidth_hz: 1.6e+7}}
  average: {{kind: average, input: source, parameters: {{dumps: 2, values: {values}}}}}
  reader: {reader}
"
    )
}

#[test]
fn means_are_rejected_by_readers_of_sums() {
    for (reader, is_sink) in [
        (
            format!(
                "{{kind: uvh5_sink, inputs: [average], parameters: {{path: a.uvh5, {PLACES}}}}}"
            ),
            true,
        ),
        ("{kind: average, input: average, parameters: {dumps: 2}}".to_owned(), false),
        (
            "{kind: gain_solver, input: average, parameters: {targets: [\"f[*]\"]}}".to_owned(),
            false,
        ),
    ] {
        let found = load(&averaged("mean", &reader)).err().unwrap();
        assert!(found.contains("the visibilities of the input must be sums, got means"), "{found}");
        assert!(found.contains("set `values: sum` of the `average` upstream"), "{found}");
        let found = load(&averaged("sum", &reader));
        assert!(found.is_ok() || !is_sink);
        assert!(!found.err().unwrap_or_default().contains("must be sums"));
    }
}

/// A flowgraph of F-engines with a `ddc`, and blocks `sinks` that read the visibilities `x` or the samples `ddc[0]`.
fn tuned(sinks: &str) -> String {
    format!(
        "flowgraph: tuned
blocks:
  source:
    kind: null_source
    replicate: 6
    parameters: {{dtype: i10p, axes: [{{name: sample, len: 16384}}], samples_per_frame: 16384}}
  ddc:
    kind: ddc
    replicate: 6
    input: 'source[${{index}}]'
    parameters: {{centre_hz: 4.0e+8, decimation: 8, samples_per_frame: 1024}}
  pfb:
    kind: pfb
    replicate: 3
    inputs: ['ddc[${{2 * index}}]', 'ddc[${{2 * index + 1}}]']
    parameters: {{channels: 64, spectra_per_frame: 16}}
  fft: {{kind: fft, replicate: 3, input: 'pfb[${{index}}]'}}
  f: {{kind: postproc, replicate: 3, input: 'fft[${{index}}]', parameters: {{spectra_per_heap: 16}}}}
  array: {{kind: antenna_stack, inputs: ['f[*]']}}
  x: {{kind: correlator, input: array, parameters: {{spectra_per_dump: 16}}}}
{sinks}"
    )
}

#[test]
fn change_of_the_centre_frequency_of_a_file_is_rejected() {
    let registry = kinds();
    let updated = |plan: &Plan, request: &str| {
        let rejected = plan.live_update(&registry, request, &When::at(1 << 30)).err();
        rejected.map(|rejected| render_all(&rejected.problems, &rejected.sources, Style::Plain))
    };
    let all = |hz: &str| {
        let blocks: Vec<_> = (0..6).map(|n| format!("\"ddc[{n}]\": {{centre_hz: {hz}}}")).collect();
        format!("{{{}}}", blocks.join(", "))
    };
    let without = load(&tuned("  sink: {kind: null_sink, input: x}\n")).unwrap();
    assert_eq!(updated(&without, &all("4.1e+8")), None);
    let sink = format!(
        "  file: {{kind: uvh5_sink, inputs: [x], parameters: {{path: a.uvh5, {PLACES}}}}}\n"
    );
    let plan = load(&tuned(&sink)).unwrap();
    let found = updated(&plan, &all("4.1e+8")).unwrap();
    let centre = "must stay 400000000 Hz while `file` runs, got 410000000 Hz";
    assert!(found.contains(centre), "{found}");
    assert!(found.contains("stop the flowgraph and start it with the change"), "{found}");
    // The same frequency changes nothing, and neither does another parameter.
    assert_eq!(updated(&plan, &all("4.0e+8")), None);
    assert_eq!(updated(&plan, "{\"f[0]\": {gains: 2}}"), None);
    // A change of one antenna, although the bands of others stay.
    assert!(updated(&plan, "{\"ddc[3]\": {centre_hz: 4.1e+8}}").unwrap().contains(centre));
    let swapped = |plan: &Plan| {
        let request = "{kind: ddc, parameters: {centre_hz: 4.1e+8, taps: 128}}";
        let changed = plan.change("ddc[0]", request, &registry);
        changed.result.err().map(|problems| render_all(&problems, &changed.sources, Style::Plain))
    };
    assert!(swapped(&plan).unwrap().contains(centre));
    // One polarisation, one antenna, one block by a swap: its reader joins two bands.
    let two_bands =
        "the polarisations have different bands, centred at 410000000 Hz and at 400000000 Hz";
    let unfitting = |request: &str| {
        let after = without.live_update(&registry, request, &When::at(1 << 30)).ok().unwrap();
        without.unfitting_inputs(&after.plan)
    };
    let one = unfitting("{\"ddc[0]\": {centre_hz: 4.1e+8}}");
    assert_eq!(
        (one[0].message.as_str(), one[0].blocks.as_slice()),
        (two_bands, &["pfb[0]".to_owned()][..])
    );
    let antenna = unfitting("{\"ddc[2]\": {centre_hz: 4.1e+8}, \"ddc[3]\": {centre_hz: 4.1e+8}}");
    assert_eq!(antenna[0].blocks, ["array"]);
    assert!(unfitting(&all("4.1e+8")).is_empty());
    let request = "{kind: ddc, parameters: {centre_hz: 4.1e+8, taps: 128}}";
    let after = without.change("ddc[0]", request, &registry).result.unwrap();
    assert_eq!(without.unfitting_inputs(&after)[0].message, two_bands);
    // The swap of the file is not one of its band.
    let request = format!("{{kind: uvh5_sink, parameters: {{path: b.uvh5, {PLACES}}}}}");
    assert!(plan.change("file", request.as_str(), &registry).result.is_ok());
}
