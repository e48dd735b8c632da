"""Checks that complex floats on stdin are those of a file in order, which is repeated, from any sample on.

Usage: consecutive.py FILE

Prints the number of samples, of places where the next sample is another one, and of missing samples, which are 0.
"""

import sys

import numpy as np

period = np.fromfile(sys.argv[1], np.complex64)
position, samples, jumps, missing, rest = None, 0, 0, 0, b""
while piece := sys.stdin.buffer.read1(1 << 20):
    piece = rest + piece
    whole = len(piece) // 8 * 8
    rest = piece[whole:]
    got = np.frombuffer(piece[:whole], np.complex64)
    missing += int((got == 0).sum())
    got = got[got != 0]
    while got.size:
        if position is None:
            (position,) = np.flatnonzero(period == got[0])
        run = min(got.size, period.size - position)
        wrong = np.flatnonzero(got[:run] != period[position : position + run])
        run = int(wrong[0]) if wrong.size else run
        samples += run
        position = (position + run) % period.size
        got = got[run:]
        if wrong.size:
            jumps, position = jumps + 1, None
print(samples, jumps, missing)
