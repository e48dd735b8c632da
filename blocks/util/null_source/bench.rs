//! Benchmarks of the copies between host and device.

use crate::common::bench::{Sizes, flowgraph};
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Returns the benchmarks on `device`.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    if device == DeviceName::Cpu {
        return Vec::new();
    }
    let sizes = Sizes::on(device);
    vec![
        transfer(device, &sizes, "upload"),
        transfer(device, &sizes, "download"),
        both_ways(device, &sizes),
        around_a_block(device, &sizes),
    ]
}

fn transfer(device: DeviceName, sizes: &Sizes, way: &'static str) -> Benchmark {
    let (source, sink) = match way {
        "upload" => ("cpu".to_owned(), device.to_string()),
        _ => (device.to_string(), "cpu".to_owned()),
    };
    let len = sizes.copy_bytes / 4;
    let blocks = format!(
        "  source:\n    kind: null_source\n    device: \"{source}\"\n    parameters: {{dtype: i8, \
         axes: [{{name: sample, len: {len}}}], samples_per_frame: {len}, pattern: untouched}}\n  \
         sink: {{kind: null_sink, input: source, device: \"{sink}\"}}\n"
    );
    let transfer: &'static [&'static str] = match way {
        "upload" => &["source.output>cuda:0"],
        _ => &["source.output>cpu"],
    };
    Benchmark { name: way.to_owned(), flowgraph: flowgraph(device, &blocks), blocks: transfer }
}

/// Returns the benchmark of simultaneous, independent copies to and from the device.
fn both_ways(device: DeviceName, sizes: &Sizes) -> Benchmark {
    let len = sizes.copy_bytes / 4;
    let source = |at: &str| {
        format!(
            "{{kind: null_source, device: \"{at}\", parameters: {{dtype: i8, axes: [{{name: sample, \
             len: {len}}}], samples_per_frame: {len}, pattern: untouched}}}}"
        )
    };
    let blocks = format!(
        "  host: {}\n  gpu: {}\n  to_gpu: {{kind: null_sink, input: host, device: \"{device}\"}}\n  \
         to_host: {{kind: null_sink, input: gpu, device: cpu}}\n",
        source("cpu"),
        source(&device.to_string())
    );
    Benchmark {
        name: "upload and download at once".to_owned(),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["host.output>cuda:0", "gpu.output>cpu"],
    }
}

/// Returns the benchmark of a GPU block between CPU blocks, with its copies.
fn around_a_block(device: DeviceName, sizes: &Sizes) -> Benchmark {
    let side = (sizes.copy_bytes as f64 / 4.0).sqrt() as usize;
    let blocks = format!(
        "  source:\n    kind: null_source\n    device: cpu\n    parameters: {{dtype: i8, axes: [{{name: \
         channel, len: {side}}}, {{name: spectrum, len: {side}}}], samples_per_frame: 1048576, \
         pattern: untouched}}\n  block: {{kind: transpose, input: source, parameters: \
         {{axes: [spectrum, channel]}}}}\n  sink: {{kind: null_sink, input: block, device: cpu}}\n"
    );
    Benchmark {
        name: "upload, transpose, download".to_owned(),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["source.output>cuda:0", "block", "block.output>cpu"],
    }
}
