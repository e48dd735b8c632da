"""Type hints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_type_hints_are_complete() -> None:
    pytest.importorskip("mypy")
    package = Path(__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental"]
    checked = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout
