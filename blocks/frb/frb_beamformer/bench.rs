//! Benchmarks.

use crate::common::bench::{Sizes, benchmark, implementations};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let mut all = Vec::new();
    for implementation in implementations(device, &["radix8", "tensor_core", "fp32"]) {
        for stages in FRB_STAGES {
            all.push(frb_beamformer(device, &sizes, implementation, stages));
        }
    }
    all
}

/// Name of the stages, type of the voltages, and parameters.
const FRB_STAGES: [(&str, &str, &str); 3] = [
    ("first transform alone", "cf16", "north_south: {points: 512}, voltages: cf16"),
    (
        "clamped beams of single cylinders",
        "ci4",
        "north_south: {points: 512}, clamp: {beams: 256}, voltages: cf16",
    ),
    (
        "all stages",
        "ci4",
        "east_west: {}, north_south: {points: 512}, clamp: {beams: 256}, upchannelise: 128, integrate: \
         {channels: 8, spectra: 3}",
    ),
];

/// 4 cylinders of 256 feeds in 16 channels: 128 transforms of feeds for each spectrum.
fn frb_beamformer(
    device: DeviceName,
    sizes: &Sizes,
    implementation: &str,
    (stages, dtype, parameters): (&str, &str, &str),
) -> Benchmark {
    let spectra = sizes.frb_spectra;
    let samples = 2048 * spectra;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{{name: spectrum, len: \
         {spectra}}}, {{name: channel, len: 16}}, {{name: pol, len: 2}}, {{name: east_west, len: 4}}, {{name: \
         north_south, len: 256}}], samples_per_frame: {samples}, pattern: random, band: {{channels: 1024, \
         first_channel: 500, centre_hz: 600.0e+6, bandwidth_hz: 400.0e+6}}}}\n  \
         block: {{kind: frb_beamformer, queue: 1, implementation: {implementation}, input: source, \
         parameters: {{{parameters}}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    benchmark(format!("frb_beamformer {implementation}, {stages}"), device, &blocks)
}
