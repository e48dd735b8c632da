//! Benchmarks: the time of a frame on its way to the process and back.

use super::has_numpy;
use crate::common::bench::benchmark;
use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Blocks that touch no payload, and that read and write all of it.
const BLOCKS: &str = "\
from dataclasses import dataclass\n\
import numpy as np\n\
from fxgraph.block import Block\n\
@dataclass\n\
class Nothing(Block):\n    \
    def work(self, frame, out):\n        \
        pass\n\
@dataclass\n\
class Double(Block):\n    \
    def work(self, frame, out):\n        \
        np.multiply(frame.data, np.int8(2), out=out.data)\n";

/// Returns the benchmarks; none on a machine without NumPy.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    if device != DeviceName::Cpu || !has_numpy("benchmarks of `python`") {
        return Vec::new();
    }
    let sizes =
        [("Nothing", 64), ("Nothing", 1024), ("Nothing", 8192), ("Double", 1024), ("Double", 8192)];
    sizes.map(|(class, kibibytes)| python_block(device, class, kibibytes)).into()
}

/// The source sends the same memory again and again, so the time of a frame is that of the way to the process and
/// back, and of the class.
fn python_block(device: DeviceName, class: &str, kibibytes: usize) -> Benchmark {
    let len = kibibytes << 10;
    let code = serde_json::Value::from(BLOCKS);
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: i8, axes: [{{name: sample, \
         len: {len}}}], samples_per_frame: {len}, pattern: untouched}}\n  block: {{kind: python, input: source, \
         parameters: {{class: {class}, code: {code}}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    let name = if class == "Nothing" { "no payload" } else { "out = 2 * data" };
    benchmark(format!("python, {name}, {kibibytes} KiB"), device, &blocks)
}
