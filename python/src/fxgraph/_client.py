"""Client of a running flowgraph."""

from __future__ import annotations

import contextlib
import math
import ssl
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._arrays import Array, read_npy
from ._errors import Error, printable
from ._frame import Frame
from ._html import escaped, graph_svg, table
from ._http import Http, decoded, encoded, object_of, path
from ._recording import Recording, load
from ._stream import StreamType, integer, number, text

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = [
    "Block",
    "Blocks",
    "Change",
    "Client",
    "Event",
    "Output",
    "Outputs",
    "Recorder",
    "Sample",
    "Shadow",
    "Update",
    "View",
    "connect",
]

_API = "/api/v1"
#: Largest payload of a frame by default, in bytes.
MAX_FRAME_BYTES = 16 << 20
#: Size of a frame's description in a stream, in bytes: labels of up to 16384 baselines.
_MAX_HEADER_BYTES = 4 << 20
_MAX_METRICS = 1_000_000


@dataclass(frozen=True)
class Event:
    """An event of the run.

    Attributes
    ----------
    sequence : int
        Number within the run, from 1, without gaps.
    unix_seconds : float
        Unix time in seconds.
    block : str or None
        Name of the block, if the event concerns one.
    kind : str
        Kind of event, such as ``started``, ``swapped`` or ``fault``.
    text : str
        Description with cause and values.
    """

    sequence: int
    unix_seconds: float
    block: str | None
    kind: str
    text: str

    @property
    def time(self) -> np.datetime64:
        """UTC time, datetime64[us]."""
        return np.datetime64(round(self.unix_seconds * 1e6), "us")

    @staticmethod
    def _read(entry: Any) -> Event:
        event = object_of(entry, "an event")
        block = event.get("block")
        return Event(
            integer(event.get("sequence"), "sequence"),
            number(event.get("unix_time_seconds"), "unix_time_seconds"),
            None if block is None else text(block, "block"),
            text(event.get("kind"), "kind"),
            text(event.get("text"), "text"),
        )


@dataclass(frozen=True)
class Update:
    """Result of a live update.

    Attributes
    ----------
    effective_timestamp : int
        Timestamp of the first sample with the new values, in ADC samples since the sync time.
    is_late : bool
        Whether the requested timestamp had passed.
    steady_state_timestamp : int
        Timestamp from which data reflect all changes so far.
    config_id : str
        Identifier of the configuration from the effective timestamp on, in hexadecimal.
    """

    effective_timestamp: int
    is_late: bool
    steady_state_timestamp: int
    config_id: str


@dataclass(frozen=True)
class Change:
    """A swap of a block, done or (with `dry_run`) possible.

    Attributes
    ----------
    block : str
        Name of the block.
    way : str
        ``nothing``, ``seamless``, ``held`` or ``restart``.
    gap : str
        Expected interruption.
    differences : dict
        Old and new value by key, such as ``parameters.taps``.
    is_done : bool
        Whether the swap is done.
    restart_because : str or None
        Reason for a restart, if one is needed.
    memory_bytes : dict
        Additional memory during the swap in bytes, by device.
    """

    block: str
    way: str
    gap: str
    differences: Mapping[str, tuple[Any, Any]]
    is_done: bool
    restart_because: str | None
    memory_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Sample:
    """Value of a metric with its labels."""

    labels: Mapping[str, str]
    value: float


class View:
    """A view of an output: a frame reduced to a few thousand numbers.

    Attributes
    ----------
    name : str
        Name of the view, such as ``spectrum``.
    kind : str
        ``lines``, ``matrix`` or ``points``.
    timestamp : int
        Time of the frame's first element in ADC samples since the sync time.
    unix_seconds : float
        The same as Unix time, in seconds.
    frame : int
        Number of the frame at the output.
    valid : float or None
        Valid fraction of the frame.
    x : array of float64 or None
        Positions of the values of ``lines``, shape ``(points,)``.
    x_name, x_unit : str
        Name and unit of `x`.
    series : dict of arrays of float64
        Values by name: shape ``(points,)`` for ``lines``, ``(rows, columns)`` for a ``matrix``, ``()`` for
        ``points``; NaN where no value is valid.
    units : dict of str
        Unit of each series.
    selected : dict of str
        Label of the selected index of each axis.
    """

    def __init__(self, message: Any) -> None:
        view = object_of(message, "a view")
        self.name = text(view.get("view"), "view")
        self.kind = text(view.get("kind"), "kind")
        self.timestamp = integer(view.get("timestamp"), "timestamp")
        self.unix_seconds = number(view.get("time_seconds"), "time_seconds")
        self.frame = integer(view.get("frame"), "frame")
        valid = view.get("valid")
        self.valid = None if valid is None else number(valid, "valid")
        self.x: npt.NDArray[np.float64] | None = None
        self.x_name = self.x_unit = ""
        grid, rows, columns = view.get("x"), view.get("rows"), view.get("columns")
        shape: tuple[int, ...] | None = None
        if isinstance(grid, dict):
            length = integer(grid.get("len"), "len", 1 << 20)
            start, step = number(grid.get("start"), "start"), number(grid.get("step"), "step")
            self.x = start + step * np.arange(length, dtype=np.float64)
            self.x_name, self.x_unit = text(grid.get("name"), "name"), text(grid.get("unit"), "unit")
        elif isinstance(rows, dict) and isinstance(columns, dict):
            shape = (integer(rows.get("len"), "len", 1 << 20), integer(columns.get("len"), "len", 1 << 20))
        self.series: dict[str, npt.NDArray[np.float64]] = {}
        self.units: dict[str, str] = {}
        for entry in _list(view.get("series"), "series"):
            one = object_of(entry, "a series")
            name, values = text(one.get("name"), "name"), _list(one.get("values"), "values")
            floats = [math.nan if value is None else number(value, "values") for value in values]
            array = np.array(floats, dtype=np.float64)
            if shape is not None and array.size == shape[0] * shape[1]:
                array = array.reshape(shape)
            elif self.kind == "points" and array.size == 1:
                array = array.reshape(())
            self.series[name], self.units[name] = array, text(one.get("unit"), "unit")
        self.selected = {
            text(one.get("axis"), "axis"): text(one.get("name"), "name")
            for one in (object_of(entry, "`selected`") for entry in _list(view.get("selected"), "selected"))
        }
        self.message: Mapping[str, Any] = view

    def plot(self, axes: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Plot the first series with Matplotlib; return the axes.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Axes to draw into; by default new ones.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise Error("`plot` needs Matplotlib", help=["pip install 'fxgraph[plot]'"]) from None
        if not self.series:
            raise Error(f"the view `{self.name}` has no values")
        if axes is None:
            _, axes = plt.subplots()
        name, values = next(iter(self.series.items()))
        unit = self.units[name]
        if values.ndim == 2:
            axes.imshow(values)
            axes.set_title(f"{name} [{unit}]")
        else:
            x = np.arange(values.size) if self.x is None else self.x
            axes.plot(x, np.atleast_1d(values), "." if values.size == 1 else "-")
            axes.set_xlabel(f"{self.x_name} [{self.x_unit}]" if self.x_name else "")
            axes.set_ylabel(f"{name} [{unit}]")
        return axes

    def __repr__(self) -> str:
        return f"<View {self.name} of frame {self.frame}: {', '.join(self.series)}>"


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Error(f"`{name}` must be a list, got {printable(repr(value), 80)}")
    return value


class Output:
    """An output of a block.

    Attributes
    ----------
    block : str
        Name of the block.
    port : str
        Name of the output.
    """

    def __init__(self, client: Client, block: str, port: str) -> None:
        self._client = client
        self.block = block
        self.port = port

    @property
    def name(self) -> str:
        """``block.port``."""
        return f"{self.block}.{self.port}"

    @property
    def _path(self) -> str:
        return _API + path("blocks", self.block, "outputs", self.port)

    @property
    def _info(self) -> Mapping[str, Any]:
        for entry in _list(self._client[self.block].info.get("outputs"), "outputs"):
            if isinstance(entry, dict) and entry.get("name") == self.port:
                return entry
        raise Error(f"`{self.block}` has no output `{self.port}`")

    @property
    def type(self) -> StreamType:
        """Element type, axes, clock and band of the frames."""
        return StreamType.of_output(self._info.get("carries"))

    @property
    def readers(self) -> list[str]:
        """Inputs that read this output, as ``block.input``."""
        return [text(reader, "to") for reader in _list(self._info.get("to"), "to")]

    def snapshot(self, *, max_bytes: int = MAX_FRAME_BYTES) -> Frame:
        """Return the next frame.

        Parameters
        ----------
        max_bytes : int
            Largest payload to accept, in bytes.

        Raises
        ------
        Error
            If the output has ended, no frame arrives in time, or the frame is larger than `max_bytes`.
        """
        frames = self._frames({"every_seconds": 60}, max_bytes)
        try:
            for frame in frames:
                return frame
        finally:
            frames.close()
        raise Error(f"`{self.name}` has ended", status=409)

    def stream(
        self, every: float = 1.0, *, every_frames: int = 1, max_bytes: int = MAX_FRAME_BYTES
    ) -> Iterator[Frame]:
        """Iterate over frames until the output ends.

        A slow reader misses frames; the flowgraph never waits for it.

        Parameters
        ----------
        every : float
            Minimum time between two frames in seconds, from 0.05 to 60.
        every_frames : int
            At most every n-th frame.
        max_bytes : int
            Largest payload to accept, in bytes.

        Raises
        ------
        Error
            If the output has ended already, or the connection breaks.
        """
        return self._frames({"every_seconds": every, "every": every_frames}, max_bytes)

    def _frames(
        self, query: Mapping[str, float | int], max_bytes: int
    ) -> Generator[Frame, None, None]:
        limit = max_bytes * 4 // 3 + _MAX_HEADER_BYTES
        whole = {**query, "max_bytes": max_bytes}
        events = self._client._follow(self._path + "/stream", whole, "frame", limit)
        with contextlib.closing(events):
            for message in events:
                yield Frame._read(message)

    def views(self) -> dict[str, str]:
        """Return the title of each view of this output, by name."""
        answer = object_of(self._client._http.json("GET", self._path + "/views"), "the views")
        views = [object_of(entry, "a view") for entry in _list(answer.get("views"), "views")]
        return {text(view.get("name"), "name"): text(view.get("title"), "title") for view in views}

    def view(self, name: str, *, points: int = 1024, **select: int) -> View:
        """Return a view of the next frame.

        Parameters
        ----------
        name : str
            Name of the view, see `views`.
        points : int
            Maximum number of points on the longest axis, from 16 to 4096.
        **select : int
            Index of an axis, such as ``baseline=1``.
        """
        query = {"once": True, "points": points, **select}
        return View(self._client._http.json("GET", self._path + path("views", name), query=query))

    def follow_view(
        self, name: str, every: float = 0.25, *, points: int = 1024, **select: int
    ) -> Iterator[View]:
        """Iterate over views of the newest frames until the output ends.

        Parameters
        ----------
        every : float
            Minimum time between two views in seconds, from 0.05 to 60.
        name, points, **select
            As for `view`.
        """
        query = {"every_seconds": every, "points": points, **select}
        target = self._path + path("views", name)
        with contextlib.closing(self._client._follow(target, query, "view", 16 << 20)) as messages:
            for message in messages:
                yield View(message)

    def record(
        self,
        *,
        before_seconds: float | None = None,
        after_seconds: float | None = None,
        trigger: str | Mapping[str, Any] | None = None,
        path: str | None = None,
        **parameters: Any,
    ) -> Recorder:
        """Record this output; the program needs ``--recordings DIR``.

        Parameters
        ----------
        before_seconds, after_seconds : float, optional
            Signal time to record before and after the trigger, in seconds.
        trigger : str or mapping, optional
            ``start``, ``request``, ``missing``, ``{"events": {"kinds": [...]}}``, ...; see ``fxgraph list
            recorder``.
        path : str, optional
            Name of the file; ``{timestamp}`` is replaced by the timestamp of the first frame.
        **parameters
            Other parameters of the kind ``recorder``.
        """
        named = {
            "before_seconds": before_seconds,
            "after_seconds": after_seconds,
            "trigger": trigger,
            "path": path,
        }
        body = {name: value for name, value in named.items() if value is not None} | parameters
        answer = self._client._http.json("POST", self._path + "/recordings", body=encoded(body))
        return Recorder(self._client, text(object_of(answer, "a recorder").get("name"), "name"))

    def __repr__(self) -> str:
        return f"<Output {self.name}>"

    def _repr_html_(self) -> str:
        stream, readers = self.type, ", ".join(self.readers)
        return table(f"output {self.name}", ["", ""], [("type", stream), ("read by", readers)])


class Outputs(Mapping[str, Output]):
    """Outputs of a block by name."""

    def __init__(self, client: Client, block: str, names: Sequence[str]) -> None:
        self._outputs = {name: Output(client, block, name) for name in names}
        self._block = block

    def __getitem__(self, name: str) -> Output:
        if name not in self._outputs:
            known = ", ".join(f"`{known}`" for known in self._outputs)
            raise Error(
                f"`{self._block}` has no output `{name}`",
                help=[f"choose one of {known}" if known else "this block has no outputs"],
            )
        return self._outputs[name]

    def __contains__(self, name: object) -> bool:
        return name in self._outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"<Outputs of {self._block}: {', '.join(self._outputs)}>"


class Block:
    """A block of a running flowgraph. Each property asks the program for its current value.

    Attributes
    ----------
    name : str
        Name in the flowgraph.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    @property
    def _path(self) -> str:
        return _API + path("blocks", self.name)

    @property
    def info(self) -> dict[str, Any]:
        """All properties, as in ``GET /api/v1/blocks/{name}``."""
        return object_of(self._client._http.json("GET", self._path), "a block")

    @property
    def kind(self) -> str:
        """Kind."""
        return text(self.info.get("kind"), "kind")

    @property
    def device(self) -> str:
        """Device: ``cpu``, ``cuda:0``, ..."""
        return text(self.info.get("device"), "device")

    @property
    def implementation(self) -> str:
        """Implementation."""
        return text(self.info.get("implementation"), "implementation")

    @property
    def state(self) -> str:
        """State: starting, running, stalled, finished or failed."""
        return text(self.info.get("state"), "state")

    @property
    def parameters(self) -> dict[str, Any]:
        """Current parameters."""
        return object_of(self.info.get("parameters"), "`parameters`")

    @property
    def newest_timestamp(self) -> int | None:
        """Timestamp after the newest output sample (for a sink, input sample); None before the first frame."""
        newest = self.info.get("newest_timestamp")
        return None if newest is None else integer(newest, "newest_timestamp")

    @property
    def counters(self) -> dict[str, int]:
        """Value of each counter."""
        counters = [object_of(entry, "a counter") for entry in _list(self.info.get("counters"), "counters")]
        return {text(one.get("name"), "name"): integer(one.get("count"), "count") for one in counters}

    @property
    def outputs(self) -> Outputs:
        """Outputs by name."""
        entries = [object_of(entry, "an output") for entry in _list(self.info.get("outputs"), "outputs")]
        return Outputs(self._client, self.name, [text(entry.get("name"), "name") for entry in entries])

    @property
    def output(self) -> Output:
        """The only output.

        Raises
        ------
        Error
            If the block has no output, or several.
        """
        outputs = self.outputs
        if len(outputs) != 1:
            names = ", ".join(f'.outputs["{name}"]' for name in outputs)
            raise Error(
                f"`{self.name}` has {len(outputs)} outputs",
                help=[f"choose one of {names}"] if names else [],
            )
        return next(iter(outputs.values()))

    def snapshot(self, *, max_bytes: int = MAX_FRAME_BYTES) -> Frame:
        """Return the next frame of the only output, see `Output.snapshot`."""
        return self.output.snapshot(max_bytes=max_bytes)

    def stream(self, every: float = 1.0, **options: Any) -> Iterator[Frame]:
        """Iterate over frames of the only output, see `Output.stream`."""
        return self.output.stream(every, **options)

    def view(self, name: str, *, points: int = 1024, **select: int) -> View:
        """Return a view of the only output, see `Output.view`."""
        return self.output.view(name, points=points, **select)

    def record(self, **parameters: Any) -> Recorder:
        """Record the only output, see `Output.record`."""
        return self.output.record(**parameters)

    def set(self, values: Mapping[str, Any], *, at: int | None = None) -> Update:
        """Set live parameters of this block, see `Client.set`."""
        return self._client.set({self.name: values}, at=at)

    def swap(
        self,
        *,
        dry_run: bool = False,
        allow_stall: bool = False,
        kind: str | None = None,
        implementation: str | None = None,
        device: str | None = None,
        on_fault: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        **changed: Any,
    ) -> Change:
        """Swap this block for one with other parameters, another implementation or kind.

        Parameters
        ----------
        dry_run : bool
            Report the effect without changing anything.
        allow_stall : bool
            Let the flowgraph wait for the new block: for files, not for live data.
        kind, implementation, device, on_fault : str, optional
            Changed keys of the block.
        parameters : mapping, optional
            Changed parameters whose names are those of other arguments; None restores a default.
        **changed
            Changed parameters.

        Raises
        ------
        Error
            If the swap is rejected or fails; the flowgraph continues unchanged.
        """
        keys = _keys(kind, implementation, device, on_fault, parameters, changed)
        query = {"dry_run": dry_run or None, "may_hold_up": allow_stall or None}
        answer = self._client._http.json("PATCH", self._path, query=query, body=encoded(keys))
        change = object_of(answer, "a change")
        because = change.get("restart_because")
        memory = object_of(change.get("memory_bytes"), "`memory_bytes`")
        differences = {}
        for entry in _list(change.get("differences"), "differences"):
            difference = object_of(entry, "a difference")
            key = text(difference.get("key"), "key")
            differences[key] = (difference.get("from"), difference.get("to"))
        return Change(
            text(change.get("block"), "block"),
            text(change.get("way"), "way"),
            text(change.get("gap"), "gap"),
            differences,
            change.get("is_made") is True,
            None if because is None else text(because, "restart_because"),
            {device: integer(size, device) for device, size in memory.items()},
        )

    def shadow(
        self,
        *,
        stop_at_first_difference: bool = False,
        kind: str | None = None,
        implementation: str | None = None,
        device: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        **changed: Any,
    ) -> Shadow:
        """Start a shadow: a second block on the same frames, whose output is compared with that of this block.

        Parameters
        ----------
        stop_at_first_difference : bool
            Stop at the first frame that differs, and keep it.
        kind, implementation, device, parameters, **changed
            As for `swap`.
        """
        keys = _keys(kind, implementation, device, None, parameters, changed)
        query = {"stop_at_first_difference": stop_at_first_difference or None}
        self._client._http.json("POST", self._path + "/shadow", query=query, body=encoded(keys))
        return Shadow(self._client, self.name)

    def __repr__(self) -> str:
        return f"<Block {self.name}>"

    def _repr_html_(self) -> str:
        info = self.info
        rows: list[tuple[str, object]] = [
            (key, info.get(key)) for key in ("kind", "implementation", "device", "state", "on_fault")
        ]
        for end, peer in (("inputs", "from"), ("outputs", "to")):
            for entry in _list(info.get(end), end):
                port = object_of(entry, "a port")
                carries = object_of(port.get("carries"), "`carries`").get("text")
                rows.append((f"{end[:-1]} {port.get('name')}", f"{carries} ({peer} {port.get(peer)})"))
        rows += [(f"parameter {name}", value) for name, value in self._shown(info, "parameters")]
        for entry in _list(info.get("counters"), "counters"):
            counter = object_of(entry, "a counter")
            rows.append((f"counter {counter.get('name')}", counter.get("count")))
        return table(f"block {self.name}", ["", ""], rows)

    @staticmethod
    def _shown(info: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
        return list(object_of(info.get(key), f"`{key}`").items())


def _keys(
    kind: str | None,
    implementation: str | None,
    device: str | None,
    on_fault: str | None,
    parameters: Mapping[str, Any] | None,
    changed: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the changed keys of a block."""
    named = {"kind": kind, "implementation": implementation, "device": device, "on_fault": on_fault}
    keys: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    merged = {**(parameters or {}), **changed}
    return keys | {"parameters": merged} if merged else keys


class Blocks(Mapping[str, Block]):
    """Blocks of a flowgraph by name, in the order of the flowgraph, with the summaries of one moment.

    Attributes
    ----------
    summaries : dict of dict
        Summary of each block, as in ``GET /api/v1/blocks``.
    """

    def __init__(self, client: Client, summaries: Sequence[Any]) -> None:
        self.summaries: dict[str, dict[str, Any]] = {}
        for entry in summaries:
            summary = object_of(entry, "a block")
            self.summaries[text(summary.get("name"), "name")] = summary
        self._client = client

    def __getitem__(self, name: str) -> Block:
        return Block(self._client, name) if name in self.summaries else self._client[name]

    def __contains__(self, name: object) -> bool:
        return name in self.summaries

    def __iter__(self) -> Iterator[str]:
        return iter(self.summaries)

    def __len__(self) -> int:
        return len(self.summaries)

    def __repr__(self) -> str:
        return f"<Blocks {', '.join(self.summaries)}>"

    def _repr_html_(self) -> str:
        rows = []
        for name, summary in self.summaries.items():
            rates = summary.get("rates")
            rate = busy = None
            if isinstance(rates, dict):
                rate = rates.get("frames_out_per_second") or rates.get("frames_in_per_second")
                busy = rates.get("busy_fraction")
            rows.append(
                (
                    name,
                    summary.get("kind"),
                    summary.get("device"),
                    summary.get("state"),
                    f"{rate:.1f}" if isinstance(rate, float) else "-",
                    f"{busy * 100:.1f} %" if isinstance(busy, float) else "-",
                )
            )
        return table("blocks", ["block", "kind", "device", "state", "frames/s", "busy"], rows)


class Recorder:
    """A recorder: a block of the flowgraph, or one created with `record`.

    Attributes
    ----------
    name : str
        Number of the recorder, or the name of its block.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    @property
    def _path(self) -> str:
        return _API + path("recorders", self.name)

    @property
    def info(self) -> dict[str, Any]:
        """State and recordings, as in ``GET /api/v1/recorders/{name}``."""
        return object_of(self._client._http.json("GET", self._path), "a recorder")

    @property
    def state(self) -> str:
        """``waiting`` for a trigger, ``recording``, ``failed`` or ``ended``."""
        return text(self.info.get("state"), "state")

    @property
    def files(self) -> list[Path]:
        """Paths of the recordings on the machine that runs the program, newest last."""
        files = [object_of(entry, "a recording") for entry in _list(self.info.get("recordings"), "recordings")]
        return [self._client._local(text(file.get("path"), "path")) for file in files]

    def trigger(self, at: int | None = None) -> None:
        """Trigger the recorder.

        Parameters
        ----------
        at : int, optional
            Timestamp of the trigger in ADC samples since the sync time; now by default.
        """
        self._client._http.json("POST", self._path + "/trigger", query={"at": at}, body=b"")

    def stop(self) -> None:
        """Stop the recorder, and close its files."""
        self._client._http.json("POST", self._path + "/stop", body=b"")

    def delete(self) -> None:
        """Delete the recorder and its files."""
        self._client._http.json("DELETE", self._path)

    def wait(self, timeout: float = 60.0) -> list[Path]:
        """Wait until the recorder has ended, and return the paths of its recordings.

        Raises
        ------
        Error
            If the recorder fails, or has not ended after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (info := self.info).get("state") != "ended":
            if info.get("state") == "failed":
                raise Error(f"the recorder {self.name} failed: {info.get('fault')}")
            if time.monotonic() > end:
                state = info.get("state")
                raise Error(f"the recorder {self.name} is still `{state}` after {timeout} s", title="Timeout")
            time.sleep(0.1)
        return self.files

    def load(self, timeout: float = 60.0) -> Recording:
        """Wait for the end of the recorder, and return its newest recording, which must be on this machine."""
        files = self.wait(timeout)
        if not files:
            raise Error(f"the recorder {self.name} wrote no recording")
        return load(files[-1])

    def __repr__(self) -> str:
        return f"<Recorder {self.name}>"


class Shadow:
    """A shadow of a block. As a context manager, it ends the shadow.

    Attributes
    ----------
    block : str
        Name of the block.
    """

    def __init__(self, client: Client, block: str) -> None:
        self._client = client
        self.block = block

    @property
    def _path(self) -> str:
        return _API + path("blocks", self.block, "shadow")

    def results(self) -> dict[str, Any]:
        """Return the results so far, as in ``GET /api/v1/blocks/{name}/shadow``."""
        return object_of(self._client._http.json("GET", self._path), "a shadow")

    def wait(self, frames: int = 1, timeout: float = 60.0) -> dict[str, Any]:
        """Wait until `frames` pairs of frames are compared or the shadow has ended, and return the results."""
        end = time.monotonic() + timeout
        while True:
            results = self.results()
            if results.get("ended") is not None:
                return results
            if integer(results.get("frames_compared"), "frames_compared") >= frames:
                return results
            if time.monotonic() > end:
                raise Error(f"the shadow of `{self.block}` compared no {frames} frames in {timeout} s")
            time.sleep(0.1)

    def first_difference(self, *, max_bytes: int = MAX_FRAME_BYTES) -> tuple[Array, Array]:
        """Return the first differing frame of the block and of its shadow, as the program stores them.

        Raises
        ------
        Error
            If no frame differs so far.
        """
        block, shadow = (
            read_npy(
                self._client._http.request(
                    "GET",
                    self._path + path("first_difference", side),
                    accept="application/octet-stream",
                    max_bytes=max_bytes,
                ).body
            )
            for side in ("block", "shadow")
        )
        return block, shadow

    def end(self) -> dict[str, Any]:
        """End the shadow, and return its results."""
        return object_of(self._client._http.json("DELETE", self._path), "a shadow")

    def __enter__(self) -> Shadow:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.end()
        except Error:
            # The error of the body matters more; without one, a shadow that has ended is no error.
            if error is None and self._exists():
                raise

    def _exists(self) -> bool:
        try:
            self.results()
        except Error:
            return False
        return True

    def __repr__(self) -> str:
        return f"<Shadow of {self.block}>"


class Client:
    """Client of a running flowgraph, see `connect`. Threads may share it.

    Attributes
    ----------
    url : str
        Address.
    """

    def __init__(self, http: Http, directory: Path | None = None) -> None:
        self._http = http
        self._directory = directory
        self.url = http.url

    # Blocks.

    @property
    def blocks(self) -> Blocks:
        """All blocks with their statistics."""
        return Blocks(self, _list(self._http.json("GET", _API + "/blocks"), "blocks"))

    def __getitem__(self, name: str) -> Block:
        """Return the block `name`.

        Raises
        ------
        Error
            If there is no such block; the help names a similar one.
        """
        if not isinstance(name, str) or not name:
            raise Error("the name of a block must be a string", help=['use fx["f[0].pfb"]'])
        block = Block(self, name)
        block.info  # noqa: B018 - raises an error for an unknown block
        return block

    # Flowgraph.

    def info(self) -> dict[str, Any]:
        """Return state, configuration and graph, as in ``GET /api/v1/flowgraph``."""
        return object_of(self._http.json("GET", _API + "/flowgraph"), "the flowgraph")

    @property
    def name(self) -> str:
        """Name of the flowgraph."""
        return text(self.info().get("name"), "name")

    @property
    def state(self) -> str:
        """State: prepared, starting, running, draining, ended or failed."""
        return text(self.health().get("state"), "state")

    @property
    def parameters(self) -> dict[str, Any]:
        """Current value of each parameter of the flowgraph."""
        entries = [object_of(entry, "a parameter") for entry in _list(self.info().get("parameters"), "parameters")]
        return {text(entry.get("name"), "name"): entry.get("value") for entry in entries}

    @property
    def steady_state_timestamp(self) -> int:
        """Timestamp (ADC samples since the sync time) from which data reflect all changes so far."""
        return integer(self.info().get("steady_state_timestamp"), "steady_state_timestamp")

    def health(self) -> dict[str, Any]:
        """Return ``state``, ``faults``, ``survived_faults`` and ``elapsed_seconds``."""
        return object_of(self._http.json("GET", _API + "/health"), "the health")

    def start(self) -> dict[str, Any]:
        """Start a prepared flowgraph (`hold`), and return its health; no effect on a running one."""
        return object_of(self._http.json("POST", _API + "/flowgraph/start", body=b""), "the health")

    def stop(self) -> dict[str, Any]:
        """Stop the flowgraph: sources stop, and queued frames are processed. Return its health."""
        return object_of(self._http.json("POST", _API + "/flowgraph/stop", body=b""), "the health")

    def abort(self) -> dict[str, Any]:
        """Stop the flowgraph at once: queued frames are dropped. Return its health."""
        return object_of(self._http.json("POST", _API + "/flowgraph/abort", body=b""), "the health")

    def wait_for(self, *states: str, timeout: float = 60.0) -> str:
        """Wait until the flowgraph is in one of `states`, and return its state.

        Raises
        ------
        Error
            If the flowgraph is in none of them after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while (state := self.state) not in states:
            if time.monotonic() > end:
                wanted = " or ".join(f"`{name}`" for name in states)
                raise Error(f"the flowgraph is `{state}` after {timeout} s, not {wanted}", title="Timeout")
            time.sleep(0.05)
        return state

    # Changes.

    def set(self, values: Mapping[str, Mapping[str, Any]], *, at: int | None = None) -> Update:
        """Set live parameters of blocks: all of them at the same timestamp, or none.

        Parameters
        ----------
        values : mapping
            New values by block and parameter. NumPy scalars and arrays and complex numbers are converted.
        at : int, optional
            Effective timestamp in ADC samples since the sync time; by default the earliest possible.

        Raises
        ------
        Error
            If any value is rejected; nothing has changed.
        """
        # NumPy integers are valid timestamps.
        query = {"at": None if at is None else int(at)}
        answer = object_of(
            self._http.json("PATCH", _API + "/blocks", query=query, body=encoded(values)), "the update"
        )
        return Update(
            integer(answer.get("effective_timestamp"), "effective_timestamp"),
            answer.get("is_late") is True,
            integer(answer.get("steady_state_timestamp"), "steady_state_timestamp"),
            text(answer.get("config_id"), "config_id"),
        )

    # Recorders and shadows.

    @property
    def recorders(self) -> list[Recorder]:
        """All recorders: blocks of the flowgraph, and recorders created with `record`."""
        entries = _list(self._http.json("GET", _API + "/recorders"), "recorders")
        return [Recorder(self, text(object_of(entry, "a recorder").get("name"), "name")) for entry in entries]

    @property
    def shadows(self) -> list[Shadow]:
        """All shadows."""
        entries = _list(self._http.json("GET", _API + "/shadows"), "shadows")
        return [Shadow(self, text(object_of(entry, "a shadow").get("block"), "block")) for entry in entries]

    def _local(self, name: str) -> Path:
        """Return the path of a file that the program names."""
        return Path(name) if self._directory is None else self._directory / name

    # Events and metrics.

    def events(self, since: int = 0) -> list[Event]:
        """Return the events after the event number `since`."""
        answer = self._http.json("GET", _API + "/events", query={"since": since})
        return [Event._read(entry) for entry in _list(object_of(answer, "the events").get("events"), "events")]

    def follow_events(self, since: int = 0) -> Iterator[Event]:
        """Iterate over events after the event number `since`, those to come included, until the run ends."""
        target = _API + "/events/stream"
        with contextlib.closing(self._follow(target, {"since": since}, "message", 1 << 20)) as messages:
            for message in messages:
                yield Event._read(message)

    def metrics(self) -> dict[str, list[Sample]]:
        """Return the metrics for Prometheus: all samples of each metric, by its name.

        Examples
        --------
        >>> fx.metrics()["fxgraph_flowgraph_elapsed_seconds"][0].value  # doctest: +SKIP
        61.5
        """
        content = self._http.request("GET", "/metrics", accept="text/plain").body
        metrics: dict[str, list[Sample]] = {}
        count = 0
        for line in content.decode("utf-8", "replace").splitlines():
            if not line or line.startswith("#"):
                continue
            name, labels, value = _sample(line)
            metrics.setdefault(name, []).append(Sample(labels, value))
            count += 1
            if count > _MAX_METRICS:
                raise Error(f"the server has more than {_MAX_METRICS} metrics", title="Too large")
        return metrics

    def _follow(
        self, target: str, query: Mapping[str, Any], name: str, max_bytes: int
    ) -> Generator[dict[str, Any], None, None]:
        """Iterate over the JSON objects of the events `name` of a stream."""
        events = self._http.events(target, query=query, max_bytes=max_bytes)
        with contextlib.closing(events):
            for event, data in events:
                if event == "problem":
                    document = object_of(decoded(data, "the problem of a stream"), "the problem")
                    detail = str(document.get("detail", "the stream has failed"))
                    status = document.get("status")
                    raise Error(
                        detail,
                        title=str(document.get("title", "Stream error")),
                        status=status if isinstance(status, int) else None,
                        help=[str(line) for line in document.get("help") or []],
                    )
                if event == name:
                    yield object_of(decoded(data, "an event"), "an event")

    # Display.

    def graph_svg(self) -> str:
        """Return a drawing of the graph as SVG."""
        return graph_svg(object_of(self.info().get("graph"), "the graph"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _repr_html_(self) -> str:
        info = self.info()
        title = f"{info.get('name')}: {info.get('state')}, configuration {info.get('config_id')}"
        graph = graph_svg(object_of(info.get("graph"), "the graph"))
        scrolled = f'<div style="overflow:auto;max-height:40em">{graph}</div>'
        return f"<div><b>{escaped(title)}</b>{scrolled}{self.blocks._repr_html_()}</div>"


def _sample(line: str) -> tuple[str, dict[str, str], float]:
    """Return name, labels and value in a line of the exposition format."""
    wrong = Error(f"not a metric: `{printable(line, 80)}`")
    labels: dict[str, str] = {}
    brace = line.find("{")
    if brace < 0:
        name, _, rest = line.partition(" ")
    else:
        name, at = line[:brace], brace + 1
        while line[at : at + 1] not in ("}", ""):
            key, equals, _ = line[at:].partition('="')
            if not equals:
                raise wrong
            at += len(key) + 2
            value, is_escaped = [], False
            while at < len(line) and (is_escaped or line[at] != '"'):
                if is_escaped:
                    value.append("\n" if line[at] == "n" else line[at])
                    is_escaped = False
                elif line[at] == "\\":
                    is_escaped = True
                else:
                    value.append(line[at])
                at += 1
            labels[key.strip(", ")] = "".join(value)
            at += 1
            if line[at : at + 1] == ",":
                at += 1
        rest = line[at + 1 :]
    try:
        return name, labels, float(rest.split()[0])
    except (ValueError, IndexError):
        raise wrong from None


def connect(
    url: str = "http://127.0.0.1:8080",
    token: str | None = None,
    *,
    context: ssl.SSLContext | None = None,
    timeout: float = 35.0,
) -> Client:
    """Connect to a running flowgraph.

    Parameters
    ----------
    url : str
        Address that ``fxgraph run FILE --listen`` printed.
    token : str, optional
        Token of the program's ``--token-file``.
    context : ssl.SSLContext, optional
        TLS settings for an ``https`` address.
    timeout : float
        Time limit of a request in seconds. The program answers within 30 s.

    Returns
    -------
    Client

    Raises
    ------
    Error
        If no flowgraph answers there.
    """
    client = Client(Http(url, token, context, timeout))
    client.health()
    return client
