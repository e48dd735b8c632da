"""The FRB beamformer in double precision with NumPy, implemented from its page, compared with recordings of its input and output.

usage: frb.py INPUT.npy OUTPUT.npy   (the flowgraph is that of tests/frb.rs)
"""

import sys

import numpy as np

SPEED_OF_LIGHT = 299792458.0


def channels_hz(count, first=300, channels=1024, centre=600e6, width=400e6):
    return centre + (first + np.arange(count) - channels // 2) * width / channels


def beams(voltages, angles_degrees, points, kept):
    """[spectrum][channel][pol][cylinder][feed] -> [spectrum][channel][pol][row][beam]."""
    spectra, channels, pols, cylinders, feeds = voltages.shape
    hz = channels_hz(channels)
    across = np.outer(np.sin(np.radians(angles_degrees)), 22.0 * np.arange(cylinders)) / SPEED_OF_LIGHT
    steering = np.exp(-2j * np.pi * hz[:, None, None] * across)
    rows = np.einsum("crx,tcpxn->tcprn", steering, voltages)
    # NumPy's inverse transform has the positive exponent, and divides by the number of points.
    transformed = points * np.fft.ifft(rows, points, axis=-1)
    sines = 2.0 * (np.arange(kept) - kept // 2) / feeds
    places = np.rint(points * 0.3048 * hz[:, None] * sines / SPEED_OF_LIGHT).astype(int) % points
    return np.stack([transformed[:, c][..., places[c]] for c in range(channels)], axis=1)


def intensities(voltages, fine, channels_summed, spectra_summed):
    """[spectrum][channel][pol][row][beam] -> [spectrum][narrow channel][beam]."""
    spectra, channels, pols, rows, row_beams = voltages.shape
    transforms = voltages.reshape(spectra // fine, fine, channels, pols, rows * row_beams)
    narrow = np.fft.fftshift(np.fft.fft(transforms, axis=1), axes=1)
    power = np.sum(np.abs(narrow) ** 2, axis=3)  # [transform][fine][channel][beam]
    power = power.transpose(0, 2, 1, 3)
    shape = (spectra // fine // spectra_summed, spectra_summed, channels * fine // channels_summed, channels_summed, -1)
    return power.reshape(shape).sum(axis=(1, 3))


raw = np.load(sys.argv[1]).view(np.int8)
found = np.load(sys.argv[2])
voltages = (raw >> 4) + 1j * ((raw << 4).astype(np.int8) >> 4)
assert len(found) == len(voltages) > 0
for feeds, sums in zip(voltages, found):
    expected = intensities(beams(feeds, [-0.4, 0.0, 0.4, 0.8], 512, 256), 128, 8, 3)
    assert expected.shape == sums.shape, (expected.shape, sums.shape)
    error = np.sqrt(np.mean((sums - expected) ** 2) / np.mean(expected**2))
    worst = np.max(np.abs(sums - expected) / expected)
    print(f"{sums.shape}: relative error {error:.2e} rms, {worst:.2e} at most")
    assert error < 1e-6 and worst < 1e-4
