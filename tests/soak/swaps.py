#!/usr/bin/env python3
"""Swaps the blocks of a flowgraph on a GPU over and over; no dump may be missing, and memory must not grow.

usage: swaps.py FXGRAPH DIRECTORY [--swaps 500] [--device cuda:0]
"""
import argparse
import atexit
import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ADDRESS = "127.0.0.1:8099"


def ask(method, path, body=None):
    request = urllib.request.Request(f"http://{ADDRESS}{path}", method=method)
    if body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def mib():
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError):
        return 0


def array(path, kind):
    data = path.read_bytes()
    size = int.from_bytes(data[8:10], "little")
    return memoryview(data)[10 + size:].cast(kind).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fxgraph")
    parser.add_argument("directory")
    parser.add_argument("--swaps", type=int, default=500)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    directory = Path(arguments.directory)
    directory.mkdir(parents=True)
    before = mib()
    command = [str(Path(arguments.fxgraph).resolve()), "run", str(HERE / "swaps.yaml"), "--json", "--listen", ADDRESS]
    command += ["--set", f"device={arguments.device}"] + [f"--set={setting}" for setting in arguments.set]
    plan = [command[0], "plan", command[2], "--json"] + command[6:]
    print(subprocess.run(plan, capture_output=True, text=True, cwd=directory).stdout[-1500:])
    run = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    atexit.register(run.kill)
    while True:
        try:
            if ask("GET", "/api/v1/flowgraph")[1]["state"] == "running":
                break
        except OSError:
            assert run.poll() is None, "the program ended"
        time.sleep(0.2)
    time.sleep(2)
    on_gpu = arguments.device != "cpu"
    turns = [("f[0]", {"parameters": {"taps": 8}}), ("f[1]", {"parameters": {"taps": 8}}),
             ("f[0]", {"parameters": {"taps": 16}}), ("f[1]", {"parameters": {"taps": 16}})]
    if on_gpu:
        turns += [("x", {"implementation": "tensor_core"}), ("x", {"implementation": "hopper"})]
    took, failed, used, begin = [], [], [mib()], time.time()
    for n in range(arguments.swaps):
        block, change = turns[n % len(turns)]
        start = time.time()
        status, said = ask("PATCH", f"/api/v1/blocks/{block}", change)
        took.append(time.time() - start)
        if status != 200 or not said.get("is_made"):
            failed.append((n, block, change, status, said))
        if n % 50 == 49:
            used.append(mib())
    seconds = time.time() - begin
    time.sleep(2)
    used.append(mib())
    ask("POST", "/api/v1/flowgraph/stop")
    results = json.loads(run.communicate(timeout=60)[0])
    took.sort()
    print(f"{arguments.swaps} swaps in {seconds:.0f} s, {len(failed)} failed; seconds of a swap: median "
          f"{took[len(took) // 2]:.3f}, p99 {took[len(took) * 99 // 100]:.3f}, longest {took[-1]:.3f}")
    for failure in failed[:10]:
        print("  failed:", failure)
    print("MiB used on the GPU before, and while it ran:", before, used)
    # Of all files: a dump of other taps begins none.
    times, least = [], []
    for path in sorted(directory.glob("dumps*.timestamp.npy"), key=lambda p: p.stat().st_mtime):
        times += array(path, "Q")
        counts = array(Path(str(path).replace(".timestamp.", ".validity.")), "I")
        of_dump = len(counts) // (len(times) - len(least))
        least += [min(counts[n:n + of_dump]) for n in range(0, len(counts), of_dump)]
    # The sources stop one after the other.
    times, least = times[:-2], least[:-2]
    steps = {b - a for a, b in zip(times, times[1:])}
    print(f"{len(times)} dumps, steps {steps}, counts of heaps {set(least)}, exit status {run.returncode}")
    faults = [event for event in results.get("events", []) if event.get("kind") in ("fault", "data_lost", "rolled_back")]
    print("events:", faults)
    assert not failed and not faults and run.returncode == 0
    assert len(steps) == 1 and len(set(least)) == 1
    # Before the first swap, no candidate has compiled its kernels.
    assert used[-1] - used[1] < 64


if __name__ == "__main__":
    main()
