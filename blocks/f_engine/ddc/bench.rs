//! Benchmarks.

use crate::common::bench::{Sizes, benchmark};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    [8, 16].map(|decimation| ddc(device, &sizes, decimation)).into()
}

/// One polarisation: each has a block of its own.
fn ddc(device: DeviceName, sizes: &Sizes, decimation: usize) -> Benchmark {
    let samples = 1_usize << sizes.ddc_log2_samples;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: i10p, axes: [{{name: sample, len: \
         {samples}}}], samples_per_frame: {samples}, pattern: random, adc_sample_rate_hz: 1.712e+9}}\n  \
         block: {{kind: ddc, queue: 1, input: source, parameters: {{centre_hz: 4.0e+8, decimation: \
         {decimation}, samples_per_frame: {}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        samples / decimation
    );
    benchmark(format!("ddc, subsampling {decimation}, {} taps", 16 * decimation), device, &blocks)
}
