"""The door for parts of one's own: every name, for Python and for type checkers."""

import ast
import importlib
import inspect
import subprocess
import sys

import pytest

from mapreduce import parts
from mapreduce.engine.program import PROGRAMS
from mapreduce.engine.registry import EXECUTORS
from mapreduce.errors import MemberError
from mapreduce.models import ESTIMATORS, MODELS
from mapreduce.models.base import Model
from mapreduce.optim import OPTIMIZERS
from mapreduce.optim.contract import Options
from mapreduce.plan.strategies import STRATEGIES
from mapreduce.support.traits import RUNNERS
from quick import cases


def test_every_name_is_what_its_module_has():
    assert {name for name in parts.__all__ if getattr(parts, name) is None} == set()
    assert parts.Model is Model
    assert parts.OptimizerOptions is Options
    assert {*parts.__all__} <= {*dir(parts)}


def test_all_names_at_once():
    names = {}
    exec("from mapreduce.parts import *", names)
    assert names.keys() - {"__builtins__"} == {*parts.__all__}


def test_one_list_for_python_and_for_type_checkers():
    """What ``__all__`` names is what is imported for type checkers, who find no other name."""
    nodes = ast.parse(inspect.getsource(parts)).body
    block, hidden = (node for node in nodes if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    assert ast.unparse(hidden.test) == "not TYPE_CHECKING"
    names = [alias.asname or alias.name for node in block.body for alias in node.names]
    assert sorted(names) == sorted(parts.__all__)


def test_a_mistyped_name_is_answered_with_the_right_one():
    with pytest.raises(ImportError, match=r"mapreduce.parts.*'Modle'. Did you mean Model\?"):
        from mapreduce.parts import Modle  # noqa: F401
    with pytest.raises(AttributeError, match="'xyzzy'"):
        _ = parts.xyzzy


def test_a_name_loads_its_module_alone():
    program = "import sys; from mapreduce.parts import events, option; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"mapreduce.support.options", "mapreduce.runs.events"} <= {*loaded}
    assert not {"numpy", "mrjob", "mapreduce.models.base"} & {*loaded}


@cases(
    "members",
    *(MODELS, ESTIMATORS, OPTIMIZERS, PROGRAMS, STRATEGIES, EXECUTORS, RUNNERS),
    ids=lambda members: members.kind,
)
def test_an_error_names_the_door_of_what_a_member_must_be(members):
    """By which a member of another kind is refused: what to extend, and where it is."""
    module, _, base = members.base.partition(":")
    assert getattr(parts, base) is getattr(importlib.import_module(module), base)
    with pytest.raises(MemberError, match=rf"expected a mapreduce\.parts\.{base}, found 'text'"):
        members._check("mine:text", "text")
