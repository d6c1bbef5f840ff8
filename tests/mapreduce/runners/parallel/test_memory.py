"""The largest process of a job stays within ``--memory``, whatever keys and values are."""

import subprocess
import sys

import pytest

from quick import cases

JOB = """
import sys
from mrjob.job import MRJob

class Job(MRJob):
    SORT_VALUES = {sort_values}

    def mapper(self, _, line):
        n = int(line)
        for i in range({each}):
            yield {pair}

    def reducer(self, key, values):
        yield None, sum(1 for _ in values)

if __name__ == "__main__":
    Job.run()
"""
SHAPES = {
    # Many segments are merged before they are reduced.
    "lists": (
        "(n * 100 + i) % 5000, list(range(n * 1000 + 10**6, n * 1000 + 10**6 + 1000))",
        100,
        False,
    ),
    "lists of one key": ("1, list(range(n * 1000 + 10**6, n * 1000 + 10**6 + 1000))", 100, False),
    "nested": ("i % 10, [[]] * 30", 10_000, False),
    "long keys": ("f'{i}-{n}-' + 'x' * 20_000, 1", 50, False),
    "long keys in lists": ("(f'{i}-{n}-' + 'x' * 20_000, 1), 1", 50, False),
    "sorted values": ("i % 97, f'{i}-{n}-' + 'x' * 2000", 500, True),
    "one key": ("1, i * n", 20_000, False),
    "many keys": ("i * 7919 + n * 104729, i", 20_000, False),
}
#: What a process has beside its records, in MiB.
BESIDE = 45


def largest_process(folder, body, numbers):
    """What a job writes, and MiB of the largest of its processes."""
    (folder / "job.py").write_text(body)
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(numbers)))
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-m", "gradreduce", "run", "job.py", "--no-conf", "-q"]
    options = ["--memory", "16", "--workers", "2", "-D", "mapreduce.job.reduces=1", "numbers"]
    done = subprocess.run(
        [sys.executable, "-c", program, *command, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, largest = done.stdout.split()
    # Linux counts in KiB, macOS in bytes.
    return lines, int(largest) / (1 << 20 if sys.platform == "darwin" else 1 << 10)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_process(shape, tmp_path):
    pair, each, sort_values = SHAPES[shape]
    body = JOB.format(pair=pair, each=each, sort_values=sort_values)
    lines, largest = largest_process(tmp_path, body, 60)
    assert sum(int(line) for line in lines if line != "null") == 60 * each
    assert largest <= 16 / 2 + BESIDE


@cases("value, copies", ("'x' * (32 << 20)", 2), ("['x' * (32 << 20)]", 3), ids=["text", "list"])
def test_of_a_large_value_there_are_few_copies(value, copies, tmp_path):
    body = JOB.format(pair=f"1, {value}", each=1, sort_values=False)
    body = body.replace("yield None, sum(1 for _ in values)", "yield from ((1, v) for v in values)")
    lines, largest = largest_process(tmp_path, body, 1)
    assert sum(map(len, lines)) > 32 << 20
    assert largest <= 32 * copies + BESIDE
