"""Filterbank files: `check` reads those of the program with blimpy and your, `write` writes some for the program,
`compare` compares what the program played."""

import json
import sys

import numpy as np
from blimpy import Waterfall
from your import Your
from your.formats.filwriter import make_sigproc_object


def read(path):
    """Data `[spectrum][IF][channel]` and headers of two readers, which must agree."""
    your = Your(path)
    count, nifs = your.your_header.nspectra, your.your_header.npol
    ours = your.get_data(0, count, npoln=4) if nifs == 4 else your.get_data(0, count)[:, None, :]
    blimpy = Waterfall(path)
    # blimpy shows ascending frequencies if the channels descend, and leaves the data as they are in the file.
    assert blimpy.data.shape == (count, nifs, your.your_header.nchans), blimpy.data.shape
    assert np.array_equal(np.asarray(ours, "f4"), np.asarray(blimpy.data, "f4"))
    return ours, your.your_header, blimpy.header


def check():
    recording = np.load("stokes.npz")
    counts = recording["validity"].astype("f4").reshape(-1)
    sums = recording["data"].reshape(-1, 4, 32)
    missing = counts == 0
    assert 0 < missing.sum() < len(counts) / 2 and not missing[0] and not missing[-1]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(missing[:, None, None], np.float32(0), sums / counts[:, None, None])
    data, header, other = read("stokes.fil")
    assert data.dtype == np.float32 and np.array_equal(data, means)
    # Channel 16 of 32 is at 1.4 GHz; the band descends by 1 MHz per channel.
    assert (header.fch1, header.foff, header.nchans, header.npol) == (1416.0, -1.0, 32, 4)
    assert (other["fch1"], other["foff"], other["nbits"]) == (1416.0, -1.0, 32)
    # 2 spectra of 64 ADC samples at 64 MHz.
    assert header.tsamp == other["tsamp"] == 2 * 64 / 64e6
    # 0.125 s after 2023-11-14T22:13:20.25Z; a microsecond is 1.2e-11 days.
    start = 40587 + 1_700_000_000 / 86400 + 0.375 / 86400
    assert abs(header.tstart - start) < 1e-11, (header.tstart, start)
    assert header.source_name == "B0531+21" and other["telescope_id"] == 64
    assert abs(other["src_raj"].hour - (5 + 34 / 60 + 31.97 / 3600)) < 1e-9
    assert abs(other["src_dej"].deg + (22 + 0 / 60 + 52.1 / 3600)) < 1e-9
    data, _, _ = read("stokes8.fil")
    exact = means * np.float32(60) + np.float32(100)
    expected = np.clip(np.rint(exact), 0, 255)
    assert data.dtype == np.uint8 and np.array_equal(data, expected)
    assert ((expected == 255) & (exact > 256)).any()


def beams():
    recording = np.load("beams.npz")
    counts = recording["validity"].astype("f4").reshape(-1)
    intensities = recording["data"]
    intensities = intensities.reshape(-1, *intensities.shape[2:]) / counts[:, None, None]
    beams = intensities.shape[2]
    assert beams > 1
    for beam in range(beams):
        data, header, other = read(f"beam_{beam}.fil")
        assert np.array_equal(data[:, 0, :], intensities[:, :, beam]), beam
        assert (other["nbeams"], other["ibeam"]) == (beams, beam + 1)
        assert header.nchans == intensities.shape[1]


def tied(places, beams):
    """Powers and Stokes parameters of tied-array beams, from the voltages of the antennas."""
    recording = np.load("voltages.npz")
    # [frame][heap][antenna][channel][spectrum][pol], and the antennas that have this heap.
    voltages = recording["data"] @ [1, 1j]
    present = recording["validity"].reshape(voltages.shape[:3]) > 0
    assert not present.all() and set(present.sum(2).flat) == {3, 4}
    antennas, channels = voltages.shape[2:4]
    offsets = (np.arange(channels) - channels // 2) * 1e6
    values, is_near = [], []
    for beam in json.loads(beams):
        all_antennas = np.ones(antennas)
        weights, phases, delays = (
            all_antennas * beam.get(name, other)
            for name, other in [("weights", 1), ("phases_radians", 0), ("delays_seconds", 0)]
        )
        angles = phases[:, None] - 2 * np.pi * delays[:, None] * offsets
        if "towards" in beam:
            azimuth, elevation = np.radians([beam["towards"][f"{name}_degrees"] for name in ("azimuth", "elevation")])
            towards = [np.sin(azimuth) * np.cos(elevation), np.cos(azimuth) * np.cos(elevation), np.sin(elevation)]
            # A wave from there is earlier by this time, with the phase 2 pi f early.
            early = np.array(json.loads(places)) @ towards / 299792458.0
            angles = angles - 2 * np.pi * early[:, None] * (1.4e9 + offsets)
        factors = beam.get("gain", 1) * weights[:, None] * np.exp(1j * angles)
        # Samples of missing heaps are not 0.
        exact = np.einsum("fhacs,ac,fha->fhsc", voltages[..., beam["pol"]], factors, present)
        parts = np.stack([exact.real, exact.imag], -1)
        # The program sums in single precision: near half of a step it may round to either side.
        is_near.append((np.abs(np.abs(parts) % 1 - 0.5) < 1e-3).any(-1))
        values.append(np.clip(np.rint(parts), -127, 127) @ [1, 1j])
    assert (np.abs(np.real(values)) == 127).any()

    equal = []

    def agree(path, products, is_near):
        """Compares a file with means of 4 spectra: products [frame][heap][spectrum][channel] on a first axis."""
        data, header, other = read(path)
        count, frames = len(products), len(voltages)
        sums = np.reshape(products, (count, frames, 2, 8, 4, channels)).sum(4)
        means = sums / (4 * present.sum(2))[:, :, None, None]
        means = means.reshape(count, -1, channels).swapaxes(0, 1)
        near = is_near.reshape(-1, 4, channels).any(1)[:, None, :].repeat(count, 1)
        assert data.shape == means.shape and near.mean() < 0.1, near.mean()
        assert np.array_equal(data[~near], means.astype("f4")[~near]), path
        # A count is 12 or 16: two steps of 1 in values of up to 127 change a mean by less than 64.
        assert np.abs(data - means).max() < 64, path
        equal.append(data[~near].size)
        assert (header.fch1, header.foff, header.npol) == (1396.0, 1.0, count)
        return other["nbeams"], other["ibeam"]

    for n, value in enumerate(values):
        assert agree(f"power_{n}.fil", [(value * value.conj()).real], is_near[n]) == (4, n + 1)
    for n in range(2):
        x, y = values[2 * n : 2 * n + 2]
        xx, yy, xy = (x * x.conj()).real, (y * y.conj()).real, x * y.conj()
        stokes = [xx + yy, xx - yy, 2 * xy.real, 2 * xy.imag]
        assert agree(f"stokes_{n}.fil", stokes, is_near[2 * n] | is_near[2 * n + 1]) == (2, n + 1)
    print(f"{len(values)} beams and 2 pairs agree: {sum(equal)} values are equal")


COUNT = 103
CHANNELS = 24


def values(nbits):
    rng = np.random.default_rng(nbits)
    if nbits == 32:
        return rng.standard_normal((COUNT, CHANNELS)).astype("f4")
    return rng.integers(0, 2**nbits, (COUNT, CHANNELS)).astype({1: "u1", 2: "u1", 4: "u1", 8: "u1", 16: "<u2"}[nbits])


def write():
    for nbits in [1, 2, 4, 8, 16, 32]:
        data = values(nbits)
        path = f"your{nbits}.fil"
        header = make_sigproc_object(
            rawdatafile=path, source_name="a source", nchans=CHANNELS, foff=-0.5, fch1=1500.25, tsamp=64e-6,
            tstart=60000.123456789, nbits=nbits,
        )
        header.write_header(path)
        if nbits < 8:
            # `your` writes whole bytes; the first value is in the least significant bits.
            bits = np.unpackbits(data[..., None], axis=-1, bitorder="little")[..., :nbits]
            data = np.packbits(bits.reshape(COUNT, -1), axis=-1, bitorder="little")
        header.append_spectra(data, path)
    # Two IFs, and ascending frequencies by blimpy.
    header = make_sigproc_object(
        rawdatafile="ifs.fil", source_name="a source", nchans=CHANNELS, foff=-0.5, fch1=1500.25, tsamp=64e-6,
        tstart=60000.5, nbits=32, nifs=2,
    )
    header.write_header("ifs.fil")
    header.append_spectra(np.stack([values(32), -values(32)], axis=1), "ifs.fil")
    header = {
        "telescope_id": 6, "machine_id": 0, "data_type": 1, "nchans": CHANNELS, "nifs": 1, "nbits": 32,
        "fch1": 1000.0, "foff": 0.25, "tsamp": 0.001, "tstart": 60000.5, "source_name": "another",
    }
    Waterfall(header_dict=header, data_array=values(32)[:, None, :]).write_to_fil("blimpy.fil")


def compare():
    for nbits in [1, 2, 4, 8, 16, 32]:
        recording = np.load(f"your{nbits}.npz")
        played = recording["data"].reshape(-1, CHANNELS)
        assert np.array_equal(played[:COUNT], values(nbits).astype("f4")), nbits
        valid = recording["validity"].reshape(-1)
        assert valid[:COUNT].all() and not valid[COUNT:].any() and len(valid) == 110
    played = np.load("blimpy.npz")["data"].reshape(-1, CHANNELS)[:COUNT]
    assert np.array_equal(played, values(32))
    played = np.load("ifs.npz")["data"].reshape(-1, 2, CHANNELS)[:COUNT]
    assert np.array_equal(played, np.stack([values(32), -values(32)], axis=1))
    with open("your8.npz.json") as file:
        side = json.load(file)
    frequencies = side["axes"][2]
    assert abs(frequencies["first"] - 1500.25e6) < 1e-3 and abs(frequencies["step"] + 0.5e6) < 1e-6
    start = (60000.123456789 - 40587) * 86400
    assert abs(side["start_unix_seconds"] - start) < 1e-6
    seconds = side["clock"]["samples_per_frame"] / side["clock"]["adc_sample_rate_hz"]
    assert abs(seconds - 10 * 64e-6) < 1e-15


def killed():
    """A file of a killed program is as good as one that was closed."""
    data, header, _ = read("stokes.fil")
    assert len(data) > 100
    recorded = np.load("stokes.npy", mmap_mode="r").reshape(-1, 4, 32)
    count = min(len(data), len(recorded))
    assert count > 100 and np.array_equal(data[:count], recorded[:count] / np.float32(2))
    # Between two calls of `write` the file has whole spectra; a kill within a call may leave a part.
    print(count)


globals()[sys.argv[1]](*sys.argv[2:])
