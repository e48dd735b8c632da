"""Blocks of a flowgraph, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._array_values import unpacked
from ._errors import Error
from ._frame import Frame
from ._html import table
from ._http import API, encoded, object_of, path
from ._output import MAX_FRAME_BYTES, Output, Outputs
from ._recorder import Recorder
from ._shadow import Shadow
from ._stream import integer, list_of, text
from ._view import View

if TYPE_CHECKING:
    from ._client import Client

__all__ = ["Block", "Blocks", "Change", "Update"]


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
    seconds_ahead : float or None
        Time from the newest processed sample to the effective timestamp: 0 if the data have passed it, ``None``
        before the first sample.
    """

    effective_timestamp: int
    is_late: bool
    steady_state_timestamp: int
    config_id: str
    seconds_ahead: float | None


@dataclass(frozen=True)
class Change:
    """A swap of a block, done or (with `dry_run`) possible.

    Attributes
    ----------
    block : str
        Name of the block.
    way : str
        ``nothing``, ``live_update`` (live update of a source), ``seamless``, ``held`` or ``restart``.
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
        return API + path("blocks", self.name)

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
        """Current parameters; those that were set to large arrays are arrays."""
        return unpacked(object_of(self.info.get("parameters"), "`parameters`"))

    @property
    def newest_timestamp(self) -> int | None:
        """Timestamp after the newest output sample (for a sink, input sample); None before the first frame."""
        newest = self.info.get("newest_timestamp")
        return None if newest is None else integer(newest, "newest_timestamp")

    @property
    def counters(self) -> dict[str, int]:
        """Value of each counter."""
        counters = [object_of(entry, "a counter") for entry in list_of(self.info.get("counters"), "counters")]
        return {text(one.get("name"), "name"): integer(one.get("count"), "count") for one in counters}

    @property
    def outputs(self) -> Outputs:
        """Outputs by name."""
        entries = [object_of(entry, "an output") for entry in list_of(self.info.get("outputs"), "outputs")]
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

    def snapshot(self, *, max_bytes: int = MAX_FRAME_BYTES, timeout: float | None = None) -> Frame:
        """Return the next frame of the only output, see `Output.snapshot`."""
        return self.output.snapshot(max_bytes=max_bytes, timeout=timeout)

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
        since = change.get("goes_on_after_event")
        if since is not None:
            self._wait_for_swap(integer(since, "goes_on_after_event"))
        because = change.get("restart_because")
        memory = object_of(change.get("memory_bytes"), "`memory_bytes`")
        differences = {}
        for entry in list_of(change.get("differences"), "differences"):
            difference = object_of(entry, "a difference")
            key = text(difference.get("key"), "key")
            differences[key] = (difference.get("from"), difference.get("to"))
        return Change(
            text(change.get("block"), "block"),
            text(change.get("way"), "way"),
            text(change.get("gap"), "gap"),
            differences,
            change.get("is_made") is True or since is not None,
            None if because is None else text(because, "restart_because"),
            {device: integer(size, device) for device, size in memory.items()},
        )

    def _wait_for_swap(self, since: int) -> None:
        """Wait for the result of a swap that goes on after the event number `since`."""
        for event in self._client.follow_events(since):
            if event.block == self.name and event.kind == "swapped":
                return
            if event.block == self.name and event.kind in ("not_swapped", "rolled_back"):
                raise Error(event.text)
        raise Error("the run ended before the swap was made")

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
            for entry in list_of(info.get(end), end):
                port = object_of(entry, "a port")
                carries = object_of(port.get("carries"), "`carries`").get("text")
                rows.append((f"{end[:-1]} {port.get('name')}", f"{carries} ({peer} {port.get(peer)})"))
        rows += [(f"parameter {name}", value) for name, value in self._shown(info, "parameters")]
        for entry in list_of(info.get("counters"), "counters"):
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
