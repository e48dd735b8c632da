"""Sends digitiser heaps to an F-engine with spead2 and checks its output against NumPy.

usage: f_engine_peer.py POL0_PORT POL1_PORT OUT_PORT [options] --command COMMAND ...

The command, an F-engine flowgraph, is started after the receiver listens; the first heap is sent once
the flowgraph listens. Prints one line per property that was checked; exits 1 at the first that does not hold.
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

BITS = 10
HEAP_SAMPLES = 4096
CHANNELS = 256
TAPS = 8
SPECTRA_PER_HEAP = 64
STEP = 2 * CHANNELS
HEAP_STEP = STEP * SPECTRA_PER_HEAP
SUBSTREAMS = 2
RATE_HZ = 1_712_000_000
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
    """Sends the `kept` heaps in `order`, alternating polarisations, at a limited rate."""
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


def listen(host, port):
    """A receive stream bound to one address."""
    config = spead2.recv.StreamConfig(max_heaps=64)
    stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=4096))
    stream.add_udp_reader(port, max_size=9200, buffer_size=4 << 20, bind_hostname=host)
    return stream


def receive(stream):
    """All F-engine heaps: {(timestamp, first channel): integers}, and the items received."""
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


def models(case, first, n):
    """Delay pieces of each polarisation, at `first` and at the middle of the run."""
    middle = first + n // 2
    # 79.53 us at this rate.
    most = 136_155.0
    return {
        "none": [[], []],
        # A rate that moves the delay across the next half sample, and a new model in the middle.
        "tracking": [
            [{"start_samples": first, "delay_samples": 7.4995, "rate": 2.5e-9, "phase_radians": 1.1,
              "phase_rate_radians_per_second": 49.0}],
            [{"start_samples": first, "delay_samples": -17},
             {"start_samples": middle, "delay_samples": 30.3125, "rate": -2.5e-9, "phase_radians": -2.0,
              "phase_rate_radians_per_second": -40.0}],
        ],
        "far": [
            [{"start_samples": 0, "delay_samples": most}],
            [{"start_samples": 0, "delay_samples": -most + 0.25, "phase_radians": 3.0}],
        ],
    }[case]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs=3)
    parser.add_argument("--lose", type=float, default=0.0)
    parser.add_argument("--heaps", type=int, default=160)
    parser.add_argument("--delays", default="none")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--layout", default="standard")
    parser.add_argument("--unzip", type=int, default=1)
    parser.add_argument("--command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    rng = np.random.default_rng(7)

    first = 40 * 3600 * RATE_HZ // HEAP_STEP * HEAP_STEP
    n = args.heaps * HEAP_SAMPLES
    t = np.arange(n)
    tone = 100 * np.cos(2 * np.pi * (77 / STEP) * t)
    signals = [np.clip(np.rint(rng.normal(0, 60, n) + (1 - 0.5 * pol) * tone), -511, 511).astype(int) for pol in range(2)]
    kept = rng.random((2, args.heaps)) >= args.lose
    order = np.arange(args.heaps)
    for i in range(4, args.heaps - 4, 7):  # swaps of neighbours: out of order
        order[[i, i + 1]] = order[[i + 1, i]]
    # Neither constant nor always clamped.
    gain, limit = (0.25, 127) if args.bits == 8 else (0.04, 7)
    delays = models(args.delays, first, n)
    settings = {"gain": gain, "delays": json.dumps(delays), "output_bits": args.bits, "layout": args.layout,
                "unzip": args.unzip}
    command = args.command + [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]

    receivers = [listen(host, args.ports[2]) for host in ["127.0.0.1", "127.0.0.2"]]
    width = CHANNELS // SUBSTREAMS
    heaps = {}
    with waits.running(command, args.ports[:2]) as engine:
        send(args.ports[:2], signals, first, kept, order)
        for i, receiver in enumerate(receivers):
            with waits.within(f"the stop heap of substream {i}"):
                mine, group = receive(receiver)
            channels = {c for _, c in mine}
            check(f"substream {i} goes to address {i}", channels == {i * width}, f"{channels}")
            heaps.update(mine)
        check("the flowgraph ends by itself with success", engine.wait(60) == 0, f"exit {engine.returncode}")

    # Expected: heaps whose spectra use only sent samples.
    present = np.repeat(kept, HEAP_SAMPLES, axis=1)
    exact = {}
    for t0 in range(first, first + n, HEAP_STEP):
        times = t0 + STEP * np.arange(SPECTRA_PER_HEAP)
        both = [
            reference.f_engine(signals[pol], first, CHANNELS, TAPS, times, gain,
                               reference.Delay(delays[pol], RATE_HZ), present[pol])
            for pol in range(2)
        ]
        if not np.isnan(both).any():
            exact[t0] = np.stack(both, axis=-1)  # [spectrum][channel][pol]
    expected = {(t0, c) for t0 in exact for c in range(0, CHANNELS, width)}
    check("some heaps are expected", len(expected) > 4, f"{len(expected)}")
    if args.lose:
        whole = 2 * (n // HEAP_STEP)
        check("some heaps are missing", len(expected) < whole, f"{whole - len(expected)} of {whole}")
    check("exactly the heaps that had to come came", set(heaps) == expected,
          f"missing {sorted(expected - set(heaps))[:4]}, unexpected {sorted(set(heaps) - expected)[:4]}")

    k_major = args.layout == "k_major"
    shape = (width, 2, SPECTRA_PER_HEAP, 2) if k_major else (width, SPECTRA_PER_HEAP, 2, 2)
    check("descriptors describe feng_raw", group["feng_raw"].shape == shape, f"{group['feng_raw'].shape}")
    worst, off, total, used = 0, 0, 0, set()
    for (t0, c0), raw in heaps.items():
        want = reference.quantise(exact[t0], limit)[:, c0 : c0 + width].astype(int)
        # [spectrum][channel][pol][re, im]
        got = raw.reshape(shape).transpose((2, 0, 1, 3) if k_major else (1, 0, 2, 3)).astype(int)
        difference = np.abs(got - want)
        worst = max(worst, int(difference.max()))
        off += int((difference > 0).sum())
        total += difference.size
        used |= set(np.unique(got))
    check("values differ by 1 at most", worst <= 1, f"{worst}")
    check("at most 0.1 % of the values differ", off <= total / 1000, f"{off} of {total}")
    check("the signal is there", len(used) > limit // 2 and max(used) <= limit and min(used) >= -limit, f"{len(used)}")


if __name__ == "__main__":
    main()
