"""GUPPI raw by baseband and blimpy: compares files of guppi_sink, writes files for guppi_source."""

import json
import sys
import warnings

import astropy.units as u
import numpy as np
from astropy.time import Time
from baseband import guppi

warnings.simplefilter("ignore")


def complex_of(data):
    return data[..., 0].astype("f4") + 1j * data[..., 1].astype("f4")


def compare(heaps):
    from blimpy import GuppiRaw

    heaps = int(heaps)
    # [frame, heap, channel, spectrum, pol, part] to [heap, channel, spectrum, pol].
    data = complex_of(np.load("written.npy"))
    data = data.reshape(-1, *data.shape[2:])
    data[np.load("written.validity.npy").reshape(-1) == 0] = 0
    missing = np.load("written.validity.npy").reshape(-1) == 0
    blocks = -(-len(data) // heaps)
    expected = data.transpose(0, 2, 3, 1).reshape(-1, *data.shape[3:], data.shape[1])
    with guppi.open("written.raw", "rs", squeeze=False) as file:
        header = file.header0
        assert file.shape[0] == blocks * heaps * 32, file.shape
        values = file.read()
        assert (values[: len(expected)] == expected).all() and (values[len(expected) :] == 0).all()
        start = Time(1790000000, format="unix") + 1.25 * u.s
        assert abs((file.start_time - start).to_value(u.ns)) < 1, file.start_time
        assert abs(file.sample_rate.to_value(u.Hz) / 1e5 - 1) < 1e-12, file.sample_rate
        assert file.header0.sideband is False or not file.header0.sideband
    # Channels 16 to 31 of 64: channel 32 is at 1420 MHz, and frequencies decrease.
    width = -1.6 / 64
    frequencies = 1420 + width * (np.arange(16, 32) - 32)
    found = header["OBSFREQ"] - header["OBSBW"] / 2 + (np.arange(16) + 0.5) * header["CHAN_BW"]
    assert np.allclose(found, frequencies, rtol=1e-12), (found, frequencies)
    assert (header["TELESCOP"], header["SRC_NAME"], header["NBITS"]) == ("MeerKAT", "3C 48", 8)
    raw = GuppiRaw("written.raw")
    assert raw.n_blocks == blocks, (raw.n_blocks, blocks)
    total = 0
    for n in range(blocks):
        header, x, y = raw.read_next_data_block_int8()
        of_block = values[n * heaps * 32 : (n + 1) * heaps * 32]
        for pol, found in enumerate([x, y]):
            assert (complex_of(found).T == of_block[:, pol]).all(), n
        lost = missing[n * heaps : (n + 1) * heaps].sum() + max(0, (n + 1) * heaps - len(missing))
        total += lost
        assert header["DROPBLK"] == lost / heaps, (header["DROPBLK"], lost)
        assert np.isclose(header["DROPTOT"], total / (heaps * (n + 1)))
        assert header["PKTIDX"] == n * heaps * 32
    print("equal", blocks, "blocks, missing:", missing.sum())


def write(pols, channels, offset):
    pols, channels, offset = int(pols), int(channels), int(offset)
    header = guppi.GUPPIHeader.fromvalues(
        time=Time("2026-03-01T12:00:00") + offset * 0.001 * u.s, sample_rate=0.5 * u.MHz, samples_per_frame=500,
        nchan=channels, npol=pols, bps=8, OBSFREQ=1284.5, PKTSIZE=2 * channels * pols * 10, offset=offset * 0.001 * u.s,
    )
    rng = np.random.default_rng(3)
    data = rng.integers(-128, 128, size=(2000, pols, channels, 2)).astype("f4")
    with guppi.open("baseband.raw", "ws", header0=header, squeeze=False) as file:
        file.write(complex_of(data).astype("c8"))


def played():
    data = complex_of(np.load("played.npy"))
    side = json.load(open("played.npy.json"))
    with guppi.open("baseband.raw", "rs", squeeze=False) as file:
        values, start, header = file.read(), file.start_time, file.header0
    # [frame, heap 1, channel, spectrum, pol] to [spectrum, pol, channel].
    found = data[:, 0].transpose(0, 2, 3, 1).reshape(-1, data.shape[4], data.shape[2])
    assert found.shape == values.shape and (found == values).all(), (found.shape, values.shape)
    clock = side["clock"]
    seconds = np.load("played.timestamp.npy") / clock["adc_sample_rate_hz"]
    assert np.allclose(np.diff(seconds), 50 * 2e-6)
    time = Time(clock["sync_time_seconds"], format="unix") + seconds[0] * u.s
    assert abs((time - start).to_value(u.us)) < 1, (time, start)
    (axis,) = [axis for axis in side["axes"] if axis["name"] == "channel"]
    channels = data.shape[2]
    first = header["OBSFREQ"] - header["OBSBW"] / 2 + header["OBSBW"] / channels / 2
    assert np.isclose(axis["first"], first * 1e6), (axis, first)
    print("equal", len(values), "spectra")


globals()[sys.argv[1]](*sys.argv[2:])
