"""Real files of baseband.data: copies them, and compares what fxgraph played with what baseband reads."""

import json
import os
import shutil
import sys
import warnings
from fractions import Fraction

import astropy.units as u
import numpy as np
from astropy.time import Time
from baseband import dada, guppi, vdif
from baseband import data as samples

warnings.simplefilter("ignore")
FOLDER = os.path.dirname(samples.__file__)


def copy():
    for name in ("sample.dada", "sample_meerkat.dada", "sample_puppi.raw", "sample.vdif", "sample_arochime.vdif",
                 "sample_bps1.vdif", "sample_mwa.vdif"):
        shutil.copy(os.path.join(FOLDER, name), name)
    # Begins within a frame.
    with open("cut.vdif", "wb") as file:
        file.write(open(os.path.join(FOLDER, "sample.vdif"), "rb").read()[1237:])


def played(name):
    """Data with frames along the first axis, valid units, and the Unix time of the first sample in picoseconds."""
    data = np.load(f"{name}.npy")
    side = json.load(open(f"{name}.npy.json"))
    clock = side["clock"]
    validity = np.load(f"{name}.validity.npy")
    first = int(np.load(f"{name}.timestamp.npy")[0])
    seconds = Fraction(first) / Fraction(clock["adc_sample_rate_hz"])
    return data, validity, seconds, side


def complex_of(data):
    return data[..., 0].astype("f4") + 1j * data[..., 1].astype("f4")


def sync_time(side):
    """The sync time, which the side file has to the picosecond."""
    return Time(side["clock"]["sync_time"].rstrip("Z"), scale="utc")


def begins(name, seconds, side, start):
    """Compares the time of the first sample with that of baseband."""
    found = sync_time(side) + float(seconds) * u.s
    difference = (found - start).to_value(u.ns)
    print(f"{name}: {difference:.3f} ns after baseband")
    return difference


def compare():
    # DADA: [frame, sample, pol, part]
    data, _, seconds, side = played("effelsberg")
    values = complex_of(data).reshape(-1, 2)
    with dada.open("sample.dada", "rs") as file:
        expected = file.read()
        assert values.shape == expected.shape and (values == expected).all()
        assert abs(begins("effelsberg", seconds, side, file.start_time)) < 1

    data, _, seconds, side = played("edd")
    values = data.reshape(-1, 2).astype("f4")
    with dada.open("sample_meerkat.dada", "rs") as file:
        expected = file.read()
        assert values.shape == expected.shape and (values == expected).all()
    # The counter of the digitiser is exact: 526398652416 / 800 MHz after the sync time, and OBS_OFFSET.
    exact = 1642399613 + Fraction(526398652416, 800_000_000) + Fraction(4276224000000 // 2, 800_000_000)
    text = side["clock"]["sync_time"].rstrip("Z")
    whole = round(Time(text.split(".")[0], scale="utc").unix)
    found = whole + Fraction("0." + (text.split(".") + ["0"])[1]) + seconds
    print(f"edd: {float((found - exact) * 10**9):.3f} ns after the digitiser's counter")
    assert abs(found - exact) < Fraction(1, 10**9), float(found - exact)

    # GUPPI: [frame, heap, channel, spectrum, pol, part], to the last overlap.
    data, _, seconds, side = played("puppi")
    values = complex_of(data).transpose(0, 1, 3, 4, 2).reshape(-1, 2, 4)
    with guppi.open("sample_puppi.raw", "rs", squeeze=False) as file:
        expected = file.read()
        assert values.shape == expected.shape == (3904, 2, 4), (values.shape, expected.shape)
    # The sample was cut from a longer recording: its blocks differ where they overlap. baseband takes these spectra from
    # the earlier block, fxgraph from the later one.
    with guppi.open("sample_puppi.raw", "rb") as blocks:
        for number in range(4):
            expected[960 * number :][:1024] = blocks.read_frame().data
    assert (values == expected).all()
    with guppi.open("sample_puppi.raw", "rs", squeeze=False) as file:
        assert abs(begins("puppi", seconds, side, file.start_time)) < 1

    # VDIF of threads: [frame, pol, sample]; 2 bits are -3, -1, 1, 3.
    data, validity, seconds, side = played("evn")
    values = data.transpose(0, 2, 1).reshape(-1, 8)
    with vdif.open("sample.vdif", "rs") as file:
        expected = file.read()
        first = np.flatnonzero((values != 0).all(axis=1))[0]
        values = values[first : first + len(expected)]
        levels = np.where(abs(expected) > 2, 3, 1) * np.sign(expected)
        assert (values == levels).all()
    whole = values

    # The same file cut within its first frame: that thread lacks one frame.
    data, validity, _, _ = played("cut")
    values = data.transpose(0, 2, 1).reshape(-1, 8)
    first = np.flatnonzero((values != 0).any(axis=1))[0]
    values = values[first : first + len(whole)]
    same = (values == whole).all(axis=0)
    assert same.sum() == 7 and (values[20000:] == whole[20000:]).all(), same
    assert (values[:20000, ~same] == 0).all()

    # CHIME: [frame, pol, spectrum, channel], 4 bits as code - 8.
    data, validity, seconds, side = played("chime")
    assert [axis["name"] for axis in side["axes"]] == ["pol", "spectrum", "channel"], side["axes"]
    assert data.nbytes < 1 << 26, data.shape
    values = complex_of(data) if data.dtype.kind != "c" else data
    with vdif.open("sample_arochime.vdif", "rs", sample_rate=390625 * u.Hz) as file:
        expected = file.read() * 2.95
    values = values.transpose(0, 2, 1, 3).reshape(-1, 2, 1024)
    valid = validity.transpose(0, 2, 1).reshape(-1, 2).all(axis=1)
    values = values[valid][: len(expected)]
    assert values.shape == expected.shape and len(expected) == 5, (values.shape, expected.shape)
    assert abs(values - expected).max() < 1e-3, abs(values - expected).max()

    # 1 bit, 16 bands in one thread.
    data, *_ = played("bps1")
    values = data.transpose(0, 2, 1).reshape(-1, 16)
    with vdif.open("sample_bps1.vdif", "rs", sample_rate=32 * u.MHz) as file:
        expected = np.sign(file.read())
    first = np.flatnonzero(values[:, 0])[0]
    assert (values[first : first + len(expected)] == expected).all()

    # MWA: two's complement, which baseband does not expect.
    data, *_ = played("mwa")
    frames = np.fromfile("sample_mwa.vdif", "u1").reshape(-1, 544)
    threads = (frames[:, 14].astype(int) | frames[:, 15].astype(int) << 8) & 0x3FF
    payload = frames[threads == threads.min(), 32:].view("i1").reshape(-1, 2, 2)
    values = data.transpose(0, 2, 1, 3).reshape(-1, data.shape[1], 2)[:, :2]
    first = np.flatnonzero((values != 0).any(axis=(1, 2)))[0]
    assert (values[first : first + len(payload)] == payload).all()
    print("all equal")


{"copy": copy, "compare": compare}[sys.argv[1]]()
