"""What executors have in common: what they must return."""

import pytest

import mapreduce
from builders import blobs_in
from mapreduce.errors import MemberError
from mapreduce.executors.here import InProcess
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
