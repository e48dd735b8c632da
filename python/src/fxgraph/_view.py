"""Views: frames reduced to a few thousand numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._errors import Error
from ._http import object_of
from ._stream import integer, list_of, number, text

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = ["View"]


class View:
    """A view of an output: a frame reduced to a few thousand numbers.

    Attributes
    ----------
    name : str
        Name of the view, such as ``spectrum``.
    kind : str
        ``lines``, ``matrix``, ``points`` or ``sky``.
    timestamp : int
        Time of the frame's first element in ADC samples since the sync time.
    unix_seconds : float
        The same as Unix time, in seconds.
    frame : int
        Number of the frame at the output.
    valid : float or None
        Valid fraction of the frame.
    x : array of float64 or None
        Positions of the values of ``lines``, shape ``(points,)``.
    x_name, x_unit : str
        Name and unit of `x`.
    series : dict of arrays of float64
        Values by name: shape ``(points,)`` for ``lines``, ``(rows, columns)`` for a ``matrix``, ``()`` for
        ``points``; of each satellite in the ``sky`` azimuth and elevation in degrees, C/N0 in dB Hz, residual in metres, and
        1 if the position uses it. NaN where no value is valid.
    units : dict of str
        Unit of each series.
    selected : dict of str
        Label of the selected index of each axis.
    """

    def __init__(self, message: Any) -> None:
        view = object_of(message, "a view")
        self.name = text(view.get("view"), "view")
        self.kind = text(view.get("kind"), "kind")
        self.timestamp = integer(view.get("timestamp"), "timestamp")
        self.unix_seconds = number(view.get("time_seconds"), "time_seconds")
        self.frame = integer(view.get("frame"), "frame")
        valid = view.get("valid")
        self.valid = None if valid is None else number(valid, "valid")
        self.x: npt.NDArray[np.float64] | None = None
        self.x_name = self.x_unit = ""
        grid, rows, columns = view.get("x"), view.get("rows"), view.get("columns")
        shape: tuple[int, ...] | None = None
        if isinstance(grid, dict):
            length = integer(grid.get("len"), "len", 1 << 20)
            start, step = number(grid.get("start"), "start"), number(grid.get("step"), "step")
            self.x = start + step * np.arange(length, dtype=np.float64)
            self.x_name, self.x_unit = text(grid.get("name"), "name"), text(grid.get("unit"), "unit")
        elif isinstance(rows, dict) and isinstance(columns, dict):
            shape = (integer(rows.get("len"), "len", 1 << 20), integer(columns.get("len"), "len", 1 << 20))
        self.series: dict[str, npt.NDArray[np.float64]] = {}
        self.units: dict[str, str] = {}
        for entry in list_of(view.get("series"), "series"):
            one = object_of(entry, "a series")
            name, values = text(one.get("name"), "name"), list_of(one.get("values"), "values")
            floats = [math.nan if value is None else number(value, "values") for value in values]
            array = np.array(floats, dtype=np.float64)
            if shape is not None and array.size == shape[0] * shape[1]:
                array = array.reshape(shape)
            elif self.kind == "points" and array.size == 1:
                array = array.reshape(())
            self.series[name], self.units[name] = array, text(one.get("unit"), "unit")
        self.selected = {
            text(one.get("axis"), "axis"): text(one.get("name"), "name")
            for one in (object_of(entry, "`selected`") for entry in list_of(view.get("selected"), "selected"))
        }
        self.message: Mapping[str, Any] = view

    def plot(self, axes: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Plot the first series, or the satellites in the sky, with Matplotlib; return the axes.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Axes to draw into; by default new ones.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise Error("`plot` needs Matplotlib", help=["pip install 'fxgraph[plot]'"]) from None
        if not self.series:
            raise Error(f"the view `{self.name}` has no values")
        if axes is None:
            _, axes = plt.subplots()
        if self.kind == "sky":
            for name, (azimuth, elevation, *_) in self.series.items():
                if math.isfinite(azimuth) and math.isfinite(elevation):
                    angle = math.radians(azimuth)
                    place = ((90 - elevation) * math.sin(angle), (90 - elevation) * math.cos(angle))
                    axes.plot(*place, "o")
                    axes.annotate(name, place)
            axes.set(xlabel="degrees from the zenith to the east", ylabel="degrees from the zenith to the north", aspect="equal")
            return axes
        name, values = next(iter(self.series.items()))
        unit = self.units[name]
        if values.ndim == 2:
            axes.imshow(values)
            axes.set_title(f"{name} [{unit}]")
        else:
            x = np.arange(values.size) if self.x is None else self.x
            axes.plot(x, np.atleast_1d(values), "." if values.size == 1 else "-")
            axes.set_xlabel(f"{self.x_name} [{self.x_unit}]" if self.x_name else "")
            axes.set_ylabel(f"{name} [{unit}]")
        return axes

    def __repr__(self) -> str:
        return f"<View {self.name} of frame {self.frame}: {', '.join(self.series)}>"
