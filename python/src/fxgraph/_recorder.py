"""Recorders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import Error
from ._http import API, object_of, path
from ._recording import Recording, load
from ._stream import list_of, text

if TYPE_CHECKING:
    from ._client import Client

__all__ = ["Recorder"]


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
        return API + path("recorders", self.name)

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
        files = [
            object_of(entry, "a recording") for entry in list_of(self.info.get("recordings"), "recordings")
        ]
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
