"""GNU Radio as the other end of a stream of complex floats; run with the Python of Debian.

Usage: gnu_radio.py send ADDRESS FILE RATE_HZ SECONDS     a PUB socket, which repeats the samples of FILE
       gnu_radio.py sub|pull ADDRESS FILE SAMPLES         a socket that reads SAMPLES samples to FILE
       gnu_radio.py rtl_tcp HOST:PORT FILE SAMPLES RATE_HZ CENTRE_HZ   gr-osmosdr reads SAMPLES samples
"""

import sys
import time

from gnuradio import blocks, gr, zeromq


def send(top, address, file, rate_hz, seconds):
    source = blocks.file_source(gr.sizeof_gr_complex, file, True)
    throttle = blocks.throttle(gr.sizeof_gr_complex, float(rate_hz))
    sink = zeromq.pub_sink(gr.sizeof_gr_complex, 1, address, 100, False, -1, "", False)
    top.connect(source, throttle, sink)
    top.start()
    time.sleep(float(seconds))
    top.stop()
    top.wait()


def receive(top, pattern, address, file, samples):
    kinds = {"sub": zeromq.sub_source, "pull": zeromq.pull_source}
    read(top, kinds[pattern](gr.sizeof_gr_complex, 1, address), file, samples)


def rtl_tcp(top, address, file, samples, rate_hz, centre_hz):
    import osmosdr

    source = osmosdr.source(args=f"rtl_tcp={address}")
    source.set_sample_rate(float(rate_hz))
    source.set_center_freq(float(centre_hz))
    read(top, source, file, samples)


def read(top, source, file, samples):
    head = blocks.head(gr.sizeof_gr_complex, int(samples))
    sink = blocks.file_sink(gr.sizeof_gr_complex, file, False)
    top.connect(source, head, sink)
    top.run()


def main():
    top = gr.top_block()
    command, *arguments = sys.argv[1:]
    if command == "send":
        send(top, *arguments)
    elif command == "rtl_tcp":
        rtl_tcp(top, *arguments)
    else:
        receive(top, command, *arguments)


main()
