"""Reads the recordings of the array flowgraph, as a user would, and checks their properties.

Usage: recordings.py DIRECTORY CHANNELS DUMPS
"""

import json
import pathlib
import sys

import numpy as np

folder, channels, dumps = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def load(name):
    with np.load(folder / name) as file:
        arrays = dict(file)
    side = json.loads((folder / f"{name}.json").read_text())
    assert side["complete"], side
    frames = [side["frames"]]
    axes = [axis["len"] for axis in side["axes"]]
    parts = [2] if side["dtype"].startswith("ci") else []
    assert list(arrays["data"].shape) == frames + axes + parts, (arrays["data"].shape, axes)
    validity = [axis["len"] for axis in side["validity"]["axes"]]
    assert list(arrays["validity"].shape) == frames + validity, arrays["validity"].shape
    step = side["clock"]["samples_per_frame"]
    assert np.all(np.diff(arrays["timestamp"]) == step), arrays["timestamp"]
    assert np.all(arrays["timestamp"] % step == 0)
    return arrays, side


for engine in range(2):
    arrays, side = load(f"array_visibilities_{engine}.npz")
    data = arrays["data"]
    assert data.dtype == np.int32 and data.shape == (dumps, channels // 2, 10, 4, 2), data.shape
    assert np.all(arrays["validity"] == side["validity"]["full"]), "every dump is whole"
    # Baselines 0, 2, 5 and 9 are the antennas with themselves; products are xx, yx, xy, yy.
    autos = data[:, :, [0, 2, 5, 9]]
    assert np.all(autos[..., [0, 3], 0] > 0) and not autos[..., [0, 3], 1].any(), "powers are real"
    conjugate = autos[..., 2, :] * np.array([1, -1])
    assert np.array_equal(autos[..., 1, :], conjugate), "yx is xy conjugated"
    channel = side["axes"][0]
    width = 1.712e9 / 2 / channels
    assert (channel["name"], channel["unit"]) == ("channel", "Hz")
    assert (channel["first"], channel["step"]) == (engine * channels / 2 * width, width), channel

    arrays, side = load(f"array_beams_{engine}.npz")
    assert arrays["data"].dtype == np.int8
    assert [axis["name"] for axis in side["axes"]] == ["heap", "beam", "channel", "spectrum"]
    assert np.all(arrays["validity"] == 4), "all antennas contribute"
    power = np.mean(arrays["data"].astype(float) ** 2, axis=(0, 1, 3, 4, 5))
    # Two beams on the source, one away from it: 16 + 4 against 4 + 4 parts of power.
    assert np.all(np.abs(power[:2] / power[2] - 2.5) < 0.3), power
