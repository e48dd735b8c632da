//! Benchmarks.

use crate::common::bench::{Sizes, benchmark};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Returns the benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    [("i8", 1), ("i16", 2), ("f32", 4), ("cf32", 8), ("cf64", 16)]
        .map(|(dtype, bytes)| transpose(device, &sizes, dtype, bytes))
        .into()
}

fn transpose(device: DeviceName, sizes: &Sizes, dtype: &str, bytes: usize) -> Benchmark {
    let elements = sizes.copy_bytes / bytes;
    let channels = ((elements as f64).sqrt() as usize).next_power_of_two();
    let spectra = elements / channels;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{{name: \
         channel, len: {channels}}}, {{name: spectrum, len: {spectra}}}], samples_per_frame: \
         1048576, pattern: random}}\n  block: {{kind: transpose, queue: 1, input: source, parameters: \
         {{axes: [spectrum, channel]}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    benchmark(format!("transpose, {bytes}-byte elements"), device, &blocks)
}
