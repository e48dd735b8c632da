//! Benchmarks.

use crate::common::bench::{Sizes, benchmark};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Returns the benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    [("ci8", "cf16", 2), ("cf32", "cf16", 8), ("cf32", "ci8", 8)]
        .map(|(from, to, bytes)| convert(device, &sizes, (from, to), bytes))
        .into()
}

/// `bytes` are those of an element of the input.
fn convert(device: DeviceName, sizes: &Sizes, (from, to): (&str, &str), bytes: usize) -> Benchmark {
    let len = sizes.copy_bytes / bytes;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {from}, axes: [{{name: sample, \
         len: {len}}}], samples_per_frame: {len}, pattern: random}}\n  block: {{kind: convert, queue: 1, \
         input: source, parameters: {{dtype: {to}, scale: 0.5}}}}\n  \
         sink: {{kind: null_sink, input: block}}\n"
    );
    benchmark(format!("convert, {from} to {to}"), device, &blocks)
}
