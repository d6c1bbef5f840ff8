"""The steps of a chain: their number, how they divide their input, and rounds of one task."""

from dataclasses import replace

import pytest

from builders import blobs_in
from mapreduce.executors.chain import ChainJob
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.strategies.program import Training
from mapreduce.support import traits
from mapreduce.training import creating, driver
from quick import cases

SETTINGS = Settings("mlp:5", batch_size=96, rounds=4, checkpoint_every=3)

data = blobs_in(train=(200, 170, 97))


def trained(folder, name, settings, execution):
    """The digest of the model, and the steps of every job."""
    found = []

    class Watched(ChainJob):
        def steps(self):
            found.append(super().steps())
            return found[-1]

    run = creating.create(folder.parent / name, settings, folder, None)
    return driver.train(run, execution, 2, Events(), job_class=Watched).model_sha256, found


@cases(
    "name, settings",
    ("sgd", SETTINGS),
    ("lbfgs", replace(SETTINGS, optimizer="lbfgs", rounds=6, batch_size=0)),
)
# With a fan-in of 2 a round of a chain has several reduces.
@pytest.mark.parametrize("fan_in", [0, 2])
def test_a_task_that_does_whole_rounds_makes_the_same_bits(
    data, monkeypatch, name, settings, fan_in
):
    how = Execution("inline", fan_in=fan_in)
    expected, apart = trained(data, f"{name}-{fan_in}-apart", settings, how)
    costly = replace(traits.INLINE, joins_rounds=True)
    monkeypatch.setattr(Execution, "traits", costly)
    found, joined = trained(data, f"{name}-{fan_in}-joined", settings, how)
    assert found == expected
    assert all(step["reducer"] for job in apart for step in job)
    assert not any(step["reducer"] for job in joined for step in job)
    # A step is a whole round.
    steps, rounds = len(apart[0]), len(joined[0])
    assert steps > rounds if fan_in else steps == rounds


@pytest.mark.parametrize(("workers", "blocks"), [(2, 1), (1, 2)])
def test_rounds_of_several_tasks_or_blocks_have_a_reducer(data, monkeypatch, workers, blocks):
    costly = replace(traits.INLINE, joins_rounds=True)
    monkeypatch.setattr(Execution, "traits", costly)
    how = Execution("inline", workers, blocks=blocks)
    settings = replace(SETTINGS, model="mlp:2000")
    _, jobs = trained(data, f"reducer-{workers}-{blocks}", settings, how)
    assert all(step["reducer"] for job in jobs for step in job)


@pytest.mark.parametrize(("tasks", "maps"), [(1, 1), (3, 3), (9, 6)])
def test_a_step_asks_for_no_more_map_tasks_than_there_are_ranges(data, tasks, maps):
    run = creating.create(
        data.parent / f"maps-{tasks}", replace(SETTINGS, slice_rows=16), data, None
    )
    program = Training.of(run).describe()
    job = ChainJob(["--program", program, "--stop", "2", "--tasks", str(tasks)])
    for step in job.steps():
        assert step["jobconf"]["mapreduce.job.maps"] == maps
        assert step["jobconf"]["mapreduce.input.lineinputformat.linespermap"] == 1
