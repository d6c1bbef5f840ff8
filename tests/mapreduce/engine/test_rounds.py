"""Files of rounds: arrays that a round does not change stay in the file of an earlier one."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mapreduce.algorithms.boosting import Boosting, trees_of
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.engine.rounds import BLOCK, UNIT, Block, RoundFiles
from mapreduce.engine.state import InFolder
from mapreduce.errors import MissingInputError
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.reduction.message import Message, encode_parts, read_message
from mapreduce.runs.execution import Execution
from mapreduce.testing import Mixed
from quick import cases


def put(state, kind, completed, arrays):
    if kind == BLOCK:
        state.publish(completed, 0, Message({}, arrays))
    else:
        state.keep(completed - 1, 0, arrays)


def get(state, kind, completed):
    return state.block(completed, 0).arrays if kind == BLOCK else state.own(completed, 0)


def rounds_in(folder):
    return {int(path.name[:8]) for path in Path(folder).glob("*")}


@cases("kind", BLOCK, UNIT)
@given(
    rounds=st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(0, 1)), max_size=9),
    has_history=st.booleans(),
)
def test_what_is_read_is_what_was_published(kind, rounds, has_history):
    """Whatever changes when, and which of two processes does a round. What is there are the files
    that the last two rounds need, and no others.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = RoundFiles(Path(folder))
        processes = [InFolder(files, 1, 1) for _ in range(2)]
        arrays = {name: np.full(3, 0.5) for name in "abcd"}
        put(processes[0], kind, 0, arrays)
        written = last = dict.fromkeys(arrays, 0)
        for completed, (changed, process) in enumerate(rounds, 1):
            state = processes[process]
            arrays = {**get(state, kind, completed - 1)}
            arrays |= {name: np.full(3, float(completed)) for name in changed}
            if has_history:
                arrays["history"] = np.full((1, 3), float(completed))
            put(state, kind, completed, arrays)
            # A process that has just begun knows of it what it reads.
            found = files.read(completed, 0, 1, kind=kind)
            now = {*changed, *({"history"} & arrays.keys())}
            last, written = written, written | dict.fromkeys(now, completed)
            assert found.origins == written
            assert found.arrays.keys() == arrays.keys()
            for name, array in arrays.items():
                assert found.arrays[name].tobytes() == array.tobytes()
            assert files.read(completed, 0, 1, ["a"], kind).arrays.keys() == {"a"}
            assert read_message(files.path(completed, 0, 1, kind)).arrays.keys() == now
            needed = {completed - 1, completed, *last.values(), *written.values()}
            assert rounds_in(folder) == needed
        if kind == UNIT:
            put(processes[0], BLOCK, len(rounds), {})
        files.prune(len(rounds), 1)
        assert rounds_in(folder) == {len(rounds), *written.values()}


@cases("kind", BLOCK, UNIT)
def test_a_process_that_knows_an_earlier_round_than_the_last(tmp_path, kind):
    """An array that it has all the time is in no file any more."""
    files, array = RoundFiles(tmp_path), np.ones(2)
    first, second = (InFolder(files, 1, 1) for _ in range(2))
    put(first, kind, 0, {"a": array})
    for completed in (1, 2, 3):
        put(second, kind, completed, {"a": np.full(2, completed)})
    put(first, kind, 4, {"a": array})
    assert files.read(4, 0, 1, kind=kind).arrays["a"].tolist() == [1, 1]


@cases("kind", BLOCK, UNIT)
def test_rounds_that_need_a_file_that_was_removed_are_not_whole(tmp_path, kind):
    """As if files of earlier rounds were deleted too soon."""
    files = RoundFiles(tmp_path)
    state = InFolder(files, 1, 1)
    for completed in range(4):
        for each in (UNIT, BLOCK):
            changed = np.full(2, float(completed))
            same = get(state, each, completed - 1)["same"] if completed else np.ones(2)
            put(state, each, completed, {"same": same, "changed": changed})
    assert files.latest_whole(1, 1) == 3
    files.path(0, 0, 1, kind).unlink()
    assert files.latest_whole(1, 1) is None
    with pytest.raises(MissingInputError, match=r"00000000.00000-of-00001.* does not exist: "):
        InFolder(files, 1, 1).own(3, 0) if kind == UNIT else InFolder(files, 1).block(3, 0)


@cases("kind", BLOCK, UNIT)
def test_a_damaged_file_that_nobody_needs_stops_nobody(tmp_path, kind):
    files = RoundFiles(tmp_path)
    for completed in range(3):
        put(InFolder(files, 1, 1), kind, completed, {"a": np.full(2, completed)})
    files.path(1, 0, 1, kind).write_bytes(b"GRW1")
    state = InFolder(files, 1, 1)
    put(state, kind, 3, get(state, kind, 2))
    assert files.read(3, 0, 1, kind=kind).origins == {"a": 2}


def test_files_that_the_last_round_needs_are_kept(tmp_path, forgotten):
    files, blocks = RoundFiles(tmp_path), 2
    state = InFolder(files, blocks, 5)
    Here(state).advance(Mixed(), until=2)
    assert files.needed(2, 0, blocks) == {0, 2}
    # A task of round 3 that has not read the block is killed after the first of two.
    other = InFolder(files, blocks, 5)
    other.publish(3, 0, state.block(2, 0))
    assert files.latest_whole(blocks) == 2
    # One that goes on after an error begins with an earlier round.
    again = InFolder(files, blocks, 5)
    again.publish(5, 1, state.block(2, 1))
    files.path(5, 1, blocks).unlink()
    again.publish(3, 1, state.block(2, 1))
    assert files.latest_whole(blocks) == 3


def test_units_of_the_version_before(tmp_path):
    """Their files have all that a unit owns."""
    files, array = RoundFiles(tmp_path), np.arange(3.0)
    old = Message({"completed": 4, "unit": 0, "units": 1}, {"a": array})
    files.path(4, 0, 1, UNIT).write_bytes(b"".join(map(bytes, encode_parts(old))))
    files.publish(4, 0, 1, Block.of(4, {"a": array}))
    files.prune(4, 1)
    assert files.latest_whole(1, 1) == 4
    state = InFolder(files, 1, 1)
    state.keep(4, 0, state.own(4, 0))
    assert read_message(files.path(5, 0, 1, UNIT)).arrays == {}
    assert state.own(5, 0)["a"].tolist() == [0, 1, 2]


@cases("name", "inline", "parallel")
def test_margins_are_written_once_a_tree(tmp_path, monkeypatch, name):
    x = np.arange(60, dtype=np.float32).reshape(30, 2) % 7
    rows = Rows(x, np.float64(x[:, 0] * x[:, 1]))
    import_rows(Source([rows], (2,), 1.0, x.nbytes, {}), tmp_path / "data", 0)
    monkeypatch.setattr(Boosting, "unit_rows", 16)
    options = {"features": 2, "classes": 0, "trees": 2, "leaves": 5, "least_rows": 1}
    program = Boosting.over(Dataset(tmp_path / "data"), **options)
    execution = Execution(name, 2, start_method="fork", rounds_per_job=1)
    chain = Resumable.of(execution, place=tmp_path / "rounds")
    files, written, plain = RoundFiles(tmp_path / "rounds"), {}, chain.go_on

    def go_on(program, state, completed, **more):
        written[completed] = {*read_message(files.path(completed, 0, 2, UNIT)).arrays}
        return plain(program, state, completed, **more)

    monkeypatch.setattr(chain, "go_on", go_on)
    trees = trees_of(chain.advance(program).blocks[0].arrays)
    assert trees.tobytes() == trees_of(Here().advance(program).blocks[0].arrays).tobytes()
    scores = {"raw", "held"}
    assert [written.pop(completed) for completed in (0, 5)] == [scores] * 2
    (again,) = [completed for completed, arrays in written.items() if arrays]
    assert written[again] == scores
    assert len(written) > 6
