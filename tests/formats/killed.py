"""Reads files of a killed process by baseband; with an argument, checks the recordings of the sources."""

import os
import sys
import warnings

import numpy as np
from baseband import dada, guppi, vdif

warnings.simplefilter("ignore")


def rms(values):
    return np.sqrt(np.mean(np.abs(values) ** 2))


counts = {}
with vdif.open("killed.vdif", "rs") as file:
    values = file.read()
    counts["vdif"] = values.size
    assert 1.9 < rms(values) < 2.4, rms(values)
with guppi.open("killed.raw", "rb") as file:
    blocks = 0
    while True:
        try:
            frame = file.read_frame(memmap=False)
        except (EOFError, AssertionError, ValueError):
            break
        if frame.payload.words.size * frame.payload.words.itemsize < frame.header.payload_nbytes:
            break
        assert rms(frame.data) > 0
        counts["guppi"] = counts.get("guppi", 0) + frame.data.shape[0]
        blocks += 1
    assert blocks > 2, blocks
with open("killed.dada", "rb") as raw:
    header = dada.DADAHeader.fromfile(raw)
with dada.open("killed.dada", "rs") as file:
    counts["dada"] = file.read().shape[0]
# The header has the size of the samples up to the last commit.
assert 0 < header["FILE_SIZE"] <= os.path.getsize("killed.dada") - 4096, header
print("read", counts)
if len(sys.argv) > 1:
    for name, axis in [("vdif", 1), ("guppi", 3), ("dada", 1)]:
        data = np.load(name + ".npy")
        validity = np.load(name + ".validity.npy")
        found = data.shape[0] * data.shape[axis]
        if name == "vdif":
            found = int(validity.sum()) * data.shape[1] // validity.shape[1]
        assert counts[name] - 8192 <= found <= counts[name], (name, found, counts[name])
    print("played")
