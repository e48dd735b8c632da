"""spead2 sends F-engine heaps to an X-engine and checks its visibilities against NumPy, exactly.

usage: x_engine_peer.py IN_PORT OUT_PORT --command COMMAND ...
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import reference
import spead2
import spead2.recv
import spead2.send

ANTENNAS = 3
CHANNELS = 64
FIRST_CHANNEL = 64
BAND_CHANNELS = 256
SPECTRA_PER_HEAP = 32
HEAPS_PER_DUMP = 4
DUMPS = 6
HEAP_STEP = 2 * BAND_CHANNELS * SPECTRA_PER_HEAP
FLAVOUR = spead2.Flavour(4, 64, 48, 0)
NO_DATA = (-(2**31), 1)


def check(what, holds, detail=""):
    print(f"{'ok' if holds else 'FAILED'}: {what} {detail}", flush=True)
    if not holds:
        sys.exit(1)


def feng_heap(timestamp, antenna, data):
    heap = spead2.send.Heap(FLAVOUR)
    heap.repeat_pointers = True
    for item_id, name, value in [
        (0x1600, "timestamp", timestamp),
        (0x4101, "feng_id", antenna),
        (0x4103, "frequency", FIRST_CHANNEL),
    ]:
        item = spead2.Item(item_id, name, "", shape=(), format=[("u", 48)])
        item.value = value
        heap.add_item(item)
    heap.add_item(spead2.Item(0x4300, "feng_raw", "", shape=data.shape, dtype=np.int8, value=data))
    return heap


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    rng = np.random.default_rng(3)
    heaps = DUMPS * HEAPS_PER_DUMP
    first = 10**9 // (HEAP_STEP * HEAPS_PER_DUMP) * (HEAP_STEP * HEAPS_PER_DUMP)
    data = rng.integers(-127, 128, (heaps, ANTENNAS, CHANNELS, SPECTRA_PER_HEAP, 2, 2), dtype=np.int8)
    kept = np.ones((heaps, ANTENNAS), dtype=bool)
    kept[HEAPS_PER_DUMP : 2 * HEAPS_PER_DUMP, 1] = False  # antenna 1 misses dump 1 altogether
    kept[2 * HEAPS_PER_DUMP + 1, 2] = False  # antenna 2 misses one heap of dump 2

    ring = spead2.recv.RingStreamConfig(heaps=1024)
    receiver = spead2.recv.Stream(spead2.ThreadPool(), spead2.recv.StreamConfig(max_heaps=64), ring)
    receiver.add_udp_reader(args.ports[1], max_size=9200, buffer_size=4 << 20, bind_hostname="127.0.0.1")
    engine = subprocess.Popen(args.command)
    time.sleep(1.5)
    check("the flowgraph runs", engine.poll() is None)

    # One sender per antenna, as in an array; each says at the end that it stops.
    config = spead2.send.StreamConfig(max_packet_size=8264, rate=20e6, max_heaps=8)
    destination = [("127.0.0.1", args.ports[0])]
    senders = [spead2.send.UdpStream(spead2.ThreadPool(), destination, config) for _ in range(ANTENNAS)]
    for h in range(heaps):
        for a, sender in enumerate(senders):
            if kept[h, a]:
                sender.send_heap(feng_heap(first + h * HEAP_STEP, a, data[h, a]), cnt=a + 1 + h * ANTENNAS)
    for sender in senders:
        stop = spead2.send.Heap(FLAVOUR)
        stop.add_end()
        sender.send_heap(stop)

    group = spead2.ItemGroup()
    dumps, first_channels = {}, set()
    for heap in receiver:
        group.update(heap)
        if "xeng_raw" in group.keys() and group["xeng_raw"].value is not None:
            first_channels.add(int(group["frequency"].value))
            dumps[int(group["timestamp"].value)] = np.array(group["xeng_raw"].value).astype(np.int64)
    check("the flowgraph ends by itself with success", engine.wait(60) == 0, f"exit {engine.returncode}")

    check("frequency is the first channel", first_channels == {FIRST_CHANNEL}, f"{first_channels}")
    wanted = [first + d * HEAPS_PER_DUMP * HEAP_STEP for d in range(DUMPS)]
    check("every dump came, aligned", sorted(dumps) == wanted, f"{sorted(dumps)} {wanted}")
    for d, t in enumerate(wanted):
        want = np.zeros((CHANNELS, 4 * ANTENNAS * (ANTENNAS + 1) // 2, 2), dtype=np.int64)
        batches = np.zeros((ANTENNAS, ANTENNAS), dtype=int)
        for h in range(d * HEAPS_PER_DUMP, (d + 1) * HEAPS_PER_DUMP):
            batch = data[h] * kept[h][:, None, None, None, None]
            want += reference.correlate(batch)
            batches += np.outer(kept[h], kept[h])
        for a2 in range(ANTENNAS):
            for a1 in range(a2 + 1):
                if batches[a1, a2] == 0:
                    index = a2 * (a2 + 1) // 2 + a1
                    want[:, 4 * index : 4 * index + 4] = NO_DATA
        got = dumps[t].reshape(want.shape)
        check(f"dump {d} is exact", np.array_equal(got, want), f"{np.count_nonzero(got != want)} differ")


if __name__ == "__main__":
    main()
