//! Benchmarks.

use crate::common::bench::{DITHERS, HEAP, Sizes, benchmark, implementations, stacked};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let mut all = Vec::new();
    for implementation in implementations(device, &["hopper", "tensor_core"]) {
        for beams in [2, 4, 8, 12, 16, 64, 128, 256] {
            for dither in DITHERS {
                all.push(beamformer(device, &sizes, implementation, beams, dither));
            }
        }
    }
    all
}

fn beamformer(
    device: DeviceName,
    sizes: &Sizes,
    implementation: &str,
    beams: usize,
    (dither, suffix): (&str, &str),
) -> Benchmark {
    let heaps = sizes.correlator_spectra / HEAP;
    let list = vec!["{pol: 0, gain: 0.05}, {pol: 1, gain: 0.05}"; beams / 2].join(", ");
    let blocks = format!(
        "{}  block: {{kind: beamformer, queue: 1, implementation: {implementation}, input: source, \
         parameters: {{beams: [{list}], dither: {dither}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        stacked(("standard", "ci8"), heaps, 80, 256, HEAP)
    );
    let name = format!("beamformer {implementation}, 80 antennas, {beams} beams{suffix}");
    benchmark(name, device, &blocks)
}
