#!/usr/bin/env python3
"""An array as ten processes, each on a virtual host, disturbed in turn; checks products, causes and alerts.

Needs root (network namespaces), Prometheus, and libfaketime. Four digitisers and four F-engines are the
examples 05 and 02; two X-engines write visibilities to a small file system each. The noise of the digitisers
repeats with each dump, so that every complete dump must be the same bit for bit.

usage: soak.py FXGRAPH DIRECTORY [--minutes 30] [--only NAME]
"""
import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
RATE, CHANNELS, HEAPS_PER_DUMP, ANTENNAS = 428_000, 64, 16, 4
DUMP_SAMPLES = HEAPS_PER_DUMP * 256 * 2 * CHANNELS
# Bytes of the file system of each X-engine's files: far more than the run needs.
DISK_MIB = 64
# Seconds for which the condition of the slowest rule has to hold, and some.
ALERT_DELAY = 75
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def sh(*command, check=True, **options):
    return subprocess.run([str(c) for c in command], check=check, capture_output=True, text=True, **options)


class Network:
    """Hosts with two networks, one for data and one for REST and metrics, behind a bridge each."""

    def __init__(self):
        self.hub = f"soak{os.getpid()}"
        sh("ip", "netns", "add", self.hub)
        self.inside(self.hub, "ip", "link", "set", "lo", "up")
        for bridge in ["data", "mgmt"]:
            self.inside(self.hub, "ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
            self.inside(self.hub, "ip", "link", "set", bridge, "up")
        self.inside(self.hub, "ip", "addr", "add", "10.78.0.254/24", "dev", "mgmt")
        self.hosts = {}

    @staticmethod
    def inside(space, *command, **options):
        return sh("ip", "netns", "exec", space, *command, **options)

    def add(self, name):
        number = len(self.hosts) + 1
        self.hosts[name] = (f"{self.hub}-{name}", number)
        space = self.hosts[name][0]
        sh("ip", "netns", "add", space)
        self.inside(space, "ip", "link", "set", "lo", "up")
        self.link(name, "eth0", "data", f"10.77.0.{number}/24")
        self.link(name, "mgmt0", "mgmt", f"10.78.0.{number}/24")
        return f"10.78.0.{number}"

    def link(self, name, interface, bridge, address):
        space, number = self.hosts[name]
        peer = f"{bridge[0]}{number}"
        self.inside(self.hub, "ip", "link", "add", peer, "type", "veth", "peer", "name", interface, "netns", space)
        self.inside(self.hub, "ip", "link", "set", peer, "master", bridge, "up")
        self.inside(space, "ip", "addr", "add", address, "dev", interface)
        self.inside(space, "ip", "link", "set", interface, "up")
        if bridge == "data":
            self.route(name)

    def route(self, name):
        self.inside(self.hosts[name][0], "ip", "route", "replace", "224.0.0.0/4", "dev", "eth0")

    def down(self, name, seconds):
        space = self.hosts[name][0]
        self.inside(space, "ip", "link", "set", "eth0", "down")
        time.sleep(seconds)
        self.inside(space, "ip", "link", "set", "eth0", "up")
        self.route(name)

    def remake(self, name, seconds):
        space, number = self.hosts[name]
        self.inside(space, "ip", "link", "del", "eth0")
        time.sleep(seconds)
        self.link(name, "eth0", "data", f"10.77.0.{number}/24")

    def close(self):
        for space, _ in self.hosts.values():
            sh("ip", "netns", "del", space, check=False)
        sh("ip", "netns", "del", self.hub, check=False)


class Process:
    """A flowgraph on a host, started again when it fails, as systemd's `Restart=on-failure` does."""

    def __init__(self, network, directory, name, fxgraph, arguments):
        self.name, self.is_wanted, self.exits = name, True, []
        self.address = network.add(name)
        self.space = network.hosts[name][0]
        self.directory = directory / name
        self.directory.mkdir()
        self.clock = self.directory / "clock"
        self.clock.write_text("+0")
        self.command = [fxgraph, "run", *arguments, "--listen", f"{self.address}:8000"]
        self.command += ["--token-file", str(directory / "token"), "--json"]
        self.thread = threading.Thread(target=self.supervise)
        self.thread.start()

    def supervise(self):
        environment = dict(os.environ, LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=str(self.clock),
                           FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_CACHE_DURATION="1")
        while self.is_wanted:
            with open(self.directory / "log", "ab") as log:
                command = ["ip", "netns", "exec", self.space, *self.command]
                self.child = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log, env=environment)
                status = self.child.wait()
            self.exits.append((time.time(), status))
            if self.is_wanted:
                time.sleep(1)

    def signal(self, number):
        self.child.send_signal(number)

    def end(self):
        self.is_wanted = False
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)


class Client:
    """Requests from the management network, with the token."""

    def __init__(self, network, token):
        self.hub, self.token = network.hub, token

    def request(self, url, method="GET", body=None):
        command = ["curl", "-sS", "-m", "20", "-X", method, "-H", f"Authorization: Bearer {self.token}"]
        if body is not None:
            command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        done = Network.inside(self.hub, *command, url, check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"error": done.stdout[-300:] + done.stderr[-300:]}


def rows(path):
    """Rows of a `.npy` file; only what its header counts. Integers of 32 bits, or else bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:10 + size].decode())
    length = int(header["descr"][2:])
    for axis in header["shape"][1:]:
        length *= axis
    row = lambda i: memoryview(data)[10 + size + i * length:10 + size + (i + 1) * length]
    return [row(i).cast("I").tolist() if header["descr"] == "<u4" else bytes(row(i)) for i in range(header["shape"][0])]


def dumps(directory):
    """Timestamp, validity and data of each dump in all files of an X-engine."""
    for path in sorted(directory.glob("visibilities*.npy.json"), key=lambda p: p.stat().st_mtime):
        base = path.name.removesuffix(".npy.json")
        part = lambda array: rows(directory / f"{base}{array}.npy")
        for timestamp, validity, data in zip(part(".timestamp"), part(".validity"), part("")):
            yield int.from_bytes(timestamp, "little"), validity, data


class Soak:
    def __init__(self, arguments):
        self.directory = Path(arguments.directory).resolve()
        self.directory.mkdir(parents=True)
        self.fxgraph = str(Path(arguments.fxgraph).resolve())
        self.network = Network()
        self.token = "soak-" + os.urandom(8).hex()
        (self.directory / "token").write_text(self.token + "\n")
        os.chmod(self.directory / "token", 0o600)
        self.client = Client(self.network, self.token)
        self.processes, self.alerts, self.log = {}, {}, []
        self.sync = int(time.time()) - 100
        self.is_over = False

    def start(self):
        common = ["--set", f"adc_sample_rate_hz={RATE}", "--set", f"sync_time_seconds={self.sync}"]
        array = [*common, "--set", f"antennas={ANTENNAS}", "--set", f"channels={CHANNELS}", "--set", "interface=eth0"]
        for x in range(2):
            name = f"x{x}"
            (self.directory / f"disk{x}").mkdir()
            sh("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", self.directory / f"disk{x}")
            out = self.directory / f"disk{x}" / "visibilities.npy"
            self.add(name, [str(HERE / "x_engine.yaml"), *array, "--set", "substreams=2", "--set", f"substream={x}",
                            "--set", f"heaps_per_dump={HEAPS_PER_DUMP}", "--set", f"in=239.102.1.{x}:7148",
                            "--set", f"out={out}"])
        for a in range(ANTENNAS):
            pols = ["--set", f"pol0=239.102.0.{16 * a}+7:7148", "--set", f"pol1=239.102.0.{16 * a + 8}+7:7148"]
            self.add(f"f{a}", ["example:02_f_engine", *array, *pols, "--set", f"antenna={a}", "--set", "gain=0.35",
                               "--set", "dither=none", "--set", "out=239.102.1.0+1:7148"])
        time.sleep(5)
        for a in range(ANTENNAS):
            pols = ["--set", f"pol0=239.102.0.{16 * a}+7:7148", "--set", f"pol1=239.102.0.{16 * a + 8}+7:7148"]
            self.add(f"d{a}", ["example:05_digitisers", *common, *pols, "--set", f"antenna={a}", "--set",
                               "seconds=100000", "--set", f"period_samples={DUMP_SAMPLES}", "--set", "interface=eth0",
                               "--set", "stop_heaps=false"])

    def add(self, name, arguments):
        self.processes[name] = Process(self.network, self.directory, name, self.fxgraph, arguments)

    def watch(self):
        """Prometheus with the program's own rules, and its alerts over time."""
        rules = self.directory / "soak.rules.yaml"
        text = ""
        for name, flowgraph in [("d", "example:05_digitisers"), ("f", "example:02_f_engine"),
                                ("x", str(HERE / "x_engine.yaml"))]:
            text = sh(self.fxgraph, "dashboard", "--rules", flowgraph).stdout
            (self.directory / f"{name}.rules.yaml").write_text(text)
        targets = [f"{p.address}:8000" for p in self.processes.values()]
        (self.directory / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
            "rule_files": [str(self.directory / f"{n}.rules.yaml") for n in "dfx"],
            "scrape_configs": [{"job_name": "fxgraph", "static_configs": [{"targets": targets}],
                                "authorization": {"credentials_file": str(self.directory / "token")}}]}))
        log = open(self.directory / "prometheus.log", "ab")
        self.prometheus = subprocess.Popen(
            ["ip", "netns", "exec", self.network.hub, "prometheus", f"--config.file={self.directory}/prometheus.yml",
             f"--storage.tsdb.path={self.directory}/prometheus", "--web.listen-address=10.78.0.254:9090"],
            stdout=log, stderr=log)
        names = {f"{p.address}:8000": p.name for p in self.processes.values()}

        def poll():
            while not self.is_over:
                answer = self.client.request("http://10.78.0.254:9090/api/v1/alerts")
                if "data" not in answer:
                    print("no answer of Prometheus", answer)
                now = time.time()
                for alert in answer.get("data", {}).get("alerts", []):
                    if alert["state"] != "firing":
                        continue
                    labels = alert["labels"]
                    where = names.get(labels.get("instance", ""), labels.get("instance", labels.get("flowgraph", "-")))
                    rest = tuple(sorted((k, v) for k, v in labels.items()
                                        if k not in ("alertname", "instance", "flowgraph", "job", "severity")))
                    since = alert["activeAt"]
                    self.alerts.setdefault((labels["alertname"], where, rest, since), [now, now])[1] = now
                time.sleep(2)

        self.poll = threading.Thread(target=poll)
        self.poll.start()

    # Each disturbance: a function that returns when the world is as before.
    def interface_down(self):
        self.network.down("f1", 3)
        return "f1: eth0 down for 3 s"

    def interface_of_x_made_again(self):
        self.network.remake("x0", 2)
        return "x0: eth0 deleted, and made again after 2 s"

    def interface_of_digitiser_down(self):
        self.network.down("d2", 2)
        return "d2: eth0 down for 2 s"

    def stopped(self):
        for name, seconds in [("f0", 1.5), ("x1", 1.0), ("d3", 1.2)]:
            self.processes[name].signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.processes[name].signal(signal.SIGCONT)
            time.sleep(3)
        return "f0, x1, d3 stopped for 1.5, 1.0 and 1.2 s"

    def f_engine_killed(self):
        self.processes["f3"].signal(signal.SIGKILL)
        return "f3 killed"

    def x_engine_killed(self):
        self.processes["x1"].signal(signal.SIGKILL)
        return "x1 killed"

    def side_branch_stalled(self):
        answer = self.client.request(f"http://{self.processes['x0'].address}:8000/api/v1/blocks", "PATCH",
                                     {"quick_look": {"fault": "stall"}})
        time.sleep(22)
        return f"x0: side branch stalled for 20 s ({list(answer)})"

    def clock_stepped(self):
        for name, step in [("f2", "+40"), ("x0", "-40")]:
            self.processes[name].clock.write_text(step)
        time.sleep(20)
        for name in ["f2", "x0"]:
            self.processes[name].clock.write_text("+0")
        return "clocks of f2 and x0 stepped by +40 and -40 s for 20 s"

    def disk_full(self):
        path = self.directory / "disk1" / "filler"
        try:
            with open(path, "wb") as filler:
                while True:
                    filler.write(bytes(65536))
                    filler.flush()
        except OSError:
            pass
        time.sleep(15)
        path.unlink()
        return "disk of x1 full for 15 s"

    def digitiser_restarted(self):
        self.processes["d1"].signal(signal.SIGKILL)
        return "d1 killed and started again"

    def state(self):
        return {n: self.client.request(f"http://{p.address}:8000/api/v1/flowgraph") for n, p in self.processes.items()}

    def run(self, minutes, only):
        self.start()
        self.watch()
        time.sleep(30)
        turns = [self.interface_down, self.interface_of_x_made_again, self.interface_of_digitiser_down, self.stopped,
                 self.f_engine_killed, self.x_engine_killed, self.side_branch_stalled, self.clock_stepped,
                 self.disk_full, self.digitiser_restarted]
        if only:
            turns = [t for t in turns if t.__name__ in only]
        each = (60 * minutes - 60) / len(turns)
        for turn in turns:
            begin = time.time()
            what = turn()
            self.log.append((turn.__name__, what, begin, time.time()))
            print(f"{begin - self.sync:9.1f} s  {turn.__name__}: {what}", flush=True)
            time.sleep(max(0, begin + each - time.time()))
        time.sleep(10)
        (self.directory / "state.json").write_text(json.dumps(self.state(), indent=1))
        for name, process in self.processes.items():
            metrics = Network.inside(self.network.hub, "curl", "-sS", "-H", f"Authorization: Bearer {self.token}",
                                     f"http://{process.address}:8000/metrics", check=False).stdout
            (self.directory / f"{name}.metrics").write_text(metrics)
            events = self.client.request(f"http://{process.address}:8000/api/v1/events?limit=1000")
            (self.directory / f"{name}.events").write_text(json.dumps(events, indent=1))

    def close(self):
        self.is_over = True
        for name in [n for k in "dfx" for n in self.processes if n[0] == k]:
            self.processes[name].end()
        for process in self.processes.values():
            process.thread.join(30)
            if process.thread.is_alive():
                print(f"{process.name} does not end")
                process.signal(signal.SIGKILL)
        if hasattr(self, "prometheus"):
            self.prometheus.terminate()
            self.prometheus.wait()
            self.poll.join()

    def report(self):
        print("\nproducts")
        faults = 0
        for x in range(2):
            values, last, parts = set(), None, {}
            counts = {"complete": 0, "flagged": 0, "gaps": 0}
            for timestamp, validity, data in dumps(self.directory / f"disk{x}"):
                full = HEAPS_PER_DUMP
                when = timestamp / RATE
                if last is not None and timestamp <= last:
                    print(f"  x{x}: {when:.1f} s is not after the dump before"); faults += 1
                if last is not None and timestamp - last != DUMP_SAMPLES:
                    counts["gaps"] += 1
                    print(f"  x{x}: gap of {(timestamp - last) / DUMP_SAMPLES - 1:.2f} dumps before {when:.1f} s: "
                          f"{self.cause(last / RATE, when)}")
                    faults += self.cause(last / RATE, when) is None
                last = timestamp
                if min(validity) == full:
                    counts["complete"] += 1
                    values.add(data)
                else:
                    counts["flagged"] += 1
                    cause = self.cause(when, when + DUMP_SAMPLES / RATE)
                    parts.setdefault(cause, []).append((when, sum(validity) / (full * len(validity))))
                    faults += cause is None
            for cause, flagged in parts.items():
                print(f"  x{x}: {len(flagged)} dumps of {flagged[0][0]:.1f} .. {flagged[-1][0]:.1f} s have "
                      f"{min(part for _, part in flagged):.3f} or more of their data: {cause}")
            print(f"  x{x}: {counts}, {len(values)} different complete dumps")
            faults += len(values) != 1
        print("\nrestarts")
        for process in self.processes.values():
            for when, status in process.exits:
                if when < self.end:
                    cause = self.cause(when - self.sync, when - self.sync)
                    print(f"  {process.name}: exit status {status} at {when - self.sync:.1f} s: {cause}")
                    faults += cause not in ("f_engine_killed", "x_engine_killed", "digitiser_restarted", "disk_full")
        print("\nalerts of each disturbance")
        causes = {}
        for (name, where, rest, since), (first, final) in sorted(self.alerts.items(), key=lambda item: item[1]):
            # An alert fires after its condition held for some time.
            cause = self.cause(first - self.sync - ALERT_DELAY, first - self.sync)
            faults += cause is None
            causes.setdefault(cause, []).append((first, final, name, where, dict(rest)))
        for cause, alerts in causes.items():
            print(f"  {cause}: {len(alerts)}")
            for first, final, name, where, rest in alerts:
                print(f"    {first - self.sync:9.1f} .. {final - self.sync:9.1f} s  {name} {where} {rest}")
        return faults

    def cause(self, begin, end):
        """The disturbance between these times of the stream, up to 12 s before."""
        for name, _, start, stop in self.log:
            if start - self.sync - 2 <= end and begin <= stop - self.sync + 20:
                return name
        if begin < self.begin - self.sync + 40:
            return "start"
        if end > self.end - self.sync - 5:
            return "end"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fxgraph")
    parser.add_argument("directory")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    soak = Soak(arguments)
    soak.begin = time.time()
    try:
        soak.run(arguments.minutes, arguments.only)
    finally:
        soak.end = time.time()
        soak.close()
        soak.network.close()
    faults = soak.report()
    for x in range(2):
        copy = soak.directory / f"disk{x}"
        sh("cp", "-a", copy, soak.directory / f"files{x}")
        sh("umount", copy, check=False)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
