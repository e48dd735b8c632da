"""Searches a recording for satellites in double precision: the truth of `recordings.rs`.

    python3 recordings.py POCKETSDR FILE RATE CARRIER INVERTED SIGNAL [SATELLITE ...]

POCKETSDR is a checkout of https://github.com/tomojitakasu/PocketSDR, which generates the chips. FILE has complex samples
of 8 bits at RATE samples per second, with the carrier at CARRIER Hz (`real` before RATE: real samples). Needs NumPy and
SciPy; shares no code with the blocks. A SATELLITE such as `26:505` is searched within 100 Hz of 505 Hz.

A line is a satellite: signal, number, statistic (largest power of a cell divided by the mean), and for those that stand
out the Doppler shift in Hz, the code phase in chips at the first sample, and C/N0 in dB Hz. C/N0 is the power of the
prompt sums of all code periods, without that of sums with a code three chips late, for the power of the
whole replica: as a receiver measures that knows nothing of the band.
"""

import sys
import types

import numpy as np
from scipy import fft, stats

library = types.ModuleType("sdr_func")
library.xor_bits = lambda x: bin(x).count("1") & 1
sys.modules["sdr_func"] = library
sys.path.append(sys.argv[1] + "/python")
import sdr_code  # noqa: E402

# Name in PocketSDR, entries per chip there, chip rate, carrier, satellites, shape.
SIGNALS = {
    "gps_l1_ca": ("L1CA", 1, 1.023e6, 1575.42e6, range(1, 38), "bpsk"),
    "galileo_e1b": ("E1B", 2, 1.023e6, 1575.42e6, range(1, 51), "cboc+"),
    "galileo_e1c": ("E1C", 2, 1.023e6, 1575.42e6, range(1, 51), "cboc-"),
    "gps_l1c_d": ("L1CD", 2, 1.023e6, 1575.42e6, range(1, 64), "boc"),
    "gps_l1c_p": ("L1CP", 12, 1.023e6, 1575.42e6, range(1, 64), "tmboc"),
    "beidou_b1c_d": ("B1CD", 2, 1.023e6, 1575.42e6, range(1, 64), "boc"),
    "beidou_b1c_p": ("B1CP", 2, 1.023e6, 1575.42e6, range(1, 64), "boc"),
    "qzss_l1_ca": ("L1CA", 1, 1.023e6, 1575.42e6, range(193, 203), "bpsk"),
    "qzss_l1c_d": ("L1CD", 2, 1.023e6, 1575.42e6, range(193, 203), "boc"),
    "qzss_l1c_p": ("L1CP", 12, 1.023e6, 1575.42e6, range(193, 203), "tmboc"),
    "gps_l2c_m": ("L2CM", 2, 511.5e3, 1227.6e6, range(1, 64), "first"),
    "qzss_l2c_m": ("L2CM", 2, 511.5e3, 1227.6e6, range(193, 203), "first"),
}
MAX_DOPPLER_HZ = 5000.0
NEAR_HZ = 100.0
# Windows of two code periods that are added.
WINDOWS = 4


def entries(signal, prn):
    """A period of the replica with a mean power of 1, and its entries per chip."""
    name, per_chip, _, _, _, shape = SIGNALS[signal]
    coded = sdr_code.gen_code(name, prn).reshape(-1, per_chip)
    chips = np.sign(coded[:, 0]).astype(float)
    n = np.arange(12)
    slow, fast = np.where(n < 6, 1.0, -1.0), np.where(n % 2 == 0, 1.0, -1.0)
    more, less = np.sqrt(10 / 11), np.sqrt(1 / 11)
    waves = {
        "bpsk": [1.0],
        "boc": [1.0, -1.0],
        "first": [np.sqrt(2), 0.0],
        "cboc+": more * slow + less * fast,
        "cboc-": more * slow - less * fast,
    }
    if shape == "tmboc":
        is_fast = np.isin(np.arange(len(chips)) % 33, [0, 4, 6, 29])
        levels = np.where(is_fast[:, None], fast, slow)
        return (chips[:, None] * levels).ravel(), 12
    wave = np.asarray(waves[shape])
    return np.outer(chips, wave).ravel(), len(wave)


def replica(code, per_chip, rate_hz, chip_rate_hz, phase_chips, count):
    """Samples of the replica, each the mean of the code over the sample."""
    edges = (phase_chips + np.arange(count + 1) / rate_hz * chip_rate_hz) * per_chip
    # The integral of the code up to a phase.
    total = np.concatenate([[0.0], np.cumsum(code)])
    periods, within = np.divmod(edges, len(code))
    whole = within.astype(int)
    integral = periods * total[-1] + total[whole] + (within - whole) * code[whole]
    return np.diff(integral) / np.diff(edges)


def search(x, signal, prn, rate_hz, near_hz):
    name, _, chip_rate_hz, carrier_hz, _, _ = SIGNALS[signal]
    code, per_chip = entries(signal, prn)
    period = int(round(len(code) / per_chip / chip_rate_hz * rate_hz))
    length = fft.next_fast_len(2 * period)
    local = np.zeros(length)
    local[:period] = replica(code, per_chip, rate_hz, chip_rate_hz, 0.0, period)
    spectrum = np.conj(fft.fft(local))
    starts = np.arange(0, len(x) - 2 * period, 2 * period)[:WINDOWS * max(1, int(10e-3 * rate_hz / period))]
    windows = [fft.fft(x[s : s + 2 * period], length) for s in starts]
    bins = int((MAX_DOPPLER_HZ if near_hz is None else NEAR_HZ) / rate_hz * length)
    middle = 0 if near_hz is None else round(near_hz / rate_hz * length)
    best = (0.0, 0, 0)
    for shift in range(middle - bins, middle + bins + 1):
        power = np.zeros(period)
        for window in windows:
            power += np.abs(fft.ifft(np.roll(window, -shift) * spectrum)[:period]) ** 2
        lag = int(power.argmax())
        statistic = power[lag] / power.mean()
        if statistic > best[0]:
            best = (statistic, shift, lag)
    statistic, shift, lag = best
    doppler_hz = shift * rate_hz / length
    return statistic, len(starts), doppler_hz, -lag / rate_hz * chip_rate_hz % (len(code) / per_chip), code, per_chip


def prompts(x, code, per_chip, signal, rate_hz, doppler_hz, phase_chips, late_chips):
    """Prompt sums of all whole code periods."""
    _, _, chip_rate_hz, carrier_hz, _, _ = SIGNALS[signal]
    rate = chip_rate_hz * (1 + doppler_hz / carrier_hz)
    chips = len(code) / per_chip
    first = (chips - phase_chips) / rate * rate_hz
    step = chips / rate * rate_hz
    starts = np.ceil(np.arange(first, len(x) - step - 1, step)).astype(int)
    local = replica(code, per_chip, rate_hz, rate, phase_chips - late_chips, len(x))
    mixed = x * local * np.exp(-2j * np.pi * doppler_hz / rate_hz * np.arange(len(x)))
    return np.add.reduceat(mixed, starts)[:-1], step / rate_hz


def measure(x, code, per_chip, signal, rate_hz, doppler_hz, phase_chips):
    """Refines Doppler shift and code phase; returns them with C/N0."""
    period_seconds = len(code) / per_chip / SIGNALS[signal][2]
    for span in (0.5 / period_seconds, 0.2 / period_seconds, 0.05 / period_seconds, 0.01 / period_seconds):
        trials = doppler_hz + np.linspace(-span, span, 11)
        sums = [prompts(x, code, per_chip, signal, rate_hz, hz, phase_chips, 0)[0] for hz in trials]
        # Squares have no data; their sum is coherent at the right frequency.
        power = [np.sum(np.abs(p) ** 2) + np.abs(np.sum(p**2)) for p in sums]
        doppler_hz = trials[int(np.argmax(power))]
        shifts = phase_chips + np.linspace(-1, 1, 21) * min(0.5, span * period_seconds)
        power = [np.sum(np.abs(prompts(x, code, per_chip, signal, rate_hz, doppler_hz, c, 0)[0]) ** 2) for c in shifts]
        phase_chips = shifts[int(np.argmax(power))]
    prompt, seconds = prompts(x, code, per_chip, signal, rate_hz, doppler_hz, phase_chips, 0)
    others = [prompts(x, code, per_chip, signal, rate_hz, doppler_hz, phase_chips, late)[0] for late in (3, 5, 7, 9, -3, -5)]
    noise = np.mean([np.mean(np.abs(p) ** 2) for p in others])
    signal_power = np.mean(np.abs(prompt) ** 2) - noise
    return doppler_hz, phase_chips, 10 * np.log10(max(signal_power, 1e-9) / noise / seconds)


def main():
    arguments = sys.argv[2:]
    is_real = "real" in arguments
    if is_real:
        arguments.remove("real")
    path, rate, carrier, inverted, signal, *chosen = arguments
    rate_hz, carrier_at_hz = float(rate), float(carrier)
    raw = np.fromfile(path, "i1").astype(float)
    x = raw.astype(complex) if is_real else raw[0::2] + 1j * raw[1::2]
    if int(inverted):
        x = x.conj()
    x *= np.exp(-2j * np.pi * carrier_at_hz / rate_hz * np.arange(len(x)))
    for choice in chosen if chosen else map(str, SIGNALS[signal][4]):
        number, _, near_hz = choice.partition(":")
        prn, near_hz = int(number), float(near_hz) if near_hz else None
        statistic, count, doppler_hz, phase, code, per_chip = search(x, signal, prn, rate_hz, near_hz)
        # Exceeded by one of a million cells of noise with a probability of 1e-4.
        threshold = stats.gamma.isf(1e-10, count) / count
        line = f"{signal} {prn} {statistic:.2f} {threshold:.2f}"
        if statistic > threshold:
            found = measure(x, code, per_chip, signal, rate_hz, doppler_hz, phase)
            line += " doppler {:.1f} phase {:.2f} cn0 {:.1f}".format(*found)
        print(line, flush=True)


main()
