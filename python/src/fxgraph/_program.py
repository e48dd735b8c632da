"""The program: where it is, and runs of flowgraphs."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._client import Client
from ._errors import Error, printable
from ._http import Http, plain

__all__ = ["Run", "program", "run"]

_SERVING = "serving "
#: Characters of the program's messages that are kept.
_MAX_MESSAGES = 200
_MAX_LINE = 4096
_MAX_RESULTS_BYTES = 64 << 20
#: Time for the program to end after each of: SIGTERM, a second SIGTERM.
_DRAIN_SECONDS, _ABORT_SECONDS = 30.0, 5.0
_PR_SET_PDEATHSIG = 1


def program() -> str:
    """Return the path of the program: ``FXGRAPH`` of the environment, the one of this package, or one in ``PATH``.

    Raises
    ------
    Error
        If there is none.
    """
    named = os.environ.get("FXGRAPH")
    if named:
        found = shutil.which(named)
        if found is None:
            raise Error(f"`FXGRAPH` names {named}, which is no program")
        return found
    directories = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    with contextlib.suppress(KeyError):
        directories.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    for directory in (*directories, None):
        found = shutil.which("fxgraph", path=directory)
        if found is not None:
            return found
    raise Error(
        "the program `fxgraph` is not installed",
        help=["install the wheel of this package, or set `FXGRAPH` to the path of the program"],
    )


def _terminate_with_parent() -> Callable[[], None] | None:
    """Return a function for the child that makes the kernel send SIGTERM when this process dies.

    Linux sends the signal when the thread that created the child ends, so this is for the main thread only.
    """
    if not sys.platform.startswith("linux") or threading.current_thread() is not threading.main_thread():
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child


def _end(process: subprocess.Popen[bytes], drain_seconds: float = _DRAIN_SECONDS) -> None:
    """End `process`: drain, then abort, then kill."""
    for seconds in (drain_seconds, _ABORT_SECONDS):
        if process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    if process.poll() is None:
        process.kill()
        process.wait()


class _Messages:
    """Messages of the program on stderr, the newest ones; the address in them is awaited."""

    def __init__(self, pipe: Any) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=_MAX_MESSAGES)
        self.url: str | None = None
        self.is_settled = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: Any) -> None:
        with pipe:
            while line := pipe.readline(_MAX_LINE):
                message = line.decode("utf-8", "replace").rstrip()
                if self.url is None and message.startswith(_SERVING):
                    self.url = message.removeprefix(_SERVING).strip()
                    self.is_settled.set()
                else:
                    self._lines.append(message)
        self.is_settled.set()

    def text(self) -> str:
        """Return the messages."""
        return printable("\n".join(list(self._lines)), 20_000).strip()

    def join(self) -> None:
        """Wait for the last message of a program that has ended."""
        self._thread.join(5)


class _Results:
    """Results of the program on stdout."""

    def __init__(self, pipe: Any) -> None:
        self._content = bytearray()
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: Any) -> None:
        with pipe:
            while piece := pipe.read1(1 << 16):
                if len(self._content) < _MAX_RESULTS_BYTES:
                    self._content += piece

    def value(self) -> dict[str, Any] | None:
        """Return the results of a program that has ended; None without any."""
        self._thread.join(5)
        try:
            results = json.loads(self._content)
        except (ValueError, RecursionError):
            return None
        return results if isinstance(results, dict) else None


class Run(Client):
    """A flowgraph in a program of its own, see `run`. The program ends with the ``with`` block or `close`."""

    def __init__(
        self, process: subprocess.Popen[bytes], messages: _Messages, http: Http, directory: Path
    ) -> None:
        super().__init__(http, directory)
        self._process = process
        self._messages = messages
        self._results = _Results(process.stdout)
        # Also when the interpreter exits.
        self._finalizer = weakref.finalize(self, _end, process, _ABORT_SECONDS)

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the program; None while it runs."""
        return self._process.poll()

    @property
    def messages(self) -> str:
        """Newest messages of the program: warnings and errors."""
        return self._messages.text()

    def wait(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Wait until the program has ended, and return the results of the run.

        Parameters
        ----------
        timeout : float, optional
            Time limit in seconds.

        Returns
        -------
        dict or None
            Results as in ``fxgraph run --json``; None if the program wrote none.

        Raises
        ------
        Error
            If the run failed, or the program still runs after `timeout` seconds.
        """
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Error(f"the program still runs after {timeout} s", title="Timeout") from None
        self._check()
        return self._results.value()

    def close(self) -> None:
        """End the program: the flowgraph drains; after 30 s it is aborted. No effect if it has ended."""
        self._finalizer.detach()
        _end(self._process)

    def _check(self) -> None:
        """Raise an error if the run has failed."""
        if self._process.returncode not in (0, 130):
            raise _failure(self._process, self._messages)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        had_ended = self._process.poll() is not None
        self.close()
        if error is None and (had_ended or self._process.returncode > 0):
            self._check()

    def __repr__(self) -> str:
        state = "running" if self.returncode is None else f"exit status {self.returncode}"
        return f"<Run {self.url}, process {self.pid}, {state}>"

    def _repr_html_(self) -> str:
        if self.returncode is not None:
            from ._html import table

            rows = [("exit status", self.returncode), ("messages", self.messages)]
            return table(f"run of {self.url}", ["", ""], rows)
        return super()._repr_html_()


def _failure(process: subprocess.Popen[bytes], messages: _Messages) -> Error:
    messages.join()
    status = process.returncode
    reason = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    said = messages.text()
    return Error(said or "the program gave no reason", title=f"fxgraph run ended with {reason}")


def _setting(name: str, value: object) -> str:
    if isinstance(value, str):
        return f"{name}={value}"
    return f"{name}={json.dumps(value, default=plain)}"


def run(
    flowgraph: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    *,
    hold: bool = False,
    recordings: str | os.PathLike[str] | None = None,
    token_file: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    duration: str | None = None,
    arguments: Sequence[str] = (),
    timeout: float = 60.0,
    start_timeout: float = 120.0,
) -> Run:
    """Run a flowgraph in a program of its own, which listens on a free loopback port.

    The program runs until its sources end, or until `Run.close`, the end of the ``with`` block, or the end of
    Python. Called in the main thread on Linux, it ends even if Python is killed.

    Parameters
    ----------
    flowgraph : path
        File, or ``example:NAME`` for an example inside the program (``fxgraph examples``).
    set : mapping, optional
        Parameters of the flowgraph.
    hold : bool
        Wait for `Client.start`; the flowgraph can be started again after each end.
    recordings : path, optional
        Directory in which `Output.record` writes files.
    token_file : path, optional
        File with a token. Without one, every user of this machine can control the flowgraph.
    directory : path, optional
        Working directory of the program, by default that of this process.
    duration : str, optional
        Time limit of the run, such as ``"10s"``.
    arguments : sequence of str
        Other options of ``fxgraph run``.
    timeout : float
        Time limit of a request in seconds, see `connect`.
    start_timeout : float
        Time limit of the start in seconds: checks, and compilation of GPU kernels.

    Returns
    -------
    Run
        Client of the flowgraph, which runs (or, with `hold`, is prepared).

    Raises
    ------
    Error
        With the diagnostics, if the flowgraph is invalid.
    """
    where = Path(directory) if directory is not None else Path.cwd()
    file = os.fspath(flowgraph)
    if file == "-":
        raise Error("`-` (standard input) is not supported", help=["write the flowgraph to a file"])
    command = [program(), "run", "--json", "--color", "never", "--listen", "127.0.0.1:0"]
    for name, value in (set or {}).items():
        command.append(f"--set={_setting(name, value)}")
    if hold:
        command.append("--hold")
    if recordings is not None:
        command.append(f"--recordings={os.fspath(recordings)}")
    token = None
    if token_file is not None:
        try:
            token = Path(token_file).read_text()
        except (OSError, ValueError) as error:
            raise Error(f"`token_file` cannot be read: {error}") from None
        command.append(f"--token-file={os.fspath(Path(token_file).absolute())}")
    if duration is not None:
        command.append(f"--duration={duration}")
    command += [*arguments, "--", file]
    try:
        with warnings.catch_warnings():
            # Python warns of `preexec_fn` in a process with threads; the function makes two system calls.
            warnings.simplefilter("ignore", DeprecationWarning)
            process = subprocess.Popen(
                command,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C in a terminal interrupts Python, not the flowgraph.
                start_new_session=True,
                preexec_fn=_terminate_with_parent(),
            )
    except OSError as error:
        raise Error(f"{command[0]} cannot be started: {error}") from None
    try:
        return _started(process, where, hold, token, timeout, time.monotonic() + start_timeout)
    except BaseException:
        _end(process, _ABORT_SECONDS)
        raise


def _started(
    process: subprocess.Popen[bytes],
    where: Path,
    hold: bool,
    token: str | None,
    timeout: float,
    deadline: float,
) -> Run:
    messages = _Messages(process.stderr)
    if not messages.is_settled.wait(max(deadline - time.monotonic(), 0)):
        raise Error(f"the flowgraph has not started in time\n{messages.text()}", title="Timeout")
    if messages.url is None:
        process.wait(_ABORT_SECONDS)
        raise _failure(process, messages)
    started = Run(process, messages, Http(messages.url, token, None, timeout), where)
    try:
        while started.state in ("starting", "prepared") and not (hold and started.state == "prepared"):
            if time.monotonic() > deadline:
                raise Error("the flowgraph has not started in time", title="Timeout")
            time.sleep(0.02)
    except Error:
        # A short flowgraph may have ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ABORT_SECONDS)
        if process.poll() is None:
            raise
        started._check()
    return started
