//! Benchmarks.

use crate::common::bench::{DITHERS, HEAP, Sizes, benchmark, digitisers};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let with = |channels| DITHERS.map(|dither| f_engine(device, &sizes, channels, dither));
    [1024, 4096, 8192, 16384, 32768].into_iter().flat_map(with).collect()
}

fn f_engine(
    device: DeviceName,
    sizes: &Sizes,
    channels: usize,
    (dither, suffix): (&str, &str),
) -> Benchmark {
    let samples = 1_usize << sizes.f_engine_log2_samples;
    let heaps = (samples / (2 * channels * HEAP)).max(1);
    let implementation = if device == DeviceName::Cpu { "cpu" } else { "two_pass" };
    let blocks = format!(
        "{}  block: {{kind: f_engine, queue: 1, implementation: {implementation}, inputs: [\"source[*]\"], \
         parameters: {{channels: {channels}, taps: 16, gains: 0.1, dither: {dither}, \
         spectra_per_heap: {HEAP}, heaps_per_frame: {heaps}}}}}\n  \
         sink: {{kind: null_sink, input: block}}\n",
        digitisers(samples)
    );
    benchmark(format!("f_engine {implementation}, {channels} channels{suffix}"), device, &blocks)
}
