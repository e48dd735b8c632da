"""Writes `digests.txt`: the codes of all satellites by two independent generators, which must agree.

    python3 digests.py POCKETSDR GNSS_DSP_TOOLS > digests.txt

The arguments are checkouts of https://github.com/tomojitakasu/PocketSDR (BSD-2-Clause, made with commit b6af31fb) and
https://github.com/pmonta/GNSS-DSP-tools (MIT, made with commit be93f96f). Needs NumPy, SciPy and SymPy.

A line has the signal, the satellite, its first 24 chips in octal as interface specifications print them, the first 16
digits of the SHA-256 of its chips (a byte 0 or 1 each), and the same digits for its secondary code, if it has one.

PocketSDR repeats the register XB of L5 after 10230 chips, where the register itself repeats after 8191. The chips before
are compared, and those of GNSS-DSP-tools are taken.
"""

import hashlib
import importlib
import sys
import types

import numpy as np

POCKETSDR, TOOLS = sys.argv[1:3]
# The generators of PocketSDR need only this function of its library.
library = types.ModuleType("sdr_func")
library.xor_bits = lambda x: bin(x).count("1") & 1
sys.modules["sdr_func"] = library
sys.path += [POCKETSDR + "/python", TOOLS]
import sdr_code  # noqa: E402

GPS = list(range(1, 64))
QZSS = list(range(193, 203))
GALILEO = list(range(1, 51))
BEIDOU = list(range(1, 64))
# Signal, satellites, name in PocketSDR and entries per chip there, module of GNSS-DSP-tools and its satellites.
SIGNALS = [
    ("gps_l1_ca", range(1, 38), "L1CA", 1, "gps.ca"),
    ("galileo_e1b", GALILEO, "E1B", 2, "galileo.e1b"),
    ("gps_l1c_d", GPS, "L1CD", 2, "gps.l1cd"),
    ("gps_l1c_p", GPS, "L1CP", 12, "gps.l1cp"),
    ("gps_l2c_m", GPS, "L2CM", 2, "gps.l2cm"),
    ("gps_l2c_l", GPS, "L2CL", 2, "gps.l2cl"),
    ("gps_l5_i", GPS, "L5I", 1, "gps.l5i"),
    ("gps_l5_q", GPS, "L5Q", 1, "gps.l5q"),
    ("galileo_e1c", GALILEO, "E1C", 2, "galileo.e1c"),
    ("galileo_e5a_i", GALILEO, "E5AI", 1, "galileo.e5ai"),
    ("galileo_e5a_q", GALILEO, "E5AQ", 1, "galileo.e5aq"),
    ("galileo_e5b_i", GALILEO, "E5BI", 1, "galileo.e5bi"),
    ("galileo_e5b_q", GALILEO, "E5BQ", 1, "galileo.e5bq"),
    ("beidou_b1c_d", BEIDOU, "B1CD", 2, "beidou.b1cd"),
    ("beidou_b1c_p", BEIDOU, "B1CP", 2, "beidou.b1cp"),
    ("beidou_b2a_d", BEIDOU, "B2AD", 1, "beidou.b2ad"),
    ("beidou_b2a_p", BEIDOU, "B2AP", 1, "beidou.b2ap"),
    ("qzss_l1_ca", QZSS, "L1CA", 1, "gps.ca"),
    ("qzss_l1c_d", QZSS, "L1CD", 2, "gps.l1cd"),
    ("qzss_l1c_p", QZSS, "L1CP", 12, "gps.l1cp"),
    ("qzss_l2c_m", QZSS, "L2CM", 2, "gps.l2cm"),
    ("qzss_l2c_l", QZSS, "L2CL", 2, "gps.l2cl"),
    ("qzss_l5_i", QZSS, "L5I", 1, "gps.l5i"),
    ("qzss_l5_q", QZSS, "L5Q", 1, "gps.l5q"),
]


def chips_of_pocketsdr(name, prn, per_chip):
    """Chips as logic values, without the subcarrier."""
    entries = sdr_code.gen_code(name, prn).reshape(-1, per_chip)
    # The second half of a chip of L2 CL is not empty.
    levels = entries[:, 1] if name == "L2CL" else entries[:, 0]
    return (levels < 0).astype("u1")


def chips_of_tools(module, prn):
    part = importlib.import_module("gnsstools." + module)
    code = getattr(part, module.split(".")[1] + "_code")(prn)
    return (np.asarray(code) != 0).astype("u1")


def secondary_of_tools(module, prn):
    """Logic values of the secondary code; None if GNSS-DSP-tools does not have it."""
    part = importlib.import_module("gnsstools." + module)
    code = getattr(part, "secondary_code", None)
    if code is None:
        return None
    if callable(code):
        code = code(prn)
    elif isinstance(code, dict):
        if prn not in code:
            return None
        code = code[prn]
    if isinstance(code, str):
        code = part.secondary_seq(code)
    code = np.asarray(code)
    # Levels 1 and -1, or logic values.
    return (code < 0 if code.min() < 0 else code != 0).astype("u1")


def digest(chips):
    return hashlib.sha256(chips.tobytes()).hexdigest()[:16]


for signal, prns, name, per_chip, module in SIGNALS:
    for prn in prns:
        chips = chips_of_pocketsdr(name, prn, per_chip)
        try:
            other = chips_of_tools(module, prn)
        except KeyError:
            other = None
            print(f"{signal} {prn} is in one generator only", file=sys.stderr)
        alike = len(chips)
        if name in ("L5I", "L5Q"):
            alike -= getattr(sdr_code, name + "_XB_adv")[prn - 1]
        if other is not None:
            if not np.array_equal(chips[:alike], other[:alike]):
                sys.exit(f"{signal} {prn}: the generators disagree")
            chips = other
        secondary = (sdr_code.sec_code(name, prn) < 0).astype("u1")
        other = secondary_of_tools(module, prn)
        if other is None:
            if len(secondary) > 1:
                print(f"the secondary code of {signal} {prn} is in one generator only", file=sys.stderr)
        elif not np.array_equal(secondary, other[: len(secondary)]):
            sys.exit(f"{signal} {prn}: the generators disagree about the secondary code")
        first = "".join(map(str, chips[:24]))
        row = [signal, str(prn), f"{int(first, 2):08o}", digest(chips)]
        if len(secondary) > 1:
            row.append(digest(secondary))
        print(*row)
    # The memory of PocketSDR's cache.
    for cache in vars(sdr_code).values():
        if isinstance(cache, dict) and cache and all(isinstance(key, int) for key in cache):
            cache.clear()
