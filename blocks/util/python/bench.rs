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

/// Blocks for a GPU, where nothing but the driver is needed.
const BLOCKS_ON_GPU: &str = "\
import ctypes\n\
from dataclasses import dataclass\n\
from fxgraph.block import Block\n\
@dataclass\n\
class Nothing(Block):\n    \
    def work(self, frame, out):\n        \
        pass\n\
@dataclass\n\
class Copy(Block):\n    \
    def start(self, inputs, output):\n        \
        self.copy = ctypes.CDLL('libcuda.so.1').cuMemcpyDtoDAsync_v2\n        \
        self.copy.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]\n        \
        self.bytes = output.nbytes\n    \
    def work(self, frame, out):\n        \
        self.copy(out.data.address, frame.data.address, self.bytes, None)\n";

/// Returns the benchmarks; none on a machine without NumPy.
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    if !has_numpy("benchmarks of `python`") {
        return Vec::new();
    }
    let block = |(class, kibibytes)| python_block(device, class, kibibytes);
    if device != DeviceName::Cpu {
        return [("Nothing", 64), ("Nothing", 65536), ("Copy", 65536)].map(block).into();
    }
    let sizes =
        [("Nothing", 64), ("Nothing", 1024), ("Nothing", 8192), ("Double", 1024), ("Double", 8192)];
    sizes.map(block).into()
}

/// The source sends the same memory again and again, so the time of a frame is that of the way to the process and
/// back, and of the class.
fn python_block(device: DeviceName, class: &str, kibibytes: usize) -> Benchmark {
    let len = kibibytes << 10;
    let code = if device == DeviceName::Cpu { BLOCKS } else { BLOCKS_ON_GPU };
    let code = serde_json::Value::from(code);
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: i8, axes: [{{name: sample, \
         len: {len}}}], samples_per_frame: {len}, pattern: untouched}}\n  block: {{kind: python, input: source, \
         parameters: {{class: {class}, code: {code}}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    let name = match class {
        "Nothing" => "no payload",
        "Copy" => "out = data",
        _ => "out = 2 * data",
    };
    benchmark(format!("python, {name}, {kibibytes} KiB"), device, &blocks)
}
