"""The error of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Error", "UnknownName", "printable"]

_MAX_TEXT = 2000
_MAX_LINES = 50


def printable(text: object, limit: int = _MAX_TEXT) -> str:
    """Return `text` without control characters, with at most `limit` characters.

    Texts of a server may contain escape sequences, which a terminal would execute.
    """
    shown = str(text)
    if len(shown) > limit:
        shown = shown[:limit] + "..."
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in shown)


class Error(Exception):
    """A request that failed, a program that failed, or a file that is damaged.

    For an error response of the server, the attributes are those of its problem document (RFC 9457).

    Parameters
    ----------
    detail : str
        Error message.
    title : str, optional
        Name of the HTTP status, or the area of the error.
    status : int, optional
        HTTP status.
    help : sequence of str, optional
        Help, one line per element.
    diagnostics : sequence of dict, optional
        Diagnostics of a flowgraph or of a change, as in ``fxgraph validate --json``.
    retry_after : float, optional
        Seconds after which the same request may succeed.

    Attributes
    ----------
    detail, title, status, help, diagnostics, retry_after
        The parameters.
    """

    def __init__(
        self,
        detail: str,
        *,
        title: str | None = None,
        status: int | None = None,
        help: Sequence[str] = (),
        diagnostics: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = printable(detail)
        self.title = None if title is None else printable(title, 200)
        self.status = status
        self.help = tuple(printable(line) for line in list(help)[:_MAX_LINES])
        self.diagnostics = tuple(dict(diagnostic) for diagnostic in diagnostics)
        self.retry_after = retry_after

    def __str__(self) -> str:
        words = [str(word) for word in (self.status, self.title) if word is not None]
        lines = [f"{' '.join(words)}: {self.detail}" if words else self.detail]
        lines += [line for line in self._diagnostic_lines() if line not in lines]
        lines += [f"  help: {line}" for line in self.help]
        return "\n".join(lines)

    def _diagnostic_lines(self) -> list[str]:
        lines = []
        for diagnostic in self.diagnostics[:_MAX_LINES]:
            place = diagnostic.get("place")
            code = diagnostic.get("code")
            where = ""
            if isinstance(place, dict):
                where = f"{place.get('file')}:{place.get('line')}:{place.get('column')}: "
            severity = diagnostic.get("severity", "error")
            label = f"{severity}[{code}]" if code else str(severity)
            lines.append(printable(f"  {where}{label}: {diagnostic.get('message')}"))
            help_lines = diagnostic.get("help")
            if isinstance(help_lines, list):
                lines += [printable(f"    help: {line}") for line in help_lines[:_MAX_LINES]]
        return lines

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self.detail, self.__dict__.copy()))


class UnknownName(Error, KeyError):
    """There is no block or output with this name."""


def _restored(detail: str, state: dict[str, Any]) -> Error:
    error = Error(detail)
    error.__dict__.update(state)
    return error
