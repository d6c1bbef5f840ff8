"""The loop of the levels on Python's own lists, in threads; for any interpreter.

``python loop_on_lists.py FILE ROWS FEATURES SLICE_ROWS WORKERS`` reads rows, targets and weights as
float64, writes the gradients of all slices to standard output, also as float64, and the seconds
they took to standard error. It needs no package: a Python without a global interpreter lock may
have none.
"""

import sys
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def gradient(rows, targets, weights):
    """Gradient of half the squared error, summed over some rows."""
    out = [0.0] * len(weights)
    for row, target in zip(rows, targets):  # noqa: B905
        score = 0.0
        for value, weight in zip(row, weights):  # noqa: B905
            score += value * weight
        error = score - target
        for number, value in enumerate(row):
            out[number] += error * value
    return out


def main(path, count, features, slice_rows, workers):
    numbers = array("d")
    numbers.frombytes(Path(path).read_bytes())
    flat, rest = numbers[: count * features], numbers[count * features :]
    rows = [flat[at : at + features].tolist() for at in range(0, len(flat), features)]
    targets, weights = rest[:count].tolist(), rest[count:].tolist()

    def one(start):
        stop = start + slice_rows
        return gradient(rows[start:stop], targets[start:stop], weights)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda number: number, range(workers)))
        started = time.perf_counter()
        found = list(pool.map(one, range(0, count, slice_rows)))
        seconds = time.perf_counter() - started
    for part in found:
        sys.stdout.buffer.write(array("d", part).tobytes())
    sys.stderr.write(repr(seconds))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
