//! Benchmarks.

use crate::common::bench::{HEAP, Sizes, benchmark, implementations, stacked};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub(super) fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let (antennas, channels) = (64, 256);
    let heaps = Sizes::on(device).correlator_spectra / HEAP;
    let implementations = implementations(device, &["cuda"]).iter();
    let cases = implementations.flat_map(|name| {
        [("standard", "ci8"), ("k_major", "ci8"), ("standard", "ci4")].map(|of| (*name, of))
    });
    cases
        .map(|(implementation, stream)| {
            let blocks = format!(
                "{}  block: {{kind: spectral_kurtosis, queue: 1, implementation: {implementation}, \
                 input: source}}\n  sink: {{kind: null_sink, input: block}}\n",
                stacked(stream, heaps, antennas, channels, HEAP)
            );
            let name = format!(
                "spectral_kurtosis {implementation}, {antennas} antennas, {}, {}",
                stream.0, stream.1
            );
            benchmark(name, device, &blocks)
        })
        .collect()
}
