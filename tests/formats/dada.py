"""DADA by baseband: compares files of dada_sink, writes files for dada_source."""

import glob
import json
import sys
import warnings

import astropy.units as u
import numpy as np
from astropy.time import Time
from baseband import dada

warnings.simplefilter("ignore")


def numbers(name):
    """Samples of a recording, as complex or real numbers, with its side file."""
    data, side = np.load(name), json.load(open(name + ".json"))
    if side["dtype"].startswith("ci"):
        data = data[..., 0].astype("f4") + 1j * data[..., 1].astype("f4")
    return data, side


def compare():
    data, side = numbers("written.npy")
    validity = np.load("written.validity.npy")
    if data.ndim == 3:
        # [frame, pol, sample] to [sample, pol, channel].
        data = np.where(validity[..., np.newaxis] > 0, data, 0)
        expected = data.transpose(0, 2, 1).reshape(-1, 2, 1)
        rate, bandwidth = 2e6, -2.0
    else:
        # [frame, heap, channel, spectrum, pol] to [spectrum, pol, channel].
        expected = data.transpose(0, 1, 3, 4, 2).reshape(-1, 2, 8)
        rate, bandwidth = 2e5, 2.0
    names = sorted(glob.glob("written*.dada"))
    values, next_offset = [], None
    for name in names:
        with open(name, "rb") as raw:
            header = dada.DADAHeader.fromfile(raw)
            payload = raw.read()
        assert len(payload) == header["FILE_SIZE"], (len(payload), header)
        assert next_offset in (None, header["OBS_OFFSET"]), header
        next_offset = header["OBS_OFFSET"] + header["FILE_SIZE"]
        if len(names) > 1:
            assert name == f"written_{header['OBS_OFFSET']:016d}.{header['FILE_NUMBER']:06d}.dada", name
        if header["NBIT"] == 8:
            with dada.open(name, "rs", squeeze=False) as file:
                # dspsr has channels before polarisations, baseband polarisations before channels.
                read = file.read()
                values.append(read.reshape(len(read), header["NCHAN"], header["NPOL"]).transpose(0, 2, 1))
                assert abs(file.sample_rate.to_value(u.Hz) / rate - 1) < 1e-12, file.sample_rate
        else:
            # baseband reads 8 bits only.
            values.append(np.frombuffer(payload, "c8").reshape(-1, header["NCHAN"], header["NPOL"]).transpose(0, 2, 1))
    with open(names[0], "rb") as raw:
        header = dada.DADAHeader.fromfile(raw)
    start = Time(1790000000, format="unix") + 1.25 * u.s
    assert abs((header.time - start).to_value(u.ns)) < 1, header
    assert header["UTC_START"] == "2026-09-21-14:13:21" and header["PICOSECONDS"] == "0", header
    assert (header["FREQ"], header["SOURCE"], header["TELESCOPE"]) == (
        1420.0 if bandwidth < 0 else 1420.0 - 0.125, "3C_48", "MeerKAT",
    ), header
    assert header["BW"] == bandwidth, header
    values = np.concatenate(values)
    assert values.shape == expected.shape and (values == expected).all(), (values.shape, expected.shape)
    print("equal", len(values), "samples in", len(names), "files")


def write(kind, pols, channels):
    pols, channels = int(pols), int(channels)
    header = dada.DADAHeader.fromvalues(
        time=Time("2026-03-01T12:00:00"), sample_rate=0.5 * u.MHz, samples_per_frame=1000, nchan=channels, npol=pols,
        bps=8, complex_data=kind == "complex", FREQ=1284.5, offset=0.5 * u.s,
    )
    rng = np.random.default_rng(3)
    data = rng.integers(-128, 128, size=(1000, pols, channels, 2)).astype("f4")
    data = data[..., 0] + 1j * data[..., 1] if kind == "complex" else data[..., 0]
    with dada.open("baseband.dada", "ws", header0=header, squeeze=False) as file:
        file.write(data)


def played():
    data, side = numbers("played.npy")
    with dada.open("baseband.dada", "rs", squeeze=False) as file:
        values, start, header = file.read(), file.start_time, file.header0
    # [frame, sample, pol] or [frame, spectrum, channel, pol] to [sample, pol, channel].
    pols, channels = values.shape[1:]
    found = data.reshape(-1, channels, pols).transpose(0, 2, 1)
    assert found.shape == values.shape and (found == values).all(), (found.shape, values.shape)
    clock = side["clock"]
    seconds = np.load("played.timestamp.npy") / clock["adc_sample_rate_hz"]
    assert np.allclose(np.diff(seconds), 100 * 2e-6), np.diff(seconds)
    time = Time(clock["sync_time_seconds"], format="unix") + seconds[0] * u.s
    assert abs((time - start).to_value(u.us)) < 1, (time, start)
    print("equal", len(values), "samples")


globals()[sys.argv[1]](*sys.argv[2:])
