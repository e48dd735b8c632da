"""Receiver of spead2 for benches/spead.rs: a chunk stream with a compiled callback.

Prints `ready`; then answers each line with the number of packets received so far.
"""

import argparse
import ctypes
import sys
import threading

import numba
import numpy as np
import spead2.recv
from numba import types
from spead2.numba import intp_to_voidptr
from spead2.recv.numba import chunk_place_data

TIMESTAMP, FENG_ID, HEAP_LENGTH = 0x1600, 0x4101, 2

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--senders", type=int, required=True)
parser.add_argument("--heap-bytes", type=int, required=True)
parser.add_argument("--samples-per-heap", type=int, required=True)
parser.add_argument("--heaps", type=int, required=True, help="heap times in a chunk")
parser.add_argument("--window", type=int, required=True)
parser.add_argument("--chunks", type=int, required=True)
parser.add_argument("--buffer-bytes", type=int, required=True)
arguments = parser.parse_args()

senders, heaps = arguments.senders, arguments.heaps
samples_per_heap, heap_bytes = arguments.samples_per_heap, arguments.heap_bytes


@numba.cfunc(types.void(types.CPointer(chunk_place_data), types.uintp), nopython=True)
def place(data_pointer, size):
    data = numba.carray(data_pointer, 1)
    items = numba.carray(intp_to_voidptr(data[0].items), 3, dtype=np.int64)
    timestamp, sender, length = items[0], items[1], items[2]
    if timestamp < 0 or length != heap_bytes or sender >= senders:
        return
    heap = timestamp // samples_per_heap
    data[0].chunk_id = heap // heaps
    data[0].heap_index = heap % heaps * senders + max(sender, 0)
    data[0].heap_offset = data[0].heap_index * heap_bytes


# The capsule inside a LowLevelCallable of scipy, created without scipy.
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
callback = (new_capsule(place.address, b"void (void *, size_t)", None),)

data_ring = spead2.recv.ChunkRingbuffer(arguments.chunks)
free_ring = spead2.recv.ChunkRingbuffer(arguments.chunks)
stream = spead2.recv.ChunkRingStream(
    spead2.ThreadPool(),
    spead2.recv.StreamConfig(
        max_heaps=4 * senders, memcpy=spead2.MEMCPY_NONTEMPORAL, stop_on_stop_item=False
    ),
    spead2.recv.ChunkStreamConfig(
        items=[TIMESTAMP, FENG_ID, HEAP_LENGTH], max_chunks=arguments.window, place=callback
    ),
    data_ring,
    free_ring,
)
for _ in range(arguments.chunks):
    stream.add_free_chunk(
        spead2.recv.Chunk(
            data=np.ones(heaps * senders * heap_bytes, np.uint8),
            present=np.zeros(heaps * senders, np.uint8),
        )
    )
stream.add_udp_reader(
    "127.0.0.1", arguments.port, buffer_size=arguments.buffer_bytes, interface_address="127.0.0.1"
)


def recycle():
    for chunk in data_ring:
        stream.add_free_chunk(chunk)


threading.Thread(target=recycle, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(stream.stats["packets"], flush=True)
stream.stop()
