"""The client against a running flowgraph: values, changes, recordings, views, events."""

from __future__ import annotations

import itertools
import json
import time
import urllib.request
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgraph

RATE_HZ = 1_712_000
#: ADC samples of a dump: 4 heaps of 256 spectra of 512 samples.
DUMP = 4 * 256 * 512
#: ADC samples by which the filter of 16 taps delays the signal: (16 - 1) / 2 spectra of 512 samples.
FILTER_DELAY = 15 * 512 // 2


def get(fx: fxgraph.Client, path: str) -> Any:
    """Ask the server without the client."""
    with urllib.request.urlopen(fx.url + path, timeout=30) as answer:
        return json.load(answer)


def test_connect_returns_a_client_of_the_same_flowgraph(live: fxgraph.Run) -> None:
    fx = fxgraph.connect(live.url)
    assert fx.name == "live"
    assert fx.state == "running"
    assert fx.health()["faults"] == 0
    assert fx.parameters["antennas"] == 2
    assert fx.info()["config_id"] == get(live, "/api/v1/flowgraph")["config_id"]
    assert fx.url in repr(fx)


def test_blocks_are_those_of_the_flowgraph_in_its_order(live: fxgraph.Run) -> None:
    names = [block["name"] for block in get(live, "/api/v1/blocks")]
    assert list(live.blocks) == names
    assert len(live.blocks) == len(names) == 15
    assert "x" in live.blocks
    assert "y" not in live.blocks
    assert live.blocks.get("y") is None
    assert live["x"].outputs.get("y") is None
    assert live.blocks["x"].kind == live["x"].kind == "correlator"


def test_block_reports_its_properties(live: fxgraph.Run) -> None:
    block = live["f[0].pfb"]
    assert (block.name, block.kind, block.device, block.implementation) == ("f[0].pfb", "pfb", "cpu", "cpu")
    assert block.state == "running"
    assert block.parameters["taps"] == 16
    assert block.newest_timestamp is None or block.newest_timestamp >= 0
    assert live["x"].counters["dumps_incomplete"] == 0
    assert block.output.readers == ["f[0].fft.input"]


def test_output_of_several_needs_a_name(live: fxgraph.Run) -> None:
    digitiser = live["digitiser[0]"]
    assert list(digitiser.outputs) == ["pol0", "pol1"]
    assert digitiser.outputs["pol1"].name == "digitiser[0].pol1"
    with pytest.raises(fxgraph.Error, match="2 outputs") as caught:
        digitiser.snapshot()
    assert 'outputs["pol0"]' in str(caught.value)
    with pytest.raises(fxgraph.Error, match="no output `pol2`"):
        digitiser.outputs["pol2"]
    with pytest.raises(fxgraph.Error, match="0 outputs"):
        live["end"].snapshot()


def test_snapshot_has_named_axes_times_and_frequencies(live: fxgraph.Run) -> None:
    frame = live["x"].output.snapshot()
    assert frame.dims == ("channel", "baseline", "product")
    assert frame.shape == frame.data.shape == np.asarray(frame).shape == (256, 3, 4)
    assert frame.data.dtype == np.complex128
    assert frame.type.axes[1].labels == ("0-0", "0-1", "1-1")
    assert frame.type.axes[2].labels == ("00", "10", "01", "11")
    assert frame.timestamp % DUMP == 0
    assert frame.timestamp == frame.sequence * DUMP
    assert frame.times.shape == frame.unix_seconds.shape == ()
    assert int(frame.time.astype(np.int64)) == round(Fraction(frame.timestamp + FILTER_DELAY, RATE_HZ) * 10**9)
    assert frame.unix_seconds == pytest.approx((frame.timestamp + FILTER_DELAY) / RATE_HZ)
    assert np.allclose(frame.frequencies_hz, np.fft.rfftfreq(512, 1 / RATE_HZ)[:256])
    assert frame.validity == fxgraph.Validity(3, 3, 0, 0)
    assert frame.mask.shape == frame.shape
    assert not frame.mask.any()
    # Powers are real and positive. Half of the power is that of the source, which both antennas receive.
    assert np.all(frame.data[:, [0, 2]][..., [0, 3]].imag == 0)
    assert np.all(frame.data[:, [0, 2]][..., [0, 3]].real > 0)
    powers = frame.data[:, 0, 0].real * frame.data[:, 2, 0].real
    coherence = np.median(np.abs(frame.data[:, 1, 0]) / np.sqrt(powers))
    assert coherence == pytest.approx(0.5, abs=0.03)


def test_snapshot_of_heaps_has_the_times_of_its_spectra(live: fxgraph.Run) -> None:
    frame = live["f[0].postproc"].snapshot()
    assert frame.dims == ("heap", "channel", "spectrum", "pol")
    assert frame.data.dtype == np.complex64
    assert np.array_equal(frame.data.real, frame.raw[..., 0])
    assert np.array_equal(frame.data.imag, frame.raw[..., 1])
    assert frame.times.shape == frame.unix_seconds.shape == (1, 256)
    for spectrum in (0, 1, 255):
        exact = Fraction(frame.timestamp + FILTER_DELAY + 512 * spectrum, RATE_HZ) * 10**9
        assert abs(int(frame.times[0, spectrum].astype(np.int64)) - exact) <= 2


def test_snapshot_of_samples_is_decoded(live: fxgraph.Run) -> None:
    frame = live["digitiser[0]"].outputs["pol0"].snapshot()
    assert frame.type.dtype == "i10p"
    assert frame.data.shape == (131072,)
    assert frame.data.dtype == np.int16
    # Noise of the receiver and of the source, 0.1 of full scale each, and a tone of 0.02.
    expected = 511 * np.sqrt(2 * 0.1**2 + 0.02**2 / 2)
    assert frame.data.std() == pytest.approx(expected, rel=0.02)
    with pytest.raises(fxgraph.Error, match="no channels"):
        _ = frame.frequencies_hz


def test_snapshot_equals_the_recorded_frame(live: fxgraph.Run) -> None:
    recorder = live["x"].record(after_seconds=3)
    frames = list(itertools.islice(live["x"].stream(0.05), 4))
    recording = recorder.load()
    rows = {int(timestamp): row for row, timestamp in enumerate(recording.timestamps)}
    shared = [frame for frame in frames if frame.timestamp in rows]
    assert len(shared) >= 2
    for frame in shared:
        row = rows[frame.timestamp]
        assert np.array_equal(recording.data[row], frame.data)
        assert recording.times[row] == frame.time
        assert recording.unix_seconds[row] == pytest.approx(float(frame.unix_seconds))
        assert int(recording.sequence[row]) == frame.sequence
        assert f"{int(recording.config_ids[row]):016x}" == frame.config_id
    assert np.array_equal(recording.frequencies_hz, frames[0].frequencies_hz)
    assert recording.type == frames[0].type
    assert recorder.state == "ended"


def test_xarray_of_a_snapshot_has_coordinates_and_units(live: fxgraph.Run) -> None:
    pytest.importorskip("xarray")
    frame = live["x"].snapshot()
    array = frame.to_xarray()
    assert array.dims == frame.dims
    assert np.array_equal(array.values, frame.data)
    assert np.array_equal(array.sel(baseline="0-1", product="00").values, frame.data[:, 1, 0])
    assert array.coords["frequency"].attrs["units"] == "Hz"
    assert array.coords["time"].values == frame.time
    assert array.attrs["timestamp"] == frame.timestamp


def test_stream_yields_frames_in_order_and_ends_its_connection(live: fxgraph.Run) -> None:
    # More streams than a client may have at the same time.
    for _ in range(30):
        frames = live["x"].stream(every=0.05)
        next(frames)
        frames.close()
    frames = live["x"].stream(every=0.05)
    sequence = [frame.sequence for frame in itertools.islice(frames, 3)]
    assert sequence == sorted(set(sequence))


def test_snapshot_larger_than_the_limit_is_an_error(live: fxgraph.Run) -> None:
    with pytest.raises(fxgraph.Error, match="max_bytes") as caught:
        live["x"].output.snapshot(max_bytes=1000)
    assert caught.value.status == 422


def test_view_equals_the_view_of_the_server(live: fxgraph.Run) -> None:
    output = live["x"].output
    assert set(output.views()) == {"visibility", "matrix", "fringe"}
    view = output.view("visibility", points=16, baseline=1, product=3)
    assert view.name == "visibility"
    assert view.kind == "lines"
    assert view.selected == {"baseline": "0-1", "product": "11"}
    assert view.x is not None
    assert np.allclose(view.x, 25078.125 + 53500 * np.arange(16))
    assert (view.x_name, view.x_unit) == ("sky frequency", "Hz")
    assert list(view.series) == ["amplitude", "phase"]
    assert view.units["phase"] == "deg"
    assert view.series["phase"].shape == (16,)
    assert view.unix_seconds == pytest.approx((view.timestamp + FILTER_DELAY) / RATE_HZ)
    matrix = output.view("matrix")
    assert next(iter(matrix.series.values())).shape == (2, 2)
    assert next(iter(output.view("fringe").series.values())).shape == ()
    spectrum = live["digitiser[0]"].outputs["pol0"].view("spectrum", points=512)
    assert spectrum.x is not None
    peak = spectrum.x[np.nanargmax(next(iter(spectrum.series.values())))]
    assert peak == pytest.approx(300_000, abs=RATE_HZ / 512)
    followed = list(itertools.islice(output.follow_view("fringe", every=0.05), 2))
    assert followed[0].frame < followed[1].frame
    with pytest.raises(fxgraph.Error, match="no view `spectrun`"):
        output.view("spectrun")


def test_view_is_plotted(live: fxgraph.Run) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    view = live["x"].view("visibility", points=64)
    axes = view.plot()
    assert np.array_equal(axes.lines[0].get_ydata(), view.series["amplitude"])
    assert "Hz" in axes.get_xlabel()
    live["x"].view("matrix").plot()


def test_sky_is_plotted_with_north_up_and_east_right() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    satellites = {"G05": [90, 30, 47, -0.4, 1], "E11": [0, 80, 40, 1.5, 0], "G19": [None, None, 38, None, 0]}
    series = [{"name": name, "unit": "", "values": values} for name, values in satellites.items()]
    view = fxgraph.View({"view": "sky", "kind": "sky", "timestamp": 0, "time_seconds": 1.0, "frame": 0, "series": series, "selected": []})
    axes = view.plot()
    assert [text.get_text() for text in axes.texts] == ["G05", "E11"]
    places = np.concatenate([line.get_xydata() for line in axes.lines])
    assert places == pytest.approx(np.array([[60, 0], [0, 10]]), abs=1e-9)


def test_unknown_block_is_an_error_with_the_problem_document(live: fxgraph.Run) -> None:
    with pytest.raises(fxgraph.Error) as caught:
        live["fringe"]
    error = caught.value
    assert error.status == 404
    assert error.title == "Not Found"
    assert error.detail == "there is no block `fringe`"
    assert error.help == ("did you mean `fringes`?",)
    text = str(error)
    for part in ("404", "Not Found", "there is no block `fringe`", "did you mean `fringes`?"):
        assert part in text


def test_rejected_value_is_an_error_with_diagnostics(live: fxgraph.Run) -> None:
    with pytest.raises(fxgraph.Error) as caught:
        live["f[0].pfb"].swap(taps="many")
    assert caught.value.status == 422
    assert caught.value.diagnostics[0]["code"] == "E0108"
    assert "E0108" in str(caught.value)
    with pytest.raises(fxgraph.Error, match="JSON"):
        live.set({"f[0].postproc": {"gains": float("nan")}})


def test_set_changes_the_power_from_its_timestamp_on(fresh: fxgraph.Run) -> None:
    block = fresh["f[0].postproc"]
    before = block.snapshot()
    at = before.timestamp + 3 * RATE_HZ
    update = fresh.set({"f[0].postproc": {"gains": np.float64(0.25)}}, at=np.int64(at))
    assert not update.is_late
    assert update.effective_timestamp == at
    assert update.steady_state_timestamp == fresh.steady_state_timestamp == at
    # Data have gone on since the snapshot.
    assert update.seconds_ahead is not None
    assert 0 < update.seconds_ahead <= 3
    recording = block.record(after_seconds=4).load()
    end = recording.timestamps[-1] + recording.type.clock.samples_per_frame
    assert recording.timestamps[0] < at < end
    power = (np.abs(recording.data) ** 2).mean(axis=(2, 4))[:, 0]
    assert block.parameters["gains"] == 0.25
    is_before = recording.timestamps + np.uint64(131072) <= at
    is_after = recording.timestamps >= at
    assert is_before.any()
    assert is_after.any()
    ratio = power[is_after].mean() / power[is_before].mean()
    assert ratio == pytest.approx(0.25, rel=0.05)
    ids = {f"{int(number):016x}" for number in recording.config_ids[is_after]}
    assert ids == {update.config_id}
    late = block.set({"gains": 0.5}, at=0)
    assert late.is_late
    assert late.seconds_ahead == 0


def test_large_arrays_are_parameters(fresh: fxgraph.Run) -> None:
    block = fresh["f[0].postproc"]
    channels = next(axis.len for axis in block.output.type.axes if axis.name == "channel")
    gains = (np.linspace(0.1, 0.5, 2 * channels).reshape(2, channels) * 1j).astype(np.complex64)
    assert gains.size >= 256
    assert not block.set({"gains": gains}).is_late
    assert np.array_equal(block.parameters["gains"], gains)
    with pytest.raises(fxgraph.Error, match=r"`<c8` and shape \(1, "):
        block.set({"gains": np.tile(gains, 2)[:1]})


def test_swap_changes_the_block_unless_it_is_a_trial(fresh: fxgraph.Run) -> None:
    block = fresh["f[0].pfb"]
    trial = block.swap(taps=8, dry_run=True)
    assert (trial.way, trial.is_done, trial.gap) == ("seamless", False, "none")
    assert trial.differences == {"parameters.taps": (16, 8)}
    assert block.parameters["taps"] == 16
    done = block.swap(taps=8)
    assert done.is_done
    assert done.memory_bytes["cpu"] > 0
    assert block.parameters["taps"] == 8
    assert block.swap(parameters={"taps": 16}).is_done
    assert block.parameters["taps"] == 16
    kinds = [event.kind for event in fresh.events()]
    assert kinds.count("swapped") == 2


def test_shadow_compares_frames_and_ends_with_its_block(fresh: fxgraph.Run) -> None:
    block = fresh["f[0].pfb"]
    with block.shadow(taps=8) as shadow:
        results = shadow.wait(frames=2)
        assert results["frames_compared"] >= 2
        assert results["frames_different"] == results["frames_compared"]
        assert [one.block for one in fresh.shadows] == ["f[0].pfb"]
        own, other = shadow.first_difference()
        assert own.shape == other.shape
        difference = np.abs(own - other)
        assert 0 < difference.max() <= results["max_difference"] * (1 + 1e-6)
    assert fresh.shadows == []
    with block.shadow() as same:
        assert same.wait(frames=2)["frames_different"] == 0
        with pytest.raises(fxgraph.Error, match="differs"):
            same.first_difference()


def test_recorder_is_triggered_stopped_and_deleted(fresh: fxgraph.Run) -> None:
    recorder = fresh["x"].record(
        before_seconds=0.5, after_seconds=0.5, trigger="request", path="vis_{timestamp}.npz"
    )
    assert recorder.state == "waiting"
    while fresh["x"].newest_timestamp is None:
        time.sleep(0.1)
    recorder.trigger()
    while not recorder.files:
        time.sleep(0.1)
    recorder.stop()
    assert recorder.state == "ended"
    path = recorder.files[0]
    assert path.is_absolute()
    assert path.name.startswith("vis_")
    assert len(fxgraph.load(path)) >= 2
    assert [one.name for one in fresh.recorders] == [recorder.name]
    recorder.delete()
    assert not path.exists()
    assert fresh.recorders == []


def test_events_are_listed_and_followed_to_the_end(fresh: fxgraph.Run) -> None:
    assert fresh.events()[0].kind == "started"
    followed = fresh.follow_events()
    first = next(followed)
    assert (first.sequence, first.kind, first.part_sequence) == (1, "started", None)
    assert abs(first.time - np.datetime64("now")) < np.timedelta64(5, "m")
    fresh.set({"f[0].postproc": {"gains": 0.4}})
    second = next(followed)
    assert (second.sequence, second.block) == (2, "f[0].postproc")
    assert fresh.events(since=1)[0] == second
    fresh.stop()
    assert [event.kind for event in followed][-1] == "ended"


def test_metrics_are_those_of_the_server(live: fxgraph.Run) -> None:
    metrics = live.metrics()
    info = metrics["fxgraph_flowgraph_info"][0]
    assert info.value == 1
    assert info.labels["flowgraph"] == "live"
    running = [one for one in metrics["fxgraph_flowgraph_state"] if one.labels["state"] == "running"]
    assert [one.value for one in running] == [1]
    with urllib.request.urlopen(live.url + "/metrics", timeout=30) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    assert sum(len(samples) for samples in metrics.values()) == len(lines)


def test_jupyter_shows_graph_and_tables(live: fxgraph.Run) -> None:
    import xml.etree.ElementTree as ElementTree

    svg = ElementTree.fromstring(live.graph_svg())
    names = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"x", "f[0].pfb", "correlator"} <= set(names)
    page = live._repr_html_()
    assert "<svg" in page
    assert "digitiser[1]" in page
    assert "parameter taps" in live["f[0].pfb"]._repr_html_()
    assert "f[0].fft.input" in live["f[0].pfb"].output._repr_html_()
    assert "3 of 3 units complete" in live["x"].snapshot()._repr_html_()
    for page in (live._repr_html_(), live.blocks._repr_html_()):
        ElementTree.fromstring(page)


def test_readers_do_not_slow_the_flowgraph(live: fxgraph.Run, tmp_path: Path) -> None:
    frames = live["x"].stream(every=0.05)
    next(frames)
    time.sleep(1)
    # A reader that pauses receives newer frames.
    sequence = [frame.sequence for frame in itertools.islice(frames, 3)]
    assert sequence == sorted(sequence)
    assert live["x"].state == "running"
