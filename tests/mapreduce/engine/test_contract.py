"""The contract of programs is small, descriptions never change, and the earlier form runs on."""

import importlib
import warnings
from dataclasses import replace
from functools import cached_property

import pytest

import datasets
from mapreduce.data.shards import Dataset
from mapreduce.engine.executor import total
from mapreduce.engine.program import Concluding, EndsEarly, InBlocks, Owning, Program, Stateful
from mapreduce.engine.state import InMemory
from mapreduce.executors.chain import Chain
from mapreduce.executors.here import Here
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution
from mapreduce.strategies.program import Training
from mapreduce.support import trust
from mapreduce.testing import Mixed, Roots, check_executor, check_program
from mapreduce.training import creating


def methods(kind):
    return {name for name in dir(kind) if name[0] != "_" and callable(getattr(kind, name, None))}


def test_the_contract_is_small():
    assert len(methods(Program)) <= 5
    assert len(methods(Stateful) - methods(Program)) <= 3
    for capability in (EndsEarly, InBlocks, Owning, Concluding):
        assert len(methods(capability) - methods(Stateful)) <= 5


def test_a_description_never_changes(forgotten, tmp_path):
    program = Mixed(0.72)
    before = dict(vars(program))
    Here(InMemory(3)).advance(program)
    Chain(Execution("inline", 2, blocks=2), place=tmp_path).advance(program)
    memory = vars(program).pop("_memory")
    assert memory.shape == (5, 11)
    assert vars(program) == before


def test_what_no_program_has_is_an_error(forgotten):
    with pytest.raises(AttributeError, match="'Roots' object has no attribute 'begins'"):
        Roots(3).begins  # noqa: B018


class Misspells(Roots):
    @cached_property
    def rows(self):
        return self.count.real.length


def test_an_error_of_a_property_is_told():
    with pytest.raises(AttributeError, match="'int' object has no attribute 'length'"):
        Misspells(3).rows  # noqa: B018


@pytest.fixture(scope="module")
def earlier():
    with pytest.warns(FutureWarning, match=r"(KMeans|Squares): expected methods that take a"):
        return importlib.import_module("earlier_parts")


@pytest.fixture
def k_means(earlier, tmp_path, forgotten):
    data = datasets.blobs(tmp_path / "data").folder
    return earlier.KMeans(str(data), Dataset(data).manifest.sha256, clusters=3)


def centres(found):
    return found.completed, found.blocks[0].arrays["centres"].tobytes()


def test_a_program_of_the_earlier_form(k_means, earlier, tmp_path):
    """As it was read in docs/extending.md: it may end early, and asks its base if it is over."""
    check_program(k_means)
    expected = centres(Here().advance(k_means))
    assert 1 < expected[0] < k_means.limit
    for executor in ("chain", "gang"):
        how = Execution("parallel", 2, executor=executor, start_method="fork")
        assert centres(Chain.of(how, place=tmp_path / executor).advance(k_means)) == expected
    fewer = earlier.Fewer(k_means.data, k_means.sha256, k_means.clusters)
    assert centres(Here().advance(fewer)) == expected
    assert centres(Here().advance(replace(k_means, limit=1)))[0] == 1


def test_a_sum_of_the_earlier_form(earlier, forgotten):
    check_program(earlier.Squares(20))
    assert total(earlier.Squares(20), Here()) == sum(n**2 for n in range(20))


def test_an_executor_of_the_earlier_form(earlier, k_means, tmp_path):
    how = Execution("inline", workers=3, blocks=2)
    with pytest.warns(FutureWarning, match=r"call task\(state, layout\), which maps and reduces"):
        check_executor(lambda folder: earlier.Threads(how, place=folder))
        found = earlier.Threads(how, place=tmp_path / "rounds").advance(k_means)
    assert centres(found) == centres(Here().advance(k_means))


def test_a_strategy_of_the_earlier_form(earlier, tmp_path, forgotten):
    trust.trust("earlier_parts:ByText", "own_averaging:Averaging")
    data = datasets.blobs(tmp_path / "data", features=20).folder
    found = []
    for number, name in enumerate(("own_averaging:Averaging", "earlier_parts:ByText")):
        settings = Settings("mlp:1000", strategy=name, rounds=3, batch_size=64)
        training = Training.of(creating.create(tmp_path / f"{number}", settings, data, None))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            blocks = Here(InMemory(2)).advance(training).blocks
        found.append([block.arrays["params"].tobytes() for block in blocks])
    assert found[0] == found[1]
    texts = {str(each.message).partition(":")[0] for each in warned}
    assert texts == {"block_key", "block_of"}
    assert {each.filename for each in warned} == {earlier.__file__}
