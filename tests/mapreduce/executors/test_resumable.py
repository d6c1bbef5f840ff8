"""What executors have in common: what they must return."""

import pytest

import mapreduce
from builders import blobs_in
from mapreduce.errors import MemberError
from mapreduce.executors.here import InProcess
from mapreduce.parts import (
    QUIET,
    WHOLE,
    InMemory,
    Layout,
    Message,
    Times,
    blocks_of,
    leaf_ranges,
    reduced,
)
from mapreduce.runs.execution import Execution
from mapreduce.testing import check_executor

data = blobs_in(train=(60,))

OWN = """
from mapreduce.executors.here import InProcess

class Forgetful(InProcess):
    def go_on(self, *arguments, **more):
        super().go_on(*arguments, **more)
"""


class Forgetful(InProcess):
    def go_on(self, *arguments, **more):
        super().go_on(*arguments, **more)


class Blockless(InProcess):
    def once(self, program):
        super().once(program)


class Careless(InProcess):
    """Maps two ranges by one task, and reads the first messages after the second call."""

    def once(self, program):
        return self.round(program.task(InMemory(1), Layout(2, 1)), 0)

    def go_on(self, program, state, completed, limit=WHOLE, hooks=QUIET):
        task = program.task(state, Layout(2, state.count))
        blocks = blocks_of(program, self.round(task, completed), state.count)
        for number, block in enumerate(blocks):
            state.publish(completed + 1, number, block)
        return Times(completed=completed + 1)

    def round(self, task, completed):
        ranges = leaf_ranges(completed, task.program.units(completed), 2)
        pairs = [pair for part in ranges for pair in self.pairs(task, part)]
        phases = task.program.phases(completed, task.layout)
        return [*reduced(task, completed, phases, pairs)]

    def pairs(self, task, part):
        return task.map(part)


class Careful(Careless):
    def pairs(self, task, part):
        return [
            (key, Message(message.meta, {name: a.copy() for name, a in message.arrays.items()}))
            for key, message in task.map(part)
        ]


def test_an_executor_that_reads_arrays_too_late(tmp_path):
    how = Execution("inline", executor="here")
    check_executor(lambda folder: Careful(how, place=folder))
    with pytest.raises(AssertionError, match=r"Mixed.*blocks are those of one task"):
        check_executor(lambda folder: Careless(how, place=folder))


def test_an_executor_that_returns_no_blocks():
    said = r"Blockless: once returned None. Return the pairs of the last phase: a key \(block,\)"
    how = Execution("inline", executor="here")
    with pytest.raises(MemberError, match=said):
        check_executor(lambda folder: Blockless(how, place=folder))


def test_an_executor_that_returns_no_times(data, tmp_path, monkeypatch):
    said = r"Forgetful: go_on returned None. Return a mapreduce.parts.Times\(completed=N\)"
    how = Execution("inline", executor="here")
    with pytest.raises(MemberError, match=said):
        check_executor(lambda folder: Forgetful(how, place=folder))
    (tmp_path / "forgetful.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MemberError, match="forgetful:" + said):
        mapreduce.train(data, run=tmp_path / "run", rounds=2, executor="forgetful:Forgetful")
