"""Row 20: servers, workers and the driver of an asynchronous training are killed."""

import json
import os
import random
import signal
import sys
import threading
from dataclasses import replace

import pytest

import programs
from builders import blobs_in, keywords, killed
from gangs import ranks
from mapreduce.plan.settings import Settings
from mapreduce.runs import pushes
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.strategies import arrivals, replicas
from mapreduce.training import creating, driver
from mapreduce.training.replaying import replay

pytestmark = pytest.mark.fault

#: Three pages of parameters, so that there are three servers.
SETTINGS = Settings(
    "dense:600,batchnorm,relu,dropout:0.5",
    **keywords("strategy=downpour asynchronous=True optimizer=adam learning_rate=0.002 replicas=4"),
    **keywords("batch_size=32 slice_rows=8 rounds=300 checkpoint_every=120"),
)

data = blobs_in(train=(64, 48, 33), features=60)


def logged(run: RunDir) -> int:
    """Gradients that were applied to the first block; there are some 1,150 in the end."""
    return sum(path.read_bytes().count(b"\n") for path in run.path.glob("pushes/*.00000-of-*"))


def require_each_gradient_once(run):
    """Require that the log has each gradient once, in each block; returns their number."""
    plan, known, applied = run.config.plan, pushes.starts(run), 0
    for start, blocks in known.items():
        stop = min([at for at in known if at > start] or [plan.rounds])
        units = sum(replicas.count(plan, at) for at in range(start, stop))
        script = pushes.read(run, start, blocks, units)
        assert [sorted(order) for order in script.orders] == [[*range(units)]] * blocks
        applied += units
    assert applied == sum(replicas.count(plan, at) for at in range(plan.rounds))
    return applied


@pytest.mark.slow
def test_killed_ranks_are_replaced_and_the_log_replays(data, tmp_path, monkeypatch):
    """kill -9 of three ranks, where stretches end by time, and so are published, all the time."""
    monkeypatch.setattr(arrivals, "_STRETCH_SECONDS", 0.05)
    monkeypatch.setattr(arrivals, "_STRETCH_UNITS", 0)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, victims = random.Random(seed), []
    settings = replace(SETTINGS, rounds=100, checkpoint_every=40)
    run = creating.create(tmp_path / "run", settings, data, None)
    # A task that is lost four times ends its job.
    moments = sorted(chance.sample(range(1, 300), 3))
    (marks := tmp_path / "marks").mkdir()

    def append(log, applied, append=pushes.Log.append):
        # The log waits for each kill, however late that is.
        due = sum(moment <= logged(run) for moment in moments)
        programs.wait_until(lambda: len([*marks.iterdir()]) >= due)
        append(log, applied)

    monkeypatch.setattr(pushes.Log, "append", append)

    def kill():
        for moment in moments:
            programs.wait_until(lambda at=moment: logged(run) >= at and ranks())
            victim = chance.choice(sorted(ranks()))
            os.kill(victim, signal.SIGKILL)
            victims.append(victim)
            (marks / str(moment)).touch()

    thread = threading.Thread(target=kill)
    thread.start()
    execution = Execution("parallel", 3, executor="gang", blocks=3)
    events = []
    ended = driver.train(run, execution, 3, Events(events.append))
    thread.join(programs.PATIENCE)
    told = [event.completed for event in events if isinstance(event, RoundCompleted)]
    assert told == [*range(1, 101)]
    assert len(victims) == 3
    require_each_gradient_once(run)
    again = replay(run, tmp_path / "again", replace(execution, workers=2), Events())
    assert again.model_sha256 == ended.model_sha256


#: ``gradreduce`` that goes on for ever, once the log has more than so many gradients.
STAYING = """\
import sys, time
from mapreduce.cli.main import main
from mapreduce.runs.pushes import Log

most = int(sys.argv.pop(1))


def append(log, pushes, append=Log.append):
    logs = log._path.parent
    while sum(path.read_bytes().count(b"\\n") for path in logs.glob("*.00000-of-*")) > most:
        time.sleep(0.01)
    append(log, pushes)


Log.append = append
sys.exit(main())
"""


@pytest.mark.slow
def test_the_log_of_a_run_that_was_killed_is_whole_and_replays(data, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    run, chance = creating.create(tmp_path / "run", SETTINGS, data, None), random.Random(seed)

    def how():
        workers, blocks = chance.randint(2, 4), chance.randint(1, 3)
        return ["--executor", "gang", "--workers", workers, "--blocks", blocks]

    moments = chance.sample(range(30, 900), 4)

    def program(moment):
        return [sys.executable, "-c", STAYING, moment]

    kills = [*killed(run, str(tmp_path), moments, chance, how, lambda: logged(run), program)]
    assert kills == [True] * 4
    shown = json.loads(programs.succeed("resume", run.path, "--json"))
    applied = require_each_gradient_once(run)
    again = json.loads(programs.succeed("replay", run.path, "--workers", 3, "--json"))
    assert again["model_sha256"] == shown["model_sha256"]
    assert again["pushes"] == applied


@pytest.mark.slow
def test_a_full_disk_loses_nothing(data, tmp_path):
    with programs.mounted(tmp_path / "disk", "1500k") as disk:
        settings = replace(SETTINGS, model="softmax", replicas=8, slice_rows=4, rounds=800)
        run = creating.create(disk / "run", replace(settings, checkpoint_every=800), data, None)
        filler = disk / "filler"
        filler.write_bytes(bytes(1440 << 10))
        full = programs.gradreduce("resume", run.path, "--workers", 2)
        # Mostly it is the log, seldom the state at the end of a stretch.
        assert full.returncode in (73, 74)
        assert ": No space left on device. Free some space there" in full.stderr
        assert logged(run) > 100
        filler.unlink()
        programs.succeed("resume", run.path, "--workers", 3)
        require_each_gradient_once(run)
        programs.succeed("replay", run.path, "--workers", 2)
