//! Benchmarks.

use crate::common::bench::{DITHERS, HEAP, Sizes, benchmark, stacked};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let with = |beams| DITHERS.map(|dither| beamformer(device, &sizes, beams, dither));
    [4, 16, 64].into_iter().flat_map(with).collect()
}

fn beamformer(
    device: DeviceName,
    sizes: &Sizes,
    beams: usize,
    (dither, suffix): (&str, &str),
) -> Benchmark {
    let heaps = sizes.correlator_spectra / HEAP;
    let list = vec!["{pol: 0, gain: 0.05}, {pol: 1, gain: 0.05}"; beams / 2].join(", ");
    let blocks = format!(
        "{}  block: {{kind: beamformer, queue: 1, input: source, parameters: {{beams: [{list}], \
         dither: {dither}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        stacked(("standard", "ci8"), heaps, 80, 256, HEAP)
    );
    benchmark(format!("beamformer, 80 antennas, {beams} beams{suffix}"), device, &blocks)
}
