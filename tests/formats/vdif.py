"""VDIF by baseband: compares files of vdif_sink, writes files for vdif_source."""

import json
import sys
import warnings

import astropy.units as u
import numpy as np
from astropy.time import Time
from baseband import vdif

warnings.simplefilter("ignore")
SIGMAS = {1: 1.0, 2: 2.174564, 4: 2.95, 8: 35.5}


def codes(values, bits):
    """Codes, as integers relative to the middle of the range, of values that baseband read."""
    parts = np.stack([values.real, values.imag], -1) if np.iscomplexobj(values) else values[..., np.newaxis]
    if bits == 1:
        return (parts > 0) - 1
    if bits == 2:
        return np.where(np.abs(parts) > 2, np.where(parts > 0, 1, -2), np.where(parts > 0, 0, -1))
    if bits == 4:
        return np.rint(parts * 2.95).astype(int)
    return np.rint(parts * 35.5 - 0.5).astype(int)


def quantised(values, bits, rms):
    """Codes of the input."""
    if values.dtype.kind == "c":
        values = np.stack([values.real, values.imag], -1)
    elif values.ndim == 2:
        values = values[..., np.newaxis]
    if bits == 1:
        return np.where(values < 0, -1, 0)
    if bits == 2:
        return np.digitize(values / rms, [-0.9816, 0, 0.9816]) - 2
    half = 1 << (bits - 1)
    return np.clip(np.rint(values * (SIGMAS[bits] / rms if rms else 1)), -half, half - 1).astype(int)


def read_array(name):
    """Samples [sample, pol, ...], validity [sample, pol], and the side file of a recording."""
    data = np.load(name)
    side = json.load(open(name + ".json"))
    validity = np.load(name.replace(".npy", ".validity.npy"))
    if data.dtype.kind == "i" and data.shape[-1] == 2 and side["dtype"].startswith("c"):
        data = np.ascontiguousarray(data)
    data = np.concatenate(list(data), axis=1)
    validity = np.concatenate(list(validity), axis=1)
    return np.swapaxes(data, 0, 1), np.repeat(validity, data.shape[1] // validity.shape[1], axis=1).T, side


def compare(parameters):
    options = dict(part.split(": ") for part in parameters.split(", "))
    bits = int(options["bits"])
    data, validity, side = read_array("written.npy")
    dtype, rate = side["dtype"], 4e6
    first = np.load("written.timestamp.npy")[0]
    start = Time(1790000000, format="unix") + first / 8e6 * u.s
    rate_given = {} if "header" not in options else {"sample_rate": rate * u.Hz}
    with vdif.open("written.vdif", "rs", squeeze=False, **rate_given) as file:
        header = file.header0
        assert file.sample_rate == rate * u.Hz, file.sample_rate
        assert header.station == "Fx" or header["station"] == 0x4678, header
        assert header.bps == bits and header.complex_data == dtype.startswith("c")
        assert header.edv == {"legacy": False, "edv0": 0}.get(options.get("header"), 1), header.edv
        n = header.samples_per_frame
        skipped = round(((file.start_time - start) * rate * u.Hz).to_value(u.one))
        # The first frame begins at the first multiple of the frame after the second.
        assert 0 <= skipped < n and (file.start_time.unix * rate / n) % 1 < 1e-3, (skipped, file.start_time)
        values = file.read()
        is_channels = options.get("channels") == "true"
        assert values.shape[1:] == ((1, 2) if is_channels else (2, 1)), values.shape
        values = values.reshape(-1, 2)
    with vdif.open("written.vdif", "rb") as file:
        flags = []
        while len(flags) < len(values) // n:
            try:
                frameset = file.read_frameset()
            except EOFError:
                break
            flags.append(np.broadcast_to([frame.valid for frame in frameset.frames], (2,)))
    data, validity = data[skipped:], validity[skipped:]
    frames = len(data) // n
    assert len(values) == frames * n and len(flags) == frames, (len(values), len(flags), frames)
    # A frame is valid if all its samples are.
    whole = validity[: frames * n].reshape(frames, n, 2).all(axis=1)
    assert (np.array(flags) == whole).all()
    # The level of the first input frame: its valid samples.
    found = codes(values, bits)
    for pol in range(2):
        of_pol = np.load("written.npy")[0][pol].astype("c16" if data.dtype.kind == "c" else "f8")
        valid = np.repeat(np.load("written.validity.npy")[0][pol], len(of_pol) // 4) > 0
        power = np.mean(np.abs(of_pol[valid]) ** 2)
        rms = None if dtype == "ci8" else np.sqrt(power / (2 if dtype == "cf32" else 1))
        samples = data[: frames * n, pol]
        expected = quantised(samples[:, np.newaxis] if samples.ndim == 1 else samples, bits, rms)
        expected = expected.reshape(len(samples), -1)
        valid = np.repeat(whole[:, pol], n)
        difference = np.abs(found[valid, pol] - expected[valid])
        # Values at a threshold may round either way.
        assert difference.max() <= 1 and (difference > 0).mean() < 1e-3, (difference.max(), (difference > 0).mean())
        assert valid.any() and len(np.unique(expected)) > 1
    print("equal", frames, "frames,", int((~whole).sum()), "invalid")


def write(edv, bits, kind, threads, channels):
    bits, threads, channels = int(bits), int(threads), int(channels)
    parts = 2 if kind == "complex" else 1
    samples = 20000 if edv == "3" else 8000 // (bits * parts)
    rng = np.random.default_rng(7)
    rate = 32 * u.MHz
    arguments = dict(
        time=Time("2026-03-01T12:00:00"), samples_per_frame=samples, nchan=channels, bps=bits,
        complex_data=kind == "complex", station="Ef", thread_id=0, edv=False if edv == "legacy" else int(edv),
    )
    if edv in "13":
        arguments["sample_rate"] = rate
    if edv == "3":
        del arguments["samples_per_frame"]
        arguments["frame_length"] = 629
    header = vdif.VDIFHeader.fromvalues(**arguments)
    shape = (samples * 10, threads, channels)
    data = rng.normal(size=shape) * 2.2
    if kind == "complex":
        data = data + 1j * rng.normal(size=shape) * 2.2
    with vdif.open("baseband.vdif", "ws", header0=header, sample_rate=rate, nthread=threads, squeeze=False) as file:
        file.write(data.astype("c8" if kind == "complex" else "f4"))


def played():
    data, validity, side = read_array("played.npy") if np.load("played.npy").ndim == 3 else (None, None, None)
    if data is None:
        data = np.load("played.npy").reshape(-1, 1)
        validity = np.load("played.validity.npy")
        validity = np.repeat(validity.reshape(-1, 1), len(data) // validity.size, axis=0)
        side = json.load(open("played.npy.json"))
    with vdif.open("baseband.vdif", "rs", squeeze=False, sample_rate=32 * u.MHz) as file:
        values, bits, start = file.read(), file.header0.bps, file.start_time
    values = values.reshape(len(values), -1)
    first = np.flatnonzero(validity[:, 0])[0]
    clock = side["clock"]
    rate = clock["adc_sample_rate_hz"]
    seconds = np.load("played.timestamp.npy")[0] / rate + first / 32e6
    epoch = Time(clock["sync_time_seconds"], format="unix")
    assert abs((epoch - start + seconds * u.s).to_value(u.s)) < 1e-6, (epoch, start, seconds)
    valid = validity[first : first + len(values)]
    assert valid.all() and not validity[:first].any() and not validity[first + len(values) :].any()
    data = data[first : first + len(values)]
    found = np.stack([data.real, data.imag], -1) if np.iscomplexobj(data) else data[..., np.newaxis]
    if bits == 1:
        found = (found > 0) - 1
    elif bits == 2:
        levels = np.unique(found)
        assert np.allclose(levels, [-3.3359, -1, 1, 3.3359]), levels
        found = np.digitize(found, [-2, 0, 2]) - 2
    expected = codes(values, bits)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert (found == expected).all() and len(np.unique(expected)) > 1
    print("equal", len(values), "samples", values.shape)


globals()[sys.argv[1]](*sys.argv[2:])
