"""Short trainings for the tests of strategies: their hash, their parameters, and one of a stop."""

from dataclasses import replace

import pytest

from mapreduce.errors import Interrupted
from mapreduce.runs import checkpoint
from mapreduce.runs.events import CheckpointSaved, Events
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

INLINE = Execution("inline")
GANG = Execution("parallel", start_method="fork", executor="gang")
#: A strategy has one hash with all of these, and with ``INLINE``.
EXECUTIONS = [
    Execution("inline", workers=3, blocks=3, rounds_per_job=2),
    *(
        replace(GANG, workers=count, blocks=min(count, 3), executor=how)
        for count in (1, 2, 3, 5)
        for how in ("chain", "gang")
    ),
]


def create(path, data, settings):
    """A run without evaluation that has not begun."""
    return driver.create(path, settings, data, None)


def plan_of(path, data, settings):
    return create(path, data, settings).config.plan


def trained(path, data, settings, execution=INLINE, *subscribers):
    """A run that has ended."""
    run = create(path, data, settings)
    driver.train(run, execution, 0, Events(*subscribers))
    return run


def sha256(run):
    return run.result().model_sha256


def train(path, data, settings, execution=INLINE):
    """The hash of a training."""
    return sha256(trained(path, data, settings, execution))


def params_of(path, data, settings):
    """The plan of a training, and the parameters in its end."""
    run = trained(path, data, settings)
    plan = run.config.plan
    return plan, checkpoint.load(run, plan.create_model(), plan.rounds).params


def resumed(path, data, settings, after=4):
    """A run that is stopped after a checkpoint, and goes on in a gang of other workers."""

    def stop(event):
        if isinstance(event, CheckpointSaved) and event.completed == after:
            raise Interrupted(2)

    run = create(path, data, settings)
    two = Execution("parallel", workers=2, blocks=2, rounds_per_job=1, start_method="fork")
    with pytest.raises(Interrupted):
        driver.train(run, two, 0, Events(stop))
    assert run.result() is None
    assert run.latest_round().completed == after
    driver.train(run, replace(GANG, workers=3, blocks=3), 0, Events())
    return run
