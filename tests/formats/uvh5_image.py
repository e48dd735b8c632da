"""A source in the sky, from samples that NumPy makes to an image of WSClean: `uvh5_image.py make ZONE`, then
`uvh5_image.py image FILE` or, if the F-engines followed the phase centre, `uvh5_image.py image_as_tracked FILE`."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np

RATE, SYNC = 200e6, 1790000000
PLACES = np.array([[0, 0, 0], [12, 3, 0], [-7, 21, 0.5], [30, -18, 0.2], [-25, -9, 1], [4, 38, 0], [17, 15, 0.4], [-31, 26, 0]])
AZIMUTH, ELEVATION = np.radians(37.0), np.radians(62.0)
# A phase centre 9 degrees from the source.
CENTRE = np.radians(49.0), np.radians(55.0)
SAMPLES = 1 << 20


def towards(azimuth, elevation):
    return np.array([np.sin(azimuth) * np.cos(elevation), np.cos(azimuth) * np.cos(elevation), np.sin(elevation)])


def on_the_sky(azimuth, elevation, time, location):
    from astropy import units as u
    from astropy.coordinates import AltAz, SkyCoord

    return SkyCoord(AltAz(az=azimuth * u.rad, alt=elevation * u.rad, obstime=time, location=location)).icrs


def follow(zone):
    """Delay models of the antennas, with the phases of the band's centre on the sky, and the phase centre that they follow."""
    from astropy.coordinates import EarthLocation
    from astropy.time import Time
    from scipy.constants import c

    early = PLACES @ towards(*CENTRE) / c
    phases = -2 * np.pi * (int(zone) - 0.5) * RATE / 2 * early
    location = EarthLocation(lat=-30.7, lon=21.4, height=1000)
    centre = on_the_sky(*CENTRE, Time(SYNC, format="unix"), location)
    return {
        "delays": [[[{"start_samples": 0, "delay_seconds": d, "phase_radians": p}]] * 2 for d, p in zip(early.tolist(), phases.tolist())],
        "centre": {"name": "field", "right_ascension_degrees": centre.ra.deg, "declination_degrees": centre.dec.deg},
    }


def make(zone):
    """Voltages of each antenna and polarisation in a Nyquist zone: noise of the source, earlier where the antenna is
    nearer to it, and of the receiver."""
    from scipy.constants import c

    rng = np.random.default_rng(7)
    # Sampling moves the frequency f on the sky of an even zone to zone / 2 * RATE - f, and conjugates.
    sampled, is_even = np.fft.rfftfreq(SAMPLES, 1 / RATE), int(zone) % 2 == 0
    frequencies = int(zone) // 2 * RATE + (-sampled if is_even else sampled)
    for pol in range(2):
        spectrum = np.fft.rfft(rng.normal(0, 12, SAMPLES))
        for antenna, place in enumerate(PLACES):
            # e(t) = s(t + place . towards / c).
            earlier = place @ towards(AZIMUTH, ELEVATION) / c
            turned = spectrum * np.exp(2j * np.pi * frequencies * earlier)
            voltage = np.fft.irfft(turned.conj() if is_even else turned, SAMPLES)
            voltage += rng.normal(0, 12, SAMPLES)
            np.save(f"a{antenna}p{pol}.npy", np.clip(np.rint(voltage), -128, 127).astype(np.int16))
    print(json.dumps({"places": PLACES.tolist(), **follow(zone)}))


def load(path):
    """The data, without the ends of the band, and the source's place."""
    from astropy.time import Time
    from pyuvdata import UVData

    data = UVData.from_file(path)
    time = Time(data.time_array.mean(), format="jd")
    data.select(freq_chans=np.arange(10, 60))
    return data, on_the_sky(AZIMUTH, ELEVATION, time, data.telescope.location)


def away_from_the_source(path, degrees):
    """The data, phased to a place that is `degrees` away from the source in both directions, and the source's place."""
    from astropy import units as u
    from astropy.coordinates import SkyCoord

    data, place = load(path)
    centre = SkyCoord(place.ra + degrees * u.deg, place.dec - degrees * u.deg)
    data.phase(lon=centre.ra.rad, lat=centre.dec.rad, cat_name="field", phase_frame="icrs")
    return data, place


def uvfits(path):
    """Writes field.uvfits, and prints the place of the source in degrees."""
    # CASA's gridding leaves the w-term out, so that the place is shifted by 0.1 degrees here.
    data, place = away_from_the_source(path, 5)
    data.write_uvfits("field.uvfits")
    print(place.ra.deg, place.dec.deg)


def uvfits_as_tracked(path):
    """Writes field.uvfits with the phase centre and the baseline vectors of the file, and prints in degrees the place of
    the source and that of the centre of an image."""
    data, place = load(path)
    data.write_uvfits("field.uvfits")
    # The same distance from the source as in `uvfits`; the phase centre is 9 degrees away.
    print(place.ra.deg, place.dec.deg, place.ra.deg + 5, place.dec.deg - 5)


def image(path):
    """Images of the file, away from the source, show it at its place."""
    # Mirrored images would be 20 degrees off.
    show(*away_from_the_source(path, 10))


def image_as_tracked(path):
    """Images of the file show the source at its place with the baseline vectors of the file."""
    show(*load(path))


def show(data, place):
    from astropy.io import fits
    from astropy.wcs import WCS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.write_ms("field.ms")
    command = ["wsclean", "-quiet", "-name", "image", "-size", "240", "240", "-scale", "0.25deg"]
    command += ["-niter", "0", "-pol", "i", "-no-update-model-required", "-j", "1", "field.ms"]
    # With the OpenBLAS that gnss-sdr brings, WSClean asks for this.
    subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    with fits.open("image-image.fits") as file:
        pixels, wcs = file[0].data[0, 0], WCS(file[0].header).celestial
    row, column = np.unravel_index(np.argmax(pixels), pixels.shape)
    found = wcs.pixel_to_world(column, row).transform_to("icrs")
    apart = found.separation(place).deg
    print(f"brightest {pixels[row, column]:.2f} at {found.to_string('decimal')}, {apart:.2f} degrees from the source")
    assert apart < 0.5


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
