//! Sums, means and powers of `average` and `detect`, computed again by NumPy from their recorded inputs.

use super::{needs, run_flowgraph, script};

const RECORDED: &str = r#"
flowgraph: sums
parameters:
  antennas: [[0, 0, 0], [40, 10, 0], [900, -200, 3], [-2600, 1500, -8], [4000, 9000, 20]]
templates:
  of_length:
    inputs: [input]
    parameters: {dumps: 1}
    blocks:
      average:
        kind: average
        input: input
        parameters:
          dumps: "${dumps}"
          smearing: {antennas_enu_metres: "${antennas}", field_of_view_degrees: 1, max_decorrelation: 0.01, most_dumps: 4}
    outputs: {output: average}
blocks:
  integers:
    kind: null_source
    parameters:
      dtype: ci32
      axes: [{name: channel, len: 24}, {name: baseline, len: 15}, {name: product, len: 4}]
      validity_axes: [{name: baseline, len: 15}]
      validity_full: 3
      samples_per_frame: 8192
      adc_sample_rate_hz: 1000
      frames: 24
      missing_every: 7
      pattern: random
      band: {channels: 24, centre_hz: 1.4e+9, bandwidth_hz: 1e+8}
  floats:
    kind: null_source
    parameters:
      dtype: cf32
      axes: [{name: channel, len: 12}, {name: baseline, len: 6}, {name: product, len: 4}]
      validity_axes: [{name: channel, len: 12}, {name: baseline, len: 6}, {name: product, len: 4}]
      validity_full: 2
      samples_per_frame: 8192
      frames: 12
      missing_every: 5
      pattern: random
  bytes:
    kind: null_source
    parameters:
      dtype: ci8
      axes: [{name: pol, len: 2}, {name: spectrum, len: 48}, {name: channel, len: 26}]
      validity_axes: [{name: pol, len: 2}, {name: spectrum, len: 48}]
      samples_per_frame: 2496
      frames: 6
      missing_every: 11
      pattern: random
  spectra: {kind: convert, input: bytes, parameters: {dtype: cf32}}
  array:
    kind: null_source
    parameters:
      dtype: ci8
      axes: [{name: heap, len: 2}, {name: antenna, len: 5}, {name: channel, len: 8}, {name: spectrum, len: 32}, {name: pol, len: 2}]
      validity_axes: [{name: heap, len: 2}, {name: antenna, len: 5}]
      samples_per_frame: 1024
      frames: 5
      missing_every: 4
      pattern: random
  mean: {kind: average, input: integers, parameters: {dumps: 4, channels: 3}}
  sum: {kind: average, input: integers, parameters: {dumps: 2, values: sum}}
  sum_mean: {kind: average, input: sum, parameters: {dumps: 3, channels: 2}}
  float_mean: {kind: average, input: floats, parameters: {dumps: 3, channels: 4}}
  length1: {template: of_length, input: integers, parameters: {dumps: 1}}
  length2: {template: of_length, input: integers, parameters: {dumps: 2}}
  length4: {template: of_length, input: integers, parameters: {dumps: 4}}
  power: {kind: detect, input: spectra, parameters: {spectra: 6, products: power}}
  stokes: {kind: detect, input: spectra, parameters: {spectra: 4, products: stokes}}
  powers: {kind: average, input: power, parameters: {dumps: 4, channels: 2}}
  incoherent: {kind: detect, input: array, parameters: {spectra: 16, products: stokes}}
  separate: {kind: detect, input: array, parameters: {spectra: 16, products: power, antennas: separate}}
"#;

const NAMES: [&str; 16] = [
    "integers",
    "floats",
    "bytes",
    "array",
    "mean",
    "sum",
    "sum_mean",
    "float_mean",
    "length1",
    "length2",
    "length4",
    "power",
    "stokes",
    "powers",
    "incoherent",
    "separate",
];

#[test]
fn averages_and_powers_equal_those_of_numpy() {
    if !needs::formats() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sink = |name: &&str| {
        format!(
            "  {name}_file: {{kind: file_sink, input: {name}, parameters: {{path: {name}.npz}}}}\n"
        )
    };
    let sinks: Vec<String> = NAMES.iter().map(sink).collect();
    run_flowgraph(directory.path(), &(RECORDED.to_owned() + &sinks.concat()));
    let said = script(directory.path(), "sums.py", &[]);
    assert!(said.contains("12 outputs are equal"), "{said}");
}
