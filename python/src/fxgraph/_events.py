"""Events and metrics of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import Error, printable
from ._http import object_of
from ._stream import integer, number, text

__all__ = ["Event", "Sample", "samples"]

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
    part_sequence : int or None
        Number of the event at its part, if the server is a fleet.
    """

    sequence: int
    unix_seconds: float
    block: str | None
    kind: str
    text: str
    part_sequence: int | None = None

    @property
    def time(self) -> np.datetime64:
        """UTC time, datetime64[us]."""
        return np.datetime64(round(self.unix_seconds * 1e6), "us")

    @staticmethod
    def _read(entry: Any) -> Event:
        event = object_of(entry, "an event")
        block, at_part = event.get("block"), event.get("part_sequence")
        return Event(
            integer(event.get("sequence"), "sequence"),
            number(event.get("unix_time_seconds"), "unix_time_seconds"),
            None if block is None else text(block, "block"),
            text(event.get("kind"), "kind"),
            text(event.get("text"), "text"),
            None if at_part is None else integer(at_part, "part_sequence"),
        )


@dataclass(frozen=True)
class Sample:
    """Value of a metric with its labels."""

    labels: Mapping[str, str]
    value: float


def samples(content: str) -> dict[str, list[Sample]]:
    """Return the samples in a text in the exposition format of Prometheus, by name of the metric."""
    metrics: dict[str, list[Sample]] = {}
    count = 0
    for line in content.splitlines():
        if not line or line.startswith("#"):
            continue
        name, labels, value = _sample(line)
        metrics.setdefault(name, []).append(Sample(labels, value))
        count += 1
        if count > _MAX_METRICS:
            raise Error(f"the server has more than {_MAX_METRICS} metrics", title="Too large")
    return metrics


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
