"""fxgraph from Python: run flowgraphs, monitor and control them, read their recordings.

- `run` starts a flowgraph, `connect` connects to one that runs; both return a `Client`.
- ``fx["x"].output.snapshot()`` returns a `Frame`, `load` a `Recording`: NumPy arrays with named axes, times,
  frequencies and validity.
- Everything that fails raises `Error`.
"""

from ._block import Block, Blocks, Change, Update
from ._client import Client, connect
from ._errors import Error
from ._events import Event, Sample
from ._frame import Frame, Validity
from ._output import Output, Outputs
from ._program import Run, program, run
from ._recorder import Recorder
from ._recording import Recording, load
from ._shadow import Shadow
from ._stream import Axis, Band, Clock, StreamType
from ._view import View

__all__ = [
    "Axis",
    "Band",
    "Block",
    "Blocks",
    "Change",
    "Client",
    "Clock",
    "Error",
    "Event",
    "Frame",
    "Output",
    "Outputs",
    "Recorder",
    "Recording",
    "Run",
    "Sample",
    "Shadow",
    "StreamType",
    "Update",
    "Validity",
    "View",
    "connect",
    "load",
    "program",
    "run",
]
