"""Products of gathered rows: every size of a tile, and bits that depend on a row alone."""

from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest

from arrays import normal
from kernels import dispatch
from kernels.cpu import tiles

pytestmark = pytest.mark.every_case


def looped(x, b, out, x_rows, out_rows, job, step):
    """One job by loops; every product and sum in float64."""
    x_at, b_at, out_at, count, vectors, add = job[:6]
    (first, a, f), (second, c, g), (third, d, h) = (job[6:9], job[9:12], job[12:15])
    for r in range(count):
        for j in range(vectors * step):
            total = float(out[out_at + out_rows[r] + j]) if add else 0.0
            for u, v, w in np.ndindex(first, second, third):
                left = x[x_at + x_rows[r] + u * a + v * c + w * d]
                total += float(left) * float(b[b_at + u * f + v * g + w * h + j])
            out[out_at + out_rows[r] + j] = total


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("add", [0, 1])
@pytest.mark.parametrize("loops", [(2, 3, 4), (1, 1, 9), (3, 0, 2)], ids=str)
def test_every_size_of_a_tile(dtype, vectors, add, loops):
    step = tiles.lanes(np.dtype(dtype).itemsize)
    columns, counts = vectors * step, range(2 * tiles.ROWS + 2)
    x, b = normal(1, 400, dtype), normal(2, 3 + 24 * columns, dtype)
    x_rows, out_rows = np.arange(len(counts)) * 23, np.arange(len(counts))[::-1] * (columns + 1)
    nest = (loops[0], 40, 12 * columns, loops[1], 7, 4 * columns, loops[2], 1, columns)
    jobs = np.array([(5, 3, 2, count, vectors, add, *nest) for count in counts])
    for job in jobs:
        out = normal(3, out_rows[0] + columns + 5, dtype)
        expected = out.astype("float64")
        tiles.gathered_products(x, b, out, x_rows, out_rows, job[None])
        looped(x, b, expected, x_rows, out_rows, job, step)
        rounding = 100 * np.finfo(dtype).eps
        np.testing.assert_allclose(out, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(("channels", "padding", "stride"), [(1, 0, 1), (3, 1, 1), (16, 1, 2)])
def test_a_row_has_the_same_bits_in_every_batch(channels, padding, stride):
    x, weight = normal(1, (15, 9, 9, channels)), normal(2, (3, 3, channels, 20))
    side = (9 + 2 * padding - 3) // stride + 1
    delta = normal(3, (15, side, side, 20))

    def computed(rows):
        forward, backward = (dispatch.get(name) for name in ("convolve", "convolve_input_gradient"))
        out, dx = np.empty_like(delta[rows]), np.empty_like(x[rows])
        forward(x[rows], weight, out, stride, padding)
        backward(delta[rows], weight, dx, stride, padding)
        return [row.tobytes() + other.tobytes() for row, other in zip(out, dx, strict=True)]

    together = computed(slice(0, 15))
    for size in (1, 2, 4, 7):
        parts = [computed(slice(start, start + size)) for start in range(0, 15, size)]
        assert list(chain.from_iterable(parts)) == together


def test_threads_do_not_share_their_memory():
    """Filters that do not fill vectors, and padding: all that is copied."""
    weight = normal(2, (3, 3, 2, 5))

    def computed(seed):
        x, out = normal(seed, (40, 12, 12, 2)), np.empty((40, 12, 12, 5), "float32")
        grad = np.empty_like(weight)
        dispatch.get("convolve")(x, weight, out, 1, 1)
        dispatch.get("convolve_weight_gradient")(x, out, grad, 1, 1)
        return out.tobytes() + grad.tobytes()

    expected = [computed(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(computed, range(8))) == expected
