"""The executors of rounds, by name. ``--help`` needs them, so it imports nothing slow."""

from importlib import import_module
from typing import Any

from mapreduce.support import trust
from mapreduce.support.registry import Registry

EXECUTORS = Registry(
    "executor",
    "gradreduce.executors",
    {
        "chain": "mapreduce.executors.chain:Chain",
        "gang": "mapreduce.executors.gang.job:Gang",
        "here": "mapreduce.executors.here:InProcess",
    },
    base="mapreduce.executors.resumable:Resumable",
    also=("auto",),
    declarations={
        "chain": "mapreduce.executors.options:ChainOptions",
        "gang": "mapreduce.executors.options:GangOptions",
    },
)


def kind_of(spec: str | None) -> Any:
    """The class of an executor, which says what the executor can do.

    The common base class stands for an executor that nobody has chosen or trusted yet.
    """
    module, _, base = EXECUTORS.base.partition(":")
    common: Any = getattr(import_module(module), base)
    name = EXECUTORS.split(spec)[0] if spec else ""
    if not name or (":" in name and name not in trust.trusted()):
        return common
    found = EXECUTORS.find(name)
    return found if isinstance(found, type) else common
