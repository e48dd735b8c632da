"""Type of the frames of an output: element type, axes, clock, band, validity."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import is_known
from ._errors import Error, printable

__all__ = ["Axis", "Band", "Clock", "StreamType", "Times"]

Times = npt.NDArray[np.datetime64]
Floats = npt.NDArray[np.float64]

#: Axes along which time advances, slowest first.
TIME_AXES = ("heap", "spectrum", "sample")
_MAX_AXES = 16
_MAX_BASELINES = 1 << 14
#: Range of datetime64[ns], with a margin for the times within a frame.
_MAX_NANOSECONDS = 9_000_000_000_000_000_000


def number(value: Any, name: str) -> float:
    """Return a finite number of a description."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Error(f"`{name}` must be a finite number, got {printable(repr(value), 80)}")
    return float(value)


def integer(value: Any, name: str, most: int = (1 << 64) - 1) -> int:
    """Return an integer of a description from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        shown = printable(repr(value), 80)
        raise Error(f"`{name}` must be an integer from 0 to {most}, got {shown}")
    return value


def text(value: Any, name: str) -> str:
    """Return a string of a description."""
    if not isinstance(value, str):
        raise Error(f"`{name}` must be a string, got {printable(repr(value), 80)}")
    return value


def list_of(value: Any, name: str) -> list[Any]:
    """Return `value` if it is a JSON list."""
    if not isinstance(value, list):
        raise Error(f"`{name}` must be a list, got {printable(repr(value), 80)}")
    return value


def _labels(name: str, length: int) -> tuple[str, ...]:
    """Return the labels of baselines and of polarisation products."""
    if name == "product" and length == 4:
        return ("00", "10", "01", "11")
    antennas = (math.isqrt(8 * length + 1) - 1) // 2
    if name == "baseline" and length <= _MAX_BASELINES and antennas * (antennas + 1) == 2 * length:
        return tuple(f"{a}-{b}" for b in range(antennas) for a in range(b + 1))
    return ()


@dataclass(frozen=True)
class Axis:
    """One axis of a frame.

    Attributes
    ----------
    name : str
        Name, such as ``antenna``, ``channel``, ``pol`` or ``sample``.
    len : int
        Number of elements.
    labels : tuple of str
        Labels of the elements; empty without labels. The baseline ``0-2`` is antenna 0 times the conjugate of
        antenna 2; the product ``10`` is polarisation 1 of the first antenna and polarisation 0 of the second one.
    """

    name: str
    len: int
    labels: tuple[str, ...] = ()

    @staticmethod
    def _read(entries: Any, name: str) -> tuple[Axis, ...]:
        if not isinstance(entries, list) or len(entries) > _MAX_AXES:
            raise Error(f"`{name}` must be a list of at most {_MAX_AXES} axes")
        axes = []
        for entry in entries:
            if not isinstance(entry, dict):
                raise Error(f"an axis in `{name}` must be an object")
            axis, length = text(entry.get("name"), "name"), integer(entry.get("len"), "len", 1 << 48)
            labels = entry.get("labels")
            if isinstance(labels, list) and len(labels) == length:
                axes.append(Axis(axis, length, tuple(str(label) for label in labels)))
            else:
                axes.append(Axis(axis, length, _labels(axis, length)))
        return tuple(axes)


@dataclass(frozen=True)
class Clock:
    """Sample clock.

    Attributes
    ----------
    adc_sample_rate_hz : float
        Sample rate of the ADC in Hz.
    sync_time_seconds : float
        Unix time of timestamp 0, in seconds.
    samples_per_frame : int
        ADC samples from one frame to the next.
    filter_delay_samples : float
        ADC samples by which the signal is later than the timestamps, because of filters.
    sync_time : str
        UTC time of timestamp 0 to the picosecond, or an empty text.
    """

    adc_sample_rate_hz: float
    sync_time_seconds: float
    samples_per_frame: int
    filter_delay_samples: float = 0.0
    sync_time: str = ""

    def unix_seconds(self, timestamps: int | npt.ArrayLike) -> Floats:
        """Return the Unix time of the signal at `timestamps`, as float64 (about 0.2 us near the present)."""
        ticks = np.asarray(timestamps, dtype=np.float64) + self.filter_delay_samples
        return np.asarray(self.sync_time_seconds + ticks / self.adc_sample_rate_hz)

    def times(self, timestamps: int | npt.ArrayLike) -> Times:
        """Return the UTC time of the signal at `timestamps` (ADC samples since the sync time) as datetime64[ns].

        The computation uses integers; the result is within 1 ns of the exact time. Days have 86400 s: a leap second
        between the sync time and a timestamp is not subtracted.
        """
        ticks = np.atleast_1d(np.asarray(timestamps)).astype(np.uint64)
        delay = Fraction(self.filter_delay_samples) / Fraction(self.adc_sample_rate_hz)
        sync = (self._sync() + delay) * 10**9
        nanoseconds = self._since_sync(ticks)
        if not abs(sync) < _MAX_NANOSECONDS:
            raise Error(f"`sync_time_seconds` is out of range: {self.sync_time_seconds}")
        bounds = (int(nanoseconds.min()), int(nanoseconds.max())) if nanoseconds.size else (0, 0)
        start = round(sync)
        if any(abs(start + bound) > _MAX_NANOSECONDS for bound in bounds):
            raise Error("a timestamp is out of the range of datetime64[ns]")
        whole = (nanoseconds + start).astype(np.int64).view("datetime64[ns]")
        return whole.reshape(np.shape(timestamps))

    def _sync(self) -> Fraction:
        """Return the Unix time of timestamp 0, with all digits of `sync_time`."""
        found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d)(?:\.(\d+))?Z", self.sync_time)
        if found is None:
            return Fraction(self.sync_time_seconds)
        seconds = int(np.datetime64(found[1], "s").astype(np.int64))
        return Fraction(seconds) + Fraction(f"0.{found[2] or 0}")

    def _since_sync(self, ticks: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        rate = Fraction(self.adc_sample_rate_hz)
        if rate.denominator == 1 and rate <= 9_000_000_000:
            seconds, rest = np.divmod(ticks, np.uint64(int(rate)))
            if seconds.size and int(seconds.max()) > _MAX_NANOSECONDS // 10**9:
                raise Error("a timestamp is out of the range of datetime64[ns]")
            whole = seconds.astype(np.int64) * 10**9
            half = int(rate) // 2
            return whole + (rest.astype(np.int64) * 10**9 + half) // int(rate)
        exact = [round(Fraction(int(tick)) * 10**9 / rate) for tick in ticks]
        if any(value > _MAX_NANOSECONDS for value in exact):
            raise Error("a timestamp is out of the range of datetime64[ns]")
        return np.array(exact, dtype=np.int64)

    @staticmethod
    def _read(entry: Mapping[str, Any]) -> Clock:
        rate = number(entry.get("adc_sample_rate_hz"), "adc_sample_rate_hz")
        if not rate > 0:
            raise Error(f"`adc_sample_rate_hz` must be positive, got {rate}")
        return Clock(
            rate,
            number(entry.get("sync_time_seconds"), "sync_time_seconds"),
            integer(entry.get("samples_per_frame"), "samples_per_frame"),
            number(entry.get("filter_delay_samples", 0), "filter_delay_samples"),
            str(entry.get("sync_time") or ""),
        )


@dataclass(frozen=True)
class Band:
    """Frequencies of the ``channel`` axis, a part of a whole band.

    Attributes
    ----------
    channels : int
        Number of channels of the whole band.
    first_channel : int
        Index of the axis's first channel in the whole band.
    centre_hz : float
        Frequency of channel ``channels // 2`` of the whole band, in Hz.
    bandwidth_hz : float
        Width of the whole band in Hz; negative for an inverted spectrum.
    """

    channels: int
    first_channel: int
    centre_hz: float
    bandwidth_hz: float

    def frequencies_hz(self, count: int) -> Floats:
        """Return the centre frequencies of the first `count` channels of the axis in Hz, shape ``(count,)``."""
        index = self.first_channel + np.arange(count) - self.channels // 2
        return np.asarray(self.centre_hz + index * self.bandwidth_hz / self.channels)

    @staticmethod
    def _read(entry: Any) -> Band | None:
        if entry is None:
            return None
        if not isinstance(entry, dict):
            raise Error("`band` must be an object")
        band = Band(
            integer(entry.get("channels"), "channels", 1 << 48),
            integer(entry.get("first_channel"), "first_channel", 1 << 48),
            number(entry.get("centre_hz"), "centre_hz"),
            number(entry.get("bandwidth_hz"), "bandwidth_hz"),
        )
        if band.channels == 0:
            raise Error("`channels` must be at least 1, got 0")
        return band


@dataclass(frozen=True)
class StreamType:
    """Type of the frames of an output.

    Attributes
    ----------
    dtype : str
        Element type, such as ``ci8`` or ``i10p``.
    axes : tuple of Axis
        Axes of a frame, slowest first.
    clock : Clock
        Sample clock.
    band : Band or None
        Frequencies of the ``channel`` axis.
    validity_axes : tuple of Axis
        Axes of the validity counts. An axis with the name of an axis of the frame divides that axis into equal
        parts.
    validity_full : int
        Validity count of a complete unit.
    """

    dtype: str
    axes: tuple[Axis, ...]
    clock: Clock
    band: Band | None
    validity_axes: tuple[Axis, ...]
    validity_full: int

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(axis.len for axis in self.axes)

    def __str__(self) -> str:
        return self.dtype + " " + "".join(f"[{axis.name} {axis.len}]" for axis in self.axes)

    @property
    def frequencies_hz(self) -> Floats:
        """Centre frequencies of the channels in Hz, shape ``(channel,)``.

        Raises
        ------
        Error
            If the stream has no ``channel`` axis, or its frequencies are unknown.
        """
        if "channel" not in self.dims or self.band is None:
            raise Error(f"`{self}` has no channels with known frequencies")
        return self.band.frequencies_hz(self.shape[self.dims.index("channel")])

    @property
    def offsets_seconds(self) -> dict[str, Floats]:
        """Time of each element of the time axes relative to the first element of the frame, in seconds, by axis."""
        samples = Fraction(self.clock.samples_per_frame)
        offsets: dict[str, Floats] = {}
        for axis in self.axes:
            if axis.name in TIME_AXES:
                samples /= max(axis.len, 1)
                step = float(samples / Fraction(self.clock.adc_sample_rate_hz))
                offsets[axis.name] = np.arange(axis.len, dtype=np.float64) * step
        return offsets

    def time_grid(self) -> Floats:
        """Return the offsets of all elements of the time axes in seconds, with the shape of these axes."""
        grid = np.zeros(())
        for offsets in self.offsets_seconds.values():
            grid = grid[..., np.newaxis] + offsets
        return np.asarray(grid)

    def missing(self, counts: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
        """Return a mask of the elements with missing data, which broadcasts to the elements.

        Parameters
        ----------
        counts : array, shape ``(..., *validity axes)``
            Validity counts.

        Returns
        -------
        array of bool, shape ``(..., *axes or 1)``
            True where a validity count of the element is 0.
        """
        front = counts.shape[: counts.ndim - len(self.validity_axes)]
        absent = np.asarray(counts == 0)
        names = [axis.name for axis in self.validity_axes]
        units = math.prod(axis.len for axis in self.validity_axes)
        if len(self.axes) == 1 and self.dims[0] not in names and self.shape[0] % max(units, 1) == 0:
            # One axis with another name, such as samples that arrive in heaps: the counts divide it.
            divided = absent.reshape(*front, units)
            return np.asarray(np.repeat(divided, self.shape[0] // max(units, 1), axis=-1))
        others = tuple(len(front) + index for index, name in enumerate(names) if name not in self.dims)
        absent = np.asarray(absent.any(axis=others))
        kept = [axis for axis in self.validity_axes if axis.name in self.dims]
        order = sorted(range(len(kept)), key=lambda index: self.dims.index(kept[index].name))
        absent = absent.transpose(*range(len(front)), *(len(front) + index for index in order))
        by_name = {axis.name: axis.len for axis in kept}
        absent = absent.reshape(*front, *(by_name.get(name, 1) for name in self.dims))
        for index, axis in enumerate(self.axes):
            parts = by_name.get(axis.name, 1)
            if parts > 1 and parts != axis.len:
                if axis.len % parts:
                    raise Error(f"{parts} validity units do not divide the axis `{axis.name}` evenly")
                absent = np.repeat(absent, axis.len // parts, axis=len(front) + index)
        return np.asarray(absent)

    def coordinates(self) -> dict[str, tuple[str, npt.NDArray[Any], dict[str, str]]]:
        """Return the coordinates for xarray: dimension, values and attributes by name."""
        coordinates: dict[str, tuple[str, npt.NDArray[Any], dict[str, str]]] = {}
        if "channel" in self.dims and self.band is not None:
            about = {"units": "Hz", "long_name": "centre frequency of the channel"}
            coordinates["frequency"] = ("channel", self.frequencies_hz, about)
        for name, offsets in self.offsets_seconds.items():
            about = {"units": "s", "long_name": "time from the start of the frame"}
            coordinates[f"{name}_offset"] = (name, offsets, about)
        for axis in self.axes:
            if axis.labels:
                coordinates[axis.name] = (axis.name, np.array(axis.labels), {})
        return coordinates

    @staticmethod
    def _read(
        description: Mapping[str, Any], validity_axes: Any, validity_full: Any, clock: Any
    ) -> StreamType:
        dtype = text(description.get("dtype"), "dtype")
        if not is_known(dtype):
            raise Error(f"unknown element type `{printable(dtype, 40)}`", help=["update this package"])
        if not isinstance(clock, dict):
            raise Error("`clock` must be an object")
        return StreamType(
            dtype,
            Axis._read(description.get("axes"), "axes"),
            Clock._read(clock),
            Band._read(description.get("band")),
            Axis._read(validity_axes, "validity axes"),
            integer(validity_full, "validity full", (1 << 32) - 1),
        )

    @staticmethod
    def of_output(carries: Any) -> StreamType:
        """Return the type that `carries` of the REST interface describes."""
        if not isinstance(carries, dict):
            raise Error("the description of an output must be an object")
        validity_axes, full = carries.get("validity_axes"), carries.get("validity_full")
        return StreamType._read(carries, validity_axes, full, carries)

    @staticmethod
    def of_side_file(side: Mapping[str, Any]) -> StreamType:
        """Return the type that the side file of a recording describes."""
        validity = side.get("validity")
        if not isinstance(validity, dict):
            raise Error("`validity` must be an object")
        return StreamType._read(side, validity.get("axes"), validity.get("full"), side.get("clock"))
