"""Down-converts recorded samples in double precision and compares with the program's recording.

Usage: narrowband.py DIRECTORY CENTRE_HZ RATE_HZ SUBSAMPLING TAPS
"""

import pathlib
import sys

import numpy as np
from scipy.signal import remez

folder = pathlib.Path(sys.argv[1])
centre, rate, subsampling, taps = map(int, sys.argv[2:])


def low_pass():
    """SciPy's filter for the mode `discard`, in units of the output's rate."""
    edges, amplitudes, weights = [0, 0.25], [1], [0.005]
    for n in range(1, subsampling // 2 + 1):
        edges += [n - 0.25, min(n + 0.25, subsampling / 2)]
        amplitudes.append(0)
        weights.append(1)
    filter = remez(taps, edges, amplitudes, weight=weights, fs=subsampling, maxiter=1000)
    return filter * np.sqrt(subsampling)


def oscillator(times):
    """exp(-2 pi i f t), with whole turns removed in integer arithmetic."""
    turns = np.array([centre * int(t) % rate for t in times]) / rate
    return np.exp(-2j * np.pi * turns)


with np.load(folder / "samples.npz") as file:
    samples, start = file["data"].ravel().astype(np.float64), int(file["timestamp"][0])
with np.load(folder / "narrowband.npz") as file:
    output, validity, timestamps = file["data"], file["validity"], file["timestamp"]

mixed = samples * oscillator(range(start, start + len(samples)))
filter = low_pass()
valid = np.repeat(validity > 0, output.shape[1] // validity.shape[1], axis=1)
times = timestamps[:, np.newaxis].astype(np.int64) + subsampling * np.arange(output.shape[1])
first = times[valid] - start
expected = np.array([filter @ mixed[n : n + taps] for n in first])
error = np.abs(output[valid] - expected)
# Heaps of 256 samples whose last window ends within the samples.
heaps = (len(samples) - taps - 255 * subsampling) // (256 * subsampling) + 1
assert len(first) == 256 * heaps, (len(first), heaps)
# Two equiripple filters agree in the pass and stop bands, but not in the transition band, where they are unconstrained and white
# noise is as strong as elsewhere.
relative = np.sqrt(np.mean(error**2) / np.mean(np.abs(expected) ** 2))
assert relative < 2e-3, relative
