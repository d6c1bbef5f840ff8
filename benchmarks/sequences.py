"""The gradient of a language model of bytes beside PyTorch's, from equal parameters.

The text is Python's own standard library, one file after the other. The peer needs an environment
of its own, whose interpreter ``GRADREDUCE_TORCH`` names.
"""

import subprocess
import sysconfig
from pathlib import Path

import numpy as np

from benchmarks.common import OURS, Bench, case, environment, gradreduce, rows_of, wall
from benchmarks.gang import PEERS
from benchmarks.paired import Timed
from mapreduce.data.shards import Dataset
from mapreduce.models.context import Context
from mapreduce.plan.settings import Settings, make

PEER = "PyTorch"


def library(size: int) -> bytes:
    """The first bytes of Python's standard library, one file after the other."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return b"".join(file.read_bytes() for file in files)[:size]


@case(
    "The gradient of a language model of bytes, one thread",
    repeats=(3, 15),
    limits=[((PEER,), 1.2)],
)
def step(bench: Bench) -> dict[str, Timed]:
    """The time of a gradient."""
    path = bench.path
    (path / "text.txt").write_bytes(library(bench.pick(20_000, 100_000)))
    gradreduce("data", "import", path / "text.txt", path / "data", "--format", "text", "-q")
    data = Dataset(path / "data")
    settings = Settings("char-gru", batch_size=128, slice_rows=32, rounds=1)
    plan = make(settings, data.manifest)
    model, context = plan.create_model(), Context(training=True)
    params, total = model.init(plan.seed), np.empty(model.size, model.dtype)
    gradient = np.empty_like(total)
    slices = [data.shard(one.shard).rows(one.start, one.stop) for one in plan.slices(0)]

    def ours() -> None:
        total.fill(0)
        for rows in slices:
            model.gradient(params, rows, gradient, context)
            np.add(total, gradient, out=total)

    ours()
    found: dict[str, Timed] = {OURS: lambda: wall(ours)}
    bench.note = (
        "`char-gru`, 128 rows of 64 bytes: ours in four slices of 32, PyTorch's in one batch."
    )
    if python := bench.interpreter("GRADREDUCE_TORCH", "torch", PEER):
        texts = np.column_stack(rows_of(data)).astype(np.int64)[:128]
        np.savez(path / "arrays.npz", texts=texts, **model.named(params))  # type: ignore[arg-type]
        command = [python, PEERS / "torch_characters.py", path]
        peer = bench.enter(
            subprocess.Popen(
                command,
                env=environment(1),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert peer.stdin is not None and peer.stdout is not None

        def theirs() -> float:
            print(file=peer.stdin, flush=True)
            return float(peer.stdout.readline())

        theirs()
        found[PEER] = theirs
    return found
