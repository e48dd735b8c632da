"""Reference of transpose_scale.cu."""

import numpy as np


def transpose_scale(frame, out, fx):
    np.multiply(frame.data.T, np.float32(fx.scale), out=out.data)
