"""Executions: options that executors and runners declare, by a name, by flags, by keywords."""

import json
from dataclasses import replace

import pytest

import datasets
from builders import create
from mapreduce.errors import UsageError
from mapreduce.executors.options import GangOptions
from mapreduce.executors.resumable import Resumable
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags
from mapreduce.runs.execution import Execution
from mapreduce.support import trust
from mapreduce.training import creating, driver, start
from quick import cases

OWN = """
from dataclasses import dataclass
from mapreduce.parts import Resumable, option

class Patient(Resumable):
    name = "patient"

    @dataclass(frozen=True)
    class Options:
        wait: float = option(10.0, "seconds to wait")

    def once(self, program):
        return []

    def go_on(self, *arguments):
        raise NotImplementedError
"""


@cases(
    "given, by_flags",
    ({"executor": "gang:wait=30"}, {"executor": "gang", "gang_wait": 30.0}),
    (
        {"executor": "gang:wait=5,fallback=chain,slow_worker=1:4", "workers": 2},
        {
            **{"executor": "gang", "gang_wait": 5.0, "gang_fallback": "chain"},
            **{"slow_worker": "1:4", "workers": 2},
        },
    ),
    ({"executor": "gang:wait=7", "gang_wait": 7.0}, {"executor": "gang", "gang_wait": 7.0}),
    (
        {"executor": "chain:fan_in=4", "rounds_per_job": 7},
        {"executor": "chain", "fan_in": 4, "rounds_per_job": 7},
    ),
    (
        {"runner": "parallel:start_method=forkserver"},
        {"runner": "parallel", "start_method": "forkserver"},
    ),
)
def test_options_after_a_name_are_those_of_flags(given, by_flags):
    assert flags.execution(given) == flags.execution(by_flags)


@cases(
    "given, message",
    ({"executor": "gang:wait=30", "gang_wait": 20.0}, "--gang-wait: expected one value, as 30.0"),
    ({"executor": "gang:wiat=30"}, "--executor gang: it has no option 'wiat'.*Did you mean wait"),
    ({"executor": "gang:wait=0"}, "option wait: expected a positive number of seconds"),
    ({"executor": "gang:fallback=stop"}, "option fallback: expected one of error, chain"),
    ({"executor": "chain:wait=3"}, "--executor chain: it has no option 'wait'"),
    ({"executor": "here:wait=3"}, "--executor here: expected no arguments, found 'wait=3'"),
    ({"executor": "chain", "stages": 2}, "--stages 2: expected --executor gang, found .* chain"),
    ({"runner": "parallel:start_method=spawn"}, "start_method: expected one of fork, forkserver"),
    ({"runner": "inline:start_method=fork"}, "--runner inline: expected no arguments"),
)
def test_options_that_do_not_do(given, message):
    with pytest.raises(UsageError, match=message):
        flags.execution(given)


def test_keywords_of_executors_are_attributes():
    how = Execution("parallel", 3, blocks=2, rounds_per_job=7, executor="gang", gang_wait=30.0)
    assert (how.rounds_per_job, how.fan_in, how.gang_wait, how.stages) == (7, 0, 30.0, 1)
    assert how.options(GangOptions).wait == 30
    other = replace(how, gang_wait=60.0)
    assert (other.rounds_per_job, other.gang_wait) == (7, 60)
    assert other == Execution("parallel", 3, blocks=2, rounds_per_job=7, executor="gang")
    assert hash(replace(other, gang_wait=30.0)) == hash(how)
    assert Execution(executor="gang:wait=30") == Execution(executor="gang", gang_wait=30.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'gang_wiat'"):
        Execution(gang_wiat=3)
    with pytest.raises(AttributeError, match="gang_wiat"):
        print(how.gang_wiat)


def test_an_executor_of_ones_own_has_options(tmp_path, monkeypatch):
    (tmp_path / "patience.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    for spec, wait in (("patience:Patient", 10), ("patience:Patient:wait=3", 3)):
        trust.trust(spec)
        found = Resumable.of(flags.execution({"executor": spec}))
        assert found.options.wait == wait
        # A script calls the class.
        assert type(found)(Execution(executor=spec)).options.wait == wait
    with pytest.raises(UsageError, match="--executor patience:Patient, option wait: expected"):
        Resumable.of(flags.execution({"executor": "patience:Patient:wait=long"}))


def test_a_resumed_run_keeps_and_replaces_options(tmp_path, monkeypatch):
    datasets.blobs(tmp_path / "data")
    run = create(tmp_path / "run", tmp_path / "data", Settings(rounds=2))
    how = flags.execution({"executor": "gang:wait=45", "workers": 2, "rounds_per_job": 9})
    creating.record(run, run.config.plan.about, how, 3, print)
    content = json.loads((run.path / "execution.json").read_bytes())
    assert (content["executor"], content["gang_wait"], content["rounds_per_job"]) == ("gang", 45, 9)
    seen = []
    monkeypatch.setattr(driver, "train", lambda run, how, *rest, **more: seen.append(how))
    for given in ({}, {"executor": "gang:wait=30"}, {"executor": "chain"}):
        start.resume(run, given, None, print)
    assert [(one.executor, one.gang_wait, one.rounds_per_job) for one in seen] == [
        ("gang", 45, 9),
        ("gang", 30, 9),
        ("chain", 45, 9),
    ]
