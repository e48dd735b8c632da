"""Writes `capture.pcap` by hand and `capture.pcapng` with scapy and, as a second section of the other byte order, by
hand. Both have the same packets: heaps of a digitiser stream."""

import struct

import numpy as np
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgReader, PcapNgWriter

HEAPS = 64
SAMPLES = 4096


def heap(number, payload):
    words = [
        (1 << 63) | (0x1 << 48) | number + 1, (1 << 63) | (0x2 << 48) | len(payload), (1 << 63) | (0x3 << 48),
        (1 << 63) | (0x4 << 48) | len(payload), (1 << 63) | (0x1600 << 48) | number * SAMPLES,
        (1 << 63) | (0x3101 << 48), (1 << 63) | (0x3102 << 48), 0x3300 << 48,
    ]
    return bytes.fromhex("5304020600000008") + struct.pack(">8Q", *words) + payload


rng = np.random.default_rng(1)
packets = [heap(n, rng.integers(0, 256, SAMPLES * 10 // 8).astype("u1").tobytes()) for n in range(HEAPS)]

records = []
for packet in packets:
    address = bytes([127, 0, 0, 1])
    size = len(packet) + 28
    head = struct.pack(">BBHHHBBH", 0x45, 0, size, 0, 0, 64, 17, 0) + address + address
    records.append(head + struct.pack(">HHHH", 40000, 7321, len(packet) + 8, 0) + packet)

with open("capture.pcap", "wb") as file:  # link type 101: raw IPv4
    file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101))
    for n, record in enumerate(records):
        file.write(struct.pack("<IIII", n, 0, len(record), len(record)) + record)

half = HEAPS // 2
with PcapNgWriter("capture.pcapng") as writer:
    for record in records[:half]:
        writer.write(Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / IP(record))


def block(kind, body):
    total = len(body) + 12
    return struct.pack(">II", kind, total) + body + struct.pack(">I", total)


def option(code, value):
    return struct.pack(">HH", code, len(value)) + value + bytes(-len(value) % 4)


END = struct.pack(">HH", 0, 0)
with open("capture.pcapng", "ab") as file:
    comment = option(1, b"a section of the other byte order") + END
    file.write(block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1) + comment))
    # Times in microseconds, nanoseconds, and units of 2^-20 seconds; the second interface is Ethernet.
    for link, resolution in [(101, 6), (1, 9), (101, 0x80 | 20)]:
        file.write(block(1, struct.pack(">HHI", link, 0, 0) + option(9, bytes([resolution])) + END))
    file.write(block(0xBAD, b"unknown, "[:8]))
    for n, record in enumerate(records[half:]):
        interface = n % 3
        data = bytes(12) + b"\x08\x00" + record if interface == 1 else record
        head = struct.pack(">IIIII", interface, 0, n, len(data), len(data))
        file.write(block(6, head + data + bytes(-len(data) % 4) + option(2, bytes(4)) + END))
        if n % 5 == 0:
            file.write(block(5, struct.pack(">III", interface, 0, n)))

# Another reader finds as many packets.
with PcapNgReader("capture.pcapng") as reader:
    found = sum(1 for _ in reader)
assert found == HEAPS, found
