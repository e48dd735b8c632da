"""The FX chain in double precision with NumPy, implemented from the definitions, independent of fxgraph."""

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


class Delay:
    """Delay model of one polarisation, from the pieces in a flowgraph.

    Within a piece the delay in samples is d0 + rate (t - t0) and the phase in radians phi0 +
    phase_rate (t - t0) / f_s; before the first piece both are 0.
    """

    def __init__(self, pieces, rate_hz):
        self.pieces, self.rate_hz = pieces, rate_hz

    def at(self, t):
        """(whole samples, the rest, phase in radians) for the spectrum with timestamp t."""
        begun = [piece for piece in self.pieces if piece["start_samples"] <= t]
        if not begun:
            return 0, 0.0, 0.0
        piece = begun[-1]
        dt = t - piece["start_samples"]
        delay = piece["delay_samples"] + piece.get("rate", 0.0) * dt
        phase = piece.get("phase_radians", 0.0) + piece.get("phase_rate_radians_per_second", 0.0) * dt / self.rate_hz
        coarse = int(np.rint(delay))
        return coarse, delay - coarse, phase


def f_engine(samples, first, channels, taps, timestamps, gain, delay, present=None):
    """Spectra of the samples of one polarisation, before rounding: complex [spectrum][channel].

    `samples[0]` was taken at timestamp `first`; `timestamps` are those of the spectra wanted, NaN
    where the window leaves the samples or touches one that is not `present`.
    """
    step = 2 * channels
    weights = pfb_weights(channels, taps)
    k = np.arange(channels)
    out = np.full((len(timestamps), channels), np.nan, dtype=np.complex128)
    for row, t in enumerate(timestamps):
        coarse, fine, phase = delay.at(int(t))
        start = t - coarse - first
        end = start + step * taps
        if start < 0 or end > len(samples) or (present is not None and not present[start:end].all()):
            continue
        window = samples[start:end].astype(np.float64) * weights
        folded = window.reshape(taps, step).sum(axis=0)
        angle = phase + np.pi / 2 * (coarse % 4) - np.pi * fine * (k - channels // 2) / channels
        out[row] = np.fft.rfft(folded)[:channels] * np.exp(1j * angle) * gain
    return out


def quantise(values, limit=127):
    """Rounds half to even and clamps to +-limit: complex -> int8 [..., 2]."""
    parts = np.stack([values.real, values.imag], axis=-1)
    return np.rint(np.clip(parts, -limit, limit)).astype(np.int8)


def beam(voltages, present, pol, weights, delays_seconds, phases_radians, gain, first_channel, band_channels, channel_hz):
    """One beam before rounding: int8 voltages [antenna][channel][spectrum][pol][2] -> complex [channel][spectrum]."""
    out = 0
    hz = (first_channel + np.arange(voltages.shape[1]) - band_channels // 2) * channel_hz
    for a, e in enumerate(voltages):
        if present[a]:
            field = e[:, :, pol, 0].astype(np.float64) + 1j * e[:, :, pol, 1]
            turn = np.exp(1j * (phases_radians[a] - 2 * np.pi * delays_seconds[a] * hz))
            out = out + weights[a] * field * turn[:, np.newaxis]
    return gain * out


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
