"""The FX chain in double precision with NumPy, written from the definitions, independent of fxgraph."""

import numpy as np


def pack_samples(samples, bits=10):
    """Packs integers to big-endian two's-complement bit fields: [n] int -> [n * bits / 8] uint8."""
    fields = (np.asarray(samples, dtype=np.int64) & ((1 << bits) - 1))[:, np.newaxis]
    shifts = np.arange(bits - 1, -1, -1)
    return np.packbits(((fields >> shifts) & 1).astype(np.uint8).ravel())


def pfb_weights(channels, taps, w_cutoff=1.0):
    """Hann-windowed sinc of `taps * 2 * channels` weights with unit energy."""
    step = 2 * channels
    size = step * taps
    i = np.arange(size)
    window = np.sin(np.pi * i / (size - 1)) ** 2
    weights = window * np.sinc(w_cutoff * ((i + 0.5) / step - taps / 2))
    return weights / np.sqrt(np.sum(weights**2))


def f_engine(samples, first, channels, taps, timestamps, gain=1.0, delay=0.0):
    """Spectra of the samples of one polarisation, before rounding: complex [spectrum][channel].

    `samples[0]` was taken at timestamp `first`; `timestamps` are those of the spectra wanted, NaN
    where the window leaves the samples. `delay` is constant, in samples.
    """
    step = 2 * channels
    weights = pfb_weights(channels, taps)
    coarse = int(np.rint(delay))
    fine = delay - coarse
    k = np.arange(channels)
    turn = np.exp(1j * (np.pi / 2 * (coarse % 4) - np.pi * fine * (k - channels // 2) / channels))
    out = np.full((len(timestamps), channels), np.nan, dtype=np.complex128)
    for row, t in enumerate(timestamps):
        start = t - coarse - first
        if start < 0 or start + step * taps > len(samples):
            continue
        window = samples[start : start + step * taps].astype(np.float64) * weights
        folded = window.reshape(taps, step).sum(axis=0)
        out[row] = np.fft.rfft(folded)[:channels] * turn * gain
    return out


def quantise(values):
    """Rounds half to even and clamps to +-127: complex -> int8 [..., 2]."""
    parts = np.stack([values.real, values.imag], axis=-1)
    return np.rint(np.clip(parts, -127, 127)).astype(np.int8)


def correlate(voltages):
    """Products of int8 voltages [antenna][channel][spectrum][pol][2]: int64 [channel][4 * baseline][2]."""
    e = voltages[..., 0].astype(np.float64) + 1j * voltages[..., 1]
    antennas, channels = e.shape[:2]
    baselines = antennas * (antennas + 1) // 2
    out = np.zeros((channels, 4 * baselines, 2), dtype=np.int64)
    for a2 in range(antennas):
        for a1 in range(a2 + 1):
            index = a2 * (a2 + 1) // 2 + a1
            for p1 in range(2):
                for p2 in range(2):
                    v = np.sum(e[a1, :, :, p1] * e[a2, :, :, p2].conj(), axis=-1)
                    out[:, 4 * index + p1 + 2 * p2, 0] = np.rint(v.real)
                    out[:, 4 * index + p1 + 2 * p2, 1] = np.rint(v.imag)
    return out
