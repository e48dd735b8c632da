"""Real visibilities of telescopes, read with pyuvdata: `arrays.py describe RECORDING`, which prints the array and its
times, and `arrays.py compare RECORDING FILE METRES`, where FILE is what the program wrote for them."""

import json
import sys
import tarfile
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")

from astropy.coordinates import EarthLocation  # noqa: E402
from astropy.coordinates.sites import SiteRegistry  # noqa: E402
from astropy.time import Time  # noqa: E402
from pyuvdata import UVData  # noqa: E402

# Places of observatories are otherwise downloaded.
EarthLocation._site_registry = SiteRegistry()
EarthLocation._site_registry.add_site(["nowhere"], EarthLocation(0, 0, 0))


def read(recording):
    path = Path(recording)
    if path.suffix == ".gz":
        with tarfile.open(path) as archive:
            archive.extractall(".", filter="data")
            path = Path(archive.getnames()[0].split("/")[0])
    return UVData.from_file(str(path), run_check=False)


def describe(recording):
    data = read(recording)
    places = dict(zip(data.telescope.antenna_numbers.tolist(), data.telescope.get_enu_antpos().tolist()))
    location = data.telescope.location
    used = np.union1d(data.ant_1_array, data.ant_2_array).tolist()
    times = Time(np.unique(data.time_array), format="jd", scale="utc")
    step = float(np.diff(times.jd).mean() * 86400) if len(times) > 1 else float(data.integration_time[0])
    (centre,) = data.phase_center_catalog.values()
    is_tracked = centre["cat_type"] == "sidereal"
    names = ("right_ascension_degrees", "declination_degrees")
    place = dict(zip(names, [np.degrees(centre["cat_lon"]) % 360, np.degrees(centre["cat_lat"])]))
    first = times[0].to_value("unix", subfmt="decimal") - Decimal(step / 2)
    print(json.dumps({
        "telescope": {"name": data.telescope.name, "latitude_degrees": location.lat.deg,
                      "longitude_degrees": location.lon.deg, "height_metres": location.height.value},
        "antennas": [{"number": n, "enu_metres": places[n]} for n in used],
        "centre": {"name": "field", **place} if is_tracked else None,
        "ut1_utc_seconds": float(times[0].delta_ut1_utc),
        "sync_time_seconds": f"{first:.9f}",
        "step_microseconds": round(step * 1e6),
        "dumps": len(times),
    }))


def compare(recording, file, metres):
    data, written = read(recording), UVData.from_file(file)
    times = np.unique(written.time_array)
    assert abs(times - np.unique(data.time_array)).max() * 86400 < 1e-3
    assert abs(written.lst_array[0] - data.lst_array[0]) < 1e-5
    worst, longest, rows = 0, 0, 0
    for a, b in data.get_antpairs():
        vectors = data.uvw_array[data.antpair2ind(a, b)]
        if (a, b) in written.get_antpairs():
            found = written.uvw_array[written.antpair2ind(a, b)]
        else:
            found = -written.uvw_array[written.antpair2ind(b, a)]
        # A baseline of the recording may lack dumps.
        at = np.searchsorted(times + 1e-3 / 86400, data.time_array[data.antpair2ind(a, b)])
        worst = max(worst, abs(found[at] - vectors).max())
        longest = max(longest, np.linalg.norm(vectors, axis=1).max())
        rows += len(vectors)
    print(f"{rows} baseline vectors up to {longest:.0f} m, {worst:.6f} m apart at most")
    assert worst < float(metres), worst


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
