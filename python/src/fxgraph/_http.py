"""HTTP with time and size limits, on the standard library."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ._errors import Error, printable

__all__ = ["Http", "Query", "Response", "encoded", "object_of", "path", "plain"]

#: Path of the REST interface.
API = "/api/v1"
#: Largest JSON document and largest text, in bytes.
MAX_DOCUMENT_BYTES = 64 << 20
#: Largest problem document, in bytes.
_MAX_PROBLEM_BYTES = 1 << 20
#: Time without data after which a stream is broken; the server sends a comment every 15 s.
STREAM_SILENCE_SECONDS = 60.0
_PIECE_BYTES = 1 << 16

Query = Mapping[str, "str | int | float | bool | None"]


def path(*segments: str) -> str:
    """Return a path of percent-encoded segments."""
    return "/" + "/".join(urllib.parse.quote(segment, safe="") for segment in segments)


def plain(value: object) -> object:
    """Return the JSON equivalent of a NumPy scalar or array, or of a complex number."""
    if isinstance(value, complex):
        return {"re": value.real, "im": value.imag}
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON equivalent")


def encoded(value: object) -> bytes:
    """Return `value` as JSON."""
    try:
        return json.dumps(value, default=plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Error(
            f"the values of the request have no JSON equivalent: {error}",
            help=["use numbers, strings, lists and dictionaries; numbers must be finite"],
        ) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not JSON")


def decoded(text: bytes | str, what: str) -> Any:
    """Return the value of a JSON text from the server."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Error(f"{what} is not JSON: {printable(repr(text[:80]))}") from None


def object_of(value: Any, what: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object."""
    if not isinstance(value, dict):
        raise Error(f"{what} must be a JSON object, got {printable(repr(value), 80)}")
    return value


@dataclass(frozen=True)
class Response:
    """Response with status 2xx."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Reader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, limited: _Socket) -> None:
        self._limited = limited

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._limited.receive_into(buffer)


class _Socket:
    """A socket all of whose operations end before a deadline.

    The timeout of a socket limits each call, and a server that sends one byte at a time resets it.
    """

    def __init__(self, inner: socket.socket, deadline: float) -> None:
        self._inner = inner
        self.deadline: float | None = deadline
        #: Timeout of each call without a deadline, in seconds.
        self.silence = STREAM_SILENCE_SECONDS

    def _set_timeout(self) -> None:
        if self.deadline is None:
            self._inner.settimeout(self.silence)
            return
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._inner.settimeout(left)

    def receive_into(self, buffer: Any) -> int:
        self._set_timeout()
        return self._inner.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        self._set_timeout()
        self._inner.sendall(data)

    def makefile(self, _mode: str, *_: object, **__: object) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self), _PIECE_BYTES)

    def close(self) -> None:
        """Do nothing: http.client closes the socket before the body is read."""

    def end(self) -> None:
        """Close the connection."""
        self._inner.close()


class Http:
    """Client of one server. Each request has a connection of its own, so threads may share a client.

    Parameters
    ----------
    url : str
        ``http://host:port`` or ``https://host:port``, with a path if a proxy serves the program there.
    token : str or None
        Token sent as ``Authorization: Bearer ...``.
    context : ssl.SSLContext or None
        TLS settings; by default the certificate is checked against the system's authorities.
    timeout : float
        Time limit of a request, in seconds.
    """

    def __init__(self, url: str, token: str | None, context: ssl.SSLContext | None, timeout: float) -> None:
        example = ["give an address like http://127.0.0.1:8080"]
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Error(f"`{url}` is not an address: {error}", help=example) from None
        if parts.scheme not in ("http", "https") or not host:
            raise Error(f"`{url}` is not an address of HTTP", help=example)
        if parts.username is not None or parts.query or parts.fragment:
            raise Error(f"`{parts.scheme}://{host}` must have no user, query or fragment", help=example)
        if context is not None and parts.scheme != "https":
            raise Error("`context` needs an https address", help=["give https://..., or no context"])
        if not timeout > 0:
            raise Error(f"`timeout` must be positive, got {timeout}")
        self.timeout = timeout
        self._host, self._is_tls = host, parts.scheme == "https"
        self._port = port or (443 if self._is_tls else 80)
        self._base = parts.path.rstrip("/")
        self._context = context
        self._token = None if token is None else token.strip()
        if self._token is not None and not (self._token.isascii() and self._token.isprintable()):
            raise Error("`token` must be printable ASCII text")
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{parts.scheme}://{shown}:{self._port}{self._base}"

    def _connect(self, deadline: float) -> tuple[http.client.HTTPConnection, _Socket]:
        left = max(deadline - time.monotonic(), 0.001)
        connection: http.client.HTTPConnection
        if self._is_tls:
            context = self._context or ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=left, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=left)
        connection.connect()
        limited = _Socket(connection.sock, deadline)
        connection.sock = limited
        return connection, limited

    def _failed(self, error: Exception) -> Error:
        if isinstance(error, Error):
            return error
        if isinstance(error, TimeoutError):
            return Error(
                f"{self.url} did not answer in time",
                title="Timeout",
                help=["give a longer `timeout`, or check that the program runs"],
            )
        if isinstance(error, ssl.SSLError):
            return Error(
                f"no TLS connection to {self.url}: {error}",
                title="TLS error",
                help=["give `context=ssl.create_default_context(cafile=...)` with the certificate"],
            )
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
            return Error(
                f"nothing answers at {self.url}: {error}",
                title="No connection",
                help=["start the program with `fxgraph run FILE --listen`, or check the address"],
            )
        if isinstance(error, OSError):
            return Error(f"the connection to {self.url} failed: {error}", title="No connection")
        if isinstance(error, ValueError):
            return Error(f"the request or its answer is not HTTP: {error}", title="Not HTTP")
        return Error(
            f"the answer of {self.url} is incomplete or not HTTP: {type(error).__name__}",
            title="Not HTTP",
            help=["check that the program still runs, and that the address is that of fxgraph"],
        )

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        query: Query | None,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        given = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (query or {}).items()
            if value is not None
        }
        whole = self._base + target + ("?" + urllib.parse.urlencode(given) if given else "")
        sent = {"User-Agent": "fxgraph-python", "Connection": "close", **headers}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        connection.request(method, whole, body, sent)
        return connection.getresponse()

    def request(
        self,
        method: str,
        target: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        max_bytes: int = MAX_DOCUMENT_BYTES,
        timeout: float | None = None,
    ) -> Response:
        """Send a request and return its response.

        Raises
        ------
        Error
            If the server cannot be reached, does not answer in time, answers with an error or with more than
            `max_bytes` bytes, or does not speak HTTP.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        limited: _Socket | None = None
        try:
            connection, limited = self._connect(deadline)
            response = self._send(connection, method, target, query, body, headers)
            if not 200 <= response.status < 300:
                raise problem(response)
            content = _read(response, max_bytes)
            return Response(response.status, _headers(response), content)
        except (Error, OSError, http.client.HTTPException, ValueError) as error:
            raise self._failed(error) from None
        finally:
            if limited is not None:
                limited.end()

    def json(self, method: str, target: str, **options: Any) -> Any:
        """Send a request and return the value of its JSON response."""
        content = self.request(method, target, **options).body
        return decoded(content, f"the answer of {self.url}")

    def events(
        self,
        target: str,
        *,
        query: Query | None = None,
        max_bytes: int = MAX_DOCUMENT_BYTES,
        timeout: float | None = None,
    ) -> Generator[tuple[str, str], None, None]:
        """Yield the name and the data of each server-sent event, until the stream ends.

        The connection is closed when the iterator is closed. `max_bytes` limits an event; `timeout` limits the
        whole stream. Without `timeout`, a stream may last, but not be silent.
        """
        limited: _Socket | None = None
        try:
            connection, limited = self._connect(time.monotonic() + (timeout or self.timeout))
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
            response = self._send(connection, "GET", target, query, None, headers)
            if response.status != 200:
                raise problem(response)
            media_type = response.headers.get_content_type()
            if media_type != "text/event-stream":
                raise Error(f"expected a stream of events from {self.url}, got {printable(media_type)}")
            if timeout is None:
                limited.deadline = None
            yield from _parsed(_lines(response, max_bytes), max_bytes)
        except (Error, OSError, http.client.HTTPException, ValueError) as error:
            raise self._failed(error) from None
        finally:
            if limited is not None:
                limited.end()


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """Return the body, of at most `max_bytes` bytes."""
    too_long = Error(f"the answer of the server has more than {max_bytes} bytes", title="Too large")
    expected = response.length
    if expected is not None and expected > max_bytes:
        raise too_long
    content = bytearray()
    while piece := response.read1(_PIECE_BYTES):
        content += piece
        if len(content) > max_bytes:
            raise too_long
    if expected is not None and len(content) < expected:
        raise http.client.IncompleteRead(bytes(0), expected - len(content))
    return bytes(content)


def problem(response: http.client.HTTPResponse) -> Error:
    """Return the error in the problem document of a response."""
    content = _read(response, _MAX_PROBLEM_BYTES)
    retry_after: float | None
    try:
        retry_after = float(response.headers.get("Retry-After", ""))
    except ValueError:
        retry_after = None
    try:
        document = object_of(decoded(content, "the answer"), "the answer")
    except Error:
        document = {}
    help_lines = document.get("help")
    diagnostics = document.get("diagnostics")
    return Error(
        str(document.get("detail", "the server gives no reason")),
        title=str(document.get("title", response.reason)),
        status=response.status,
        help=[str(line) for line in help_lines] if isinstance(help_lines, list) else [],
        diagnostics=[item for item in diagnostics if isinstance(item, dict)]
        if isinstance(diagnostics, list)
        else [],
        retry_after=retry_after,
    )


def _lines(response: http.client.HTTPResponse, max_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a stream, without their ends."""
    held = bytearray()
    while piece := response.read1(_PIECE_BYTES):
        *whole, rest = piece.split(b"\n")
        for line in whole:
            held += line
            yield bytes(held).removesuffix(b"\r")
            held.clear()
        held += rest
        if len(held) > max_bytes:
            raise Error(f"an event of the server has more than {max_bytes} bytes", title="Too large")


def _parsed(lines: Iterator[bytes], max_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the events in the lines of a stream of server-sent events."""
    name, held = "message", 0
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data, held = "message", [], 0
            continue
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"event":
            name = text
        elif field == b"data":
            data.append(text)
            held += len(line)
        if held > max_bytes:
            raise Error(f"an event of the server has more than {max_bytes} bytes", title="Too large")
