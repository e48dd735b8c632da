"""spead2 sends digitiser heaps to an F-engine and checks what comes back against NumPy.

usage: f_engine_peer.py POL0_PORT POL1_PORT OUT_PORT [--lose FRACTION] [--command COMMAND ...]

The command, an F-engine flowgraph, is started after the receiver listens and before the first heap
is sent. Prints one line per property that was checked; exits 1 at the first that does not hold.
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

BITS = 10
HEAP_SAMPLES = 4096
CHANNELS = 256
TAPS = 8
SPECTRA_PER_HEAP = 64
STEP = 2 * CHANNELS
HEAP_STEP = STEP * SPECTRA_PER_HEAP
SUBSTREAMS = 2
GAIN = 0.25
FLAVOUR = spead2.Flavour(4, 64, 48, 0)


def check(what, holds, detail=""):
    print(f"{'ok' if holds else 'FAILED'}: {what} {detail}", flush=True)
    if not holds:
        sys.exit(1)


def immediate(item_id, name, value):
    item = spead2.Item(item_id, name, "", shape=(), format=[("u", 48)])
    item.value = value
    return item


def digitiser_heap(timestamp, pol, packed):
    heap = spead2.send.Heap(FLAVOUR)
    heap.repeat_pointers = True
    heap.add_item(immediate(0x1600, "timestamp", timestamp))
    heap.add_item(immediate(0x3101, "digitiser_id", pol))
    heap.add_item(immediate(0x3102, "digitiser_status", 0))
    heap.add_item(spead2.Item(0x3300, "raw_data", "", shape=packed.shape, dtype=np.uint8, value=packed))
    return heap


def send(ports, signals, first, kept, order):
    """Sends the heaps that are `kept` in `order`, polarisations in turn, paced."""
    pool = spead2.ThreadPool()
    streams = [
        spead2.send.UdpStream(
            pool,
            [("127.0.0.1", port)],
            spead2.send.StreamConfig(max_packet_size=8972, rate=60e6, max_heaps=8),
        )
        for port in ports
    ]
    for heap in order:
        for pol, stream in enumerate(streams):
            if kept[pol, heap]:
                timestamp = first + heap * HEAP_SAMPLES
                samples = signals[pol][heap * HEAP_SAMPLES : (heap + 1) * HEAP_SAMPLES]
                packed = reference.pack_samples(samples, BITS)
                stream.send_heap(digitiser_heap(timestamp, pol, packed), cnt=heap + 1)
    for stream in streams:
        stop = spead2.send.Heap(FLAVOUR)
        stop.add_end()
        stream.send_heap(stop)


def receive(stream):
    """Every F heap: {(timestamp, first channel): int8 [channel][spectrum][pol][2]}, and the items seen."""
    group = spead2.ItemGroup()
    heaps = {}
    for heap in stream:
        group.update(heap)
        if not {"timestamp", "frequency", "feng_raw"} <= set(group.keys()):
            continue
        if group["feng_raw"].value is None:
            continue
        key = (int(group["timestamp"].value), int(group["frequency"].value))
        heaps[key] = np.array(group["feng_raw"].value)
    return heaps, group


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=3)
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--heaps", type=int, default=160)
    parser.add_argument("--command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    rng = np.random.default_rng(7)

    first = 40 * 3600 * 1_712_000_000 // HEAP_STEP * HEAP_STEP
    n = args.heaps * HEAP_SAMPLES
    t = np.arange(n)
    tone = 100 * np.cos(2 * np.pi * (77 / STEP) * t)
    signals = [np.clip(np.rint(rng.normal(0, 60, n) + (1 - 0.5 * pol) * tone), -511, 511).astype(int) for pol in range(2)]
    kept = rng.random((2, args.heaps)) >= args.lose
    order = np.arange(args.heaps)
    for i in range(4, args.heaps - 4, 7):  # swaps of neighbours: out of order
        order[[i, i + 1]] = order[[i + 1, i]]

    config = spead2.recv.StreamConfig(max_heaps=64)
    receiver = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=4096))
    for host in ["127.0.0.1", "127.0.0.2"]:  # one for each substream
        receiver.add_udp_reader(args.ports[2], max_size=9200, buffer_size=4 << 20, bind_hostname=host)

    engine = subprocess.Popen(args.command)
    time.sleep(1.5)
    check("the flowgraph runs", engine.poll() is None)
    send(args.ports[:2], signals, first, kept, order)
    heaps, group = receive(receiver)
    check("the flowgraph ends by itself with success", engine.wait(60) == 0, f"exit {engine.returncode}")

    # What must come: heaps whose spectra all lie in samples that were sent.
    present = np.repeat(kept, HEAP_SAMPLES, axis=1)
    width = CHANNELS // SUBSTREAMS
    expected = set()
    for t0 in range(first, first + n, HEAP_STEP):
        end = t0 - first + HEAP_STEP - STEP + STEP * TAPS
        if end <= n and present[:, t0 - first : end].all():
            expected.update((t0, c) for c in range(0, CHANNELS, width))
    check("some heaps are expected", len(expected) > 4, f"{len(expected)}")
    if args.lose:
        whole = 2 * (n // HEAP_STEP)
        check("some heaps are missing", len(expected) < whole, f"{whole - len(expected)} of {whole}")
    check("exactly the heaps that had to come came", set(heaps) == expected,
          f"missing {sorted(expected - set(heaps))[:4]}, unexpected {sorted(set(heaps) - expected)[:4]}")

    shape = (width, SPECTRA_PER_HEAP, 2, 2)
    check("descriptors describe feng_raw", group["feng_raw"].shape == shape, f"{group['feng_raw'].shape}")
    worst, off, total = 0, 0, 0
    for (t0, c0), raw in heaps.items():
        times = t0 + STEP * np.arange(SPECTRA_PER_HEAP)
        for pol in range(2):
            exact = reference.f_engine(signals[pol], first, CHANNELS, TAPS, times, GAIN)
            want = reference.quantise(exact)[:, c0 : c0 + width].astype(int)
            got = raw[:, :, pol, :].transpose(1, 0, 2).astype(int)
            difference = np.abs(got - want)
            worst = max(worst, int(difference.max()))
            off += int((difference > 0).sum())
            total += difference.size
    check("values differ by 1 at most", worst <= 1, f"{worst}")
    check("at most 0.1 % of the values differ", off <= total / 1000, f"{off} of {total}")
    power = np.mean([np.sum(raw[:, :, 0].astype(float) ** 2) for raw in heaps.values()])
    check("the signal is there", power > 1000)


if __name__ == "__main__":
    main()
