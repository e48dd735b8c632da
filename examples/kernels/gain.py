"""Reference of gain.cu."""

import numpy as np


def gain(frame, out, fx):
    np.multiply(frame.data, np.float32(fx.gain), out=out.data)
