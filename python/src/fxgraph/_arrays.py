"""NumPy arrays of the program: headers, element types, complex numbers."""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ._errors import Error, printable

__all__ = ["Array", "complex_of", "elements", "is_complex", "is_known", "read_header", "read_npy"]

Array = npt.NDArray["np.generic"]

#: Type of the values in an array, by element type of the stream.
_STORED = {
    "u8": "|u1",
    "i8": "|i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
    "ci4": "|u1",
    "ci8": "|i1",
    "ci16": "<i2",
    "ci32": "<i4",
    "cf16": "<f2",
    "cf32": "<c8",
    "cf64": "<c16",
}
#: Element types stored as real and imaginary part along a last axis, with the complex type that holds them exactly.
_PARTS = {"ci8": np.complex64, "ci16": np.complex64, "ci32": np.complex128, "cf16": np.complex64}


def packed_bits(dtype: str) -> int | None:
    """Return the number of bits of packed samples such as ``i10p``; None for another type."""
    digits = dtype[1:-1]
    if dtype[:1] == "i" and dtype[-1:] == "p" and digits.isascii() and digits.isdigit():
        bits = int(digits[:3])
        if 2 <= bits <= 16:
            return bits
    return None


def is_known(dtype: str) -> bool:
    """Whether this package can read elements of type `dtype`."""
    return dtype in _STORED or packed_bits(dtype) is not None


def is_complex(dtype: str) -> bool:
    """Whether elements have a real and an imaginary part."""
    return dtype.startswith("c")


def stored(dtype: str, shape: tuple[int, ...]) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    """Return type and shape of the array that holds one frame with axes of lengths `shape`."""
    bits = packed_bits(dtype)
    if bits is not None:
        return np.dtype("|u1"), ((int(np.prod(shape, dtype=object)) * bits + 7) // 8,)
    if dtype not in _STORED:
        raise Error(f"unknown element type `{dtype}`", help=["update this package"])
    return np.dtype(_STORED[dtype]), (*shape, 2) if dtype in _PARTS else shape


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Read the header of a .npy file; return shape and type. The position is at the first value then."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version} is not supported")
    # NumPy parses the header as Python: nearly any error is possible for a header that is none.
    except Exception as error:
        raise Error(f"not an array of NumPy: {printable(error)}") from None
    if is_fortran or dtype.hasobject or not isinstance(shape, tuple):
        raise Error("expected an array in C order without Python objects")
    if any(length < 0 for length in shape):
        raise Error(f"the shape {shape} of an array is negative")
    return tuple(int(length) for length in shape), dtype


def read_npy(content: bytes) -> Array:
    """Return the array in a .npy file, without a copy; read-only."""
    file = io.BytesIO(content)
    shape, dtype = read_header(file)
    count = 1
    for length in shape:
        count *= length
    at = file.tell()
    if count * dtype.itemsize != len(content) - at or dtype.itemsize == 0:
        expected = count * dtype.itemsize
        raise Error(f"an array of {expected} bytes was announced, and {len(content) - at} came")
    return np.frombuffer(content, dtype, count, at).reshape(shape)


def complex_of(raw: Array, dtype: str) -> Array:
    """Return values with real and imaginary part along the last axis as complex numbers."""
    target = np.dtype(_PARTS[dtype])
    part = np.float32 if target == np.complex64 else np.float64
    return np.ascontiguousarray(raw, dtype=part).view(target)[..., 0]


def _unpacked(raw: Array, bits: int, count: int) -> npt.NDArray[np.int16]:
    """Return two's-complement integers of `bits` bits, packed most significant bit first along the last axis."""
    packed = np.concatenate([raw, np.zeros((*raw.shape[:-1], 2), np.uint8)], axis=-1)
    first = np.arange(count, dtype=np.int64) * bits
    at, shift = first // 8, (24 - bits - first % 8).astype(np.int32)
    window = packed[..., at].astype(np.int32) << 16
    window |= packed[..., at + 1].astype(np.int32) << 8
    window |= packed[..., at + 2]
    value = (window >> shift) & ((1 << bits) - 1)
    sign = 1 << (bits - 1)
    return ((value ^ sign) - sign).astype(np.int16)


def elements(raw: Array, dtype: str, lengths: tuple[int, ...]) -> Array:
    """Return the elements of frames: one value for each element.

    Parameters
    ----------
    raw : array
        Frames as the program stores them; the axes of the stream are the last axes.
    dtype : str
        Element type of the stream.
    lengths : tuple of int
        Lengths of the axes of the stream.

    Returns
    -------
    array
        ``(..., *lengths)``: ``complex64`` for ci4, ci8, ci16, cf16 and cf32; ``complex128`` for ci32 and cf64;
        ``int16`` for packed samples; and the type of the stream for other real types. All conversions are exact.
    """
    bits = packed_bits(dtype)
    if bits is not None:
        count = int(np.prod(lengths, dtype=np.int64))
        return _unpacked(raw, bits, count).reshape(*raw.shape[:-1], *lengths)
    if dtype == "ci4":
        signed = np.ascontiguousarray(raw).view(np.int8)
        real, imaginary = signed >> 4, (signed << 4).astype(np.int8) >> 4
        return (real + np.complex64(1j) * imaginary).astype(np.complex64)
    return complex_of(raw, dtype) if dtype in _PARTS else raw
