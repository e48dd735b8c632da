"""Blocks of a flowgraph in Python, for the kind ``python``.

A block is a dataclass that derives from `Block`. Its fields are the parameters; ``work`` gets one frame at a time::

    @dataclass
    class Gain(Block):
        factor: Annotated[float, Range(0, 10), live] = 1.0

        def work(self, frame: Frame, out: Frame) -> None:
            np.multiply(frame.data, self.factor, out=out.data)

The program runs the block in a process of its own and lends it the frames in shared memory: `Frame.data` is a view of
the memory of the flowgraph. On a GPU, it is a `DeviceArray`. This module needs NumPy only.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["DROP", "Band", "Block", "DeviceArray", "Drop", "Frame", "Port", "Range", "live"]

Array: TypeAlias = npt.NDArray[Any]

# Element of the array, and numbers per element: complex integers and half floats get a last axis `re_im` of length 2.
_DTYPES: Final[dict[str, tuple[str, int]]] = {
    "u8": ("u1", 1),
    "i8": ("i1", 1),
    "i16": ("<i2", 1),
    "i32": ("<i4", 1),
    "i64": ("<i8", 1),
    "f16": ("<f2", 1),
    "f32": ("<f4", 1),
    "f64": ("<f8", 1),
    "ci4": ("u1", 1),
    "ci8": ("i1", 2),
    "ci16": ("<i2", 2),
    "ci32": ("<i4", 2),
    "cf16": ("<f2", 2),
    "cf32": ("<c8", 1),
    "cf64": ("<c16", 1),
}


class Drop(enum.Enum):
    """Type of `DROP`."""

    DROP = "drop"


DROP: Final = Drop.DROP
"""Result of ``work`` that hands on no frame."""


class _Live(enum.Enum):
    LIVE = "live"


live: Final = _Live.LIVE
"""In an annotation: the parameter may change while the block runs."""


@dataclass(frozen=True)
class Range:
    """In an annotation: least and greatest value of a number, or of each number of a list."""

    least: float = -np.inf
    greatest: float = np.inf


@dataclass(frozen=True)
class Band:
    """Part of the band that the axis ``channel`` covers.

    Attributes
    ----------
    channels : int
        Number of channels of the whole band.
    first_channel : int
        Index, in the whole band, of the first channel of the axis.
    centre_hz : float
        Frequency at the centre of the whole band, channel ``channels // 2``.
    bandwidth_hz : float
        Width of the whole band; negative if the spectrum is inverted: the frequency falls with the channel, and values
        are the complex conjugates of those of the sky.
    """

    channels: int
    first_channel: int
    centre_hz: float
    bandwidth_hz: float


@dataclass(frozen=True)
class Port:
    """Type of the frames of a port.

    Attributes
    ----------
    dtype : str
        Element type: ``ci8``, ``cf32``, ``f32``, ...
    axes : tuple of (str, int)
        Name and length of each axis, slowest first.
    samples_per_frame : int
        ADC samples from one frame to the next.
    adc_sample_rate_hz : float
        Samples per second of the ADC.
    validity : tuple of (str, int)
        Axes of the validity counts.
    full : int
        Count of a complete unit.
    band : Band, optional
        Frequencies of the axis ``channel``.
    """

    dtype: str
    axes: tuple[tuple[str, int], ...]
    samples_per_frame: int
    adc_sample_rate_hz: float
    validity: tuple[tuple[str, int], ...] = ()
    full: int = 1
    band: Band | None = None

    def __getitem__(self, axis: str) -> int:
        """Return the length of an axis."""
        return dict(self.axes)[axis]

    def __contains__(self, axis: str) -> bool:
        """Return whether the payload has an axis."""
        return axis in dict(self.axes)

    def flagged_per(self, *names: str) -> Port:
        """Return the same port with one validity flag per element of these axes; ``()`` is one flag per frame."""
        return replace(self, validity=tuple((name, self[name]) for name in names), full=1)

    @property
    def array(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """dtype and shape of `Frame.data`; packed samples are bytes."""
        lengths = tuple(length for _, length in self.axes)
        if self.dtype not in _DTYPES:  # `i10p`: packed, most significant bit first
            bits = int(self.dtype[1:-1]) * int(np.prod(lengths, dtype=np.int64))
            return np.dtype("u1"), (-(-bits // 8),)
        code, parts = _DTYPES[self.dtype]
        return np.dtype(code), (*lengths, 2) if parts == 2 else lengths

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes of `Frame.data`."""
        if self.dtype not in _DTYPES:
            return ("byte",)
        names = tuple(name for name, _ in self.axes)
        return (*names, "re_im") if _DTYPES[self.dtype][1] == 2 else names

    @property
    def nbytes(self) -> int:
        """Size of the payload of a frame."""
        dtype, shape = self.array
        return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize

    @property
    def units(self) -> int:
        """Number of validity counts of a frame."""
        return int(np.prod([length for _, length in self.validity], dtype=np.int64))

    def __str__(self) -> str:
        return f"{self.dtype} " + "".join(f"[{name} {length}]" for name, length in self.axes)


class DeviceArray:
    """An array in the memory of a GPU, in C order.

    ``cupy.asarray(x)``, ``numba.cuda.as_cuda_array(x)`` and ``torch.as_tensor(x, device="cuda")`` make arrays of it
    without a copy. Code that launches kernels itself takes `address`.

    Attributes
    ----------
    address : int
        Address of the first element.
    dtype : numpy.dtype
        Type of the elements.
    shape : tuple of int
        Lengths of the axes.
    """

    __slots__ = ("__cuda_array_interface__", "address", "dtype", "shape")

    def __init__(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.address = address
        self.dtype = dtype
        self.shape = shape
        # No stream: the GPU has finished all earlier work on this memory. PyTorch takes no read-only arrays.
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": dtype.str,
            "data": (address, False),
            "strides": None,
            "stream": None,
            "version": 3,
        }

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return self.shape[0]

    def __array__(self, *_: object, **__: object) -> Array:
        """Raise an error: NumPy does not see the memory of a GPU."""
        raise TypeError("`data` is in GPU memory: use `cupy.asarray(frame.data)`, or run the block with `device: cpu`")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {self.shape} at {self.address:#x}>"


class Frame:
    """One frame, lent until ``work`` returns: keep copies, not views.

    Attributes
    ----------
    port : Port
        Type of the frame.
    data : numpy.ndarray or DeviceArray
        The payload, a view of shared memory. That of an input is read-only. On a GPU, it is a `DeviceArray`: do not
        write to that of an input.
    validity : numpy.ndarray
        One count (uint32) per unit: 0 is missing, ``port.full`` is complete.
    timestamp : int
        ADC samples since sync time, of the first element.
    sequence : int
        Number of the frame at its port.
    config_id : int
        Identifier of the configuration that made the frame.
    """

    __slots__ = ("_base", "_data", "_validity", "config_id", "port", "sequence", "timestamp")

    def __init__(self, port: Port, base: Array | DeviceArray, validity: Array) -> None:
        dtype, shape = port.array
        self.port = port
        self._base = base
        # Annotated as an array, which it is unless the block has `device: cuda:N`.
        self._data: Any = base if isinstance(base, DeviceArray) else base[: port.nbytes].view(dtype).reshape(shape)
        self._validity = validity
        self.timestamp = 0
        self.sequence = 0
        self.config_id = 0

    @property
    def data(self) -> Any:
        """The payload, a view of shared memory; on a GPU, a `DeviceArray`."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        # `out.data += 1` sets the same array again.
        if value is not self._data:
            raise AttributeError("`data` is memory of the flowgraph: fill it in place, `out.data[...] = x`")

    @property
    def validity(self) -> Array:
        """One count per unit, a view of shared memory."""
        return self._validity

    @validity.setter
    def validity(self, value: Array) -> None:
        if value is not self._validity:
            raise AttributeError("`validity` is memory of the flowgraph: fill it in place, `out.validity[...] = x`")

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of `data`."""
        return self.port.dims

    def axis(self, name: str) -> int:
        """Return the number of the axis `name` of `data`."""
        return self.port.dims.index(name)


class Block:
    """Base class of blocks. A block is a dataclass; its fields are its parameters."""

    def ports(self, inputs: Sequence[Port]) -> Port | None:
        """Return the type of the output for these inputs; None for a block without output.

        The default is the type of the first input.
        """
        return inputs[0]

    def start(self, inputs: Sequence[Port], output: Port | None) -> None:
        """Prepare. Called once, before the first frame."""

    def updated(self, changed: set[str]) -> None:
        """Take note of new values of the live parameters with these names."""

    # Subclasses have `work(self, frame)` or `work(self, frame, out)`.
    work: Any
    """Compute one output frame from one input frame.

    ``work(self, frame, out)`` fills ``out.data``, and ``out.validity`` if the default does not fit, and returns None, or
    `DROP` to hand on no frame. ``work(self, frame)`` returns an array, which is copied, or None to hand on no frame.
    """

    def finish(self) -> None:
        """Called once, after the last frame."""
