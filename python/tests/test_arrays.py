"""Element types: recordings of every type against an independent decoder."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import fxgraph

TYPES = [
    *("i2p", "i4p", "i5p", "i8p", "i10p", "i12p", "i16p"),
    *("u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64"),
    *("ci4", "ci8", "ci16", "ci32", "cf16", "cf32", "cf64"),
]
CODES = {"8": "b", "16": "h", "32": "i", "64": "q"}
FLOATS = {"16": "e", "32": "f", "64": "d"}


def decoded(content: bytes, dtype: str) -> list[complex]:
    """Decode `content` value by value."""
    if dtype.endswith("p"):
        bits = int(dtype[1:-1])
        text = "".join(f"{byte:08b}" for byte in content)
        whole = [int(text[at : at + bits], 2) for at in range(0, len(text) - bits + 1, bits)]
        return [value - (1 << bits) if value >> (bits - 1) else value for value in whole]
    if dtype == "ci4":
        nibble = [value - 16 if value > 7 else value for value in range(16)]
        return [complex(nibble[byte >> 4], nibble[byte & 15]) for byte in content]
    bits = dtype.lstrip("uicf")
    code = "B" if dtype == "u8" else (FLOATS if "f" in dtype else CODES)[bits]
    values = [value for (value,) in struct.iter_unpack("<" + code, content)]
    if dtype.startswith("c"):
        return [complex(re, im) for re, im in zip(values[::2], values[1::2], strict=True)]
    return values


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two frames of each type."""
    directory = tmp_path_factory.mktemp("types")
    lines = ["flowgraph: types", "blocks:"]
    for dtype in TYPES:
        lines += [
            f"  {dtype}_source:",
            "    kind: null_source",
            f"    parameters: {{dtype: {dtype}, axes: [{{name: channel, len: 6}}, {{name: pol, len: 8}}],"
            " samples_per_frame: 64, frames: 2, pattern: random, seed: 3}",
            f"  {dtype}: {{kind: file_sink, input: {dtype}_source, parameters: {{path: {dtype}.npz}}}}",
        ]
    (directory / "types.yaml").write_text("\n".join(lines))
    with fxgraph.run("types.yaml", directory=directory) as fx:
        fx.wait(60)
    return directory


@pytest.mark.parametrize("dtype", TYPES)
def test_elements_of_each_type_equal_those_of_an_independent_decoder(recordings: Path, dtype: str) -> None:
    recording = fxgraph.load(recordings / f"{dtype}.npz")
    assert recording.type.dtype == dtype
    assert recording.data.shape == recording.shape == (2, 6, 8)
    assert recording.dims == ("frame", "channel", "pol")
    for frame in range(2):
        expected = decoded(np.ascontiguousarray(recording.raw[frame]).tobytes(), dtype)
        assert recording.data[frame].ravel().tolist() == expected
    assert np.iscomplexobj(recording.data) == dtype.startswith("c")
    assert len(np.unique(recording.data)) > 3
    assert recording.damaged_frames() == []
    assert np.array_equal(recording.part(slice(1, 2)), recording.data[1:2])
