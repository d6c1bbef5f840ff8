"""Modules that have moved are imported by their old names, too, with a warning."""

import importlib
import sys
import warnings

import pytest

from mapreduce.checking.checker import Checker
from mapreduce.engine.earlier import block_of
from mapreduce.engine.program import PROGRAMS
from mapreduce.explaining import summary
from mapreduce.support import moved, trust
from mapreduce.tables import standardise
from quick import cases


@pytest.fixture(autouse=True)
def forgotten():
    """Each test is the first that imports an old name."""
    for name in [name for name in sys.modules if moved.new_name(name)]:
        del sys.modules[name]


def imported(name):
    """A module, and where the warnings of its import are from, with their texts."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module = importlib.import_module(name)
    assert {one.category for one in told} == {FutureWarning}
    return module, [str(one.message) for one in told]


def test_a_module_is_the_very_one_that_has_moved():
    module, told = imported("mapreduce.tracing.summary")
    assert module is summary
    assert told[-1].startswith("mapreduce.tracing.summary is mapreduce.explaining.summary now: ")
    assert imported("mapreduce.algorithms.standardise")[0] is standardise


@cases(
    "old, new",
    ("tracing.laws", "checking.laws"),
    ("tracing.notebook", "checking.notebook"),
    ("tracing.outcomes", "checking.outcomes"),
    ("tracing.shrinking", "checking.shrinking"),
    ("tracing.verdicts", "checking.verdicts"),
    ("tracing.checking", "checking.checker"),
    ("tracing.picture", "explaining.picture"),
    ("algorithms.shuffle", "tables.shuffle"),
    ("strategies.leaf_ranges", "parts"),
)
def test_each_that_has_moved_is_there(old, new):
    module, told = imported(f"mapreduce.{old}")
    assert module is importlib.import_module(f"mapreduce.{new}")
    assert told[-1].startswith(f"mapreduce.{old} is mapreduce.{new} now: ")


def test_the_warning_points_at_the_import():
    with pytest.warns(FutureWarning, match="mapreduce.parts now") as told:
        from mapreduce.strategies.leaf_ranges import block_of as same
    assert same is block_of
    assert told[0].filename == __file__


def test_a_folder_within_a_folder_is_not_loaded_twice():
    module, _ = imported("mapreduce.tracing.training.replay")
    assert module is importlib.import_module("mapreduce.explaining.training.replay")
    with pytest.warns(FutureWarning):
        from mapreduce.tracing import checking
    assert checking.Checker is Checker


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_member_may_be_named_by_its_old_module():
    name = "mapreduce.algorithms.standardise:SumMoments"
    trust.trust(name)
    assert PROGRAMS.load(name) is standardise.SumMoments


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_others_are_missing_as_before():
    with pytest.raises(ModuleNotFoundError, match=r"'mapreduce\.traces'"):
        importlib.import_module("mapreduce.traces")
    with pytest.raises(ModuleNotFoundError, match=r"mapreduce\.explaining\.nonsense"):
        importlib.import_module("mapreduce.tracing.nonsense")
    assert moved.new_name("mapreduce.tables.shuffle") == moved.new_name("numpy") == ""
