"""Reference of threshold_flagger.cu."""

import numpy as np


def threshold_flagger(frame, out, fx):
    is_above = (np.abs(frame.data) > np.float32(fx.threshold)).any(axis=0)
    is_flagged = is_above | (fx.held > 0)
    fx.held[...] = np.where(is_above, fx.hold, np.maximum(fx.held - 1, 0))
    fx.channels_flagged += int(is_flagged.sum())
    out.validity[is_flagged] = 0
    out.data[...] = np.where(out.validity == 0, np.float32(0), frame.data)
