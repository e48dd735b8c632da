"""Reads recordings as a user would: checks checksums, and that two recordings contain the same stream.

Usage: replayed.py FILE.npz [OTHER.npz]
"""

import json
import sys
import zlib

import numpy as np


def load(path):
    with np.load(path) as file:
        side = json.loads(file["recording.json"])
        arrays = {name: file[name] for name in side["arrays"]}
    assert side["complete"] and side["frames"] == len(arrays["data"]) > 0, side
    fixed = ["sequence", "timestamp", "config_id", "validity"]
    notes = sorted(set(arrays) - {*fixed, "checksum", "data"})
    for n, checksum in enumerate(arrays["checksum"]):
        rows = [arrays[name][n] for name in fixed]
        rows += [arrays[name][n] for name in notes if not np.isnan(arrays[name][n]).all()]
        sum = zlib.crc32(b"".join(row.tobytes() for row in [*rows, arrays["data"][n]]))
        assert sum == checksum, (path, n)
    assert np.all(np.diff(arrays["sequence"].astype(int)) == 1), arrays["sequence"]
    return arrays, side


arrays, side = load(sys.argv[1])
if len(sys.argv) > 2:
    others, other = load(sys.argv[2])
    for key in ["dtype", "axes", "clock", "band", "validity"]:
        assert side[key] == other[key], key
    for name in sorted(set(arrays) - {"sequence", "config_id", "checksum"}):
        assert arrays[name].dtype == others[name].dtype
        assert arrays[name].tobytes() == others[name].tobytes(), name
print(side["frames"], arrays["timestamp"][0], arrays["timestamp"][-1])
