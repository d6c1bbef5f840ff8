"""Strategies by the name that ``--strategy`` takes."""

from typing import Any

from mapreduce.support.registry import Registry

STRATEGIES = Registry(
    "strategy",
    "gradreduce.strategies",
    {"sync": "mapreduce.strategies.sync.sync:Sync"},
    base="mapreduce.strategies.base:Strategy",
)


def find(name: str) -> type[Any]:
    """The class of a strategy; errors are those of :meth:`Registry.load`."""
    kind: type[Any] = STRATEGIES.load(name)
    return kind
