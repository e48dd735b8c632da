"""Recordings of ``file_sink`` and ``recorder``: .npz and .npy files with their description."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ._arrays import Array, elements, read_header, stored
from ._errors import Error
from ._frame import import_xarray, mask_coordinate
from ._http import decoded, object_of
from ._stream import Floats, StreamType, Times, text

if TYPE_CHECKING:
    import xarray

__all__ = ["Recording", "load"]

_MAX_SIDE_FILE_BYTES = 64 << 20
_SIDE_FILE = "recording.json"
#: Arrays of every recording; the others are annotations.
_HEADERS: dict[str, np.dtype[Any]] = {
    "sequence": np.dtype("<u8"),
    "timestamp": np.dtype("<u8"),
    "config_id": np.dtype("<u8"),
    "validity": np.dtype("<u4"),
    "checksum": np.dtype("<u4"),
}


class Recording:
    """A recording. Arrays are mapped from the file: nothing is read before it is used.

    Attributes
    ----------
    path : pathlib.Path
        The file.
    type : StreamType
        Element type, axes, clock and band of the frames.
    raw : array
        The payload as the program stores it, frames along the first axis.
    timestamps : array of uint64, shape ``(frame,)``
        Time of the first element of each frame in ADC samples since the sync time.
    sequence : array of uint64, shape ``(frame,)``
        Numbers of the frames; a gap means that a frame is not in the file.
    config_ids : array of uint64, shape ``(frame,)``
        Identifier of the configuration of each frame.
    validity : array of uint32, shape ``(frame, *validity axes)``
        Validity counts: 0 is missing, ``type.validity_full`` is complete.
    checksums : array of uint32, shape ``(frame,)``
        CRC-32 of each frame, see `damaged_frames`.
    annotations : dict of arrays
        Tables of blocks upstream, by name; a row of NaN for a frame without the table.
    metadata : dict
        The description: version, configuration hash, text of the flowgraph, ``complete``.
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        self.path = path
        self.metadata = dict(metadata)
        self.type = StreamType.of_side_file(metadata)
        frames = min(len(array) for array in arrays.values())
        cut = {name: array[:frames] for name, array in arrays.items()}
        dtype, shape = stored(self.type.dtype, self.type.shape)
        units = tuple(axis.len for axis in self.type.validity_axes)
        types: dict[str, np.dtype[Any]] = {"data": dtype, **_HEADERS}
        for name, expected in types.items():
            row = shape if name == "data" else units if name == "validity" else ()
            found = cut[name]
            if found.dtype != expected or found.shape[1:] != row:
                raise Error(
                    f"{path}: the array `{name}` must be {expected.str} with rows {row}, got "
                    f"{found.dtype.str} with rows {found.shape[1:]}"
                )
        self.raw = cut["data"]
        self.timestamps: npt.NDArray[np.uint64] = cut["timestamp"].view(np.uint64)
        self.sequence: npt.NDArray[np.uint64] = cut["sequence"].view(np.uint64)
        self.config_ids: npt.NDArray[np.uint64] = cut["config_id"].view(np.uint64)
        self.validity: npt.NDArray[np.uint32] = cut["validity"].view(np.uint32)
        self.checksums: npt.NDArray[np.uint32] = cut["checksum"].view(np.uint32)
        self.annotations = {
            name: array for name, array in cut.items() if name not in _HEADERS and name != "data"
        }

    @cached_property
    def data(self) -> Array:
        """Elements, shape ``(frame, *type.shape)``: complex numbers if the dtype is complex.

        The conversion reads the whole file into memory; convert parts with `part`.
        """
        return elements(self.raw, self.type.dtype, self.type.shape)

    def part(self, frames: slice) -> Array:
        """Return the elements of a range of frames, like ``recording.data[frames]``, without reading the others."""
        return elements(self.raw[frames], self.type.dtype, self.type.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes of `data`: ``frame`` and the axes of the stream."""
        return ("frame", *self.type.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `data`."""
        return (len(self), *self.type.shape)

    @property
    def is_complete(self) -> bool:
        """Whether the recording was closed at the end of the stream."""
        return self.metadata.get("complete") is True

    @property
    def flowgraph(self) -> str:
        """The resolved flowgraph that made the recording, as YAML."""
        return text(self.metadata.get("flowgraph"), "flowgraph")

    @property
    def times(self) -> Times:
        """UTC time of the first element of each frame as datetime64[ns], shape ``(frame,)``."""
        return self.type.clock.times(self.timestamps)

    @property
    def unix_seconds(self) -> Floats:
        """Unix time of the first element of each frame in seconds, shape ``(frame,)``."""
        return self.type.clock.unix_seconds(self.timestamps)

    @property
    def frequencies_hz(self) -> Floats:
        """Centre frequencies of the channels in Hz, shape ``(channel,)``."""
        return self.type.frequencies_hz

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """Mask of missing elements with the shape of `data`, read-only: True where a validity count is 0."""
        return np.broadcast_to(self.type.missing(self.validity), self.shape)

    def damaged_frames(self) -> list[int]:
        """Return the indices of frames whose checksum does not match. Reads the whole file."""
        damaged = []
        arrays = (self.sequence, self.timestamps, self.config_ids, self.validity)
        for index in range(len(self)):
            rows: list[Any] = [array[index] for array in arrays]
            notes = (self.annotations[name][index] for name in sorted(self.annotations))
            rows += [row for row in notes if not np.isnan(row).all()]
            rows.append(self.raw[index])
            checksum = 0
            for row in rows:
                checksum = zlib.crc32(np.ascontiguousarray(row).tobytes(), checksum)
            if checksum != int(self.checksums[index]):
                damaged.append(index)
        return damaged

    def to_xarray(self) -> xarray.DataArray:
        """Return the recording as a DataArray with coordinates and units.

        Coordinates: ``time`` (UTC), ``timestamp`` and ``sequence`` along ``frame``, ``frequency`` (Hz) along
        ``channel``, ``*_offset`` (s) along time axes, labels of baselines and products, ``mask``.
        """
        module = import_xarray()
        coordinates: dict[str, Any] = dict(self.type.coordinates())
        coordinates["time"] = ("frame", self.times, {"long_name": "UTC time of the first element"})
        ticks = {"units": "1", "long_name": "ADC samples since the sync time"}
        coordinates["timestamp"] = ("frame", np.asarray(self.timestamps), ticks)
        coordinates["sequence"] = ("frame", np.asarray(self.sequence), {})
        dims, mask = mask_coordinate(self.mask, self.dims)
        coordinates["mask"] = (dims, mask, {"long_name": "data is missing"})
        attributes = {
            "dtype": self.type.dtype,
            "block": str(self.metadata.get("block")),
            "config_hash": str(self.metadata.get("config_hash")),
            "fxgraph_version": str(self.metadata.get("fxgraph_version")),
            "adc_sample_rate_hz": self.type.clock.adc_sample_rate_hz,
            "sync_time_seconds": self.type.clock.sync_time_seconds,
            "complete": int(self.is_complete),
        }
        array: xarray.DataArray = module.DataArray(
            self.data, dims=self.dims, coords=coordinates, attrs=attributes, name=self.path.stem
        )
        return array

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        end = "" if self.is_complete else ", incomplete"
        return f"<Recording {self.path}: {len(self)} frames of {self.type}{end}>"

    def _repr_html_(self) -> str:
        from ._html import table

        rows: dict[str, object] = {
            "frames": len(self),
            "type": self.type,
            "block": self.metadata.get("block"),
            "complete": self.is_complete,
        }
        if len(self):
            rows["from"], rows["to"] = f"{self.times[0]} UTC", f"{self.times[-1]} UTC"
        return table(f"recording {self.path}", ["", ""], list(rows.items()))


def load(path: str | os.PathLike[str]) -> Recording:
    """Return the recording in a file.

    Parameters
    ----------
    path : path
        A ``.npz`` or ``.npy`` file of ``file_sink`` or ``recorder``. Of a ``.npz`` file whose recording was
        interrupted, the arrays in ``PATH.parts`` are read. A file that still grows is read up to its last frame.

    Raises
    ------
    Error
        If the file is not a recording, or is damaged.
    """
    file = Path(path)
    try:
        if file.suffix == ".npz":
            return _load_npz(file)
        if file.suffix == ".npy":
            return _load_parts(file, file.parent)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise Error(f"there is no recording {file}: {error}") from None
        raise Error(f"{file} cannot be read: {error}") from None
    raise Error(f"{file} is no recording", help=["give a .npz or .npy file"])


def _side_file(content: bytes, path: Path) -> dict[str, Any]:
    side = object_of(decoded(content, f"the description of {path}"), f"the description of {path}")
    if side.get("format") != "fxgraph recording":
        raise Error(f'the description of {path} must have the `format` "fxgraph recording"')
    return side


def _names(side: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the file name of each array."""
    names = object_of(side.get("arrays"), f"`arrays` of {path}")
    missing = {"data", *_HEADERS} - set(names)
    if missing:
        raise Error(f"{path} has no array `{sorted(missing)[0]}`")
    for name, file in names.items():
        if Path(text(file, name)).name != file:
            raise Error(f"{path}: the array `{name}` must be in the same directory")
    return names


def _mapped(file: BinaryIO, path: Path, end: int) -> Array:
    """Map the array at the position of `file`, up to the offset `end`; incomplete frames at its end are left out."""
    shape, dtype = read_header(file)
    if not shape:
        raise Error(f"{path} has an array without frames")
    row = dtype.itemsize
    for length in shape[1:]:
        row *= length
    at = file.tell()
    frames = min(shape[0], (end - at) // row) if row else 0
    if frames <= 0:
        return np.zeros((0, *shape[1:]), dtype)
    return np.memmap(path, dtype, "r", at, (frames, *shape[1:])).view(np.ndarray)


def _load_npz(path: Path) -> Recording:
    parts = Path(f"{path}.parts")
    if not path.exists() and parts.is_dir():
        return _load_parts(path, parts)
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        members = {info.filename: info for info in archive.infolist()}
        description = members.get(_SIDE_FILE)
        if description is None:
            raise Error(f"{path} is no recording: it has no member {_SIDE_FILE}")
        if description.file_size > _MAX_SIDE_FILE_BYTES:
            raise Error(f"the description of {path} has more than {_MAX_SIDE_FILE_BYTES} bytes")
        side = _side_file(archive.read(description), path)
        arrays = {}
        for name, member in _names(side, path).items():
            info = members.get(member)
            if info is None:
                raise Error(f"{path} has no member {member}")
            if info.compress_type != zipfile.ZIP_STORED:
                raise Error(
                    f"the member {member} of {path} is compressed, and cannot be mapped",
                    help=["read it with numpy.load, or store it without compression"],
                )
            # The local header may have other extra fields than the directory of the archive.
            file.seek(info.header_offset + 26)
            lengths = file.read(4)
            if len(lengths) < 4:
                raise Error(f"the member {member} of {path} is cut off")
            start = info.header_offset + 30 + sum(struct.unpack("<HH", lengths))
            file.seek(start)
            arrays[name] = _mapped(file, path, min(start + info.file_size, path.stat().st_size))
    return Recording(path, side, arrays)


def _load_parts(path: Path, directory: Path) -> Recording:
    description = Path(f"{path}.json")
    if description.stat().st_size > _MAX_SIDE_FILE_BYTES:
        raise Error(f"{description} has more than {_MAX_SIDE_FILE_BYTES} bytes")
    side = _side_file(description.read_bytes(), path)
    arrays = {}
    for name, member in _names(side, path).items():
        part = directory / member
        with part.open("rb") as file:
            arrays[name] = _mapped(file, part, part.stat().st_size)
    return Recording(path, side, arrays)
