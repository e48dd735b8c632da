"""Values of parameters that are large arrays."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import Error

__all__ = ["packed", "unpacked"]

#: Smaller arrays are sent as lists.
_LARGE = 256
#: Key of the content of a NumPy file in the value of a parameter.
_CONTENT = "npy_base64"


def packed(value: object) -> object:
    """Return a large array of numbers as the content of a NumPy file, and any other value as it is."""
    if not isinstance(value, np.ndarray) or value.size < _LARGE or value.dtype.kind not in "iufc":
        return value
    number = np.dtype(np.float32) if value.dtype == np.float16 else value.dtype
    if number.itemsize > (16 if number.kind == "c" else 8):
        return value
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(value, number.newbyteorder("<")), allow_pickle=False)
    return {_CONTENT: base64.b64encode(file.getvalue()).decode()}


def unpacked(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return `parameters` with arrays in place of the contents of NumPy files."""

    def value(name: str, given: Any) -> Any:
        if not isinstance(given, dict) or list(given) != [_CONTENT]:
            return given
        try:
            content = base64.b64decode(given[_CONTENT], validate=True)
            return np.load(io.BytesIO(content), allow_pickle=False)
        except (TypeError, ValueError, EOFError) as error:
            raise Error(f"`{name}` is not the content of a NumPy file: {error}") from None

    return {name: value(name, given) for name, given in parameters.items()}
