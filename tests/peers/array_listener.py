"""Receives the visibilities of the array in several processes with spead2, and checks them.

usage: array_listener.py PORT COMMAND ...

Starts the command, which ends by itself, and receives 239.102.2.0 and 239.102.2.1 meanwhile.
"""

import re
import subprocess
import sys
import threading

import numpy as np
import spead2
import spead2.recv
import waits

ANTENNAS = 4
BASELINES = ANTENNAS * (ANTENNAS + 1) // 2
CHANNELS = 128  # of each half of the band
SPECTRA = 4 * 256
RATE_HZ = 1_712_000
# Source and receiver noise of 0.1 x 511 each, times a gain of 0.35; dither and rounding add 1/3.
SOURCE_POWER = (0.1 * 511 * 0.35) ** 2
AUTO_POWER = 2 * SOURCE_POWER + 1 / 3


def listen(group, port):
    config = spead2.recv.StreamConfig(max_heaps=64)
    stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=256))
    stream.add_udp_reader(group, port, interface_address="127.0.0.1", buffer_size=4 << 20)
    return stream


def receive(stream, dumps, frequencies):
    items = spead2.ItemGroup()
    for heap in stream:
        items.update(heap)
        if "xeng_raw" in items.keys() and items["xeng_raw"].value is not None:
            raw = np.array(items["xeng_raw"].value).astype(float)
            dumps[int(items["timestamp"].value)] = raw.reshape(CHANNELS, BASELINES, 4, 2)
            frequencies.add(int(items["frequency"].value))


def late_seconds(antenna):
    """Time at which the signal of the source reaches an antenna of include/array.yaml."""
    place = [[0, 0, 0], [12.5, 3, 0], [-7, 21, 0.5], [30, -18, 0.2]][antenna]
    azimuth, elevation = np.radians([37, 62])
    towards = [np.sin(azimuth) * np.cos(elevation), np.cos(azimuth) * np.cos(elevation), np.sin(elevation)]
    return -np.dot(place, towards) / 299_792_458


def is_whole(dump, first_channel):
    """Whether all baselines agree with the sum over 1024 spectra of the simulated array."""
    hz = (first_channel + np.arange(CHANNELS)) * RATE_HZ / 2 / (2 * CHANNELS)
    for a2 in range(ANTENNAS):
        for a1 in range(a2 + 1):
            power = AUTO_POWER if a1 == a2 else SOURCE_POWER
            fringe = np.exp(-2j * np.pi * hz * (late_seconds(a1) - late_seconds(a2)))
            for product in [0, 3]:
                values = dump[:, a2 * (a2 + 1) // 2 + a1, product] @ [1, 1j]
                mean = np.mean(values / fringe) / SPECTRA / power
                if abs(mean - 1) > 0.03:
                    return False
    return True


port, command = int(sys.argv[1]), sys.argv[2:]
halves = [({}, set()), ({}, set())]
threads = []
for i, (dumps, frequencies) in enumerate(halves):
    stream = listen(f"239.102.2.{i}", port)
    threads.append(threading.Thread(target=receive, args=(stream, dumps, frequencies), daemon=True))
    threads[-1].start()
with waits.within("the end of all engines", 600):
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
print(ran.stdout)
assert ran.returncode == 0, f"exit {ran.returncode}"


def count(text, counter):
    found = re.search(rf"^x +{counter} +(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


# Digitisers begin when their processes do, seconds apart on a busy machine, so the first and last dumps lack antennas.
complete = [count(text, "dumps") - count(text, "dumps_incomplete") for text in ran.stdout.split("X-engine")[1:]]
assert len(complete) == 2 and min(complete) >= 1, complete
for i, (thread, (dumps, frequencies)) in enumerate(zip(threads, halves)):
    thread.join(5)
    assert not thread.is_alive(), f"X-engine {i} sent no stop heap"
    assert frequencies == {i * CHANNELS}, frequencies
    times = sorted(dumps)
    assert len(times) >= 3, times
    assert all(t % (SPECTRA * 4 * CHANNELS) == 0 for t in times), times
    whole = sum(is_whole(dump, i * CHANNELS) for dump in dumps.values())
    print(f"half {i}: {len(times)} dumps, {whole} of them whole")
    assert whole == complete[i], f"X-engine {i} counts {complete[i]} complete dumps"
