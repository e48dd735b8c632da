"""Sends F-engine heaps to an X-engine and beamformer with spead2 and checks their output against NumPy.

usage: x_engine_peer.py IN_PORT VISIBILITIES_PORT BEAM_X_PORT BEAM_Y_PORT [options] --command COMMAND ...
"""

import argparse
import json
import sys

import numpy as np
import reference
import spead2
import spead2.recv
import spead2.send
import waits

ANTENNAS = 3
CHANNELS = 64
FIRST_CHANNEL = 64
BAND_CHANNELS = 256
SPECTRA_PER_HEAP = 32
HEAPS = 24
# Heaps before the first complete dump, sent first by antenna 0, and after the last complete one.
BEFORE = 3
AFTER = 1
FLAVOUR = spead2.Flavour(4, 64, 48, 0)
NO_DATA = (-(2**31), 1)
RATE_HZ = 1.712e9
CENTRE_HZ = 1.284e9
BEAMS = [
    {"pol": 1, "gain": 0.37, "weights": [1.0, -0.4, 0.7], "delays_seconds": [0.0, 1.3e-9, -2.1e-9],
     "phases_radians": [0.2, -1.0, 2.5]},
    {"pol": 0, "gain": 0.21, "weights": [0.3, 1.0, 0.9], "delays_seconds": [5e-9, 0.0, 3.7e-9],
     "phases_radians": [0.0, 0.5, -3.0]},
]


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
    heap.add_item(spead2.Item(0x4300, "feng_raw", "", shape=data.shape, dtype=data.dtype, value=data))
    return heap


def on_the_wire(data, layout, four_bit):
    """int8 [channel][spectrum][pol][2] in the layout of a heap."""
    if layout == "k_major":
        data = data.transpose(0, 2, 1, 3)
    if four_bit:
        fields = data.view(np.uint8) & 15
        return np.ascontiguousarray(fields[..., 0] << 4 | fields[..., 1])
    return np.ascontiguousarray(data)


def listen(port):
    """A receive stream bound to one address."""
    ring = spead2.recv.RingStreamConfig(heaps=1024)
    stream = spead2.recv.Stream(spead2.ThreadPool(), spead2.recv.StreamConfig(max_heaps=64), ring)
    stream.add_udp_reader(port, max_size=9200, buffer_size=4 << 20, bind_hostname="127.0.0.1")
    return stream


def receive(stream, item):
    """{timestamp: (values of `item`, of `beam_ants`)} of a stream, and the frequencies seen."""
    group = spead2.ItemGroup()
    heaps, frequencies = {}, set()
    for heap in stream:
        group.update(heap)
        if item in group.keys() and group[item].value is not None:
            frequencies.add(int(group["frequency"].value))
            antennas = int(group["beam_ants"].value) if "beam_ants" in group.keys() else None
            heaps[int(group["timestamp"].value)] = (np.array(group[item].value), antennas)
    return heaps, frequencies


def send(port, data, kept, first, step, args):
    """Sends the `kept` heaps of `data`: one sender per antenna, as in an array, with a stop heap at the end of each."""
    config = spead2.send.StreamConfig(max_packet_size=8264, rate=20e6, max_heaps=8)
    senders = [spead2.send.UdpStream(spead2.ThreadPool(), [("127.0.0.1", port)], config) for _ in range(ANTENNAS)]
    for h in range(len(data)):
        for a, sender in enumerate(senders):
            if kept[h, a]:
                payload = on_the_wire(data[h, a], args.layout, args.four_bit)
                sender.send_heap(feng_heap(first + h * step, a, payload), cnt=a + 1 + h * ANTENNAS)
    for sender in senders:
        stop = spead2.send.Heap(FLAVOUR)
        stop.add_end()
        sender.send_heap(stop)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=4)
    parser.add_argument("--heaps-per-dump", type=int, default=4)
    parser.add_argument("--layout", default="standard")
    parser.add_argument("--four-bit", action="store_true")
    parser.add_argument("--decimation", type=int, default=1, help="decimation of the narrow band, 1 for the wide band")
    parser.add_argument("--partial-dumps", default="flag")
    parser.add_argument("--command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    rng = np.random.default_rng(3)
    per_dump = args.heaps_per_dump
    step = 2 * args.decimation * BAND_CHANNELS * SPECTRA_PER_HEAP
    # Number of heap 0, in a separate dump if dumps are longer than a heap.
    first_number = 10**9 // (step * HEAPS) * HEAPS - BEFORE
    first = first_number * step
    all_heaps = BEFORE + HEAPS + AFTER
    limit = 7 if args.four_bit else 127
    shape = (all_heaps, ANTENNAS, CHANNELS, SPECTRA_PER_HEAP, 2, 2)
    data = rng.integers(-limit, limit + 1, shape, dtype=np.int8)
    kept = np.ones((all_heaps, ANTENNAS), dtype=bool)
    kept[:2, 1:] = False
    kept[BEFORE + 4 : BEFORE + 8, 1] = False
    kept[BEFORE + 9, 2] = False
    # Time step common to all antennas.
    kept[BEFORE + 13] = False

    settings = {"decimation": args.decimation, "centre_hz": CENTRE_HZ, "partial_dumps": args.partial_dumps,
                "heaps_per_dump": per_dump, "beams": json.dumps(BEAMS), "beam_dither": "none", "layout": args.layout,
                "dtype": "ci4" if args.four_bit else "ci8"}
    command = args.command + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    receivers = [listen(port) for port in args.ports[1:]]
    items = ["xeng_raw", "bf_raw", "bf_raw"]
    with waits.running(command, args.ports[:1]) as engine:
        send(args.ports[0], data, kept, first, step, args)
        received = []
        for port, receiver, item in zip(args.ports[1:], receivers, items):
            with waits.within(f"the stop heap of {item} on port {port}"):
                received.append(receive(receiver, item))
        check("the flowgraph ends by itself with success", engine.wait(60) == 0, f"exit {engine.returncode}")
    for item, (_, frequencies) in zip(items, received):
        check(f"frequency of {item} is the first channel", frequencies == {FIRST_CHANNEL}, f"{frequencies}")

    visibilities = received[0][0]
    numbers = range(first_number // per_dump, (first_number + all_heaps - 1) // per_dump + 1)
    seen = 0
    for number in numbers:
        want = np.zeros((CHANNELS, 4 * ANTENNAS * (ANTENNAS + 1) // 2, 2), dtype=np.int64)
        batches = np.zeros((ANTENNAS, ANTENNAS), dtype=int)
        for h in range(number * per_dump - first_number, (number + 1) * per_dump - first_number):
            if 0 <= h < all_heaps:
                batch = data[h] * kept[h][:, None, None, None, None]
                want += reference.correlate(batch)
                batches += np.outer(kept[h], kept[h])
        least = {"flag": per_dump, "send": 1, "scale": (per_dump + 1) // 2}[args.partial_dumps]
        # A dump that started before the stream is never sent.
        is_sent = batches.max() >= least and number * per_dump >= first_number
        t = number * per_dump * step
        check(f"dump {number} is sent if any baseline is good enough", (t in visibilities) == is_sent, f"{is_sent}")
        if not is_sent:
            continue
        seen += 1
        for a2 in range(ANTENNAS):
            for a1 in range(a2 + 1):
                index = a2 * (a2 + 1) // 2 + a1
                products = want[:, 4 * index : 4 * index + 4]
                if batches[a1, a2] < least:
                    products[:] = NO_DATA
                elif args.partial_dumps == "scale":
                    products[:] = np.rint(products * (per_dump / batches[a1, a2]))
        got = visibilities[t][0].astype(np.int64).reshape(want.shape)
        check(f"dump {number} is exact", np.array_equal(got, want), f"{np.count_nonzero(got != want)} differ")
    check("no other dump came", seen == len(visibilities) and seen > 0, f"{seen} of {sorted(visibilities)}")

    is_scaled = args.partial_dumps == "scale"
    heard = [h for h in range(all_heaps) if kept[h].sum() >= (ANTENNAS / 2 if is_scaled else 1)]
    times = [first + h * step for h in heard]
    channel_hz = RATE_HZ / 2 / args.decimation / BAND_CHANNELS
    for parameters, (heaps, _) in zip(BEAMS, received[1:]):
        name = f"the beam of polarisation {parameters['pol']}"
        check(f"{name} has every heap", sorted(heaps) == times, f"{len(heaps)} of {len(times)}")
        worst, off, total = 0, 0, 0
        for h, t in zip(heard, times):
            got, antennas = heaps[t]
            check(f"{name} says who contributed to heap {h}", antennas == kept[h].sum(), f"{antennas}")
            exact = reference.beam(data[h], kept[h], first_channel=FIRST_CHANNEL, band_channels=BAND_CHANNELS,
                                   channel_hz=channel_hz, **parameters)
            expected = reference.quantise(exact).astype(int)
            if is_scaled:
                expected = np.clip(np.rint(expected * (ANTENNAS / antennas)), -127, 127).astype(int)
            difference = np.abs(got.astype(int) - expected)
            worst = max(worst, int(difference.max()))
            off += int((difference > 0).sum())
            total += difference.size
        # A difference of 1 before scaling is larger after scaling.
        check(f"{name} differs by 1 at most", worst <= (2 if is_scaled else 1), f"{worst}")
        check(f"{name} differs seldom", off <= total / 1000, f"{off} of {total}")


if __name__ == "__main__":
    main()
