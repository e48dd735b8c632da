//! Benchmarks.

use crate::common::bench::{Sizes, benchmark};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`, with S input samples for each output sample.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let log2_samples = Sizes::on(device).ddc_log2_samples;
    let real = [8, 16].map(|s| ddc(device, ("i10p", ""), 1 << log2_samples, (s, s)));
    // Frames of fewer samples, which are larger.
    let complex = [8, 16]
        .map(|s| ddc(device, ("cf32", "complex samples, "), 1 << (log2_samples - 1), (s, 2 * s)));
    real.into_iter().chain(complex).collect()
}

/// One polarisation: each has a block of its own.
fn ddc(
    device: DeviceName,
    (dtype, name): (&str, &str),
    samples: usize,
    (subsampling, decimation): (usize, usize),
) -> Benchmark {
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{{name: sample, len: \
         {samples}}}], samples_per_frame: {samples}, pattern: random, adc_sample_rate_hz: 1.712e+9}}\n  \
         block: {{kind: ddc, queue: 1, input: source, parameters: {{centre_hz: 4.0e+8, decimation: \
         {decimation}, samples_per_frame: {}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        samples / subsampling
    );
    let name = format!("ddc, {name}subsampling {subsampling}, {} taps", 16 * subsampling);
    benchmark(name, device, &blocks)
}
