"""Writes reference.rs: values of astropy and of ERFA, and exact quotients of Python's fractions.

    pip install astropy==8.0.2 && python reference.py > reference.rs
"""

from fractions import Fraction

import erfa
import numpy as np
from astropy.time import Time, TimeDelta
from astropy.utils import iers
from astropy_iers_data import IERS_A_FILE


def seconds(jd1, jd2):
    """Days in two floats as seconds."""
    return round((Fraction(jd1) + Fraction(jd2)) * 86400)


print("// Written by reference.py.\n")
print("/// ISO text, Unix seconds, TAI and GPS seconds, modified Julian day and the fraction of the day.")
print("pub const INSTANTS: &[(&str, i64, i64, i64, i64, f64)] = &[")
for text in [
    "1972-06-30T23:59:60",
    "1980-01-06T00:00:00",
    "2000-02-29T12:00:00",
    "2012-07-01T00:00:00",
    "2016-12-31T23:59:59",
    "2016-12-31T23:59:60",
    "2017-01-01T00:00:00",
    "2016-12-31T12:00:00",
    "2026-11-25T14:20:40",
    "2099-12-31T23:59:59",
]:
    time = Time(text, scale="utc", format="isot", precision=9)
    epoch = Time("1970-01-01T00:00:00", scale="tai")
    tai = seconds(*[getattr(time.tai - epoch, x) for x in ("jd1", "jd2")])
    # Astropy's `unix` stretches the day of a leap second; POSIX does not.
    days = Time(text.split("T")[0], scale="utc").mjd - 40587
    hour, minute, second = map(int, text.split("T")[1].split(":"))
    unix = int(days) * 86400 + hour * 3600 + minute * 60 + second
    gps = round(float(time.gps))
    day = int(np.floor(time.mjd))
    part = float(Fraction(time.jd1) + Fraction(time.jd2) - Fraction("2400000.5") - day)
    print(f'    ("{text}Z", {unix}, {tai}, {gps}, {day}, {part!r}),')
print("];\n")

print("/// Sync time, rate in Hz, samples, and the time of the sample rounded to a picosecond.")
print("pub const SAMPLES: &[(&str, f64, u64, &str)] = &[")
for sync, rate, samples in [
    ("2021-11-30T21:19:58.123456789012", 1.712e9, 10 * 365 * 86400 * 1_712_000_000 + 1),
    ("2016-12-31T23:59:58", 1.712e9, 3 * 1_712_000_000 + 856),
    ("2016-12-31T23:59:58", 1.712e9, 2 * 1_712_000_000 + 856_000_000),
    ("2014-01-01T00:00:00", 800e6 / 3, 2**60),
    ("2024-02-29T23:59:59.999999999999", 1.0e12, 1),
    ("2020-01-01T00:00:00", 6.144e6 * 1.000000123, 2**53 + 1),
    ("2020-01-01T00:00:00", 0.1, 12_345),
    ("2020-01-01T00:00:00", 1.75e9, 2**63),
]:
    whole, part = sync.split(".") if "." in sync else (sync, "0")
    begin = Time(whole, scale="utc", precision=0)
    total = round(Fraction(samples) / Fraction(rate) * 10**12) + int(part.ljust(12, "0"))
    later = (begin.tai + TimeDelta(total // 10**12, format="sec")).utc
    later.precision = 0
    print(f'    ("{sync}Z", {rate!r}, {samples}, "{later.isot}.{total % 10**12:012}Z"),')
print("];\n")

print("""/// The sky at a place: UT1 - UTC, coordinates of the pole and ICRS place in radians; local apparent sidereal
/// time, apparent right ascension and declination, position angle of the ICRS north.
pub const SKIES: &[(&str, f64, [f64; 2], [f64; 3], [f64; 2], f64, [f64; 2], f64)] = &[""")
MEERKAT = [-0.536041, 0.374265, 1053.0]
GBT = [0.670784, -1.393566, 824.0]
for text, dut1, pole, place, source in [
    ("2000-01-01T12:00:00", 0.3550365, [2e-7, 1.6e-6], MEERKAT, [1.0, -0.5]),
    ("2008-07-03T03:20:11", -0.4451301, [9e-7, 2.5e-6], GBT, [5.9, 0.9]),
    ("2016-12-31T23:59:60", -0.4077339, [4e-7, 1.4e-6], MEERKAT, [3.1, -1.2]),
    ("2021-03-20T17:45:10", -0.1717754, [-1e-7, 1.7e-6], GBT, [0.02, 0.3]),
    ("2024-10-01T00:00:00", 0.0590287, [1e-6, 1.8e-6], MEERKAT, [4.4, -0.8]),
    ("2026-05-17T09:10:11", 0.0258332, [0.0, 0.0], GBT, [2.2, 1.3]),
]:
    time = Time(text, scale="utc")
    latitude, longitude, height = place
    ut1 = erfa.utcut1(time.jd1, time.jd2, dut1)
    tt = time.tt
    lst = erfa.anp(erfa.gst06a(*ut1, tt.jd1, tt.jd2) + longitude)
    where = (time.jd1, time.jd2, dut1, longitude, latitude, height, *pole, 0, 0, 0, 0)

    def apparent(ra, dec):
        _, _, _, dec, ra, origins = erfa.atco13(ra, dec, 0, 0, 0, 0, *where)
        return float(erfa.anp(ra - origins)), float(dec)

    ra, dec = source
    half = np.radians(0.5)
    # From the place half a degree south to that half a degree north, as in pyuvdata.
    north = float(erfa.pas(*apparent(ra, dec - half), *apparent(ra, dec + half)))
    print(f'    ("{text}Z", {dut1}, {pole}, {place}, {source}, {float(lst)!r}, {list(apparent(ra, dec))}, {north!r}),')
print("];\n")

table = iers.IERS_A.open(IERS_A_FILE)
print("/// Time, UT1 - UTC in seconds and coordinates of the pole in arcseconds, interpolated in finals2000a.txt.")
print("pub const ORIENTATIONS: &[(&str, f64, [f64; 2])] = &[")
for text in ["2016-12-30T06:00:00", "2016-12-31T18:00:00", "2017-01-01T00:00:00", "2017-01-01T12:00:00"]:
    time = Time(text, scale="utc")
    x, y = table.pm_xy(time)
    print(f'    ("{text}Z", {float(table.ut1_utc(time).to_value("s")):.7f}, [{x.value:.6f}, {y.value:.6f}]),')
print("];")
