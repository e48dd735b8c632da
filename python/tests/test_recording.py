"""Recordings: values, times, frequencies, validity, and files that are damaged."""

from __future__ import annotations

import json
import shutil
import zipfile
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import fxgraph

FLOWGRAPH = """
flowgraph: missing
blocks:
  digitiser:
    kind: digitiser_simulator
    parameters: {adc_sample_rate_hz: 1000000, samples_per_frame: 8192, frames: 20, signals: wgn(0.1),
                 sync_time_seconds: SYNC}
  flags:
    kind: null_source
    parameters:
      {dtype: ci8, axes: [{name: channel, len: 4}, {name: spectrum, len: 6}, {name: pol, len: 2}],
       validity_axes: [{name: pol, len: 2}, {name: spectrum, len: 3}], samples_per_frame: 48, frames: 3,
       missing_every: 5}
  layers:
    kind: null_source
    parameters:
      {dtype: u8, axes: [{name: sample, len: 12}], validity_axes: [{name: heap, len: 4}],
       samples_per_frame: 12, frames: 3, missing_every: 3}
  f: {kind: pfb, input: digitiser.pol0, parameters: {channels: 16, taps: 4, spectra_per_frame: 32}}
  t: {kind: fft, input: f}
  end: {kind: null_sink, input: digitiser.pol1}
  spectra: {kind: file_sink, input: t, parameters: {path: spectra.npz}}
  plain: {kind: file_sink, input: t, parameters: {path: plain.npy}}
  flagged: {kind: file_sink, input: flags, parameters: {path: flagged.npz}}
  heaps: {kind: file_sink, input: layers, parameters: {path: heaps.npz}}
"""
SYNC = 1_700_000_000.25


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of a flowgraph that has ended."""
    directory = tmp_path_factory.mktemp("recordings")
    (directory / "flowgraph.yaml").write_text(FLOWGRAPH.replace("SYNC", str(SYNC)))
    with fxgraph.run("flowgraph.yaml", directory=directory) as fx:
        results = fx.wait(60)
    assert results is not None
    assert results["flowgraph"] == "missing"
    return directory


def test_load_returns_arrays_of_the_file(files: Path) -> None:
    recording = fxgraph.load(files / "spectra.npz")
    with np.load(files / "spectra.npz") as file:
        assert np.array_equal(recording.raw, file["data"])
        assert np.array_equal(recording.timestamps, file["timestamp"])
        assert np.array_equal(recording.sequence, file["sequence"])
        assert np.array_equal(recording.config_ids, file["config_id"])
        assert np.array_equal(recording.validity, file["validity"])
    side = json.loads((files / "spectra.npz.json").read_text())
    assert recording.metadata == side
    assert recording.is_complete
    assert "kind: pfb" in recording.flowgraph
    assert recording.dims == ("frame", *(axis["name"] for axis in side["axes"]))
    assert recording.shape == recording.data.shape
    assert recording.damaged_frames() == []
    assert "spectra.npz" in repr(recording)
    assert "<table>" in recording._repr_html_()


def test_npy_recording_equals_npz_recording(files: Path) -> None:
    plain, spectra = fxgraph.load(files / "plain.npy"), fxgraph.load(str(files / "spectra.npz"))
    assert np.array_equal(plain.data, spectra.data)
    assert np.array_equal(plain.times, spectra.times)


def test_times_equal_exact_arithmetic(files: Path) -> None:
    recording = fxgraph.load(files / "spectra.npz")
    assert recording.times.dtype == np.dtype("datetime64[ns]")
    assert len(recording) > 2
    for tick, time, seconds in zip(
        recording.timestamps.tolist(), recording.times, recording.unix_seconds, strict=True
    ):
        # The filter of 4 taps delays the signal by (4 - 1) / 2 spectra of 32 samples.
        exact = Fraction(SYNC) + Fraction(tick + 48, 1_000_000)
        assert int(time.astype(np.int64)) == exact * 10**9
        assert seconds == pytest.approx(float(exact), abs=1e-6)
    utc = datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=recording.unix_seconds[0])
    assert abs(recording.times[0] - np.datetime64(utc.replace(tzinfo=None))) <= np.timedelta64(1, "us")


def test_times_are_exact_for_rates_that_are_no_integers() -> None:
    clock = fxgraph.Clock(1e9 / 3, 1.7e9, 1)
    ticks = np.array([0, 1, 10**9, 3 * 10**17], dtype=np.uint64)
    exact = [round(Fraction(tick) * 10**9 / Fraction(1e9 / 3)) + 17 * 10**17 for tick in ticks.tolist()]
    assert clock.times(ticks).astype(np.int64).tolist() == exact
    with pytest.raises(fxgraph.Error, match="range"):
        clock.times(np.array([2**64 - 1], dtype=np.uint64))


def test_frequencies_equal_those_of_the_fourier_transform(files: Path) -> None:
    recording = fxgraph.load(files / "spectra.npz")
    assert np.allclose(recording.frequencies_hz, np.fft.rfftfreq(32, 1e-6)[:16])
    axis = next(axis for axis in recording.metadata["axes"] if axis["name"] == "channel")
    expected = axis["first"] + np.arange(axis["len"]) * axis["step"]
    assert np.allclose(recording.frequencies_hz, expected)
    with pytest.raises(fxgraph.Error, match="no channels"):
        _ = fxgraph.load(files / "heaps.npz").frequencies_hz


def test_mask_marks_the_elements_of_missing_units(files: Path) -> None:
    recording = fxgraph.load(files / "flagged.npz")
    # [frame][pol 2][spectrum 3] counts for [frame][channel 4][spectrum 6][pol 2] elements.
    expected = np.zeros((3, 4, 6, 2), bool)
    for frame, pol, unit in np.argwhere(recording.validity == 0):
        expected[frame, :, 2 * unit : 2 * unit + 2, pol] = True
    assert 0 < expected.sum() < expected.size
    assert np.array_equal(recording.mask, expected)


def test_mask_divides_samples_among_heaps(files: Path) -> None:
    recording = fxgraph.load(files / "heaps.npz")
    assert recording.validity.shape == (3, 4)
    assert 0 < recording.mask.sum() < recording.mask.size
    assert np.array_equal(recording.mask, np.repeat(recording.validity == 0, 3, axis=1))


def test_xarray_has_coordinates_and_units(files: Path) -> None:
    pytest.importorskip("xarray")
    recording = fxgraph.load(files / "flagged.npz")
    array = recording.to_xarray()
    assert array.dims == recording.dims
    assert np.array_equal(array.values, recording.data)
    assert np.array_equal(array.coords["time"].values, recording.times)
    assert np.array_equal(array.coords["mask"].broadcast_like(array).transpose(*array.dims), recording.mask)
    assert array.coords["spectrum_offset"].attrs["units"] == "s"
    spectra = fxgraph.load(files / "spectra.npz").to_xarray()
    assert spectra.coords["frequency"].attrs["units"] == "Hz"
    assert np.allclose(spectra.coords["frequency"], np.fft.rfftfreq(32, 1e-6)[:16])


def test_changed_byte_is_found_by_its_checksum(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.npz"
    shutil.copy(files / "spectra.npz", path)
    with path.open("r+b") as file:
        # The payloads are the last member; its directory entry and those of the others follow.
        file.seek(-4096, 2)
        byte = file.read(1)
        file.seek(-4096, 2)
        file.write(bytes([byte[0] ^ 1]))
    assert fxgraph.load(path).damaged_frames() == [len(fxgraph.load(path)) - 1]


def test_interrupted_recording_is_read_up_to_its_last_frame(files: Path, tmp_path: Path) -> None:
    whole = fxgraph.load(files / "plain.npy")
    for path in files.glob("plain*"):
        shutil.copy(path, tmp_path)
    data = tmp_path / "plain.npy"
    with data.open("r+b") as file:
        file.truncate(data.stat().st_size - 1)
    recording = fxgraph.load(data)
    assert len(recording) == len(whole) - 1
    assert np.array_equal(recording.data, whole.data[:-1])


def test_parts_of_an_archive_that_was_not_assembled_are_read(files: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(files / "spectra.npz") as archive:
        archive.extractall(tmp_path / "cut.npz.parts")
    shutil.copy(files / "spectra.npz.json", tmp_path / "cut.npz.json")
    assert np.array_equal(fxgraph.load(tmp_path / "cut.npz").raw, fxgraph.load(files / "spectra.npz").raw)


def rewritten(source: Path, path: Path, **changes: object) -> Path:
    """Copy an archive with other values in its description."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "recording.json":
                content = json.dumps(json.loads(content) | changes).encode()
            new.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"},
        {"dtype": "f32"},
        {"dtype": "q7"},
        {"axes": [{"name": "channel", "len": 2**40}]},
        {"axes": [{"name": "channel", "len": -1}]},
        {"axes": 5},
        {"clock": {"adc_sample_rate_hz": 0, "sync_time_seconds": 0, "samples_per_frame": 1}},
        {"clock": None},
        {"validity": []},
        {"arrays": {"data": "../../etc/passwd"}},
        {"arrays": {}},
        {"band": {"channels": 0, "first_channel": 0, "centre_hz": 0, "bandwidth_hz": 1}},
    ],
)
def test_wrong_description_is_an_error(files: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    path = rewritten(files / "spectra.npz", tmp_path / "wrong.npz", **changes)
    with pytest.raises(fxgraph.Error):
        fxgraph.load(path)


def test_files_that_are_no_recordings_are_errors(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", data=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "empty.npy.json").write_text("[" * 100_000)
    for name in ("plain.npz", "text.npz", "empty.npy", "absent.npz", "absent.npy", "other.txt"):
        with pytest.raises(fxgraph.Error):
            fxgraph.load(tmp_path / name)


def test_compressed_archive_is_an_error_with_help(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "compressed.npz"
    with (
        zipfile.ZipFile(files / "spectra.npz") as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(fxgraph.Error, match="compressed") as caught:
        fxgraph.load(path)
    assert caught.value.help
