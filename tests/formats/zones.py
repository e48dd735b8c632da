"""A wave from the sky, sampled in a Nyquist zone: `zones.py make|check ZONE PLACES AZIMUTH ELEVATION`.

The wave is noise whose spectrum is given at the frequencies of the sky. Each antenna's voltage is computed at four times
the rate of the ADC, from this spectrum and the geometric delay, and every fourth value is a sample.
"""

import json
import sys

import numpy as np

RATE = 1.712e9
FRAME, FRAMES = 32768, 40
FINER = 4
LIGHT = 299792458.0
CHANNELS = 64


def late(places, azimuth, elevation):
    """Delay of the wave at each antenna in seconds: -(b . s) / c."""
    azimuth, elevation = np.radians([float(azimuth), float(elevation)])
    towards = [np.sin(azimuth) * np.cos(elevation), np.cos(azimuth) * np.cos(elevation), np.sin(elevation)]
    return -np.array(json.loads(places)) @ towards / LIGHT


def centre(zone):
    return (int(zone) - 0.5) * RATE / 2


def make(zone, places, azimuth, elevation):
    """Writes the samples of each antenna and polarisation, and prints the delay models that track the source."""
    random = np.random.default_rng(7)
    count = FRAME * FRAMES * FINER
    hz = np.fft.rfftfreq(count, 1 / (FINER * RATE))
    inside = (hz > (int(zone) - 1) * RATE / 2) & (hz < int(zone) * RATE / 2)
    wave = np.zeros(len(hz), complex)
    wave[inside] = random.normal(size=(inside.sum(), 2)) @ [1, 1j]
    models = []
    for antenna, tau in enumerate(late(places, azimuth, elevation)):
        # Circular polarisation: Y is a quarter of a cycle behind X at every frequency.
        for pol, behind in enumerate([0, np.pi / 2]):
            voltage = np.fft.irfft(wave * np.exp(-2j * np.pi * hz * tau - 1j * behind), count)
            samples = voltage[::FINER]
            samples = samples / samples.std() * 100 + random.normal(size=len(samples)) * 5
            np.save(f"samples{antenna}{pol}.npy", np.round(samples).astype(np.int16).reshape(FRAMES, FRAME))
        piece = {"delay_seconds": -tau, "phase_radians": 2 * np.pi * ((centre(zone) * tau) % 1)}
        models.append([[piece], [piece]])
    print(json.dumps(models))


def check(zone, places, azimuth, elevation, mode):
    """Visibilities, Stokes parameters and beams."""
    from pyuvdata import UVData

    tau, is_tracked = late(places, azimuth, elevation), mode == "tracked"
    data = UVData.from_file("vis.uvh5")
    step = RATE / 2 / CHANNELS * (1 if int(zone) % 2 else -1)
    np.testing.assert_allclose(data.freq_array, centre(zone) + (np.arange(CHANNELS) - CHANNELS // 2) * step)
    inner = slice(4, CHANNELS - 4)
    worst = 0
    for one in range(3):
        for two in range(one, 3):
            # pyuvdata: conj(E1) E2, E = exp(-2 pi j f tau); Y is behind X by 90 degrees.
            fringe = 0 if is_tracked else 2 * np.pi * data.freq_array * (tau[one] - tau[two])
            for name, turn in [("xx", 0), ("yy", 0), ("xy", -np.pi / 2), ("yx", np.pi / 2)]:
                found = data.get_data(one, two, name)
                rest = np.angle(found * np.exp(-1j * (fringe + turn)))[:, inner]
                worst = max(worst, np.abs(rest).max())
    assert worst < 0.05, worst
    stokes = np.load("stokes.npz")["data"][2:-2]
    # [frame][spectrum][product][channel]
    i, q, u, v = stokes.mean(axis=(0, 1))[:, inner]
    # V = 2 Im(E_x conj(E_y)) = 2 Im(exp(j pi / 2)).
    assert (np.abs(v / i - 1) < 0.02).all() and (np.abs(q / i) < 0.05).all() and (np.abs(u / i) < 0.05).all(), v / i
    beams = np.load("beams.npz")["data"][2:-2].astype(float) @ [1, 1j]
    # [frame][heap][beam][channel][spectrum]
    powers = (np.abs(beams) ** 2).mean(axis=(0, 1, 4))[:, inner].mean(axis=1)
    towards, plain = powers[1:] / powers[0]
    if is_tracked:
        assert abs(plain - 9) < 0.3, powers
    else:
        # Without delays the noise of the antennas overlaps in part only.
        assert 8.2 < towards < 9.1 and plain < 6, powers
    print("zone", zone, mode, "phases within", worst, "beams", towards, plain)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
