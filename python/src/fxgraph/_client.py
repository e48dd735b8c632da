"""Client of a running flowgraph."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from ._array_values import packed
from ._block import Block, Blocks, Update
from ._errors import Error, UnknownName
from ._events import Event, Sample, samples
from ._html import escaped, graph_svg
from ._http import API, Http, decoded, encoded, object_of
from ._recorder import Recorder
from ._shadow import Shadow
from ._stream import integer, list_of, number, text

__all__ = ["Client", "connect"]


class Client:
    """Client of a running flowgraph, see `connect`. Threads may share it.

    Attributes
    ----------
    url : str
        Address.
    timeout : float
        Time limit of a request in seconds.
    """

    def __init__(self, http: Http, directory: Path | None = None) -> None:
        self._http = http
        self._directory = directory
        self.url = http.url
        self.timeout = http.timeout

    # Blocks.

    @property
    def blocks(self) -> Blocks:
        """All blocks with their statistics."""
        return Blocks(self, list_of(self._http.json("GET", API + "/blocks"), "blocks"))

    def __getitem__(self, name: str) -> Block:
        """Return the block `name`.

        Raises
        ------
        Error
            If there is no such block; the help names a similar one. The error is a `KeyError` too.
        """
        if not isinstance(name, str) or not name:
            raise Error("the name of a block must be a string", help=['use fx["f[0].pfb"]'])
        block = Block(self, name)
        try:
            block.info  # noqa: B018 - raises an error for an unknown block
        except Error as error:
            if error.status == 404:
                raise UnknownName(
                    error.detail, title=error.title, status=error.status, help=error.help
                ) from None
            raise
        return block

    # Flowgraph.

    def info(self) -> dict[str, Any]:
        """Return state, configuration and graph, as in ``GET /api/v1/flowgraph``."""
        return object_of(self._http.json("GET", API + "/flowgraph"), "the flowgraph")

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
        entries = [
            object_of(entry, "a parameter") for entry in list_of(self.info().get("parameters"), "parameters")
        ]
        return {text(entry.get("name"), "name"): entry.get("value") for entry in entries}

    @property
    def steady_state_timestamp(self) -> int:
        """Timestamp (ADC samples since the sync time) from which data reflect all changes so far."""
        return integer(self.info().get("steady_state_timestamp"), "steady_state_timestamp")

    def health(self) -> dict[str, Any]:
        """Return ``state``, ``faults``, ``survived_faults`` and ``elapsed_seconds``."""
        return object_of(self._http.json("GET", API + "/health"), "the health")

    def start(self) -> dict[str, Any]:
        """Start a prepared flowgraph (`hold`), and return its health; no effect on a running one."""
        return object_of(self._http.json("POST", API + "/flowgraph/start", body=b""), "the health")

    def stop(self) -> dict[str, Any]:
        """Stop the flowgraph: sources stop, and queued frames are processed. Return its health."""
        return object_of(self._http.json("POST", API + "/flowgraph/stop", body=b""), "the health")

    def abort(self) -> dict[str, Any]:
        """Stop the flowgraph at once: queued frames are dropped. Return its health."""
        return object_of(self._http.json("POST", API + "/flowgraph/abort", body=b""), "the health")

    def wait_for(self, *states: str, timeout: float = 60.0) -> str:
        """Wait until the flowgraph is in one of `states`, and return its state.

        A program that ends with its flowgraph answers no more: use `Run.wait` for the end of a run without `hold`.

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
            New values by block and parameter. NumPy scalars and arrays and complex numbers are converted; large
            arrays are sent as the content of a NumPy file.
        at : int, optional
            Effective timestamp in ADC samples since the sync time; by default the earliest possible.

        Raises
        ------
        Error
            If any value is rejected; nothing has changed.
        """
        # NumPy integers are valid timestamps.
        query = {"at": None if at is None else int(at)}
        body = encoded({
            block: {name: packed(value) for name, value in new.items()} if isinstance(new, Mapping) else new
            for block, new in values.items()
        })
        answer = object_of(self._http.json("PATCH", API + "/blocks", query=query, body=body), "the update")
        ahead = answer.get("seconds_ahead")
        return Update(
            integer(answer.get("effective_timestamp"), "effective_timestamp"),
            answer.get("is_late") is True,
            integer(answer.get("steady_state_timestamp"), "steady_state_timestamp"),
            text(answer.get("config_id"), "config_id"),
            None if ahead is None else number(ahead, "seconds_ahead"),
        )

    # Recorders and shadows.

    @property
    def recorders(self) -> list[Recorder]:
        """All recorders: blocks of the flowgraph, and recorders created with `record`."""
        entries = list_of(self._http.json("GET", API + "/recorders"), "recorders")
        return [Recorder(self, text(object_of(entry, "a recorder").get("name"), "name")) for entry in entries]

    @property
    def shadows(self) -> list[Shadow]:
        """All shadows."""
        entries = list_of(self._http.json("GET", API + "/shadows"), "shadows")
        return [Shadow(self, text(object_of(entry, "a shadow").get("block"), "block")) for entry in entries]

    def _local(self, name: str) -> Path:
        """Return the path of a file that the program names."""
        return Path(name) if self._directory is None else self._directory / name

    # Events and metrics.

    def events(self, since: int = 0) -> list[Event]:
        """Return the events after the event number `since`."""
        answer = self._http.json("GET", API + "/events", query={"since": since})
        return [
            Event._read(entry) for entry in list_of(object_of(answer, "the events").get("events"), "events")
        ]

    def follow_events(self, since: int = 0) -> Iterator[Event]:
        """Iterate over events after the event number `since`, those to come included, until the run ends."""
        target = API + "/events/stream"
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
        return samples(content.decode("utf-8", "replace"))

    def _follow(
        self,
        target: str,
        query: Mapping[str, Any],
        name: str,
        max_bytes: int,
        timeout: float | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """Iterate over the JSON objects of the events `name` of a stream."""
        events = self._http.events(target, query=query, max_bytes=max_bytes, timeout=timeout)
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


def connect(
    url: str = "http://127.0.0.1:8080",
    token: str | None = None,
    *,
    context: ssl.SSLContext | None = None,
    timeout: float = 60.0,
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
