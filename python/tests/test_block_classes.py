"""Classes for blocks in Python: `fxgraph.block`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fxgraph.block import DROP, Band, Block, Frame, Port

HEAP = Port("ci8", (("channel", 4), ("spectrum", 8)), 64, 1e6, (("channel", 4),), 1)


@pytest.mark.parametrize(
    ("dtype", "code", "shape", "dims"),
    [
        ("ci8", "int8", (4, 8, 2), ("channel", "spectrum", "re_im")),
        ("cf16", "float16", (4, 8, 2), ("channel", "spectrum", "re_im")),
        ("cf32", "complex64", (4, 8), ("channel", "spectrum")),
        ("ci4", "uint8", (4, 8), ("channel", "spectrum")),
        ("i10p", "uint8", (40,), ("byte",)),
        ("i3p", "uint8", (12,), ("byte",)),
    ],
)
def test_port_has_dtype_shape_and_names_of_the_array(
    dtype: str, code: str, shape: tuple[int, ...], dims: tuple[str, ...]
) -> None:
    port = replace(HEAP, dtype=dtype)
    assert port.array == (np.dtype(code), shape)
    assert port.dims == dims
    assert port.nbytes == np.dtype(code).itemsize * int(np.prod(shape))


def test_port_knows_its_axes_and_validity_units() -> None:
    assert HEAP["spectrum"] == 8
    assert "beam" not in HEAP
    assert HEAP.units == 4
    assert HEAP.flagged_per().units == 1
    flagged = replace(HEAP, full=9).flagged_per("channel", "spectrum")
    assert (flagged.units, flagged.full) == (32, 1)
    with pytest.raises(KeyError, match="beam"):
        HEAP.flagged_per("beam")
    assert str(HEAP) == "ci8 [channel 4][spectrum 8]"


def test_frame_is_a_view_of_its_memory() -> None:
    memory = np.zeros(4096, "u1")
    frame = Frame(HEAP, memory, np.ones(4, "u4"))
    frame.data[1, 2, 1] = 7
    assert memory[(1 * 8 + 2) * 2 + 1] == 7
    assert (frame.axes, frame.axis("spectrum")) == (HEAP.dims, 1)


def test_block_passes_the_type_of_its_input_on() -> None:
    port = replace(HEAP, band=Band(8, 4, 1e9, 1e6))
    assert Block().ports([port]) is port
    assert DROP is not None
