"""Runs the runner with a CUDA driver that is written here: its memory is the host's.

Arguments: block.py, gpu.py, runner.py.
"""

import ctypes
import json
import os
import socket
import struct
import sys
import types

package = sys.modules["fxgraph"] = types.ModuleType("fxgraph")
package.__path__ = []
for name, path in zip(("fxgraph.block", "fxgraph_gpu", "fxgraph_runner"), sys.argv[1:]):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(open(path).read(), path, "exec"), vars(module))
package.block, gpu, runner = (sys.modules[name] for name in ("fxgraph.block", "fxgraph_gpu", "fxgraph_runner"))

import numpy as np  # noqa: E402
from fxgraph.block import Block, DeviceArray, Port  # noqa: E402

JOB, DONE = struct.Struct("<BBHHHQQQQ"), struct.Struct("<BBHIQQ")
ILLEGAL_ADDRESS = 700
PORT = Port("f32", (("channel", 4), ("sample", 8)), 8, 1e6, (("heap", 2),))


class Cuda:
    """A driver: each call is an attribute, whose argument types can be set."""

    def __init__(self):
        self.opened, self.closed, self.records, self.finished, self.fails, self.answered_early = [], [], 0, 0, 0, False
        self.events, self.log, self.open_fails = {}, [], 0
        for name in gpu.CALLS:
            # A function of its own for each name.
            setattr(self, name, lambda *arguments, name=name: getattr(self, "do_" + name, lambda *_: 0)(*arguments))

    def do_cuEventCreate(self, event, flags):
        event._obj.value = 1000 + len(self.events)
        self.events[event._obj.value] = 0
        return 0

    def do_cuEventRecord(self, event, stream):
        self.records += 1
        self.log.append(("record", stream))
        self.events[event.value] = self.records
        return 0

    def do_cuStreamWaitEvent(self, stream, event, flags):
        self.log.append(("wait", stream))
        return 0

    def do_cuEventQuery(self, event):
        return self.fails or (0 if self.events[event.value] <= self.finished else 600)

    def do_cuEventSynchronize(self, event):
        self.answered_early |= bool(peek()) and self.finished == 0
        self.finished = max(self.finished, self.events[event.value])
        return self.fails

    def do_cuCtxSynchronize(self):
        return self.fails

    def do_cuIpcOpenMemHandle_v2(self, address, handle, flags):
        if self.open_fails:
            self.open_fails -= 1
            return ILLEGAL_ADDRESS
        address._obj.value = int.from_bytes(bytes(handle.bytes)[:8], "little")
        self.opened.append(address._obj.value)
        self.log.append(("open", address._obj.value))
        return 0

    def do_cuIpcCloseMemHandle(self, address):
        self.closed.append(address)
        self.log.append(("close", address))
        return 0

    def do_cuMemcpyDtoDAsync_v2(self, to, start, count, stream):
        ctypes.memmove(to, start, count)
        self.log.append(("copy", stream))
        return 0

    def do_cuGetErrorName(self, code, name):
        name._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS"
        return 0

    def do_cuGetErrorString(self, code, text):
        text._obj.value = b"an illegal memory access was encountered"
        return 0


class Doubled(Block):
    """Doubles the numbers; fails, or keeps the frame, at some timestamps."""

    kept = None

    def work(self, frame, out):
        data = frame.data
        assert isinstance(data, DeviceArray) and (data.shape, data.dtype, data.nbytes) == ((4, 8), np.float32, 128)
        assert data.__cuda_array_interface__["data"] == (data.address, False)
        if frame.timestamp == 1300:
            raise ValueError("bad frame")
        if frame.timestamp == 1400:
            self.kept = data
        np.multiply(host(data.address), 2, out=host(out.data.address))


def host(address):
    """The numbers at an address."""
    return np.ctypeslib.as_array((ctypes.c_ubyte * PORT.nbytes).from_address(address)).view("<f4").reshape(4, 8)


def handle(address):
    return address.to_bytes(8, "little") + bytes(56)


def submit(job, timestamp, places=()):
    """Sends a job in slot 0; `places`, of input and output, are new to the process."""
    new = b"".join(handle(memory) + offset.to_bytes(8, "little") for memory, offset in places)
    ours.send(JOB.pack(70, 0, 0, 0, 3 if places else 0, job, timestamp, job, 0) + new)


def peek():
    try:
        return ours.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def served():
    """Lets the process work until no packet is left; returns its answers: job and timestamp, or an error."""
    try:
        server.serve()
    except BlockingIOError:
        pass
    answers = []
    while peek():
        data = ours.recv(1 << 16)
        answers.append(json.loads(data)["error"] if data[:1] == b"{" else DONE.unpack(data)[4:])
    return answers


class Ended(Exception):
    """The process has ended."""


def end(code):
    raise Ended


def last_error():
    """Lets the process work until it ends; returns its error."""
    try:
        served()
    except Ended:
        error = json.loads(ours.recv(1 << 16))["error"]
        assert error["ended"], error
        return error["message"]
    raise AssertionError("the process must end")


cuda = Cuda()
gpu.ctypes.CDLL = lambda name: cuda
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ours.setblocking(False)
theirs.setblocking(False)  # the end of the packets is an error, which ends `serve`
server = runner.Server(Doubled(), runner.Channel(theirs), runner.Source("x.py", None, ""), (PORT,), PORT)
counts = os.memfd_create("counts")
os.ftruncate(counts, 4 * 64)
memory = ctypes.create_string_buffer(1 << 16)
A = ctypes.addressof(memory)
B, C, D = A + 8192, A + 16384, A + 24576

# The hint is that of the first memory which the process opens.
cuda.open_fails = 1
try:
    gpu.Gpu(4, handle(A))
except gpu.GpuFault as error:
    assert "cannot open the GPU memory" in str(error) and "some containers" in str(error), error
else:
    raise AssertionError("a process that cannot open the probe must not start")

server.memory({"jobs": 4, "stride": 64, "counters": 0, "probe": list(handle(A))}, counts)
assert (cuda.opened, cuda.closed) == ([A], [A]), "the probe is opened and closed"

# Two buffers of one allocation: it is opened once. Frames are answered in order, once the GPU has finished them.
host(A + 512)[...] = 3
submit(0, 1000, [(A, 512), (A, 1024)])
submit(1, 1100)
assert served() == [(0, 1000), (1, 1100)] and not cuda.answered_early
assert cuda.opened == [A, A] and cuda.records == 2 and (host(A + 1024) == 6).all()

# An error comes in its turn, and the process goes on.
for job, timestamp in ((2, 1200), (3, 1300), (4, 1350)):
    submit(job, timestamp)
first, error, last = served()
assert (first, last) == ((2, 1200), (4, 1350)) and error["message"] == "ValueError: bad frame" and not error["ended"]

# Memory that no slot has any more is closed.
submit(5, 1360, [(B, 0), (B, 256)])
assert served() == [(5, 1360)] and cuda.closed == [A, A] and cuda.opened == [A, A, B]

# The old memory of a slot is closed before the new one is opened.
server.gpu.opened("slot", handle(C))
server.gpu.opened("slot", handle(D))
server.gpu.close("slot")
assert cuda.log[-4:] == [("open", C), ("close", C), ("open", D), ("close", D)]

# A frame that is kept is an error.
submit(6, 1400)
assert "kept a frame" in served()[0]["message"]
server.block.kept = None


class Given:
    """An array that a block returns."""

    def __init__(self, **more):
        given = {"shape": (4, 8), "typestr": "<f4", "data": (A + 512, False), "version": 2}
        self.__cuda_array_interface__ = {**given, **more}


# A returned array is copied if it fits, after the work on its stream.
out = server.written[0][0].data
assert server.gpu.fill(out, Given()) is None and (host(out.address) == 3).all()
assert server.gpu.fill(out, Given(strides=(32, 4))) is None
assert "contiguous" in server.gpu.fill(out, Given(strides=(64, 4)))
assert "shape (4, 8), got (8, 4)" in server.gpu.fill(out, Given(shape=(8, 4)))
assert "typestr <f4, got <f8" in server.gpu.fill(out, Given(typestr="<f8"))
assert "memory of the GPU, got ndarray" in server.gpu.fill(out, np.zeros(3))
assert server.gpu.fill(out, Given(stream=77)) is None
assert cuda.log[-5:] == [("record", 77), ("wait", None), ("copy", None), ("record", None), ("wait", 77)]
try:
    np.asarray(out)
except TypeError as error:
    assert "cupy.asarray" in str(error)
else:
    raise AssertionError("NumPy must not see GPU memory")

# Memory that cannot be opened ends the process, because the host takes the slot for open.
os._exit = end
cuda.open_fails = 1
submit(7, 1500, [(B, 512), (C, 0)])
message = last_error()
assert "cannot open the GPU memory" in message and "containers" not in message, message

# A fault of the GPU ends the process, with the error of the driver.
submit(8, 1600, [(A, 512), (A, 1024)])
cuda.fails = ILLEGAL_ADDRESS
try:
    served()
except gpu.GpuFault as error:
    assert "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS" in str(error), error
else:
    raise AssertionError("a fault of the GPU must end the process")
assert not server.is_settled()

# So does memory of the host that cannot be mapped.
server.gpu = None
submit(9, 1700, [(A, 512)])
assert last_error().startswith("IndexError"), "no descriptor came"
print("ok")
