"""Language models of bytes beside PyTorch, from equal parameters by the same plan.

The text is Python's own standard library, one file after the other; a tenth of it is held out. The
peer needs an environment of its own::

    export GRADREDUCE_TORCH=torch-env/bin/python
"""

import contextlib
import json
import math
import os
import platform
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import environment, folder, two_workers
from benchmarks.learning import rows_of, rows_of_rounds
from benchmarks.mnist import gradreduce
from benchmarks.paired import Result, in_turn
from mapreduce.data.shards import Dataset
from mapreduce.models.context import Context
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.training import creating, driver

_TORCH = "GRADREDUCE_TORCH"
_MODEL = "char-gru"
_TEXT = f"the first {{:,}} bytes of the standard library of Python {platform.python_version()}"


def _data(path: Path, size: int) -> None:
    """Import nine tenths of the text, and the tenth that is held out."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    content = b"".join(file.read_bytes() for file in files)[:size]
    cut = len(content) * 9 // 10
    for name, part in (("train", content[:cut]), ("test", content[cut:])):
        (path / f"{name}.txt").write_bytes(part)
        gradreduce("data", "import", path / f"{name}.txt", path / name, "--format", "text", "-q")


@contextlib.contextmanager
def _torch(path: Path, run: RunDir, threads: int) -> Iterator[Callable[[str], float]]:
    """PyTorch with the run's initial parameters and rows: what it answers to a line."""
    plan = run.config.plan
    model, schedule = plan.create_model(), plan.create_schedule()
    texts = [np.column_stack(rows_of(Dataset(path / name))) for name in ("train", "test")]
    np.savez(
        path / "arrays.npz",
        train=texts[0].astype(np.int64),
        tests=texts[1].astype(np.int64),
        rounds=rows_of_rounds(plan),
        rates=np.array([schedule(number) for number in range(plan.rounds)]),
        **model.named(model.init(plan.seed)),  # type: ignore[arg-type]
    )
    (path / "job.json").write_text(json.dumps({"threads": threads}))
    program = Path(__file__).parent / "peers" / "torch_characters.py"
    with subprocess.Popen(
        [os.environ[_TORCH], program, path],
        env=environment(threads),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(line: str) -> float:
            print(line, file=process.stdin, flush=True)
            return float(process.stdout.readline())

        yield ask
        process.stdin.close()


def characters(quick: bool) -> Result:
    """Bits a byte on held-out text beside PyTorch's."""
    size, epochs = (100_000, 1) if quick else (1_200_000, 3)
    title = "A language model of bytes: held-out text, beside PyTorch"
    if _TORCH not in os.environ:
        return Result(title, "", "", [], skipped={"all": f"{_TORCH} names no interpreter"})
    settings = Settings(
        _MODEL,
        optimizer="adam",
        learning_rate=0.004,
        schedule="cosine",
        batch_size=64,
        slice_rows=32,
        epochs=epochs,
    )
    with folder() as path:
        _data(path, size)
        run = creating.create(path / "run", settings, path / "train", None)
        driver.train(run, two_workers(), 1, Events())
        ours = json.loads(gradreduce("evaluate", run.path, path / "test", "--json"))["loss"]
        with _torch(path, run, 2) as ask:
            theirs = ask("learn")
    bits = [loss / math.log(2) for loss in (ours, theirs)]
    return Result(
        title,
        "bits a byte more than PyTorch's",
        f"`{_MODEL}` on {_TEXT.format(size)}, of which the last tenth is held out; {epochs} epochs "
        f"of batches of 64 rows of 64 bytes in slices of 32, Adam, cosine from 0.004. Bits a byte, "
        f"ours and PyTorch's with the same initial parameters, batches and learning rates: "
        f"{bits[0]:.4f} and {bits[1]:.4f}.",
        [bits[0] - bits[1]],
        limit=("", 0.02),
    )


def step(quick: bool) -> Result:
    """The time of a gradient beside PyTorch's, on one thread."""
    title = "The gradient of a language model of bytes, one thread"
    peer = "PyTorch"
    if _TORCH not in os.environ:
        return Result(title, "", "", [], skipped={peer: f"{_TORCH} names no interpreter"})
    settings = Settings(_MODEL, batch_size=128, slice_rows=32, rounds=1)
    with folder() as path:
        _data(path, 20_000 if quick else 100_000)
        run = creating.create(path / "run", settings, path / "train", None)
        plan = run.config.plan
        model, context = plan.create_model(), Context(training=True)
        params, total = model.init(plan.seed), np.empty(model.size, model.dtype)
        gradient = np.empty_like(total)
        data = Dataset(path / "train")
        slices = [data.shard(one.shard).rows(one.start, one.stop) for one in plan.slices(0)]

        def ours() -> float:
            started = time.perf_counter()
            total.fill(0)
            for rows in slices:
                model.gradient(params, rows, gradient, context)
                np.add(total, gradient, out=total)
            return time.perf_counter() - started

        with _torch(path, run, 1) as ask:
            ours(), ask("step")
            times, peers = in_turn(ours, {peer: lambda: ask("step")}, 3 if quick else 15)
    return Result(
        title,
        "s",
        f"`{_MODEL}`, 128 rows of 64 bytes: ours in four slices of 32, PyTorch's in one batch.",
        times,
        peers,
        limit=(peer, 1.2),
    )
