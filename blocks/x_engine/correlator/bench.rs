//! Benchmarks.

use crate::common::bench::{HEAP, Sizes, benchmark, implementations, stacked};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let mut all = Vec::new();
    for implementation in implementations(device, &["hopper", "tensor_core"]) {
        for (antennas, channels) in [(64, 256), (80, 256), (256, 128), (512, 64)] {
            for stream in [("k_major", "ci8"), ("standard", "ci8")] {
                all.push(correlator(device, &sizes, implementation, stream, antennas, channels));
            }
        }
    }
    for implementation in implementations(device, &["tensor_core"]) {
        for (antennas, channels) in [(64, 256), (80, 256), (256, 128), (512, 64)] {
            let stream = ("k_major", "cf16");
            all.push(correlator(device, &sizes, implementation, stream, antennas, channels));
        }
    }
    all
}

fn correlator(
    device: DeviceName,
    sizes: &Sizes,
    implementation: &str,
    stream: (&str, &str),
    antennas: usize,
    channels: usize,
) -> Benchmark {
    let heaps = sizes.correlator_spectra / HEAP;
    let dump = 16 * heaps * HEAP;
    let blocks = format!(
        "{}  block: {{kind: correlator, queue: 1, implementation: {implementation}, input: source, \
         parameters: {{spectra_per_dump: {dump}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        stacked(stream, heaps, antennas, channels, HEAP)
    );
    benchmark(
        format!("correlator {implementation}, {antennas} antennas, {}, {}", stream.0, stream.1),
        device,
        &blocks,
    )
}
