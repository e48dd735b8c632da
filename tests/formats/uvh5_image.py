"""A source in the sky, from samples that NumPy makes to images of WSClean: `uvh5_image.py make`, then
`uvh5_image.py image FILE [casa]`."""

import subprocess
import sys
import warnings

import numpy as np

RATE, SYNC = 200e6, 1790000000
PLACES = np.array([[0, 0, 0], [12, 3, 0], [-7, 21, 0.5], [30, -18, 0.2], [-25, -9, 1], [4, 38, 0], [17, 15, 0.4], [-31, 26, 0]])
AZIMUTH, ELEVATION = np.radians(37.0), np.radians(62.0)
SAMPLES = 1 << 20


def make():
    """Voltages of each antenna and polarisation: noise of the source, earlier where the antenna is nearer to it, and of
    the receiver."""
    from scipy.constants import c

    towards = np.array([np.sin(AZIMUTH) * np.cos(ELEVATION), np.cos(AZIMUTH) * np.cos(ELEVATION), np.sin(ELEVATION)])
    rng = np.random.default_rng(7)
    frequencies = np.fft.rfftfreq(SAMPLES, 1 / RATE)
    for pol in range(2):
        spectrum = np.fft.rfft(rng.normal(0, 12, SAMPLES))
        for antenna, place in enumerate(PLACES):
            # e(t) = s(t + place . towards / c).
            earlier = place @ towards / c
            voltage = np.fft.irfft(spectrum * np.exp(2j * np.pi * frequencies * earlier), SAMPLES)
            voltage += rng.normal(0, 12, SAMPLES)
            np.save(f"a{antenna}p{pol}.npy", np.clip(np.rint(voltage), -128, 127).astype(np.int8))
    print(PLACES.tolist())


def image(path, *casa):
    """Images of the file, away from the source, show it at its place."""
    from astropy import units as u
    from astropy.coordinates import AltAz, SkyCoord
    from astropy.io import fits
    from astropy.time import Time
    from astropy.wcs import WCS
    from pyuvdata import UVData

    data = UVData.from_file(path)
    place = AltAz(
        az=AZIMUTH * u.rad,
        alt=ELEVATION * u.rad,
        obstime=Time(data.time_array.mean(), format="jd"),
        location=data.telescope.location,
    )
    place = SkyCoord(place).icrs
    # The phase centre is 10 degrees away in both directions; mirrored images would be 20 degrees off.
    data.select(freq_chans=np.arange(10, 60))
    centre = SkyCoord(place.ra + 10 * u.deg, place.dec - 10 * u.deg)
    data.phase(lon=centre.ra.rad, lat=centre.dec.rad, cat_name="field", phase_frame="icrs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data.write_ms("field.ms")
        data.write_uvfits("field.uvfits")
    sets = ["field.ms"]
    if casa:
        from casatasks import importuvfits

        importuvfits(fitsfile="field.uvfits", vis="casa.ms")
        sets.append("casa.ms")
    for n, name in enumerate(sets):
        command = ["wsclean", "-quiet", "-name", f"image{n}", "-size", "240", "240", "-scale", "0.25deg"]
        command += ["-niter", "0", "-pol", "i", "-no-update-model-required", "-j", "1", name]
        subprocess.run(command, check=True, stdout=sys.stderr)
        with fits.open(f"image{n}-image.fits") as file:
            pixels, wcs = file[0].data[0, 0], WCS(file[0].header).celestial
        row, column = np.unravel_index(np.argmax(pixels), pixels.shape)
        found = wcs.pixel_to_world(column, row).transform_to("icrs")
        apart = found.separation(place).deg
        print(f"{name}: brightest {pixels[row, column]:.2f} at {found.to_string('decimal')}, {apart:.2f} degrees from the source")
        assert apart < 0.5, name
        # The autocorrelations have the noise of source and receiver, the baselines that of the source.
        assert pixels[row, column] > 0


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
