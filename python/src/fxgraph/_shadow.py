"""Shadows of blocks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ._arrays import Array, read_npy
from ._errors import Error
from ._http import API, object_of, path
from ._stream import integer

if TYPE_CHECKING:
    from ._client import Client

__all__ = ["Shadow"]

#: Largest frame by default, in bytes.
_MAX_FRAME_BYTES = 128 << 20


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
        return API + path("blocks", self.block, "shadow")

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

    def first_difference(self, *, max_bytes: int = _MAX_FRAME_BYTES) -> tuple[Array, Array]:
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
