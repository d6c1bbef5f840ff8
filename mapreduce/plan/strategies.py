"""Strategies by the name that ``--strategy`` takes."""

from typing import Any

from mapreduce.support.registry import Registry

STRATEGIES = Registry(
    "strategy",
    "gradreduce.strategies",
    {
        "sync": "mapreduce.strategies.sync.sync:Sync",
        "averaging": "mapreduce.strategies.averaging.averaging:Averaging",
        "tournament": "mapreduce.strategies.tournament.tournament:Tournament",
    },
    base="mapreduce.strategies.base:Strategy",
)


#: Settings of the optimizer, which not every strategy uses.
OPTIMIZING = (
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

#: Settings of replicas, which not every strategy has.
REPLICATING = (
    "replicas",
    "local_steps",
    "replica_state",
    "elastic",
    "combine",
)

#: Settings of replicas that compete.
COMPETING = ("held_out", "spread")

#: What a strategy may name: :attr:`mapreduce.strategies.base.Strategy.takes`.
OPTIONAL = (*OPTIMIZING, *REPLICATING, *COMPETING)


def find(name: str) -> type[Any]:
    """The class of a strategy; errors are those of :meth:`Registry.load`."""
    kind: type[Any] = STRATEGIES.load(name)
    return kind
