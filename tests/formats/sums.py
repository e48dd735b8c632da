"""Computes sums, means and powers from recorded inputs, and compares the recorded outputs exactly."""

import numpy as np

ANTENNAS = np.array([[0, 0, 0], [40, 10, 0], [900, -200, 3], [-2600, 1500, -8], [4000, 9000, 20]], float)
checked = []


def load(name):
    """Values, with a last axis of real and imaginary parts if they are integers, and counts."""
    file = np.load(f"{name}.npz")
    return file["data"], file["validity"].astype(np.int64)


def equal(name, values, counts):
    found, found_counts = load(name)
    assert found.dtype in (np.complex64, np.float32), found.dtype
    values = np.asarray(values, found.dtype)
    np.testing.assert_array_equal(found.reshape(values.shape), values, err_msg=name)
    np.testing.assert_array_equal(found_counts.reshape(np.shape(counts)), counts, err_msg=name)
    # The recording has both complete and missing data.
    assert np.abs(values).max() > 0, name
    checked.append(name)


def divided(sums, counts):
    """Means in single precision; 0 where nothing is counted."""
    counts = np.broadcast_to(counts, sums.shape)
    means = np.divide(sums, counts, out=np.zeros(sums.shape, sums.dtype), where=counts > 0)
    return means.astype(np.complex64)


def integer_sums(values, counts, dumps, channels):
    """Sums of integers [dump][channel][baseline][product][part], with counts [dump][baseline]."""
    times = len(values) // dumps
    values = values[: times * dumps].astype(np.int64) * (counts[: times * dumps] > 0)[:, None, :, None, None]
    sums = values.reshape(times, dumps, -1, channels, *values.shape[2:]).sum((1, 3))
    assert np.abs(sums).max() < 2**53
    return sums[..., 0] + 1j * sums[..., 1], counts[: times * dumps].reshape(times, dumps, -1).sum(1)


integers, counts = load("integers")
assert integers.dtype == np.int32 and (counts == 0).any() and (counts == 3).any()

# `mean`: 4 dumps, 3 channels. A count is that of all channels.
sums, of_sums = integer_sums(integers, counts, 4, 3)
equal("mean", divided(sums, 3 * of_sums[:, None, :, None]), of_sums)
assert len(np.unique(of_sums)) > 1

# `sum`: 2 dumps; `sum_mean`: 3 of these and 2 channels.
sums, of_sums = integer_sums(integers, counts, 2, 1)
equal("sum", sums.astype(np.complex64), of_sums)
partial = of_sums
sums = sums.astype(np.complex64).astype(np.complex128) * (partial > 0)[:, None, :, None]
sums = sums.reshape(4, 3, 12, 2, 15, 4).sum((1, 3))
of_sums = partial.reshape(4, 3, 15).sum(1)
equal("sum_mean", divided(sums, 2 * of_sums[:, None, :, None]), of_sums)
assert ((partial > 0) & (partial < 6)).any()

# `float_mean`: 3 dumps, 4 channels, added in this order in double precision; each value has a count.
floats, of_floats = load("floats")
of_floats = of_floats.reshape(floats.shape)
sums = np.zeros((4, 3, 6, 4), np.complex128)
of_sums = np.zeros(sums.shape, np.int64)
for dump in range(12):
    for channel in range(12):
        is_there = of_floats[dump, channel] > 0
        sums[dump // 3, channel // 4] += np.where(is_there, floats[dump, channel].astype(np.complex128), 0)
        of_sums[dump // 3, channel // 4] += of_floats[dump, channel]
assert (of_floats == 0).any()
equal("float_mean", divided(sums, of_sums), of_sums)

# `length1` to `length4`: the baselines whose decorrelation at the edge of the field allows this number of dumps.
pairs = [(a, b) for b in range(5) for a in range(b + 1)]
lengths = np.array([np.linalg.norm(ANTENNAS[a] - ANTENNAS[b]) for a, b in pairs])
hz = 1.4e9 + 11 / 24 * 1e8
turns = 7.292115e-5 * lengths * hz / 299792458.0 * np.sin(np.radians(0.5)) * 8.192
assert (4 * turns < 1).any()
allowed = np.ones(15, int)
for dumps in (2, 4):
    allowed[(dumps * turns < 1) & (1 - np.sinc(dumps * turns) <= 0.01)] = dumps
assert set(allowed) == {1, 2, 4}
for dumps in (1, 2, 4):
    sums, of_sums = integer_sums(integers, counts, dumps, 1)
    chosen = allowed == dumps
    expected = divided(sums, of_sums[:, None, :, None])[:, :, chosen]
    equal(f"length{dumps}", expected, of_sums[:, chosen])

# `power` and `stokes`: [frame][pol][spectrum][channel], integers as floats. A spectrum needs both polarisations.
data, validity = load("bytes")
data, validity = data.astype(np.int64), validity.reshape(6, 2, 48)
assert (validity == 0).any()


def products(x, y):
    """XX, YY and the Stokes parameters of integers [...][part], on a last axis."""
    xx, yy = (x**2).sum(-1), (y**2).sum(-1)
    # x conj(y).
    real, imaginary = (x * y).sum(-1), x[..., 1] * y[..., 0] - x[..., 0] * y[..., 1]
    return np.stack([xx, yy], -1), np.stack([xx + yy, xx - yy, 2 * real, 2 * imaginary], -1)


present = (validity > 0).all(1)
power, stokes = (p * present[..., None, None] for p in products(data[:, 0], data[:, 1]))
for name, values, spectra in (("power", power, 6), ("stokes", stokes, 4)):
    # [frame][sum][product][channel].
    sums = values.reshape(6, 48 // spectra, spectra, 26, -1).sum(2).swapaxes(2, 3)
    assert np.abs(sums).max() < 2**24
    equal(name, sums, present.reshape(6, -1, spectra).sum(2))

# `powers`: 4 of the sums of `power`, 2 channels.
sums = power.reshape(6, 2, 24, 26, 2).sum(2)
sums = sums.reshape(6, 2, 13, 2, 2).sum(3).swapaxes(2, 3)
of_sums = present.reshape(6, 2, 24).sum(2)
expected = np.divide(sums, 2 * of_sums[..., None, None], where=(of_sums > 0)[..., None, None], out=np.zeros(sums.shape))
equal("powers", expected, of_sums)

# `incoherent` and `separate`: [frame][heap][antenna][channel][spectrum][pol].
data, validity = load("array")
data, present = data.astype(np.int64), validity.reshape(5, 2, 5) > 0
assert not present.all()
power, stokes = (p * present[..., None, None, None] for p in products(data[..., 0, :], data[..., 1, :]))
# [frame][heap][channel][sum][spectrum][product] to [frame][heap][sum][product][channel].
sums = stokes.sum(2).reshape(5, 2, 8, 2, 16, 4).sum(4).transpose(0, 1, 3, 4, 2)
equal("incoherent", sums.reshape(5, 4, 4, 8), 16 * present.sum(2).repeat(2, 1))
sums = power.reshape(5, 2, 5, 8, 2, 16, 2).sum(5).transpose(0, 2, 1, 4, 5, 3)
equal("separate", sums.reshape(5, 5, 4, 2, 8), 16 * present.swapaxes(1, 2).repeat(2, 2))

print(len(checked), "outputs are equal:", *checked)
