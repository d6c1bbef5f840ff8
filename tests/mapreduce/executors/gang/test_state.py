"""What a rank of a gang has of the state."""

from types import SimpleNamespace

import pytest

from mapreduce.engine.executor import publish_first
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import InFolder
from mapreduce.errors import GradreduceError
from mapreduce.executors.gang.state import GangState
from mapreduce.testing import Mixed
from quick import cases


class OneArray(Mixed):
    """Maps read one array of the state, and no vector."""

    def mapped(self):
        return ()

    def whole(self):
        return ("largest",)


@pytest.fixture
def load(tmp_path, forgotten):
    """A function that loads the first state of a program as a rank that reduces block 1 of 2."""

    def loaded(program):
        files = RoundFiles(tmp_path)
        publish_first(program, InFolder(files, 2, 5))
        state = GangState(files, SimpleNamespace(shared=None, ranks=2), program, 2)
        state.load(0, [1], range(0))
        for path in tmp_path.glob("*"):
            path.unlink()
        return state

    return loaded


@cases("program, sent", (Mixed(), {"x", "largest", "fixed"}), (OneArray(), {"largest"}))
def test_what_other_ranks_receive_of_a_block(load, program, sent):
    state = load(program)
    block = state.block(0, 1)
    state.publish(1, 0, block)
    state.publish(1, 1, block)
    first, second = state.news
    assert {*first.arrays} == sent
    # What is equal in all blocks comes with the first.
    assert {*second.arrays} == (sent if len(sent) > 1 else set())
    state.receive(1, [first, second])
    assert {*state.told(1)} == sent
    assert state.scalar(1, "largest").tolist() == [1.0]


def test_maps_that_read_what_they_do_not_name(load):
    state = load(OneArray())
    with pytest.raises(GradreduceError, match=r"'x' was read of all blocks: .*which are largest"):
        state.vector(0, "x")
