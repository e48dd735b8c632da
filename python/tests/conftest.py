"""Flowgraphs that the tests run, each in a program of its own on a free port."""

from __future__ import annotations

import collections.abc
import pathlib

import pytest

import fxgraph

Directory = pathlib.Path


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> collections.abc.Iterator[fxgraph.Run]:
    """Two antennas in real time, shared by tests that leave it as it is."""
    directory = tmp_path_factory.mktemp("live")
    with fxgraph.run(
        "example:13_live", set={"antennas": 2}, recordings="recordings", directory=directory
    ) as fx:
        yield fx


@pytest.fixture
def fresh(tmp_path: Directory) -> collections.abc.Iterator[fxgraph.Run]:
    """Two antennas in real time, for a test that changes it."""
    with fxgraph.run(
        "example:13_live", set={"antennas": 2}, recordings="recordings", directory=tmp_path
    ) as fx:
        yield fx
