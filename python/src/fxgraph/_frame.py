"""Frames of an output of a running flowgraph."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._arrays import Array, elements, read_npy, stored
from ._errors import Error
from ._http import object_of
from ._stream import Floats, StreamType, Times, integer, text

if TYPE_CHECKING:
    import xarray

__all__ = ["Frame", "Validity"]


@dataclass(frozen=True)
class Validity:
    """Validity of a frame: numbers of units, and which of them are missing.

    Attributes
    ----------
    units : int
        Number of validity units.
    whole : int
        Number of complete units.
    partial : int
        Number of units with a part of their data.
    missing : int
        Number of units without data.
    counts : tuple of int or None
        Count of each unit in the order of ``type.validity_axes``, 0 for a missing one. None if all units are complete,
        or all are missing.
    """

    units: int
    whole: int
    partial: int
    missing: int
    counts: tuple[int, ...] | None = None

    @property
    def is_located(self) -> bool:
        """Whether it is known which units are missing."""
        return self.counts is not None or self.missing in (0, self.units)

    @staticmethod
    def _read(message: Any) -> Validity:
        header = object_of(message, "validity")
        names = ("units", "whole", "partial", "missing")
        units, whole, partial, missing = (integer(header.get(name), name) for name in names)
        counts = header.get("counts")
        if counts is None:
            return Validity(units, whole, partial, missing)
        if not isinstance(counts, list) or len(counts) != units:
            raise Error(f"`counts` must be a list of {units} validity counts")
        return Validity(units, whole, partial, missing, tuple(integer(count, "counts") for count in counts))


def import_xarray() -> Any:
    """Return the module xarray."""
    try:
        import xarray
    except ImportError:
        raise Error("`to_xarray` needs the package xarray", help=["pip install 'fxgraph[xarray]'"]) from None
    return xarray


def mask_coordinate(
    mask: npt.NDArray[np.bool_], dims: tuple[str, ...]
) -> tuple[tuple[str, ...], npt.NDArray[np.bool_]]:
    """Return the dimensions along which a mask varies, and the mask with these dimensions."""
    varies = [index for index, stride in enumerate(mask.strides) if stride and mask.shape[index] > 1]
    index = tuple(slice(None) if axis in varies else 0 for axis in range(mask.ndim))
    return tuple(dims[axis] for axis in varies), mask[index]


class Frame:
    """One frame of an output.

    Attributes
    ----------
    output : str
        Name of the output, ``block.port``.
    type : StreamType
        Element type, axes, clock and band.
    raw : array
        The payload as the program stores it: complex integers have a last axis of length 2.
    timestamp : int
        Time of the first element in ADC samples since the sync time.
    sequence : int
        Number of the frame at the output, from 0.
    config_id : str
        Identifier of the configuration, in hexadecimal.
    validity : Validity
        Numbers of complete, partial and missing units.
    """

    def __init__(
        self,
        output: str,
        type: StreamType,
        raw: Array,
        timestamp: int,
        sequence: int,
        config_id: str,
        validity: Validity,
    ) -> None:
        dtype, shape = stored(type.dtype, type.shape)
        if raw.dtype != dtype or raw.shape != shape:
            raise Error(
                f"a frame of `{output}` must be an array {dtype.str} {shape}, got {raw.dtype.str} {raw.shape}"
            )
        self.output = output
        self.type = type
        self.raw = raw
        self.timestamp = timestamp
        self.sequence = sequence
        self.config_id = config_id
        self.validity = validity

    @staticmethod
    def _read(message: Any) -> Frame:
        header = object_of(message, "a frame")
        try:
            content = base64.b64decode(text(header.get("npy"), "npy"), validate=True)
        except (binascii.Error, ValueError):
            raise Error("the payload of a frame is not Base64") from None
        return Frame(
            text(header.get("output"), "output"),
            StreamType.of_output(header.get("carries")),
            read_npy(content),
            integer(header.get("timestamp"), "timestamp"),
            integer(header.get("sequence"), "sequence"),
            text(header.get("config_id"), "config_id"),
            Validity._read(header.get("validity")),
        )

    @cached_property
    def data(self) -> Array:
        """Elements with the axes of the stream: ``complex64`` or ``complex128`` if the dtype is complex.

        Shape ``type.shape``. Packed samples become ``int16``. All conversions are exact.
        """
        return elements(self.raw, self.type.dtype, self.type.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes of `data`, slowest first."""
        return self.type.dims

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `data`."""
        return self.type.shape

    @property
    def time(self) -> np.datetime64:
        """UTC time of the first element, datetime64[ns]."""
        time = self.type.clock.times(self.timestamp)[()]
        assert isinstance(time, np.datetime64)
        return time

    @property
    def times(self) -> Times:
        """UTC time of the elements as datetime64[ns], with the shape of the time axes.

        The time axes are ``heap``, ``spectrum`` and ``sample``. The shape is ``()`` for a stream without them,
        such as visibilities: one time for the frame.
        """
        offsets = np.rint(self.type.time_grid() * 1e9).astype("timedelta64[ns]")
        return np.asarray(self.time + offsets)

    @property
    def unix_seconds(self) -> Floats:
        """Unix time of the elements in seconds, with the shape of `times`."""
        return np.asarray(self.type.clock.unix_seconds(self.timestamp) + self.type.time_grid())

    @property
    def frequencies_hz(self) -> Floats:
        """Centre frequencies of the channels in Hz, shape ``(channel,)``."""
        return self.type.frequencies_hz

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Mask of missing elements with the shape of `data`, read-only: True where data is missing.

        An element in a unit with a part of its data is not masked, see `validity`.

        ``numpy.ma.array(frame.data, mask=frame.mask)`` leaves them out of means.

        Raises
        ------
        Error
            If a server of an earlier version does not tell which units are missing, or if their number is not that of
            the stream.
        """
        validity = self.validity
        if not validity.is_located:
            raise Error(
                f"{validity.missing} of {validity.units} validity units are missing, and the server does not tell which",
                help=["update the program, or record the output: `fxgraph.load` returns a mask of each frame"],
            )
        if validity.counts is None:
            return np.broadcast_to(np.array(validity.missing > 0), self.shape)
        shape = tuple(axis.len for axis in self.type.validity_axes)
        if math.prod(shape) != validity.units:
            raise Error(f"a frame of `{self.output}` must have {math.prod(shape)} validity units, got {validity.units}")
        missing = self.type.missing(np.array(validity.counts).reshape(shape))
        return np.broadcast_to(missing, self.shape)

    def to_xarray(self) -> xarray.DataArray:
        """Return the frame as a DataArray with coordinates and units.

        Coordinates: ``frequency`` (Hz) along ``channel``, ``*_offset`` (s) along time axes, labels of baselines
        and products, ``time`` (UTC) of the frame, ``mask``. Attributes: the other properties of the frame.
        """
        module = import_xarray()
        coordinates: dict[str, Any] = dict(self.type.coordinates())
        coordinates["time"] = ((), self.time, {"long_name": "UTC time of the first element"})
        if self.validity.is_located:
            dims, mask = mask_coordinate(self.mask, self.dims)
            coordinates["mask"] = (dims, mask, {"long_name": "data is missing"})
        attributes = {
            "output": self.output,
            "dtype": self.type.dtype,
            "timestamp": self.timestamp,
            "sequence": self.sequence,
            "config_id": self.config_id,
            "adc_sample_rate_hz": self.type.clock.adc_sample_rate_hz,
            "sync_time_seconds": self.type.clock.sync_time_seconds,
            "validity_units": self.validity.units,
            "validity_missing": self.validity.missing,
        }
        array: xarray.DataArray = module.DataArray(
            self.data, dims=self.dims, coords=coordinates, attrs=attributes, name=self.output
        )
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        data = self.data if dtype is None else self.data.astype(dtype)
        return data.copy() if copy else data

    def __repr__(self) -> str:
        return f"<Frame {self.sequence} of {self.output}: {self.type} at {self.timestamp}, {self.time} UTC>"

    def _repr_html_(self) -> str:
        from ._html import table

        rows: Mapping[str, object] = {
            "type": self.type,
            "array": f"{self.data.dtype} {self.shape}",
            "time": f"{self.time} UTC",
            "timestamp": self.timestamp,
            "sequence": self.sequence,
            "config id": self.config_id,
            "validity": f"{self.validity.whole} of {self.validity.units} units complete, "
            f"{self.validity.missing} missing",
        }
        return table(f"frame of {self.output}", ["", ""], list(rows.items()))
