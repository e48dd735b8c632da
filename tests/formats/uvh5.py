"""Reads UVH5 files with h5py and pyuvdata: `uvh5.py CHECK ARGUMENTS...`. Every warning is an error."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("error")

import h5py  # noqa: E402
from astropy import units as u  # noqa: E402
from astropy.constants import c  # noqa: E402
from astropy.coordinates import AltAz, SkyCoord  # noqa: E402
from astropy.time import Time  # noqa: E402
from astropy.utils import iers  # noqa: E402
from pyuvdata import UVData, utils  # noqa: E402


def load(path):
    """Reads a file, with all checks of pyuvdata."""
    data = UVData.from_file(path)
    assert data.check(check_extra=True, run_check_acceptability=True, strict_uvw_antpos_check=True)
    return data


def pairs(antennas):
    return [(a, b) for a in range(antennas) for b in range(a, antennas)]


def cube(array, data):
    return array.reshape(data.Ntimes, data.Nbls, data.Nfreqs, data.Npols)


def conjugated(sums):
    """Sums of a correlator, [dump][channel][baseline][product], in the order of the file."""
    antennas = int((8 * sums.shape[2] + 1) ** 0.5 - 1) // 2
    order = [b * (b + 1) // 2 + a for a, b in pairs(antennas)]
    # xx, yy, xy, yx of the products xx, yx, xy, yy.
    return np.conj(sums[:, :, order][..., [0, 3, 2, 1]].swapaxes(1, 2))


def recorded(path):
    """Visibilities, validity and timestamps of `file_sink`."""
    file = np.load(path)
    sums = file["data"]
    return (sums if np.iscomplexobj(sums) else sums @ [1, 1j]), file["validity"], file["timestamp"]


def values(path, sums_path, npz, rate, samples_per_dump, sync, spectra):
    """Values, times, frequencies and names against the recording of the same stream."""
    rate, samples_per_dump, sync, spectra = float(rate), float(samples_per_dump), float(sync), int(spectra)
    data = load(path)
    sums, validity, timestamps = recorded(npz)
    expected = conjugated(sums)
    assert data.data_array.dtype == np.complex64
    np.testing.assert_allclose(cube(data.data_array, data), expected / spectra, rtol=3e-7)
    assert (data.nsample_array == 1).all() and not data.flag_array.any()
    raw = load(sums_path)
    np.testing.assert_array_equal(cube(raw.data_array, raw), expected.astype(np.complex64))
    assert raw.extra_keywords["FXSCALE"] == "sum"
    assert data.extra_keywords["FXSCALE"] == "mean"
    assert data.extra_keywords["FXNSAMP"] == spectra
    # Autocorrelations are means of powers.
    assert (data.get_data(1, 1, "xx").real > 0).all()
    # The signal of a spectrum is later than its timestamp, by (16 - 1) / 2 spectra of 16 taps.
    delay = json.loads(np.load(npz)["recording.json"])["clock"]["filter_delay_samples"]
    assert delay == 7.5 * samples_per_dump / spectra, delay
    centres = Time(sync + (timestamps + delay + samples_per_dump / 2) / rate, format="unix")
    times = data.time_array.reshape(data.Ntimes, data.Nbls)
    assert np.abs((times.T - centres.utc.jd) * 86400).max() < 1e-4
    assert np.allclose(data.integration_time, samples_per_dump / rate, rtol=1e-12)
    width = rate / 2 / data.Nfreqs
    np.testing.assert_allclose(data.freq_array, np.arange(data.Nfreqs) * width, atol=1)
    np.testing.assert_allclose(data.channel_width, width)
    assert list(data.polarization_array) == [-5, -6, -7, -8]
    assert list(zip(data.ant_1_array, data.ant_2_array))[: data.Nbls] == pairs(4)
    assert data.telescope.name == "laboratory"
    assert data.telescope.instrument == "fxgraph"
    assert data.telescope.get_x_orientation_from_feeds() == "east"
    assert data.blt_order == ("time", "baseline") and data.blts_are_rectangular
    assert "fxgraph" in data.history and len(data.extra_keywords["FXCONFIG"]) >= 16
    with h5py.File(path) as file:
        assert "digitiser_simulator" in file["fxgraph/flowgraph"][()].decode()
    print("values agree")


def source(path, azimuth, elevation):
    """A point source away from the zenith: its phases, and pyuvdata's own phasing to it."""
    azimuth, elevation = np.radians(float(azimuth)), np.radians(float(elevation))
    data = load(path)
    enu = np.array([np.sin(azimuth) * np.cos(elevation), np.cos(azimuth) * np.cos(elevation), np.sin(elevation)])
    positions = data.telescope.get_enu_antpos()
    crosses = data.ant_1_array != data.ant_2_array
    vectors = positions[data.ant_2_array] - positions[data.ant_1_array]
    np.testing.assert_allclose(data.uvw_array, vectors, atol=1e-6)
    # u l + v m + w n: for unprojected data w counts in full.
    turns = (data.uvw_array @ enu)[:, None] * data.freq_array / c.value
    parallel = data.data_array[..., :2].sum(axis=2) * np.exp(-2j * np.pi * turns)
    angles = np.degrees(np.angle(parallel.sum(axis=1)[crosses]))
    assert np.abs(angles).max() < 5, angles
    other = data.data_array[..., :2].sum(axis=2) * np.exp(+2j * np.pi * turns)
    assert np.abs(np.degrees(np.angle(other.sum(axis=1)[crosses]))).max() > 20
    # astropy finds the place of the source, and pyuvdata turns the phases to it.
    place = AltAz(
        az=azimuth * u.rad,
        alt=elevation * u.rad,
        obstime=Time(data.time_array.mean(), format="jd"),
        location=data.telescope.location,
    )
    place = SkyCoord(place).icrs
    data.phase(lon=place.ra.rad, lat=place.dec.rad, cat_name="source", phase_frame="icrs")
    angles = np.degrees(np.angle(data.data_array[..., :2].sum(axis=(1, 2))[crosses]))
    assert np.abs(angles).max() < 5, angles
    print("source found")


def feeds(path, circular, npz):
    """Polarisations by name."""
    sums, _, _ = recorded(npz)
    scale = load(path).extra_keywords["FXNSAMP"]
    # Baseline 1 is that of antennas 0 and 1; product 1 is polarisation 1 of antenna 0 and 0 of antenna 1.
    baseline = np.conj(sums[:, :, 1]) / scale
    data = load(path)
    for name, product in [("yy", 0), ("xy", 1), ("yx", 2), ("xx", 3)]:
        np.testing.assert_allclose(data.get_data(0, 1, name), baseline[..., product], rtol=3e-7)
    data = load(circular)
    assert list(data.polarization_array) == [-1, -2, -3, -4]
    for name, product in [("rr", 0), ("lr", 1), ("rl", 2), ("ll", 3)]:
        np.testing.assert_allclose(data.get_data(0, 1, name), baseline[..., product], rtol=3e-7)
    print("feeds agree")


def gaps(path, npz, full):
    """Missing heaps: numbers of samples, flags, and values that do not depend on them."""
    full = int(full)
    data = load(path)
    sums, validity, _ = recorded(npz)
    order = [b * (b + 1) // 2 + a for a, b in pairs(4)]
    fractions = validity[:, order] / full
    samples = cube(data.nsample_array, data)
    np.testing.assert_allclose(samples, np.broadcast_to(fractions[..., None, None], samples.shape))
    flags = cube(data.flag_array, data)
    np.testing.assert_array_equal(flags, samples == 0)
    expected = conjugated(sums) / data.extra_keywords["FXNSAMP"]
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(flags, 0, expected / samples)
    np.testing.assert_allclose(cube(data.data_array, data), expected, rtol=3e-7)
    assert 0 < (samples < 1).mean() < 1
    # As strong as dumps without a gap.
    powers = cube(data.data_array, data)[:, 0, 4:-4, 0].real.mean(axis=1)
    assert np.ptp(powers[~flags[:, 0, 0, 0]]) < 0.2 * powers.mean(), powers
    print("missing", (data.nsample_array < 1).mean(), "flagged", data.flag_array.mean())


def axes(path, *names):
    """Counts with axes of channels, baselines and products; every fifth unit of a frame is missing."""
    data = load(path)
    lens = {"channel": 8, "baseline": 3, "product": 4}
    missing = (np.arange(np.prod([lens[n] for n in names])) % 5 == 4).reshape([lens[n] for n in names])
    shape = [lens[n] if n in names else 1 for n in lens]
    missing = np.broadcast_to(missing.reshape(shape), list(lens.values()))
    found = cube(data.nsample_array, data)[0] == 0
    expected = missing.swapaxes(0, 1)[[0, 1, 2]][..., [0, 3, 2, 1]]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(cube(data.flag_array, data)[0], expected)
    print("axes agree")


def joined(path, low, high):
    """Two channel blocks in one file, and apart."""
    data = load(path)
    parts = [load(low), load(high)]
    assert (np.diff(data.freq_array) > 0).all()
    np.testing.assert_array_equal(data.freq_array, np.concatenate([p.freq_array for p in parts]))
    for name in ["data_array", "flag_array", "nsample_array"]:
        both = np.concatenate([getattr(p, name) for p in parts], axis=1)
        np.testing.assert_array_equal(getattr(data, name), both)
    assert np.abs(data.data_array).max() > 0
    print("joined", data.Nfreqs)


def half(path, channels):
    """Channels from `channels` on are flagged in the dumps after the first two."""
    data, channels = load(path), int(channels)
    flags = cube(data.flag_array, data)
    assert not flags[:2].any() and flags[2:, :, channels:].all() and not flags[:, :, :channels].any()
    np.testing.assert_array_equal(cube(data.nsample_array, data) == 0, flags)
    print("flagged", data.Ntimes)


def error_of_sidereal_times(path, data):
    """Largest difference of the sidereal times in the file from those of astropy, in seconds."""
    with h5py.File(path) as file:
        written = file["Header/lst_array"][:]
    lsts = utils.get_lst_for_time(data.time_array, telescope_loc=data.telescope.location)
    apart = (written - lsts + np.pi) % (2 * np.pi) - np.pi
    return np.abs(apart).max() * 86400 / 2 / np.pi


def track_of(data, right_ascension, declination):
    """Apparent places and baseline vectors of pyuvdata for a source that is tracked."""
    return utils.phasing.uvw_track_generator(
        lon_coord=np.radians(float(right_ascension)),
        lat_coord=np.radians(float(declination)),
        coord_frame="icrs",
        coord_type="sidereal",
        telescope_loc=data.telescope.location,
        time_array=data.time_array,
        antenna_positions=data.telescope.antenna_positions,
        antenna_numbers=data.telescope.antenna_numbers,
        ant_1_array=data.ant_1_array,
        ant_2_array=data.ant_2_array,
    )


def sidereal(path, right_ascension, declination):
    """A tracked source: sidereal times, apparent places and baseline vectors."""
    data = load(path)
    seconds = error_of_sidereal_times(path, data)
    assert seconds < 2e-3, seconds
    (entry,) = data.phase_center_catalog.values()
    assert entry["cat_type"] == "sidereal" and entry["cat_frame"] == "icrs"
    np.testing.assert_allclose([entry["cat_lon"], entry["cat_lat"]], np.radians([float(right_ascension), float(declination)]))
    track = track_of(data, right_ascension, declination)
    arcseconds = np.degrees(np.abs(data.phase_center_app_ra - track["app_ra"])).max() * 3600
    assert arcseconds < 1, arcseconds
    assert np.degrees(np.abs(data.phase_center_app_dec - track["app_dec"])).max() * 3600 < 1
    assert np.degrees(np.abs(data.phase_center_frame_pa - track["frame_pa"])).max() < 0.01
    lengths = np.linalg.norm(track["uvw"], axis=1).max()
    assert np.abs(data.uvw_array - track["uvw"]).max() < 1e-5 * lengths
    print("tracked", arcseconds)


def oriented(path, other_path, table, right_ascension, declination):
    """A tracked source with the orientation of the Earth of a table, which astropy reads, too."""
    # astropy asks for a table that ends with predictions.
    *lines, last = Path(table).read_text().splitlines(keepends=True)
    Path("finals2000a.txt").write_text("".join(lines) + last.replace("I", "P"))
    iers.earth_orientation_table.set(iers.IERS_A.open("finals2000a.txt"))
    data, other = load(path), load(other_path)
    seconds = error_of_sidereal_times(path, data)
    # UT1 - UTC changes by 1.6 ms in these hours.
    assert seconds < 1e-4, seconds
    track = track_of(data, right_ascension, declination)
    places = [data.phase_center_app_ra - track["app_ra"], data.phase_center_app_dec - track["app_dec"]]
    # The pole is 0.28 arcseconds away from its place without the table.
    arcseconds = np.degrees(np.abs(places)).max() * 3600
    assert arcseconds < 0.01, arcseconds
    lengths = np.linalg.norm(track["uvw"], axis=1).max()
    found, without = [np.abs(of.uvw_array - track["uvw"]).max() / lengths for of in (data, other)]
    # 0.4 s of UT1 - UTC turn a baseline by up to 3e-5.
    assert found < 2e-7 and without > 1e-5, (found, without)
    print(f"{data.Ntimes} dumps, sidereal times within {seconds:.1e} s, places {arcseconds:.1e} arcseconds,", end=" ")
    print(f"baseline vectors {found:.1e}, {without:.1e} without the table")


def rolled(first, *rest):
    """Files that follow each other."""
    files = [load(path) for path in (first, *rest)]
    times = np.concatenate([np.unique(data.time_array) for data in files])
    steps = np.diff(times) * 86400
    assert np.allclose(steps, files[0].integration_time[0], atol=1e-4), steps
    print(*[data.Ntimes for data in files])


def killed(path):
    """A file whose writer was killed: dumps up to the last commit, all of them whole."""
    with h5py.File(path) as file:
        dumps = int(file["Header/Ntimes"][()])
        baselines = int(file["Header/Nbls"][()])
        assert int(file["Header/Nblts"][()]) == dumps * baselines
        for name in ["Data/visdata", "Data/flags", "Data/nsamples", "Header/time_array", "Header/uvw_array"]:
            assert len(file[name]) == dumps * baselines, name
        assert len(file["Header/fxgraph_config_id"]) == dumps
    if dumps > 0:
        data = load(path)
        assert data.Ntimes == dumps and (data.nsample_array == 1).all()
        steps = np.diff(np.unique(data.time_array)) * 86400
        assert np.allclose(steps, data.integration_time[0], atol=1e-4)
        powers = cube(data.data_array, data)[:, 0, :, 0].real
        assert (powers[:, 2:] > 0).all()
    print(dumps)


def converted(path, first):
    """UVFITS, Measurement Set and Miriad files that pyuvdata writes from the file; its antennas are numbered from `first`."""
    before = load(path)
    numbers = before.telescope.antenna_numbers
    assert list(numbers) == list(range(int(first), int(first) + len(numbers)))
    assert list(before.telescope.antenna_names) == [f"ant{number}" for number in numbers]
    copied(path)
    print("converted")


def copied(path):
    """Copies of the file in other formats against the file."""
    before = load(path)
    is_phased = "unprojected" not in [entry["cat_type"] for entry in before.phase_center_catalog.values()]
    for kind in ["uvfits", "ms", "miriad"]:
        data, copy = load(path), f"{path}.{kind}"
        # UVFITS has no frequency of 0 Hz.
        data.select(freq_chans=np.flatnonzero(data.freq_array > 0))
        with warnings.catch_warnings():
            # Of phasing to the zenith, and of metadata that the other formats do not have.
            warnings.simplefilter("ignore")
            if kind == "uvfits":
                data.write_uvfits(copy, force_phase=not is_phased)
            elif kind == "ms":
                data.write_ms(copy, force_phase=not is_phased)
            else:
                data.write_miriad(copy)
            other = UVData.from_file(copy)
            for ordered in (data, other):
                ordered.conjugate_bls("ant1<ant2")
                ordered.reorder_blts("time", minor_order="baseline")
                ordered.reorder_pols("AIPS")
        assert (other.Nblts, other.Nfreqs, other.Npols) == (data.Nblts, data.Nfreqs, data.Npols), kind
        np.testing.assert_array_equal(other.ant_1_array, data.ant_1_array, kind)
        np.testing.assert_array_equal(other.ant_2_array, data.ant_2_array, kind)
        np.testing.assert_allclose(other.data_array, data.data_array, rtol=2e-5, atol=1e-6 * np.abs(data.data_array).max(), err_msg=kind)
        np.testing.assert_array_equal(other.flag_array, data.flag_array, kind)
        assert np.abs(other.time_array - data.time_array).max() * 86400 < 1e-3, kind
        names = {name.upper(): value for name, value in other.extra_keywords.items()}
        for name, value in before.extra_keywords.items():
            assert len(name) <= 8 and names[name] == value, (kind, name, names.get(name))


def one(path, all_path, fast_path, slow_path):
    """One polarisation against the first one of two, with numbers of antennas; selected baselines at two cadences."""
    data, two, fast, slow = [load(name) for name in (path, all_path, fast_path, slow_path)]
    places = {12: 0, 3: 1, 7: 2, 5: 3}
    assert list(data.polarization_array) == [-6] and data.Npols == 1
    assert data.telescope.Nants == 5 and data.Nants_data == 4
    assert data.telescope.feed_array.tolist() == [["y"]] * 5 and not data.telescope.feed_angle.any()
    positions = dict(zip(data.telescope.antenna_numbers.tolist(), data.telescope.get_enu_antpos()))
    names = dict(zip(data.telescope.antenna_numbers.tolist(), data.telescope.antenna_names))
    assert names == {7: "seven", 12: "ant12", 3: "ant3", 99: "ant99", 5: "ant5"}
    for a, at in places.items():
        np.testing.assert_allclose(positions[a], two.telescope.get_enu_antpos()[at], atol=1e-6)
        for b, of in places.items():
            whole = data.get_nsamples(a, b, "yy") == 1
            assert whole.any() and whole.all() == (12 not in (a, b))
            found, expected = data.get_data(a, b, "yy")[whole], two.get_data(at, of, "xx")[whole]
            np.testing.assert_array_equal(found, expected)
    for selected in (fast, slow):
        found = {tuple(sorted(pair)) for pair in selected.get_antpairs()}
        assert found == {(3, 12), (5, 7), (7, 7)} and selected.Nbls == 3, found
        assert selected.Nants_data == 4 and selected.Npols == 1
    np.testing.assert_array_equal(np.unique(fast.time_array), np.unique(data.time_array))
    whole = fast.Ntimes // 2
    np.testing.assert_allclose(slow.integration_time, 2 * fast.integration_time[0], rtol=1e-12)
    times = np.unique(fast.time_array)[: 2 * whole].reshape(whole, 2).mean(axis=1)
    assert np.abs(np.unique(slow.time_array)[:whole] - times).max() * 86400 < 1e-4
    for pair in [(3, 12), (5, 7), (7, 7)]:
        values = fast.get_data(*pair)
        np.testing.assert_allclose(values, data.get_data(*pair), rtol=1e-6)
        counts = fast.get_nsamples(*pair)
        np.testing.assert_array_equal(counts, data.get_nsamples(*pair))
        np.testing.assert_array_equal(fast.get_flags(*pair), data.get_flags(*pair))
        assert (counts < 1).any() == (12 in pair)
        values, counts = [of[: 2 * whole].reshape(whole, 2, *of.shape[1:]) for of in (values, counts)]
        mean = (values * counts).sum(axis=1) / np.maximum(counts.sum(axis=1), 1e-9)
        np.testing.assert_allclose(slow.get_data(*pair)[:whole], mean, rtol=2e-6, atol=1e-9)
        np.testing.assert_allclose(slow.get_nsamples(*pair)[:whole], counts.mean(axis=1))
    copied(path)
    copied(fast_path)
    print("one polarisation agrees")


def growing(path, reads):
    """Reads a file over and over while it grows: each read has whole dumps up to some time, and no fewer than the one
    before. Another program cannot open it for writing."""
    last, seen, samples = 0, set(), 0
    for n in range(int(reads)):
        data = UVData.from_file(path, run_check=n % 10 == 0)
        assert data.Ntimes >= last, (data.Ntimes, last)
        last = data.Ntimes
        seen.add(last)
        assert data.data_array.shape == (data.Ntimes * data.Nbls, data.Nfreqs, 4)
        times = data.time_array.reshape(data.Ntimes, data.Nbls)
        assert (times.T == times[:, 0]).all()
        steps = np.diff(times[:, 0]) * 86400
        assert np.allclose(steps, data.integration_time[0], atol=1e-4), steps
        # No dump of noise is empty.
        assert (data.nsample_array == 1).all() and not data.flag_array.any()
        assert (np.abs(cube(data.data_array, data)[:, 0, 2:, 0]) > 0).all()
        samples += data.data_array.size
        if n % 50 == 0:
            for mode in ["r+", "a"]:
                try:
                    h5py.File(path, mode).close()
                    raise AssertionError(f"opened with {mode}")
                except BlockingIOError:
                    pass
    assert len(seen) > 3, seen
    print(f"{reads} reads, {min(seen)} to {max(seen)} dumps, {len(seen)} numbers of dumps, {samples} values")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
