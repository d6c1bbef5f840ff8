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
        "downpour": "mapreduce.strategies.downpour.downpour:Downpour",
    },
    base="mapreduce.strategies.base:Strategy",
    declarations={
        "averaging": "mapreduce.strategies.options:AveragingOptions",
        "tournament": "mapreduce.strategies.options:TournamentOptions",
        "downpour": "mapreduce.strategies.options:DownpourOptions",
    },
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

#: What a strategy may name: :attr:`mapreduce.strategies.base.Strategy.takes`.
OPTIONAL = (*OPTIMIZING, *(row.name for row in STRATEGIES.options))


#: Between the name of an array and the number of the unit that owns it.
_OWNER = "@"


def owned_name(name: str, unit: int) -> str:
    """The name, in the state of a training, of an array that a unit owns."""
    return f"{name}{_OWNER}{unit}"


def owner(name: str) -> tuple[str, int] | None:
    """An owned array's own name, and the unit that owns it; None if nobody does."""
    found, _, unit = name.rpartition(_OWNER)
    return (found, int(unit)) if found else None


def find(spec: str) -> type[Any]:
    """The class of a strategy; errors are those of :meth:`Registry.configured`."""
    kind: type[Any] = STRATEGIES.load(spec)
    return kind
