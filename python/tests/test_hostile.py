"""Servers that are broken or hostile: every answer is an error, in bounded time and memory."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import pickle
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fxgraph
from fxgraph._html import graph_svg

HEALTH = b'{"state":"running","faults":0,"survived_faults":0,"elapsed_seconds":0}'
Answer = Callable[[socket.socket, bytes], None]


def plain(body: bytes, status: bytes = b"200 OK", head: bytes = b"") -> Answer:
    """Answer with `body`."""

    def answer(connection: socket.socket, _: bytes) -> None:
        length = str(len(body)).encode()
        connection.sendall(
            b"HTTP/1.1 " + status + b"\r\ncontent-length: " + length + b"\r\n" + head + b"\r\n" + body
        )

    return answer


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve `answer` to every request except the first one, which is for the health."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(20)
                request = connection.recv(65536)
                (answer if number else plain(HEALTH))(connection, request)
            if is_over.is_set():
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        is_over.set()
        # Closing alone does not wake the thread.
        with contextlib.suppress(OSError):
            socket.create_connection(listener.getsockname(), 1).close()
        listener.close()
        thread.join(5)


def error_of(answer: Answer, ask: Callable[[fxgraph.Client], Any], timeout: float = 2.0) -> fxgraph.Error:
    """Return the error of a request to a server, which must end in time."""
    with serving(answer) as url:
        fx = fxgraph.connect(url, timeout=timeout)
        start = time.monotonic()
        with pytest.raises(fxgraph.Error) as caught:
            ask(fx)
        assert time.monotonic() - start < timeout + 3
    return caught.value


def frames(fx: fxgraph.Client) -> list[fxgraph.Frame]:
    """Read a stream of frames."""
    return list(fxgraph.Output(fx, "x", "output").stream())


def events(*messages: str) -> Answer:
    """Answer with server-sent events."""
    body = "".join(f"event: frame\ndata: {message}\n\n" for message in messages).encode()
    return plain(body, head=b"content-type: text/event-stream\r\n")


def frame(**changes: Any) -> str:
    """Return the message of a frame."""
    content = io.BytesIO()
    np.save(content, np.zeros((3, 2), np.int8))
    carries = {
        "dtype": "ci8",
        "axes": [{"name": "channel", "len": 3}],
        "adc_sample_rate_hz": 1e6,
        "sync_time_seconds": 0,
        "samples_per_frame": 6,
        "band": {"channels": 3, "first_channel": 0, "centre_hz": 0, "bandwidth_hz": 1},
        "validity_axes": [{"name": "channel", "len": 3}],
        "validity_full": 1,
    }
    whole = {
        "output": "x.output",
        "sequence": 1,
        "timestamp": 6,
        "config_id": "00",
        "validity": {"units": 3, "whole": 3, "partial": 0, "missing": 0},
        "carries": carries,
        "npy": base64.b64encode(content.getvalue()).decode(),
    }
    carries.update(changes.pop("carries", {}))
    return json.dumps(whole | changes)


def test_frame_of_the_test_is_valid() -> None:
    with serving(events(frame())) as url:
        (one,) = frames(fxgraph.connect(url))
    assert one.data.tolist() == [0, 0, 0]
    assert one.frequencies_hz.tolist() == pytest.approx([-1 / 3, 0, 1 / 3])


def npy(header: bytes, values: bytes = b"") -> str:
    """Return an array with `header` in Base64."""
    length = len(header).to_bytes(2, "little")
    return base64.b64encode(b"\x93NUMPY\x01\x00" + length + header + values).decode()


@pytest.mark.parametrize(
    "changes",
    [
        {"npy": "%%%"},
        {"npy": 5},
        {"npy": base64.b64encode(b"\x93NUMPY\x01\x00").decode()},
        {"npy": npy(b"{'descr': '|i1', 'fortran_order': False, 'shape': (99999999999,), }")},
        {"npy": npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps(print))},
        {"npy": npy(b"{'descr': '|i1', 'fortran_order': True, 'shape': (1,), }", b"1")},
        {"npy": npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", b"1234")},
        {"npy": npy(b"(" * 9000)},
        {"timestamp": -1},
        {"timestamp": "now"},
        {"timestamp": 2**64},
        {"sequence": None},
        {"validity": 3},
        {"carries": {"dtype": "i99p"}},
        {"carries": {"dtype": None}},
        {"carries": {"axes": [{"name": "channel", "len": 10**12}]}},
        {"carries": {"axes": [{"name": "channel", "len": 4}]}},
        {"carries": {"axes": [{"name": "a", "len": 1}] * 99}},
        {"carries": {"adc_sample_rate_hz": 0}},
        {"carries": {"band": {"channels": "3"}}},
    ],
)
def test_wrong_frame_is_an_error(changes: dict[str, Any]) -> None:
    error_of(events(frame(**changes)), frames)


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "5", "[" * 200_000, '{"timestamp": NaN}', '{"timestamp": ' + "9" * 10_000 + "}"],
)
def test_event_that_is_no_frame_is_an_error(message: str) -> None:
    if message:
        error_of(events(message), frames)
    else:
        with serving(events("\n")) as url, pytest.raises(fxgraph.Error):
            frames(fxgraph.connect(url))


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\xfe", b"[" * 200_000, b"null", b"3", b'"text"', b"NaN", b"9" * 10_000]
)
def test_answer_that_is_no_description_is_an_error(body: bytes) -> None:
    error_of(plain(body), lambda fx: fx.info())
    error_of(plain(body), lambda fx: fx.blocks)
    error_of(plain(body), lambda fx: fx["x"].outputs)
    error_of(plain(body), lambda fx: fx.events())
    error_of(plain(body), lambda fx: fx.set({"x": {"a": 1}}))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 1_000_000,
    ],
)
def test_answer_that_is_no_http_is_an_error(raw: bytes) -> None:
    error_of(lambda connection, _: connection.sendall(raw), lambda fx: fx.info())
    error_of(lambda connection, _: connection.sendall(raw), frames)


def test_redirection_is_not_followed() -> None:
    head = b"location: http://169.254.169.254/\r\n"
    assert error_of(plain(b"", b"302 Found", head), lambda fx: fx.info()).status == 302


def test_slow_answer_is_an_error_in_time() -> None:
    def drip(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(100):
            connection.sendall(b" ")
            time.sleep(0.1)

    error = error_of(drip, lambda fx: fx.info(), timeout=1)
    assert error.title == "Timeout"

    def drip_head(connection: socket.socket, _: bytes) -> None:
        for _ in range(100):
            connection.sendall(b"H")
            time.sleep(0.1)

    assert error_of(drip_head, lambda fx: fx.info(), timeout=1).title == "Timeout"
    assert error_of(lambda *_: time.sleep(3), lambda fx: fx.info(), timeout=1).title == "Timeout"


def test_snapshot_of_a_silent_stream_is_an_error_in_time() -> None:
    def silent(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for _ in range(100):
            connection.sendall(b":\n\n")
            time.sleep(0.1)

    output = lambda fx: fxgraph.Output(fx, "x", "output").snapshot()  # noqa: E731
    assert error_of(silent, output, timeout=1).title == "Timeout"


def test_endless_answers_take_bounded_memory() -> None:
    def endless(head: bytes, piece: bytes) -> Answer:
        def answer(connection: socket.socket, _: bytes) -> None:
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
            for _ in range(4000):
                connection.sendall(piece)

        return answer

    output = lambda fx: next(fxgraph.Output(fx, "x", "output").stream(max_bytes=1000))  # noqa: E731
    tracemalloc.start()
    stream = b"content-type: text/event-stream\r\n"
    assert "more than" in str(error_of(endless(stream, b"data: " + b"x" * 65536), output, 30))
    assert "more than" in str(error_of(endless(stream, b"data: " + b"x" * 9000 + b"\n"), output, 30))
    endless_body = endless(b"", b"x" * 65536)
    assert "more than" in str(error_of(endless_body, lambda fx: fx.info(), 30))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 256 << 20


def test_texts_of_a_server_hold_no_control_characters() -> None:
    document = {
        "title": "\x1b[2J",
        "status": 404,
        "detail": "a\x1b]0;b\x07",
        "help": ["\x1b[31m" + "y" * 9000],
    }
    error = error_of(plain(json.dumps(document).encode(), b"404 Not Found"), lambda fx: fx.info())
    assert "\x1b" not in str(error)
    assert "\x07" not in str(error)
    assert len(str(error)) < 5000
    wrong = {"title": 5, "detail": [], "help": "no list", "diagnostics": [3, {"place": 4}]}
    error = error_of(plain(json.dumps(wrong).encode(), b"500 Error"), lambda fx: fx.info())
    assert error.status == 500
    assert str(error)


def test_problem_in_a_stream_is_an_error() -> None:
    body = b'event: problem\ndata: {"title": "Conflict", "status": 409, "detail": "the block ended", "help": []}\n\n'
    error = error_of(plain(body, head=b"content-type: text/event-stream\r\n"), frames)
    assert (error.status, error.detail) == (409, "the block ended")


def test_mask_is_an_error_if_the_place_of_missing_units_is_unknown() -> None:
    one = {"units": 3, "whole": 2, "partial": 0, "missing": 1}
    with serving(events(frame(validity=one), frame(validity=one | {"missing": 3, "whole": 0}))) as url:
        some, all_of_it = frames(fxgraph.connect(url))
    with pytest.raises(fxgraph.Error, match="1 of 3"):
        _ = some.mask
    assert all_of_it.mask.all()


def test_mask_of_a_snapshot_has_the_missing_units() -> None:
    one = {"units": 3, "whole": 1, "partial": 1, "missing": 1, "counts": [4, 0, 1]}
    with serving(events(frame(validity=one))) as url:
        (found,) = frames(fxgraph.connect(url))
    assert found.mask.tolist() == [False, True, False]
    assert np.ma.array(found.data, mask=found.mask).count() == 2
    assert found.validity.counts == (4, 0, 1)


def test_validity_counts_that_do_not_fit_are_an_error() -> None:
    one = {"units": 3, "whole": 1, "partial": 1, "missing": 1}
    for counts in ([1, 0], [1, 0, "x"], "abc", {"a": 1}):
        error = error_of(events(frame(validity=one | {"counts": counts})), frames)
        assert str(error)
    two = {"units": 2, "whole": 1, "partial": 0, "missing": 1, "counts": [1, 0]}
    with serving(events(frame(validity=two))) as url:
        (found,) = frames(fxgraph.connect(url))
    with pytest.raises(fxgraph.Error, match="must have 3 validity units, got 2"):
        _ = found.mask


def update(**changes: Any) -> Answer:
    """Answer with the result of a live update."""
    whole = {"effective_timestamp": 6, "is_late": False, "steady_state_timestamp": 6, "config_id": "00"}
    return plain(json.dumps(whole | changes).encode())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (update(seconds_ahead=2.5), 2.5),
        (update(seconds_ahead=3), 3.0),
        # Before the first sample, and of a program that does not say it.
        (update(seconds_ahead=None), None),
        (update(), None),
    ],
)
def test_update_has_the_time_ahead_of_the_answer(answer: Answer, expected: float | None) -> None:
    with serving(answer) as url:
        made = fxgraph.connect(url).set({"a": {"level": 1}})
    assert made == fxgraph.Update(6, False, 6, "00", expected)


@pytest.mark.parametrize("ahead", ["soon", True, [1]])
def test_update_with_another_time_ahead_is_an_error(ahead: object) -> None:
    error = error_of(update(seconds_ahead=ahead), lambda fx: fx.set({"a": {"level": 1}}))
    assert "`seconds_ahead` must be a finite number" in str(error)


def test_names_cannot_leave_their_path() -> None:
    seen = []

    def answer(connection: socket.socket, request: bytes) -> None:
        seen.extend(request.split(b" ")[1:2])
        plain(b"{}")(connection, request)

    with serving(answer) as url:
        fx = fxgraph.connect(url)
        _ = fx["../flowgraph?x=1#a/b c\r\nhost: x"].name
    assert seen == [b"/api/v1/blocks/..%2Fflowgraph%3Fx%3D1%23a%2Fb%20c%0D%0Ahost%3A%20x"]


@pytest.mark.parametrize(
    "url",
    ["", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "http://a:b@127.0.0.1", "http://x?y=1"],
)
def test_wrong_address_is_an_error(url: str) -> None:
    with pytest.raises(fxgraph.Error):
        fxgraph.connect(url)


def test_refused_connection_is_an_error_with_help() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(fxgraph.Error, match="nothing answers") as caught:
        fxgraph.connect(f"http://127.0.0.1:{port}")
    assert "fxgraph run" in caught.value.help[0]


def test_html_escapes_names_and_draws_any_graph() -> None:
    name = "<script>alert(1)</script>\"'"
    blocks = [{"name": name, "kind": name, "state": name, "device": name, "busy_fraction": float("inf")}]
    edges = [{"from": name, "to": name, "output": name, "input": name, "carries": name}] * 3
    drawn = graph_svg({"blocks": blocks, "edges": edges})
    assert "<script" not in drawn
    circle = [{"name": str(n)} for n in range(50)]
    round_edges = [{"from": str(n), "to": str((n + 1) % 50)} for n in range(50)]
    assert graph_svg({"blocks": circle, "edges": round_edges}).count("<g>") == 50
    assert "too many" in graph_svg({"blocks": [{"name": str(n)} for n in range(1000)], "edges": []})
    assert graph_svg({"blocks": 3, "edges": None}).startswith("<svg")


def test_errors_are_pickled() -> None:
    error = fxgraph.Error("a", title="b", status=404, help=["c"], diagnostics=[{"code": "E0108"}])
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, fxgraph.Error)
    assert str(copy) == str(error)
    assert copy.status == 404
