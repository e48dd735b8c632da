"""Positions of a simulated sky from `gnss_position`, RTKLIB and gnss-sdr, beside the true place.

    python3 benches/positions/positions.py --program target/release/fxgraph --recordings DIR --out DIR --machine "2 cores"

Writes `benches/results/<date>-<machine>-<commit>-positions.txt`. Needs NumPy and the Debian packages `gnss-sdr` and
`rtklib`; DIR of the recordings has `brdc0010.22n` and `gnss_l1_4msps_iq.i8`. A step whose files are in the directory of
`--out` already is not repeated.
"""

import argparse
import datetime
import json
import pathlib
import resource
import subprocess

import numpy as np

RATE_HZ = 2_600_000
# 20.48 ms: a multiple of the heaps of `sample_source`.
FRAME = 53_248
PLACE = (48.0, 11.0, 500.0)
START = "2022-01-01T01:05:07Z"
INTERVAL_SECONDS = 1
RTKLIB = "pos1-posmode =single\npos1-elmask =5\npos1-ionoopt =brdc\npos1-tropopt =saas\nout-solformat =xyz\n"
HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
# Searches of the recording: frames of 20 ms, which overlap.
SEARCHES, SEARCHED = 1000, 80_000


def itrf(latitude, longitude, height):
    """Position on WGS 84 in metres along the axes of ITRF; angles in degrees."""
    a, f = 6378137.0, 1 / 298.257223563
    square = f * (2 - f)
    phi, lam = np.radians(latitude), np.radians(longitude)
    n = a / np.sqrt(1 - square * np.sin(phi) ** 2)
    return np.stack(
        [(n + height) * np.cos(phi) * np.cos(lam), (n + height) * np.cos(phi) * np.sin(lam),
         (n * (1 - square) + height) * np.sin(phi)], axis=-1)


def enu(vectors):
    """Components east, north and up at the true place of vectors along the axes of ITRF."""
    phi, lam = np.radians(PLACE[:2])
    east = [-np.sin(lam), np.cos(lam), 0]
    north = [-np.sin(phi) * np.cos(lam), -np.sin(phi) * np.sin(lam), np.cos(phi)]
    up = [np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)]
    return vectors @ np.array([east, north, up]).T


# Stages of the second register whose sum delays it, of PRN 1 to 32 (IS-GPS-200, table 3-I).
STAGES = (
    "2,6 3,7 4,8 5,9 1,9 2,10 1,8 2,9 3,10 2,3 3,4 5,6 6,7 7,8 8,9 9,10 1,4 2,5 3,6 4,7 5,8 6,9 1,3 4,6 5,7 6,8 7,9 8,10 "
    "1,6 2,7 3,8 4,9"
).split()


def ca_code(prn):
    """Chips of a C/A code, 1 and -1."""
    first, second = [1] * 10, [1] * 10
    one, other = map(int, STAGES[prn - 1].split(","))
    chips = []
    for _ in range(1023):
        chips.append(first[9] ^ second[one - 1] ^ second[other - 1])
        first = [first[2] ^ first[9]] + first[:9]
        second = [second[1] ^ second[2] ^ second[5] ^ second[7] ^ second[8] ^ second[9]] + second[:9]
    return 1 - 2 * np.array(chips)


def whole(samples, prn, near_hz, rate_hz=4e6, carrier_hz=1575.42e6, of_period=4000):
    """Largest sum of the power of all periods of a recording, in standard deviations above the mean, within 100 Hz."""
    chips = (np.arange(of_period) / rate_hz * 1.023e6).astype(int)
    replica = np.conj(np.fft.fft(ca_code(prn)[chips]))
    n = np.arange(len(samples))
    largest = 0.0
    for hz in near_hz + np.arange(-100, 101, 25):
        turned = samples * np.exp(-2j * np.pi * hz / rate_hz * n)
        periods = np.fft.fft(turned.reshape(-1, of_period), axis=1)
        # The code moves with the carrier.
        moved = np.arange(len(periods))[:, None] * of_period * hz / carrier_hz
        periods *= np.exp(-2j * np.pi * np.fft.fftfreq(of_period) * moved)
        power = (np.abs(np.fft.ifft(periods * replica, axis=1)) ** 2).sum(0)
        largest = max(largest, (power.max() - power.mean()) / power.std())
    return largest


def row(name, positions):
    """Line of the table: epochs, mean, largest error, and error of the mean position."""
    errors = np.linalg.norm(positions - itrf(*PLACE), axis=1)
    of_mean = np.linalg.norm(positions.mean(0) - itrf(*PLACE))
    return f"{name:<68}{len(errors):>7}{errors.mean():>7.2f}{errors.max():>9.2f}{of_mean:>9.2f}"


class Steps:
    def __init__(self, arguments):
        self.program = pathlib.Path(arguments.program).resolve()
        self.recordings = pathlib.Path(arguments.recordings).resolve()
        self.out = pathlib.Path(arguments.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.seconds = arguments.seconds

    def has(self, name):
        return (self.out / name).exists()

    def run(self, name, blocks, **streams):
        """Runs a flowgraph in the directory of the outputs; returns its CPU time in seconds."""
        path = self.out / f"{name}.yaml"
        path.write_text(json.dumps({"flowgraph": name, "blocks": blocks}))
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([self.program, "run", "--quiet", path], cwd=self.out, check=True, **streams)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def sky(self, cn0_db_hz, seconds):
        sky = {
            "navigation": str(self.recordings / "brdc0010.22n"), "latitude_degrees": PLACE[0],
            "longitude_degrees": PLACE[1], "height_metres": PLACE[2], "elevation_mask_degrees": 15,
            "cn0_db_hz": cn0_db_hz, "atmosphere": True,
        }
        parameters = {
            "sky": sky, "sync_time_seconds": START, "dtype": "ci8", "noise_rms": 12, "adc_sample_rate_hz": RATE_HZ,
            "samples_per_frame": FRAME, "frames": -(-seconds * RATE_HZ // FRAME),
        }
        return {"kind": "gnss_signal_simulator", "parameters": parameters}

    def receiver(self, samples):
        satellites = [{"system": "gps_l1_ca", "prn": n} for n in range(1, 33)]
        return {
            "acquire": {"kind": "gnss_acquisition", "input": samples,
                        "parameters": {"satellites": satellites, "every_frames": 500}},
            "track": {"kind": "gnss_tracker", "inputs": [samples, "acquire"], "parameters": {"prompts": True}},
        }

    def simulate(self):
        if self.has("sky.i8"):
            return
        sink = {"kind": "sample_sink", "input": "sky", "parameters": {"to": "stdout", "type": "ci8"}}
        with open(self.out / "sky.part", "wb") as file:
            self.run("sky", {"sky": self.sky(45, self.seconds), "file": sink}, stdout=file)
        (self.out / "sky.part").rename(self.out / "sky.i8")

    def receive(self):
        if self.has("receive.seconds"):
            return
        files = {"observation_file": "receiver.obs", "navigation_file": "receiver.nav"}
        parameters = {
            "from": "stdin", "type": "ci8", "adc_sample_rate_hz": RATE_HZ, "centre_hz": 1575420000, "sideband": "upper",
            "samples_per_frame": FRAME, "sync_time_seconds": START,
        }
        blocks = {
            "sky": {"kind": "sample_source", "parameters": parameters}, **self.receiver("sky"),
            "position": {"kind": "gnss_position", "inputs": ["track", "track.prompts"],
                         "parameters": {"interval_seconds": INTERVAL_SECONDS, **files}},
            "positions": {"kind": "file_sink", "input": "position", "parameters": {"path": "positions.npy"}},
            "satellites": {"kind": "null_sink", "input": "position.satellites"},
        }
        with open(self.out / "sky.i8", "rb") as file:
            seconds = self.run("receive", blocks, stdin=file)
        (self.out / "receive.seconds").write_text(f"{seconds:.0f}")

    def positions(self):
        """Lines of the table about `gnss_position`, and sentences about its first position and its deviations."""
        values = np.load(self.out / "positions.npy").reshape(-1, 29)
        is_valid = np.load(self.out / "positions.validity.npy").reshape(len(values), -1)[:, 0] > 0
        seconds = INTERVAL_SECONDS * (np.arange(len(values)) + 1)
        errors = values[is_valid, 1:4] - itrf(*PLACE)
        scaled = np.abs(enu(errors)) / values[is_valid, 10:13]
        # The standard deviations fall in the epoch in which the model is received.
        up, later = values[:, 12], seconds[1:] > 60
        modelled = seconds[:-1][later][np.argmin((up[1:] / np.maximum(up[:-1], 1e-3))[later])]
        lines = [row("gnss_position, all epochs", values[is_valid, 1:4])]
        for name, chosen in [
            (f"gnss_position, before the model of the ionosphere ({modelled} s)", seconds <= modelled),
            ("gnss_position, after it", seconds > modelled),
        ]:
            if (is_valid & chosen).any():
                lines.append(row(name, values[is_valid & chosen, 1:4]))
        text = (
            f"First position of gnss_position after {seconds[is_valid][0]} s of signal.\n"
            f"Errors east, north and up in stated standard deviations: rms {np.sqrt((scaled**2).mean()):.2f}, "
            f"largest {scaled.max():.2f}.\n"
            f"CPU time of acquisition, tracking and position of {self.seconds} s of signal: "
            f"{(self.out / 'receive.seconds').read_text()} s.\n"
        )
        return lines, text

    def rtklib(self):
        (self.out / "rtklib.conf").write_text(RTKLIB)
        broadcast = str(self.recordings / "brdc0010.22n")
        lines = []
        for name, navigation in [("brdc0010.22n", broadcast), ("gnss_position", "receiver.nav")]:
            command = ["rnx2rtkp", "-k", "rtklib.conf", "-o", "solution.pos", "receiver.obs", navigation]
            subprocess.run(command, cwd=self.out, check=True, stderr=subprocess.DEVNULL)
            text = (self.out / "solution.pos").read_text().splitlines()
            fields = [line.split()[2:5] for line in text if not line.startswith("%")]
            lines.append(row(f"RTKLIB, observations of gnss_position, ephemerides of {name}", np.array(fields, float)))
        return lines

    def gnss_sdr(self):
        if not self.has("gnss-sdr/pvt.nmea"):
            folder = self.out / "gnss-sdr"
            folder.mkdir(exist_ok=True)
            settings = (HERE / "gnss-sdr.conf").read_text().replace("@FILE@", str(self.out / "sky.i8"))
            (folder / "settings.conf").write_text(settings)
            with open(folder / "log", "wb") as log:
                subprocess.run(["gnss-sdr", "-c=settings.conf"], cwd=folder, check=True, stdout=log, stderr=log)
        positions = []
        for line in (self.out / "gnss-sdr/pvt.nmea").read_text().splitlines():
            fields = line.split(",")
            if not (line.startswith("$G") and line[3:6] == "GGA") or not fields[2]:
                continue
            latitude = float(fields[2][:2]) + float(fields[2][2:]) / 60
            longitude = float(fields[4][:3]) + float(fields[4][3:]) / 60
            positions.append(itrf(latitude, longitude, float(fields[9]) + float(fields[11] or 0)))
        return [row("gnss-sdr on the samples", np.array(positions))]

    def weak(self):
        """Sentence about phases at 35 dB Hz: residuals of polynomials, and steps between means of half a second."""
        if not self.has("rows.npy"):
            rows = {"kind": "file_sink", "input": "track", "parameters": {"path": "rows.npy"}}
            sums = {"kind": "null_sink", "input": "track.prompts"}
            self.run("weak", {"sky": self.sky(35, 71), **self.receiver("sky"), "rows": rows, "sums": sums})
        rows = np.load(self.out / "rows.npy")
        frame_seconds = FRAME / RATE_HZ
        window, shift = int(20 / frame_seconds), int(5 / frame_seconds)
        tracks, residual, step, periods = 0, 0.0, 0.0, []
        for satellite in np.moveaxis(rows.reshape(len(rows), -1, 13), 1, 0):
            locked = np.flatnonzero((satellite[:, 1] > 0) & (satellite[:, 2] > 0.5))
            if len(locked) < window:
                continue
            tracks += len(np.unique(satellite[locked, 10]))
            assert np.all(np.diff(locked) == 1), "a lock has a break"
            periods.append(len(locked) * frame_seconds * 1000)
            for at in range(0, len(locked) - window + 1, shift):
                turns = satellite[locked[at : at + window], 12]
                x = np.arange(window) * frame_seconds
                error = turns - np.polyval(np.polyfit(x, turns, 4), x)
                mean = np.convolve(error, np.ones(25) / 25, "valid")
                residual = max(residual, np.abs(error).max())
                step = max(step, np.abs(mean[25:] - mean[:-25]).max())
        return (
            f"35 dB Hz, 71 s of the same sky: {len(periods)} satellites in {tracks} tracks, locked over at least "
            f"{min(periods):.0f} periods of the code each\nwithout a break. Phases against polynomials of 20 s: largest residual "
            f"{residual:.3f} turns, largest step of means of 0.5 s\n{step:.3f} turns; a cycle slip is 0.5 turns.\n"
        )

    def search(self):
        """Sentence about the satellites that are found in frames of the recording."""
        if not self.has("found.npy"):
            samples = np.fromfile(self.recordings / "gnss_l1_4msps_iq.i8", np.int8)
            step = (len(samples) // 2 - SEARCHED) // (SEARCHES - 1)
            with open(self.out / "overlapping.i8", "wb") as file:
                for n in range(SEARCHES):
                    file.write(samples[2 * n * step : 2 * (n * step + SEARCHED)].tobytes())
            raw = {
                "dtype": "ci8", "axes": [{"name": "sample", "len": SEARCHED}], "samples_per_frame": SEARCHED,
                "adc_sample_rate_hz": 4e6, "band": {"channels": 1, "centre_hz": 1575.42e6, "bandwidth_hz": -4e6},
            }
            satellites = [{"system": "gps_l1_ca", "prn": n} for n in range(1, 33)]
            satellites += [{"system": "qzss_l1_ca", "prn": n} for n in range(193, 203)]
            parameters = {"satellites": satellites, "every_frames": 1, "false_alarm_probability": 1e-6}
            blocks = {
                "samples": {"kind": "file_source", "parameters": {"path": "overlapping.i8", "raw": raw}},
                "acquire": {"kind": "gnss_acquisition", "input": "samples", "parameters": parameters},
                "found": {"kind": "file_sink", "input": "acquire", "parameters": {"path": "found.npy"}},
            }
            self.run("search", blocks)
        values = np.load(self.out / "found.npy")
        values = values.reshape(len(values), -1, 6)
        is_found = values[:, :, 2] > values[:, :, 3]
        counts = is_found.sum(0)
        found = ", ".join(
            f"{'G' if prn < 100 else 'J'}{int(prn)} {count}" for prn, count in zip(values[0, :, 1], counts) if count)
        return (
            f"Recording gnss_l1_4msps_iq.i8 (PocketSDR): {len(values)} overlapping frames of 20 ms searched for GPS 1 to 32 and "
            f"QZSS L1 C/A\n193 to 202 at a probability of a false alarm of 1e-6. Frames in which a satellite was found; no "
            f"other one was:\n{found}.\n" + self.rare(values, is_found)
        )

    def rare(self, values, is_found):
        """Sentences about satellites that were found in some frames only: their power in the whole recording."""
        raw = np.fromfile(self.recordings / "gnss_l1_4msps_iq.i8", np.int8).astype(float)
        # The spectrum is inverted, and has lines.
        spectrum = np.fft.fft(raw[0::2] - 1j * raw[1::2])
        power = np.abs(spectrum.reshape(-1, 1000)) ** 2
        spectrum[(power > 12 * np.median(power, axis=1, keepdims=True)).ravel()] = 0
        samples = np.fft.ifft(spectrum)
        counts, numbers = is_found.sum(0), values[0, :, 1].astype(int)
        absent = [prn for prn, count in zip(numbers, counts) if prn <= 32 and count == 0]
        text = ""
        for n in np.flatnonzero((counts > 0) & (counts < len(values)) & (numbers <= 32)):
            hz = values[is_found[:, n], n, 4].mean()
            noise = max(whole(samples, prn, hz) for prn in absent)
            text += (
                f"GPS {numbers[n]}: sum of the power of all periods of the recording within 100 Hz of {hz:.0f} Hz, with NumPy: "
                f"{whole(samples, numbers[n], hz):.1f}\nstandard deviations above the mean; at most {noise:.1f} with the codes "
                "of satellites that were not found.\n"
            )
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--recordings", required=True)
    parser.add_argument("--out", required=True, help="directory for samples (5 MB a second) and outputs")
    parser.add_argument("--machine", required=True, help="what ran it, in words")
    parser.add_argument("--name", default="xeon-machine", help="machine in the name of the file")
    parser.add_argument("--commit", default="HEAD", help="commit of the program")
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    steps = Steps(arguments)
    steps.simulate()
    steps.receive()
    lines, text = steps.positions()
    lines += steps.rtklib() + steps.gnss_sdr()
    weak, search = steps.weak(), steps.search()
    commit = subprocess.run(["git", "rev-parse", "--short=7", arguments.commit], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    commit, today = commit.stdout.strip(), datetime.date.today()
    packages = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}, ", "gnss-sdr", "rtklib"], capture_output=True, text=True)
    path = REPOSITORY / f"benches/results/{today}-{arguments.name}-{commit}-positions.txt"
    path.write_text(
        f"{arguments.machine}, {today}, fxgraph {commit}, {packages.stdout.rstrip(', ')}.\n"
        "Written by benches/positions/positions.py.\n\n"
        f"Sky: gnss_signal_simulator, brdc0010.22n (IGS), 48 N 11 E 500 m, from {START}, mask 15 degrees, 45 dB Hz,\n"
        f"ionosphere (Klobuchar) and troposphere, ci8, {RATE_HZ / 1e6} MS/s, {arguments.seconds} s. Errors in metres from the "
        "true place.\n\n"
        f"{'receiver':<68}{'epochs':>7}{'mean':>7}{'largest':>9}{'of mean':>9}\n"
        + "\n".join(lines) + "\n\n" + text
        + "RTKLIB: single positions, mask 5 degrees, ionosphere brdc, troposphere saas. gnss-sdr: benches/positions/gnss-sdr.conf.\n\n"
        + weak + "\n" + search)
    print(path.read_text())


if __name__ == "__main__":
    main()
