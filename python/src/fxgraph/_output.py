"""Outputs of blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import Error, UnknownName
from ._frame import Frame
from ._html import table
from ._http import API, encoded, object_of, path
from ._recorder import Recorder
from ._stream import StreamType, list_of, text
from ._view import View

if TYPE_CHECKING:
    from ._client import Client

__all__ = ["MAX_FRAME_BYTES", "Output", "Outputs"]

#: Largest payload of a frame by default, in bytes.
MAX_FRAME_BYTES = 16 << 20
#: Size of a frame's description in a stream, in bytes: labels of up to 16384 baselines.
_MAX_HEADER_BYTES = 4 << 20


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
        return API + path("blocks", self.block, "outputs", self.port)

    @property
    def _info(self) -> Mapping[str, Any]:
        for entry in list_of(self._client[self.block].info.get("outputs"), "outputs"):
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
        return [text(reader, "to") for reader in list_of(self._info.get("to"), "to")]

    def snapshot(self, *, max_bytes: int = MAX_FRAME_BYTES, timeout: float | None = None) -> Frame:
        """Return the next frame.

        Parameters
        ----------
        max_bytes : int
            Largest payload to accept, in bytes.
        timeout : float, optional
            Time limit in seconds, by default that of the client.

        Raises
        ------
        Error
            If the output has ended, no frame arrives in time, or the frame is larger than `max_bytes`.
        """
        frames = self._frames({"every_seconds": 60}, max_bytes, timeout or self._client.timeout)
        try:
            for frame in frames:
                return frame
        finally:
            frames.close()
        raise Error(f"`{self.name}` has ended", status=409)

    def stream(
        self, every: float = 1.0, *, every_frames: int = 1, max_bytes: int = MAX_FRAME_BYTES
    ) -> Iterator[Frame]:
        """Iterate over frames until the output ends; wait for frames without a time limit.

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
        self, query: Mapping[str, float | int], max_bytes: int, timeout: float | None = None
    ) -> Generator[Frame, None, None]:
        limit = max_bytes * 4 // 3 + _MAX_HEADER_BYTES
        whole = {**query, "max_bytes": max_bytes}
        events = self._client._follow(self._path + "/stream", whole, "frame", limit, timeout)
        with contextlib.closing(events):
            for message in events:
                yield Frame._read(message)

    def views(self) -> dict[str, str]:
        """Return the title of each view of this output, by name."""
        answer = object_of(self._client._http.json("GET", self._path + "/views"), "the views")
        views = [object_of(entry, "a view") for entry in list_of(answer.get("views"), "views")]
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
            raise UnknownName(
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
