"""Executor, workers, threads and blocks change at random rounds, and the driver is killed."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mapreduce.executors.gang.rendezvous import Times
from mapreduce.executors.gang.segment import Segment
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import choosing, driver

pytestmark = [pytest.mark.fault, pytest.mark.slow]

EXECUTION = Execution("parallel", auto=("executor", "workers", "threads", "blocks"))
PLANS = {
    "clipped adam": Settings(
        model="mlp:1200", optimizer="adam", clip_norm=1.0, batch_size=48, slice_rows=6, rounds=60
    ),
    "lbfgs": Settings(model="softmax", optimizer="lbfgs", l2=1e-3, slice_rows=16, rounds=25),
}


class RandomChooser(choosing.Chooser):
    """Takes any way for a few rounds; sometimes the driver is killed before it can."""

    rng = random.Random()
    is_first = False
    most_workers = 3

    def next(self, completed: int, left: int) -> tuple[Execution, Segment]:
        # The first driver does not get far.
        if self.rng.random() < 0.15 or (self.is_first and completed > 8):
            os.kill(os.getpid(), signal.SIGKILL)
        changed = replace(
            self._given,
            executor=self.rng.choice(["chain", "gang"]),
            workers=self.rng.randint(1, 3),
            threads=self.rng.randint(1, 2),
            blocks=self.rng.randint(0, 3),
        )
        rounds = self.rng.randint(1, 9)
        return changed.with_blocks_for(self._context.model), Segment(until=completed + rounds)

    def note(self, times: Times) -> None:
        pass

    def tell(self, completed: int) -> None:
        pass


def train(path: str, seed: str, attempt: str) -> None:
    """What the killed drivers run."""
    RandomChooser.rng.seed(f"{seed}, {attempt}")
    RandomChooser.is_first = attempt == "0"
    driver.Chooser = RandomChooser  # type: ignore[misc]
    driver.train(RunDir(Path(path)), EXECUTION, 3, Events())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_plans_hash_however_it_is_run(name, seed, tmp_path):
    import datasets

    datasets.blobs(tmp_path / "data")
    # Checkpoints are a few rounds apart, so that each kill costs rounds.
    settings = replace(PLANS[name], checkpoint_every=7)
    reference = driver.create(tmp_path / "reference", settings, tmp_path / "data", None)
    expected = driver.train(reference, Execution("inline"), 3, Events()).model_sha256
    run = driver.create(tmp_path / "run", settings, tmp_path / "data", None)
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        command = [sys.executable, "-P", __file__, str(run.path), f"{seed}", f"{len(codes)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        codes.append(done.returncode)
    assert codes[-1] == 0, done.stderr
    assert len(codes) > 1
    assert run.result().model_sha256 == expected


if __name__ == "__main__":
    train(*sys.argv[1:])
