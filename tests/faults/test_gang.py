"""Row 19: tasks of a gang are killed and stopped, and its driver; nothing is lost but seconds."""

import os
import random
import re
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import programs
from builders import blobs_in, keywords
from gangs import ranks
from mapreduce.executors.gang import rank, rounds
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RoundCompleted, Warned
from mapreduce.runs.execution import Execution
from mapreduce.support.phases import ROUND
from mapreduce.timing.reading import read
from mapreduce.training import creating, driver
from programs import fails
from quick import first_of

pytestmark = pytest.mark.fault

SETTINGS = Settings(
    **keywords("model=mlp:9 optimizer=adam batch_size=96 slice_rows=12 rounds=2000"),
    **keywords("checkpoint_every=200 eval_every=300"),
)
data = blobs_in(train=(200, 170, 97), test=(60,))


def create(data: Path, path: Path) -> RunDir:
    return creating.create(path, SETTINGS, data / "train", data / "test")


@pytest.fixture(scope="module")
def undisturbed(data):
    # One rank, since a chain takes long; other tests hold the two equal.
    run = create(data, data / "undisturbed")
    execution = Execution("inline", executor="gang")
    return driver.train(run, execution, 3, Events()).model_sha256


def generations(run: RunDir) -> int:
    names = [path.name.split(".") for path in (run.path / "gang").glob("*.json")]
    return max((int(name[1]) for name in names if name[1].isdigit()), default=0)


class Disturbed:
    """A training in this process, and a thread that disturbs it after certain rounds.

    No rank goes on from such a round before the disturbance, nor from the next one before the
    thread has seen the new generation, however late the thread is.
    """

    def __init__(self, run, moments, disturb, monkeypatch):
        self.run, self.moments, self.disturb = run, moments, disturb
        self.generations = []
        self.failed = None
        self._marks = Path(f"{run.path}-marks")
        self._marks.mkdir()
        done = rank.Rank._done

        def wait(one, completed):
            done(one, completed)
            if completed in moments:
                self._mark("reached", completed).touch()
                programs.wait_until(self._mark("disturbed", completed).exists)
            if completed - 1 in moments:
                programs.wait_until(self._mark("seen", completed - 1).exists)

        monkeypatch.setattr(rank.Rank, "_done", wait)

    def _mark(self, name, moment):
        return self._marks / f"{name}-{moment}"

    def train(self, workers, blocks, stages=1):
        thread = threading.Thread(target=self._watch)
        events = []
        how = {
            "blocks": blocks,
            "stages": stages,
            "executor": "gang",
            "gang_wait": programs.PATIENCE,
            "trace": True,
        }
        execution = Execution("parallel", workers, **how)
        thread.start()
        try:
            ended = driver.train(self.run, execution, 3, Events(events.append))
        finally:
            thread.join(programs.PATIENCE)
        assert self.failed is None, self.failed
        told = [event.completed for event in events if isinstance(event, RoundCompleted)]
        assert told == list(range(1, self.run.config.plan.rounds + 1))
        self.warnings = [event.message for event in events if isinstance(event, Warned)]
        return ended.model_sha256

    def _watch(self):
        try:
            for moment in self.moments:
                programs.wait_until(self._mark("reached", moment).exists)
                before = generations(self.run)
                self.disturb()
                self._mark("disturbed", moment).touch()
                programs.wait_until(lambda before=before: generations(self.run) > before)
                self.generations.append(generations(self.run))
                self._mark("seen", moment).touch()
        except BaseException as error:
            self.failed = error


@pytest.mark.parametrize(("workers", "blocks"), first_of((2, 1), (4, 2), (3, 1)))
def test_killed_ranks_are_replaced(data, undisturbed, tmp_path, monkeypatch, workers, blocks):
    """kill -9 at three rounds of a seeded schedule, each time another rank, perhaps rank 0."""
    monkeypatch.setattr(rounds, "PUBLISH_SECONDS", 0.02)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    moments = [chosen.randrange(first, first + 200) for first in (1, 701, 1301)]

    def kill():
        os.kill(chosen.choice(sorted(ranks())), signal.SIGKILL)

    disturbed = Disturbed(create(data, tmp_path / "run"), moments, kill, monkeypatch)
    assert disturbed.train(workers, blocks) == undisturbed
    assert len(disturbed.generations) == 3
    # Who is lost again within a second is not told twice; who is missing for longer, is.
    last = rf"as generation {disturbed.generations[-1]}: "
    (told,) = [warning for warning in disturbed.warnings if last in warning]
    if f"{last}{workers} of {workers} " in told:
        lost = (
            rf"the gang lost rank \d\. All go on after round [\d,]+, {last}\d of \d ranks are there"
        )
        assert re.fullmatch(lost, told)
        assert disturbed.warnings[-1] == told
    else:
        assert re.search(rf"{last}\d of {workers} ranks are there, and wait up to \d+ s for ", told)
        assert disturbed.warnings[-1] == f"all {workers} ranks of the gang are there again"
    assert not list((tmp_path / "run/gang").iterdir())
    # What each generation has noted, up to a second before its end, can be read.
    segments = read(tmp_path / "run").segments
    assert [int(each.name.rpartition(".")[2]) for each in segments][-1] == disturbed.generations[-1]
    last = segments[-1]
    assert all((events["code"] == ROUND).sum() == last.rounds > 0 for events in last.ranks)


@pytest.mark.slow
def test_killed_stages_are_replaced(data, tmp_path, monkeypatch):
    """kill -9 of one rank of each stage, of two groups: nobody else has its parameters."""
    monkeypatch.setattr(rounds, "PUBLISH_SECONDS", 0.02)
    plan = replace(SETTINGS, model="dense:900,tanh,dense:30,dropout:0.1", rounds=400)
    one = creating.create(tmp_path / "one", plan, data / "train", data / "test")
    expected = driver.train(one, Execution("inline", executor="gang"), 3, Events())
    victims = iter([0, 3])

    def kill():
        os.kill(sorted(ranks())[next(victims)], signal.SIGKILL)

    run = creating.create(tmp_path / "run", plan, data / "train", data / "test")
    disturbed = Disturbed(run, [20, 100], kill, monkeypatch)
    assert disturbed.train(4, 3, stages=2) == expected.model_sha256
    assert len(disturbed.generations) == 2


@pytest.mark.slow
def test_ranks_that_are_killed_leave_no_memory(data, tmp_path, monkeypatch):
    """Two blocks of a larger model, which all ranks have mapped when one is killed."""
    monkeypatch.setattr(rounds, "PUBLISH_SECONDS", 0.02)
    plan = replace(SETTINGS, model="mlp:1500", batch_size=48)
    chain = creating.create(tmp_path / "one", plan, data / "train", data / "test")
    expected = driver.train(chain, Execution("inline", executor="gang"), 3, Events())
    maps = []

    def kill():
        found = sorted(ranks())
        maps.append([Path(f"/proc/{pid}/maps").read_text() for pid in found])
        os.kill(found[1], signal.SIGKILL)

    run = creating.create(tmp_path / "run", plan, data / "train", data / "test")
    disturbed = Disturbed(run, [20, 500], kill, monkeypatch)
    assert disturbed.train(2, 2) == expected.model_sha256
    # It has no name, so it is gone with them.
    assert ["/memfd:gradreduce (deleted)" in text for found in maps for text in found] == [True] * 4
    assert ranks() == []


@pytest.mark.slow
def test_mrjobs_local_runner_with_too_few_cores_says_so_or_falls_back(data, tmp_path):
    few = ["--batch-size", 0, "--rounds", 1, "--executor", "gang", "-r", "local", "--workers", 2]
    one_core = ["--gang-wait", 3, "--", "--num-cores", 1]
    command = ["train", data / "train", "--run"]
    said = fails(1, *command, tmp_path / "error", *few, *one_core)
    last = said.splitlines()[-1]
    assert last.startswith("error: 1 of 2 tasks of the gang came within 3 s; missing: rank 1.")
    # mrjob's own processes end in silence.
    assert "Worker-1" not in said
    whole = programs.succeed(*command, tmp_path / "whole", *few, "--gang-wait", programs.PATIENCE)
    chain = programs.succeed(
        *command, tmp_path / "chain", *few, "--gang-fallback", "chain", *one_core
    )
    assert chain.splitlines()[-1] == whole.splitlines()[-1]
