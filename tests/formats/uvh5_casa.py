"""An image by CASA of the file of `uvh5_image.py`: `uvh5_casa.py FILE.uvfits RIGHT_ASCENSION DECLINATION`, and the right
ascension and declination of the centre of the image if that is not the phase centre of the file."""

import os
import sys
from pathlib import Path

import numpy as np

import casadata

Path("site.py").write_text(
    f"measurespath = {casadata.datapath!r}\ndatapath = [measurespath]\n"
    "data_auto_update = measures_auto_update = False\nnogui = True\nlogfile = 'casa.log'\n"
)
os.environ["CASASITECONFIG"] = str(Path("site.py").resolve())

from casatasks import importuvfits, tclean  # noqa: E402 - reads the configuration at once
from casatools import image  # noqa: E402

path, place, centre = sys.argv[1], [float(degrees) for degrees in sys.argv[2:4]], sys.argv[4:]
importuvfits(fitsfile=path, vis="casa.ms")
phasecenter = "ICRS {}deg {}deg".format(*centre) if centre else ""
tclean(
    vis="casa.ms", imagename="casa", imsize=240, cell="0.25deg", niter=0, stokes="I", specmode="mfs", phasecenter=phasecenter,
)
picture = image()
picture.open("casa.image")
pixels = picture.getchunk()
where = np.unravel_index(np.argmax(pixels), pixels.shape)
world = picture.toworld(list(where))["numeric"]
ra, dec = np.degrees(world[0]) % 360, np.degrees(world[1])
apart = np.hypot((ra - place[0]) * np.cos(np.radians(dec)), dec - place[1])
print(f"brightest {pixels[where]:.2f} at {ra:.2f} {dec:.2f}, {apart:.2f} degrees from the source")
assert apart < 0.5
