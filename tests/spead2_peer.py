"""spead2 as the other end of a SPEAD stream: a reference for sending and receiving.

`send` sends digitiser heaps with known samples, `send-frames` heaps of a described stream; `receive` prints every
heap as one line of JSON.
"""

import argparse
import json
import threading

import numpy as np
import spead2
import spead2.recv
import spead2.send
from peers import waits

FLAVOUR = spead2.Flavour(4, 64, 48, 0)
SAMPLES = 4096
BITS = 10


def samples(heap):
    """Samples of heap `heap`: a function that the test also implements."""
    index = np.arange(heap * SAMPLES, (heap + 1) * SAMPLES, dtype=np.uint64)
    return ((index * np.uint64(2654435761)) >> np.uint64(7)).astype(np.int64) % 1023 - 511


def pack(values):
    """Big-endian bit order, two's complement, 10 bits each."""
    bits = (values[:, np.newaxis] >> np.arange(BITS - 1, -1, -1)) & 1
    return np.packbits(bits.astype(np.uint8).ravel())


def digitiser_items(group):
    for item, name in ((0x1600, "timestamp"), (0x3101, "digitiser_id"), (0x3102, "digitiser_status")):
        group.add_item(item, name, name, shape=(), format=[("u", 48)])
    group.add_item(0x3300, "raw_data", "samples", shape=(SAMPLES * BITS // 8,), dtype=np.uint8)


def send(args):
    config = spead2.send.StreamConfig(rate=50e6, max_packet_size=args.packet)
    endpoints = [("127.0.0.1", port) for port in args.ports]
    stream = spead2.send.UdpStream(spead2.ThreadPool(), endpoints, config)
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    digitiser_items(group)
    stream.send_heap(group.get_heap(descriptors="all", data="none"))
    order = [heap for heap in range(args.first, args.first + args.heaps) if heap not in args.lose]
    for at in args.swap:
        order[at], order[at + 3] = order[at + 3], order[at]
    for number, heap in enumerate(order):
        group["timestamp"].value = heap * SAMPLES
        group["digitiser_id"].value = 0
        group["digitiser_status"].value = 0
        group["raw_data"].value = pack(samples(heap))
        data = group.get_heap(descriptors="none", data="all")
        data.repeat_pointers = True
        stream.send_heap(data, substream_index=number % len(endpoints))
    for index in range(len(endpoints)):
        stream.send_heap(group.get_end(), substream_index=index)


def send_frames(args):
    """Heaps like those of `stream_sink`: element e of frame f is 100 f + e, in three rows of 40."""
    config = spead2.send.StreamConfig(rate=50e6, max_packet_size=args.packet)
    stream = spead2.send.UdpStream(spead2.ThreadPool(), [("127.0.0.1", args.port)], config)
    group = spead2.send.ItemGroup(flavour=FLAVOUR)
    group.add_item(0x7000, "data", "", shape=(3, 40), dtype=np.dtype("<i2"))
    group.add_item(0x1600, "timestamp", "", shape=(), format=[("u", 48)])
    if args.all:
        group.add_item(0x7001, "sequence", "", shape=(), format=[("u", 48)])
        group.add_item(0x7005, "validity", "", shape=(3,), dtype=np.dtype("<u4"))
        group.add_item(0x7007, "annotations", "", shape=(None,), format=[("c", 8)])
        group.add_item(0x7008, "type", "", shape=(None,), format=[("c", 8)], value=args.type)
    for frame in range(args.frames):
        if frame in args.lose:
            continue
        group["data"].value = (100 * frame + np.arange(120)).reshape(3, 40)
        group["timestamp"].value = 1000 * (frame + 5)
        if args.all:
            group["sequence"].value = frame
            group["validity"].value = [2, frame % 3, 1]
            group["annotations"].value = json.dumps({"adc_power": [frame / 3, None]})
        stream.send_heap(group.get_heap(descriptors="stale", data="all"))
    stream.send_heap(group.get_end())


def plain(value):
    """Shape, type and numbers of `value`; complex numbers have an axis of their own."""
    value = np.asarray(value)
    if value.dtype.kind == "c":
        value = np.stack([value.real, value.imag], axis=-1)
    return [list(value.shape), str(value.dtype), value.ravel().tolist()]


def listen(address):
    """A receive stream bound to one address."""
    config = spead2.recv.StreamConfig(max_heaps=64, stop_on_stop_item=False)
    stream = spead2.recv.Stream(spead2.ThreadPool(), config, spead2.recv.RingStreamConfig(heaps=4096))
    host, port = address.split(":")
    stream.add_udp_reader(host, int(port), interface_address="127.0.0.1", buffer_size=4 << 20)
    return stream


def print_heaps(at, stream, lock):
    """Prints the heaps received at one address, with index `at`, up to the stop heap."""
    group = spead2.ItemGroup()
    for heap in stream:
        updated = group.update(heap)
        line = {
            "at": at,
            "counter": heap.cnt,
            "descriptors": len(heap.get_descriptors()),
            "items": {name: plain(item.value) for name, item in updated.items()},
            "known": sorted(group.keys()),
        }
        with lock:
            print(json.dumps(line), flush=True)
        if heap.is_end_of_stream():
            return


def receive(args):
    streams = [listen(address) for address in args.addresses]
    lock = threading.Lock()
    print("ready", flush=True)
    threads = [
        threading.Thread(target=print_heaps, args=(at, stream, lock), daemon=True) for at, stream in enumerate(streams)
    ]
    for thread in threads:
        thread.start()
    for address, thread in zip(args.addresses, threads):
        with waits.within(f"the stop heap to {address}"):
            thread.join()


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(required=True)
sender = commands.add_parser("send")
sender.set_defaults(run=send)
sender.add_argument("ports", type=int, nargs="+")
sender.add_argument("--first", type=int, default=0)
sender.add_argument("--heaps", type=int, default=64)
sender.add_argument("--packet", type=int, default=9000)
sender.add_argument("--lose", type=int, nargs="*", default=[])
sender.add_argument("--swap", type=int, nargs="*", default=[])
frames = commands.add_parser("send-frames")
frames.set_defaults(run=send_frames)
frames.add_argument("port", type=int)
frames.add_argument("--frames", type=int, default=10)
frames.add_argument("--packet", type=int, default=1472)
frames.add_argument("--lose", type=int, nargs="*", default=[])
frames.add_argument("--all", action="store_true")
frames.add_argument("--type")
receiver = commands.add_parser("receive")
receiver.set_defaults(run=receive)
receiver.add_argument("addresses", nargs="+")
arguments = parser.parse_args()
arguments.run(arguments)
