"""Files of a digitiser that was restarted: `restarted.py RATE RUN RUN`, with the sync time of each run and the time of the
host before and after it, in Unix seconds and with commas between them."""

import sys
import warnings

import numpy as np
from astropy.utils import iers

# Sidereal times, which pyuvdata computes, are not compared.
iers.conf.auto_download = False
iers.conf.auto_max_age = None
iers.conf.iers_degraded_accuracy = "ignore"
warnings.simplefilter("ignore")

from pyuvdata import UVData  # noqa: E402

RATE = float(sys.argv[1])
# 64 channels, 16 taps, 512 spectra.
DUMP, DELAY = 512 * 128, 7.5 * 128
# For each file the turns of 48 bits of its timestamps, and the largest error of its sync time in seconds: that of the
# second run is not in the packets, but measured from their arrival at a host that may be busy.
FILES = {"vis.uvh5": (0, 0), "vis_2.uvh5": (1, 10)}

for (path, (turns, tolerance)), run in zip(FILES.items(), sys.argv[2:], strict=True):
    sync, begin, end = map(float, run.split(","))
    data = UVData.from_file(path, run_check=False)
    times = (np.unique(data.time_array) - 2440587.5) * 86400
    # `SYNCTIME` is that of timestamp 0.
    stated = data.extra_keywords["SYNCTIME"] + turns * 2**48 / RATE
    assert abs(stated - sync) <= tolerance, (stated, sync)
    assert len(times) >= 40, f"{path} has {len(times)} dumps"
    # Dumps begin at multiples of their length since the sync time; a time is that of their middle.
    numbers = ((times - stated) * RATE - DELAY) / DUMP - 0.5
    assert np.abs(numbers - np.rint(numbers)).max() * DUMP / RATE < 1e-4, numbers
    by_hand = sync + ((np.rint(numbers) + 0.5) * DUMP + DELAY) / RATE
    assert np.abs(times - by_hand).max() < tolerance + 1e-4
    # A time of this run, as the samples were sent at their time.
    assert begin - tolerance - 0.1 < times[0] and times[-1] < end + tolerance + 0.1, (begin, times, end)
    # No more than one run: 4 s are 64 dumps.
    assert 40 <= len(times) <= 66 and times[-1] - times[0] < 4.1, times
    # Source and receiver noise of 0.1 x 511 each, times the gain; dither and rounding add 1/3 to the power.
    power = data.get_data(0, 0, "xx")[data.get_nsamples(0, 0, "xx") == 1].real.reshape(-1, 64)[:, 4:-4].mean()
    assert abs(power / (2 * (51.1 * 0.35) ** 2 + 1 / 3) - 1) < 0.05, power
    print(f"{path}: {len(times)} dumps, sync time {stated}, by hand {sync}, power {power:.1f}")
print("2 files have the times of their sync times")
