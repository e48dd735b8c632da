//! Cases that compare frames in the memory of a GPU with those in host memory.

use super::has_numpy;
use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Rotates the first axis, on a GPU by copies of the driver, so that nothing but NumPy is needed.
const ROTATE: &str = "\
import ctypes
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fxgraph.block import Block, Range, live


@dataclass
class Rotate(Block):
    rows: Annotated[int, Range(0, 1000), live] = 1

    def work(self, frame, out):
        if isinstance(frame.data, np.ndarray):
            out.data[...] = np.roll(frame.data, self.rows, axis=0)
            return
        copy = ctypes.CDLL('libcuda.so.1').cuMemcpyDtoDAsync_v2
        copy.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
        size, rows = frame.data.nbytes, len(frame.data)
        head = self.rows % rows * (size // rows)
        for to, start, count in ((head, 0, size - head), (0, size - head, head)):
            if count and copy(out.data.address + to, frame.data.address + start, count, None):
                raise RuntimeError('the copy failed')
";

/// Random spectra.
const SPECTRA: &str = "\
source:
  kind: null_source
  parameters:
    dtype: DTYPE
    axes: [{name: spectrum, len: 260}, {name: channel, len: 68}]
    validity_axes: [{name: heap, len: 2}]
    samples_per_frame: 1000
    frames: 12
    pattern: random
    seed: 3
";

/// Returns the cases; none on a machine without NumPy.
pub fn cases(device: DeviceName) -> Vec<Case> {
    if device == DeviceName::Cpu || !has_numpy("conformance of `python`") {
        return Vec::new();
    }
    let case = |dtype: &str| {
        let parameters = json!({"class": "Rotate", "code": ROTATE, "values": {"rows": 3}});
        let source = SPECTRA.replace("DTYPE", dtype);
        Case::new(
            ("python", "cuda"),
            format!("rotation of {dtype}"),
            &parameters,
            (&source, &["source"]),
            Tolerance::EXACT,
            device,
        )
        .change(4000, json!({"values": {"rows": 101}}))
    };
    ["f32", "ci8"].map(case).into()
}
