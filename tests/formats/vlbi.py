"""Checks the tones in the VDIF file of flowgraphs/15_vlbi.yaml, as baseband reads it."""

import sys

import numpy as np
from astropy.time import Time
from baseband import vdif

path, sync_seconds, lower_hz, *tones_hz = sys.argv[1], *map(float, sys.argv[2:])
with vdif.open(path, "rs") as file:
    header, rate_hz = file.header0, file.sample_rate.to_value("Hz")
    # Seconds since the sync time, without the leap seconds that Unix time leaves out.
    start = (file.start_time - Time(sync_seconds, format="unix")).to_value("s")
    samples = file.read()
assert (header.bps, header.complex_data, header.station) == (2, False, "Mk"), header
assert rate_hz == 128000, rate_hz
assert samples.ndim == 2 and samples.shape[1] == 2, samples.shape
assert 0 <= start < 0.1, start

per_frame = header.samples_per_frame
assert rate_hz % per_frame == 0, per_frame
# An invalid frame is read as zeros.
frames = samples.reshape(-1, per_frame, 2)
is_valid = (frames != 0).any(axis=(1, 2))
first, last = np.flatnonzero(is_valid)[[0, -1]]
assert is_valid[first : last + 1].all() and last - first > 50, is_valid
frames = frames[first : last + 1]

rms = np.sqrt((frames**2).mean())
t = start + (first * per_frame + np.arange(frames.shape[0] * per_frame)) / rate_hz
phases = []
for tone_hz in tones_hz:
    hz = tone_hz - lower_hz
    wave = np.exp(-2j * np.pi * hz * t).reshape(-1, per_frame, 1)
    sums = (frames * wave).mean(axis=1)
    # Continuous over all frames: the phase of each frame is on one line.
    of_frames = t.reshape(-1, per_frame).mean(axis=1)
    for pol in (0, 1):
        phase = np.unwrap(np.angle(sums[:, pol]))
        slope, offset = np.polyfit(of_frames - of_frames.mean(), phase, 1)
        residual = np.std(phase - np.polyval((slope, offset), of_frames - of_frames.mean()))
        amplitude = 2 * abs(sums[:, pol].mean())
        print(f"{hz:.0f} Hz, pol {pol}: amplitude {amplitude:.3f}, error {slope / (2 * np.pi):.2e} Hz, "
              f"phase {offset:.4f}, rms {residual:.4f}")
        assert amplitude > 0.1 * rms, amplitude
        assert residual < 0.15, residual
        assert abs(slope / (2 * np.pi)) < 0.02, slope
        # The tones have phase 0 at the sync time, so this is their phase at its absolute time.
        assert abs(offset) < 0.04, offset
        phases.append(offset)
if len(tones_hz) == 2:
    delay = (phases[0] - phases[2]) / (2 * np.pi * (tones_hz[0] - tones_hz[1]))
    print(f"delay {delay:.2e} s")
    assert abs(delay) < 0.05 / rate_hz, delay
print("tones are continuous")
