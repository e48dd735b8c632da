"""SigMF recordings: `check` reads those of the program with the package `sigmf`, `write` writes some for the program,
`compare` compares what the program played."""

import json
import sys
import warnings

import numpy as np
import sigmf
from sigmf import SigMFFile

warnings.simplefilter("error")


def read(name):
    recording = sigmf.fromfile(f"{name}.sigmf-meta", autoscale=False)
    recording.validate()
    return recording


def recorded(name):
    """Samples and flags of a recording of `file_sink`: `[frame][...]`."""
    recording = np.load(f"{name}.npz")
    return recording["data"], recording["validity"]


def complex_of(parts):
    """Complex numbers of integers with real and imaginary part along the last axis."""
    return parts if np.iscomplexobj(parts) else parts[..., 0] + 1j * parts[..., 1].astype("f4")


def check():
    for name, datatype in [("ci8", "ci8"), ("ci16", "ci16_le"), ("cf32", "cf32_le"), ("f32", "rf32_le"), ("i16", "ri16_le")]:
        recording = read(name)
        assert recording.get_global_field("core:datatype") == datatype
        is_complex = datatype[0] == "c"
        assert recording.sample_rate == (1e6 if is_complex else 2e6)
        data, validity = recorded(name)
        data = complex_of(data) if is_complex else data
        # Frames of 1024 samples with 4 flags each.
        data = np.where(np.repeat(validity, 256, axis=1) > 0, data, 0).reshape(-1)
        samples = recording.read_samples()
        assert np.array_equal(samples, data), name
        missing = np.flatnonzero(validity.reshape(-1) == 0)
        assert len(missing) > 1
        notes = recording.get_annotations()
        assert [note["core:label"] for note in notes] == ["missing"] * len(missing)
        assert [note["core:sample_start"] for note in notes] == list(256 * missing)
        assert [note["core:sample_count"] for note in notes] == [256] * len(missing)
        (capture,) = recording.get_captures()
        assert capture["core:frequency"] == 1.5e9
        # Half a second after 2023-11-14T22:13:20.25Z.
        assert capture["core:datetime"] == "2023-11-14T22:13:20.750000000Z"
        assert capture["core:global_index"] == (500_000 if is_complex else 1_000_000)
        assert recording.get_global_field("fxgraph:complete") is True
        assert recording.get_global_field("core:author") == "a test"
        assert len(recording.get_global_field("fxgraph:config_hash")) > 16
        assert "sigmf_sink" in recording.get_global_field("fxgraph:flowgraph")


def pols():
    recording = read("pols")
    data, _ = recorded("pols")
    samples = recording.read_samples()
    # [frame][pol][sample] becomes [sample][channel].
    expected = complex_of(data).transpose(0, 2, 1).reshape(-1, 2)
    assert recording.num_channels == 2 and np.array_equal(samples.reshape(-1, 2), expected)


COUNT = 5000


def samples(name):
    rng = np.random.default_rng(len(name))
    if name == "cu8":
        return rng.integers(0, 256, (COUNT, 2)).astype("u1")
    if name == "ci16_le":
        return rng.integers(-(2**15), 2**15, (COUNT, 2)).astype("<i2")
    if name == "ci16_be":
        return rng.integers(-(2**15), 2**15, (COUNT, 2)).astype(">i2")
    if name == "cf32_le":
        return rng.standard_normal((COUNT, 2)).astype("<f4").view("<c8")[:, 0]
    if name == "rf32_le":
        return rng.standard_normal(COUNT).astype("<f4")
    return rng.integers(-128, 128, COUNT).astype("i1")


NAMES = ["cu8", "ci16_le", "ci16_be", "cf32_le", "rf32_le", "ri8"]


def write():
    for name in NAMES:
        samples(name).tofile(f"{name}.sigmf-data")
        recording = SigMFFile(global_info={"core:datatype": name, "core:sample_rate": 2.5e6, "core:version": "1.2.0"})
        first = {"core:frequency": 1.2276e9, "core:datetime": "2023-11-14T22:13:20.5Z"}
        # The second half begins 1024 samples late.
        recording.add_capture(0, metadata={**first, "core:global_index": 0})
        recording.add_capture(2048, metadata={"core:frequency": 1.2276e9, "core:global_index": 3072})
        recording.set_data_file(f"{name}.sigmf-data")
        recording.validate()
        recording.tofile(f"{name}.sigmf-meta")


def compare():
    for name in NAMES:
        data, validity = recorded(name)
        expected = samples(name)
        if name == "cu8":
            expected = (expected.astype("i2") - 128).astype("i1")
        # Frames of 512 samples: 4 of the first capture, two are left out, and 6 of the second, of which the last has
        # 392 samples.
        data = data.reshape(-1, *data.shape[2:])
        assert np.array_equal(data[:COUNT], expected) and not data[COUNT:].any(), name
        assert validity.reshape(-1).tolist() == [1] * 9 + [0], name
        timestamps = np.load(f"{name}.npz")["timestamp"]
        assert timestamps.tolist() == [512 * n for n in [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]]
        with open(f"{name}.npz.json") as file:
            side = json.load(file)
        assert side["clock"] == {
            "adc_sample_rate_hz": 2.5e6, "sync_time_seconds": 1_700_000_000.5, "sync_time": "2023-11-14T22:13:20.5Z",
            "samples_per_frame": 512, "filter_delay_samples": 0.0,
        }, side["clock"]
        band = side["band"]
        assert (band["centre_hz"], band["bandwidth_hz"]) == (1.2276e9, 2.5e6 if name[0] == "c" else 1.25e6)


def killed():
    warnings.simplefilter("default")
    recording = read("x")
    assert recording.get_global_field("fxgraph:complete") is False
    data = np.load("x.npy", mmap_mode="r")
    data = data.reshape(-1, 2)
    samples = recording.read_samples()
    count = min(len(samples), len(data))
    assert count > 1000 and np.array_equal(samples[:count], complex_of(data[:count]))
    (capture,) = recording.get_captures()
    assert capture["core:sample_start"] == 0


globals()[sys.argv[1]]()
