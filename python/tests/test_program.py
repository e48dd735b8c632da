"""Runs: their start, their end, and programs that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import fxgraph

LIVE = "example:13_live"
SMALL = {"antennas": 2}


#: Environment of an interpreter that imports this package.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fxgraph.__file__).parents[1])}


def wait_for_end(pid: int) -> None:
    """Wait until the process `pid`, a child of another process, has ended."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"the process {pid} still runs")


def test_run_ends_with_its_body(tmp_path: Path) -> None:
    with fxgraph.run(LIVE, SMALL, directory=tmp_path) as fx:
        assert fx.returncode is None
        assert fx.state == "running"
        assert fx.url.startswith("http://127.0.0.1:")
    assert fx.returncode == 0
    with pytest.raises(fxgraph.Error, match="nothing answers"):
        fx.health()
    assert "exit status 0" in repr(fx)
    assert "exit status" in fx._repr_html_()
    fx.close()


def test_run_ends_if_its_body_raises(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), fxgraph.run(LIVE, SMALL, directory=tmp_path) as fx:
        raise ZeroDivisionError
    assert fx.returncode is not None


def test_run_ends_with_the_interpreter(tmp_path: Path) -> None:
    script = f"import fxgraph; print(fxgraph.run({LIVE!r}, {SMALL!r}).pid)"
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    wait_for_end(int(said.stdout))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a signal of Linux")
def test_run_ends_if_the_interpreter_is_killed(tmp_path: Path) -> None:
    script = f"import fxgraph, time; print(fxgraph.run({LIVE!r}, {SMALL!r}).pid, flush=True); time.sleep(60)"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE) as python:
        assert python.stdout is not None
        pid = int(python.stdout.readline())
        python.kill()
    wait_for_end(pid)


def test_run_in_another_thread_ends_with_its_body(tmp_path: Path) -> None:
    ended = []

    def body() -> None:
        with fxgraph.run(LIVE, SMALL, directory=tmp_path) as fx:
            ended.append(fx.state)
        ended.append(fx.returncode)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert ended == ["running", 0]


def test_flowgraph_file_with_parameters_runs_to_its_end(tmp_path: Path) -> None:
    with fxgraph.run(
        "example:01_first_light", {"antennas": 2, "channels": 64, "dumps": 2}, directory=tmp_path
    ) as fx:
        results = fx.wait(60)
    assert results is not None
    assert results["flowgraph"] == "first_light"
    recording = fxgraph.load(tmp_path / "out/first_light.npz")
    assert recording.shape == (2, 64, 3, 4)


def test_held_flowgraph_starts_stops_and_starts_again(tmp_path: Path) -> None:
    with fxgraph.run(LIVE, SMALL, hold=True, directory=tmp_path) as fx:
        assert fx.state == "prepared"
        with pytest.raises(fxgraph.Error):
            fx["x"].snapshot(timeout=1)
        fx.start()
        fx.wait_for("running")
        assert fx["x"].snapshot().sequence == 0
        fx.stop()
        assert fx.wait_for("ended", "failed") == "ended"
        with pytest.raises(fxgraph.Error) as caught:
            fx["x"].snapshot()
        assert caught.value.status == 409
        fx.start()
        fx.wait_for("running")
        fx.abort()
        fx.wait_for("ended")
    # 130: aborted.
    assert fx.returncode == 130


def test_stop_ends_the_program(tmp_path: Path) -> None:
    with fxgraph.run(LIVE, SMALL, directory=tmp_path) as fx:
        frames = fx["x"].stream(0.05)
        next(frames)
        assert fx.stop()["state"] in ("draining", "ended")
        # The stream ends with the flowgraph, without an error.
        assert sum(1 for _ in frames) < 100
        assert fx.wait(30) is not None


def test_killed_program_is_an_error_everywhere(tmp_path: Path) -> None:
    with pytest.raises(fxgraph.Error, match="SIGKILL"), fxgraph.run(LIVE, SMALL, directory=tmp_path) as fx:
        frames, events = fx["x"].stream(0.05), fx.follow_events()
        next(frames), next(events)
        os.kill(fx.pid, signal.SIGKILL)
        with pytest.raises(fxgraph.Error):
            list(frames)
        with pytest.raises(fxgraph.Error):
            list(events)
        with pytest.raises(fxgraph.Error):
            fx.health()
        with pytest.raises(fxgraph.Error, match="SIGKILL"):
            fx.wait(10)


def test_invalid_flowgraph_is_an_error_with_its_diagnostics(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("flowgraph: wrong\nblocks:\n  a: {kind: nul_source}\n")
    with pytest.raises(fxgraph.Error) as caught:
        fxgraph.run("wrong.yaml", directory=tmp_path)
    text = str(caught.value)
    assert "E0114" in text
    assert "did you mean `null_source`?" in text
    assert "exit status 78" in text


def test_run_that_fails_is_an_error_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "drill.yaml").write_text(
        "flowgraph: drill\nblocks:\n"
        "  source: {kind: digitiser_simulator, parameters: {adc_sample_rate_hz: 1000000, paced: true}}\n"
        "  drill: {kind: fault_injector, input: source.pol0}\n"
        "  end: {kind: null_sink, input: drill}\n"
        "  other: {kind: null_sink, input: source.pol1}\n"
    )
    with pytest.raises(fxgraph.Error, match="drill"), fxgraph.run("drill.yaml", directory=tmp_path) as fx:
        fx["drill"].set({"fault": "error"})
        fx.wait(30)
    assert fx.returncode == 1


def test_missing_program_and_directory_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fxgraph.Error, match="cannot be started"):
        fxgraph.run(LIVE, directory=tmp_path / "absent")
    monkeypatch.setenv("FXGRAPH", str(tmp_path / "fxgraph"))
    with pytest.raises(fxgraph.Error, match="no program"):
        fxgraph.run(LIVE)


def test_token_is_needed_and_stays_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-secret-of-twenty-four-letters\n")
    with fxgraph.run(LIVE, SMALL, token_file=tmp_path / "token", directory=tmp_path) as fx:
        assert fx.state == "running"
        assert fxgraph.connect(fx.url, "a-secret-of-twenty-four-letters").name == "live"
        for wrong in (None, "another-secret-of-many-letters"):
            with pytest.raises(fxgraph.Error) as caught:
                fxgraph.connect(fx.url, wrong)
            assert caught.value.status == 401
        assert "secret" not in repr(fx)
    with pytest.raises(fxgraph.Error) as caught:
        fxgraph.connect(fx.url, "a-secret\nof two lines")
    assert "a-secret" not in str(caught.value)


def test_tls_checks_the_certificate(tmp_path: Path) -> None:
    import shutil
    import ssl

    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    command = [fxgraph.program(), "run", LIVE, "--quiet", "--set=antennas=2", "--listen", "127.0.0.1:0"]
    command += ["--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            assert url.startswith("https://")
            with pytest.raises(fxgraph.Error, match="TLS"):
                fxgraph.connect(url)
            context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
            fx = fxgraph.connect(url, context=context)
            fx.wait_for("running")
            assert fx["x"].snapshot().shape == (256, 3, 4)
            with pytest.raises(fxgraph.Error, match="https"):
                fxgraph.connect(url.replace("https", "http"), context=context)
        finally:
            process.terminate()
