"""Frames in GPU memory: the child's side of the kind `python` with `device: cuda:N`. See gpu.rs for the host's.

The host hands over frames that its GPU has finished, and this process answers a frame when the GPU has finished it: so
neither waits for an event of the other, and the death of one cannot block a stream of the other.
"""

from __future__ import annotations

import ctypes
from collections import deque

from fxgraph.block import DeviceArray

HANDLE_BYTES, PLACE_BYTES = 64, 72
NOT_READY, BLOCKING_SYNC, DISABLE_TIMING, LAZY_ENABLE_PEER_ACCESS = 600, 1, 2, 1
LEGACY_STREAMS = (None, 0, 1)
LIBRARY = "libcuda.so.1"

_POINTER, _INT, _ADDRESS = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64


class Handle(ctypes.Structure):
    """Handle of memory of another process, passed by value."""

    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


CALLS = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGet": [ctypes.POINTER(_INT), _INT],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(_POINTER), _INT],
    "cuCtxSetCurrent": [_POINTER],
    "cuCtxSynchronize": [],
    "cuEventCreate": [ctypes.POINTER(_POINTER), ctypes.c_uint],
    "cuEventRecord": [_POINTER, _POINTER],
    "cuEventQuery": [_POINTER],
    "cuEventSynchronize": [_POINTER],
    "cuStreamWaitEvent": [_POINTER, _POINTER, ctypes.c_uint],
    "cuMemcpyDtoDAsync_v2": [_ADDRESS, _ADDRESS, ctypes.c_size_t, _POINTER],
    "cuIpcOpenMemHandle_v2": [ctypes.POINTER(_ADDRESS), Handle, ctypes.c_uint],
    "cuIpcCloseMemHandle": [_ADDRESS],
    "cuGetErrorName": [_INT, ctypes.POINTER(ctypes.c_char_p)],
    "cuGetErrorString": [_INT, ctypes.POINTER(ctypes.c_char_p)],
}


class GpuFault(Exception):
    """A call of the CUDA driver failed."""


class Gpu:
    """The first visible GPU, the memory of the host that is open, and the frames that the GPU has not finished."""

    def __init__(self, jobs, probe):
        self.cuda = ctypes.CDLL(LIBRARY)
        for name, arguments in CALLS.items():
            getattr(self.cuda, name).argtypes = arguments
        self.call("cuInit", 0)
        device, context = _INT(), _POINTER()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        # The context that CuPy, Numba and PyTorch use, too.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.value)
        self.call("cuCtxSetCurrent", context)
        self.events, self.joined = [self.event() for _ in range(jobs)], self.event()
        self.record, self.query = self.cuda.cuEventRecord, self.cuda.cuEventQuery
        self.queued = deque()  # event and answer of each frame, the oldest first
        self.memory, self.slots = {}, {}  # address and number of slots by handle; handle by slot
        try:
            self.opened(None, probe)
        except GpuFault as error:
            raise GpuFault(f"{error}: it needs CUDA IPC, which some containers and virtual machines lack; run it with "
                           "`device: cpu`") from None
        self.close(None)

    def call(self, name, *arguments):
        self.check(name, getattr(self.cuda, name)(*arguments))

    def check(self, name, code):
        if code:
            name_of_error, text = ctypes.c_char_p(), ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(name_of_error))
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            said = [(word.value or b"unknown").decode() for word in (text, name_of_error)]
            if name == "cuIpcOpenMemHandle_v2":
                raise GpuFault(f"the process cannot open the GPU memory of the program ({said[0]}, {said[1]})")
            raise GpuFault(f"the GPU failed: {said[0]} ({said[1]}, {name})")

    def event(self):
        event = _POINTER()
        # A thread that waits for it sleeps.
        self.call("cuEventCreate", ctypes.byref(event), BLOCKING_SYNC | DISABLE_TIMING)
        return event

    def opened(self, slot, handle):
        """Address of the memory of `handle`, which is closed when no slot has it."""
        known = self.memory.get(handle)
        if known is None:
            self.close(slot)  # first, because open memory stays allocated
            address = _ADDRESS()
            opened = Handle.from_buffer_copy(handle)
            self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), opened, LAZY_ENABLE_PEER_ACCESS)
            known = self.memory[handle] = [address.value, 0]
        known[1] += 1
        self.close(slot)
        self.slots[slot] = handle
        return known[0]

    def close(self, slot):
        handle = self.slots.pop(slot, None)
        if handle is None:
            return
        known = self.memory[handle]
        known[1] -= 1
        if known[1] == 0:
            del self.memory[handle]
            self.call("cuIpcCloseMemHandle", known[0])

    def array(self, slot, place, port):
        """The array of a frame; `place` has the handle of its memory and its offset."""
        address = self.opened(slot, place[:HANDLE_BYTES]) + int.from_bytes(place[HANDLE_BYTES:], "little")
        return DeviceArray(address, *port.array)

    def queue(self, place, answer):
        """Notes that the frame of `answer` is finished when the GPU has run all that is queued now."""
        event = self.events[place]
        # The default stream waits for all other streams but those that are explicitly non-blocking.
        self.check("cuEventRecord", self.record(event, None))
        self.queued.append((event, answer))

    def has_finished(self):
        """Whether the GPU has finished the oldest frame."""
        code = self.query(self.queued[0][0])
        if code != NOT_READY:
            self.check("a kernel", code)
        return code == 0

    def finished(self):
        """The answer of the oldest frame, once the GPU has finished it."""
        self.check("a kernel", self.cuda.cuEventSynchronize(self.queued[0][0]))
        return self.queued.popleft()[1]

    def synchronise(self):
        self.check("a kernel", self.cuda.cuCtxSynchronize())

    def fill(self, out, result):
        """Copies the array `result` of the block to `out`; returns why it cannot, or None."""
        given = getattr(result, "__cuda_array_interface__", None)
        if given is None:
            return f"an array in the memory of the GPU, got {type(result).__name__}"
        wanted = out.__cuda_array_interface__
        for key in ("shape", "typestr"):
            if given[key] != wanted[key]:
                return f"an array with the {key} {wanted[key]}, got {given[key]}"
        strides, dense = given.get("strides"), out.dtype.itemsize
        for length, stride in zip(reversed(given["shape"]), reversed(strides or ())):
            if length > 1 and stride != dense:
                return f"a contiguous array, got one with the strides {strides}"
            dense *= length
        stream = given.get("stream")
        if stream not in LEGACY_STREAMS:
            self.join(None, stream)
        self.call("cuMemcpyDtoDAsync_v2", out.address, given["data"][0], out.nbytes, None)
        if stream not in LEGACY_STREAMS:
            # The memory of the array may be used again on its stream, but only after the copy.
            self.join(stream, None)
        return None

    def join(self, stream, other):
        """Lets `stream` wait for all that is queued on the stream `other` now."""
        self.call("cuEventRecord", self.joined, other)
        self.call("cuStreamWaitEvent", stream, self.joined, 0)
