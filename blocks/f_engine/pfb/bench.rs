//! Benchmarks.

use crate::common::bench::{HEAP, Sizes, digitisers, flowgraph};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// The benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    [1024, 4096, 8192, 32768].map(|channels| three_blocks(device, &sizes, channels)).into()
}

fn three_blocks(device: DeviceName, sizes: &Sizes, channels: usize) -> Benchmark {
    let samples = 1_usize << sizes.f_engine_log2_samples;
    let heaps = (samples / (2 * channels * HEAP)).max(1);
    let spectra = samples / (2 * channels);
    let blocks = format!(
        "{}  pfb: {{kind: pfb, queue: 1, inputs: [\"source[*]\"], parameters: {{channels: {channels}, taps: \
         16, unzip: 2, spectra_per_frame: {spectra}}}}}\n  fft: {{kind: fft, input: pfb}}\n  \
         postproc: {{kind: postproc, input: fft, parameters: {{gains: 0.1, dither: none, \
         spectra_per_heap: {HEAP}, heaps_per_frame: {heaps}}}}}\n  \
         sink: {{kind: null_sink, input: postproc}}\n",
        digitisers(samples)
    );
    Benchmark {
        name: format!("pfb, fft, postproc, {channels} channels"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["pfb", "fft", "postproc"],
    }
}
