"""A flagger of interference in NumPy, for the kind `python`.

The spectral kurtosis of Gaussian noise is 1 (G. M. Nita and D. E. Gary, PASP 122, 595, 2010); that of interference is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fxgraph.block import Block, Frame, Port, Range, live


@dataclass
class Flagger(Block):
    """Flags, and replaces with zeros, the channels of F-engine heaps whose spectral kurtosis is not that of noise."""

    sigma: Annotated[float, Range(1, 20), live] = 4.0

    def ports(self, inputs: Sequence[Port]) -> Port:
        return inputs[0].flagged_per("heap", "channel", "pol")

    def start(self, inputs: Sequence[Port], output: Port | None) -> None:
        m = self.spectra = inputs[0]["spectrum"]
        self.deviation = (4 * m**2 / ((m - 1) * (m + 2) * (m + 3))) ** 0.5
        self.parts = np.empty(inputs[0].array[1], np.float32)  # made once: `work` allocates nothing large

    def work(self, frame: Frame, out: Frame) -> None:
        np.square(frame.data, out=self.parts, dtype=np.float32)  # [heap][channel][spectrum][pol][re_im]
        power = self.parts[..., 0]
        power += self.parts[..., 1]
        m, s1, s2 = self.spectra, power.sum(axis=2), np.einsum("hcsp,hcsp->hcp", power, power)
        kurtosis = (m + 1) / (m - 1) * (m * s2 / np.maximum(s1, 1) ** 2 - 1)
        good = (abs(kurtosis - 1) < self.sigma * self.deviation) | (s1 == 0)
        good &= frame.validity[:, None, None] > 0  # missing heaps stay missing
        out.validity[...] = good
        np.multiply(frame.data, good[:, :, None, :, None], out=out.data)
