"""Strategies by the name that ``--strategy`` takes."""

from typing import Any

from mapreduce.support.registry import Registry

STRATEGIES = Registry(
    "strategy",
    "gradreduce.strategies",
    {"sync": "mapreduce.strategies.sync.sync:Sync"},
    base="mapreduce.strategies.base:Strategy",
)


#: Settings that not every strategy uses: :attr:`mapreduce.strategies.base.Strategy.takes`.
OPTIONAL = (
    "optimizer",
    "momentum",
    "l1",
    "l2",
    "weight_decay",
    "clip_norm",
    "non_finite",
    "history_size",
    "tol",
    "precision",
)


def find(name: str) -> type[Any]:
    """The class of a strategy; errors are those of :meth:`Registry.load`."""
    kind: type[Any] = STRATEGIES.load(name)
    return kind
